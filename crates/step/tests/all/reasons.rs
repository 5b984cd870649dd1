//! What a printed program says beside its operations: why it communicates, in lines that fit.

use quadrille_spec::{Layout, LayoutRequest, Linear, Model, NormedOver, QueryKeyNorm, Recompute};
use quadrille_step::{Layer, Shown, StepProgram, print_part, print_program};

fn program_of(model: &Model, grid: &str, change: impl FnOnce(&mut LayoutRequest)) -> StepProgram {
    let mut request = LayoutRequest::new(grid.parse().unwrap(), 8);
    change(&mut request);
    StepProgram::new(model, &Layout::new(model, &request).unwrap()).unwrap()
}

fn tiny() -> Model {
    Model::preset("gpt-tiny").unwrap()
}

/// The reasons of a program.
fn reasons(program: &StepProgram) -> Vec<String> {
    let text = print_program(program);
    text.lines().filter_map(|line| line.trim_start().strip_prefix("why: ")).map(str::to_owned).collect()
}

#[test]
fn lines_fit_every_terminal() {
    for (grid, linear) in [("x=2,y=2", Linear::Pmm), ("x=2,y=2", Linear::Summa), ("z=2,data=2,pipe=2", Linear::Pmm)] {
        let program = program_of(&tiny(), grid, |request| request.linear = linear);
        for width in 60..=140 {
            let text = print_part(&program, &Shown { width: Some(width), ..Shown::default() });
            for line in text.lines() {
                // What is longer is one word.
                let is_word = !line.trim().contains(' ');
                assert!(line.chars().count() <= width || is_word, "{grid}, {width} columns: {line}");
            }
            let parts = text.lines().filter(|line| line.contains(" · forward") || line.contains(" · backward")).count();
            let is_header = |line: &&str| line.starts_with("   #  operation ") && line.ends_with(" sent, FLOP");
            assert!(text.lines().filter(is_header).count() >= parts, "every part has a header: {text}");
            assert!(text.contains("below an operation: how its value is sharded"), "{text}");
        }
    }
}

#[test]
fn a_layer_is_printed_with_its_own_messages() {
    let program = program_of(&tiny(), "pipe=2", |_| {});
    let [of_first, of_second] = [0, 1].map(|stage| {
        program.stages[stage].chunks[0].forward.receives.iter().map(|message| message.layer).collect::<Vec<_>>()
    });
    assert!(of_first.is_empty() && !of_second.is_empty());
    let received = |layer| {
        let shown = Shown { stage: Some(1), layer: Some(layer), ..Shown::default() };
        print_part(&program, &shown).lines().filter(|line| line.trim_start().starts_with("receive")).count()
    };
    assert_eq!(received(of_second[0]), 1);
    assert_eq!(received(Layer::Head), 0);
}

#[test]
fn stages_have_no_other_tokens() {
    let told = |grid: &str, of: &str| {
        reasons(&program_of(&tiny(), grid, |_| {})).into_iter().find(|reason| reason.contains(of)).unwrap()
    };
    let alone = "along pipe only the last stage has losses";
    assert_eq!(told("pipe=2", "the loss of the step"), format!("{alone}: the loss of the step is the sum"));
    let both = told("data=2,pipe=2", "the loss of the step");
    assert!(both.starts_with(&format!("ranks along data have the losses of other tokens, and {alone}")), "{both}");
    assert!(!told("data=2", "the loss of the step").contains("pipe"));
    assert!(told("x=2", "norm of all").starts_with("of ranks along x each element of the gradient is counted by one"));
}

#[test]
fn ranks_have_other_heads_of_a_norm_that_all_heads_share() {
    let has_heads = |over| {
        let mut model = tiny();
        let rule = model.final_norm;
        model.blocks = model.blocks.each(|block| block.attention.qk_norm = Some(QueryKeyNorm { rule, over }));
        let told = reasons(&program_of(&model, "x=2,data=2", |_| {}));
        let ranks = "ranks along x have other heads, and ranks along data have other sequences";
        (told.iter().filter(|reason| reason.starts_with(ranks)).count(), told)
    };
    // Gammas and betas of queries and of keys, of each block.
    let (shared, told) = has_heads(NormedOver::Head);
    assert!(shared > 0 && shared % 4 == 0, "{shared}: {told:?}");
    assert_eq!(has_heads(NormedOver::AllHeads).0, 0);
}

#[test]
fn gathers_say_what_reads_them() {
    let has = |program: &StepProgram, begin: &str| reasons(program).iter().any(|reason| reason.starts_with(begin));
    let stored = program_of(&tiny(), "z=2", |_| {});
    assert!(has(&stored, "each rank along z stores a part of the table, and tokens look up"));
    assert!(has(&stored, "each rank along z stores a part of the weight, and its product"));
    // The backward pass gathers keys and values once more, and repeats the broadcasts of what is recomputed.
    let again = "again, since the forward pass has not kept it: ";
    let context = program_of(&tiny(), "context=2", |_| {});
    assert!(has(&context, &format!("{again}sequences are cut over context")));
    assert!(has(&context, "sequences are cut over context"));
    let summa = |recompute| {
        program_of(&tiny(), "x=2,y=2", |request| (request.linear, request.recompute) = (Linear::Summa, recompute))
    };
    let panel = |program: &StepProgram| has(program, &format!("{again}one rank along"));
    assert!(panel(&summa(Recompute::Full { every: 1 })) && !panel(&summa(Recompute::None)));
}
