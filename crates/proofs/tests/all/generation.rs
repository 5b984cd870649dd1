//! Generation: the tokens and logits that whole forward passes of the serial model give, in every layout, with ledgers as
//! predicted.

use proptest::test_runner::TestCaseError;
use quadrille_engine::{
    Cpu, Finish, ForwardOptions, GenerateOptions, GenerateOutcome, GeneratedSequence, GenerationPrograms, Sampling,
    Weights, generate_on_cpu, logits, logits_program,
};
use quadrille_oracle::{self as oracle, Batch};
use quadrille_proofs::{
    Case, combined_cases, described_cases, drawn, edited_stage, for_random, forward_options, layout_with, llama,
    mixture_of, model, replaced, vit,
};
use quadrille_spec::{Axis, Blocks, ElementType, Grid, Layout, LayoutRequest, Model, RandomStream};
use quadrille_step::{Operation, StepProgram, kind};

const SEED: u64 = 21;

fn gpt() -> Model {
    Model { seq_len: 24, ..model(3) }
}

/// Grouped keys, rotary positions, an untied head.
fn llama_model() -> Model {
    Model { seq_len: 24, ..llama(3) }
}

/// The same with a head that is the embedding table.
fn tied_llama() -> Model {
    Model { tied_head: true, ..llama_model() }
}

/// The same with windows in all blocks but the first.
fn windowed_llama() -> Model {
    let usual = llama_model();
    let mut windowed = *usual.blocks.first();
    windowed.attention.window = Some(WINDOW);
    let blocks = Blocks::new(*usual.blocks.first(), vec![windowed; usual.layers() - 1]);
    Model { blocks, ..usual }
}

/// Positions that later blocks of [`windowed_llama`] see.
const WINDOW: usize = 3;

/// Any layout of the grid that the model can be trained with: generation takes its ranks and its order of them.
fn layout(model: &Model, grid: &str) -> Layout {
    layout_with(model, grid, 48, |request| request.microbatch = None)
}

fn prompts(model: &Model) -> Vec<Vec<u32>> {
    let stream = RandomStream::new(SEED, "prompts");
    let token = |index: u64| stream.below(index, model.vocab as u64) as u32;
    [3, 9, 1].iter().enumerate().map(|(i, len)| (0..*len).map(|at| token(100 * i as u64 + at)).collect()).collect()
}

/// Logits of every position, by the serial model.
fn serial(model: &Model, weights: &oracle::Tensors, tokens: &[u32]) -> Vec<f64> {
    let targets = vec![0; tokens.len()];
    let samples = oracle::Samples::Tokens { inputs: tokens, targets: &targets };
    oracle::logits(model, weights, &Batch { samples, sequences: 1, seq_len: tokens.len() })
}

fn weights_of(model: &Model) -> oracle::Tensors {
    oracle::initial(model, SEED, true)
}

/// The likeliest tokens behind a prompt, each after a whole forward pass without a cache.
fn serial_greedy(model: &Model, weights: &oracle::Tensors, prompt: &[u32], count: usize) -> Vec<u32> {
    let mut tokens = prompt.to_vec();
    for _ in 0..count {
        let logits = serial(model, weights, &tokens);
        let newest = &logits[(tokens.len() - 1) * model.vocab..];
        let best = (0..model.vocab).reduce(|best, token| if newest[token] > newest[best] { token } else { best });
        tokens.push(best.unwrap() as u32);
    }
    tokens.split_off(prompt.len())
}

fn generated(model: &Model, grid: &str, options: &GenerateOptions, prompts: &[Vec<u32>]) -> GenerateOutcome {
    generated_by(model, &layout(model, grid), options, prompts)
}

/// The same in any layout.
fn generated_by(model: &Model, layout: &Layout, options: &GenerateOptions, prompts: &[Vec<u32>]) -> GenerateOutcome {
    let grid = layout.grid;
    let programs = GenerationPrograms::new(model, layout, options, prompts).unwrap();
    let mut told = vec![Vec::new(); prompts.len()];
    let mut tell = |sequence: usize, token: u32| {
        told[sequence].push(token);
        Ok(())
    };
    let outcome = generate_on_cpu(&programs, options, &forward_options(1), &drawn(SEED), prompts, &mut tell).unwrap();
    let tokens: Vec<_> = outcome.sequences.iter().map(|sequence| sequence.tokens.clone()).collect();
    assert_eq!(told, tokens, "{grid}");
    assert_eq!(outcome.difference, None, "{grid}");
    outcome
}

/// Every grid of x, y, z, context, data and pipe with so many ranks that the model allows.
fn grids(model: &Model, ranks: usize) -> Vec<String> {
    let mut grids = Vec::new();
    for (context, pipe) in [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2)] {
        if !ranks.is_multiple_of(context * pipe) {
            continue;
        }
        for grid in Grid::all(ranks / context / pipe) {
            let grid = grid.with(Axis::Context, context).and_then(|grid| grid.with(Axis::Pipe, pipe)).unwrap();
            let request = LayoutRequest { dtype: ElementType::F64, ..LayoutRequest::new(grid, 48) };
            if Layout::if_legal(model, &request).is_some() {
                grids.push(grid.to_string());
            }
        }
    }
    grids
}

#[test]
fn every_layout_draws_the_likeliest_tokens_of_the_serial_model() {
    for model in [gpt(), llama_model(), tied_llama(), windowed_llama()] {
        let prompts = prompts(&model);
        let weights = weights_of(&model);
        let expected: Vec<_> = prompts.iter().map(|prompt| serial_greedy(&model, &weights, prompt, 7)).collect();
        let mut tried = 0;
        for grid in [1, 2, 4, 8].iter().flat_map(|ranks| grids(&model, *ranks)) {
            let options = GenerateOptions { prompt_chunk: 4, ..GenerateOptions::greedy(7) };
            let outcome = generated(&model, &grid, &options, &prompts);
            let found: Vec<_> = outcome.sequences.iter().map(|sequence| sequence.tokens.clone()).collect();
            assert_eq!(found, expected, "{grid}");
            assert_eq!(outcome.decode_passes, 6);
            tried += 1;
        }
        assert!(tried > 40, "{tried} grids");
    }
}

/// In the last pass sequences of 3, 9 and 1 tokens and five more have one new token each: it sees 9, 15 and 7 positions, and three where
/// there are windows. Each is `4 h` FLOPs.
#[test]
fn generated_tokens_count_the_keys_of_their_windows() {
    let model = windowed_llama();
    let outcome = generated(&model, "x=1", &GenerateOptions::greedy(7), &prompts(&model));
    let seen = (9 + 15 + 7) + 2 * (3 * WINDOW);
    assert_eq!(outcome.ledger.unwrap().flops.attention_forward, (4 * model.hidden * seen) as u64);
}

/// Wherever experts are, nothing is dropped.
#[test]
fn mixtures_draw_the_likeliest_tokens_of_the_serial_model() {
    let model = Model { seq_len: 24, ..mixture_of(2) };
    let prompts = prompts(&model);
    let weights = weights_of(&model);
    let expected: Vec<_> = prompts.iter().map(|prompt| serial_greedy(&model, &weights, prompt, 7)).collect();
    for (grid, over) in [
        ("expert=2", "expert"),
        ("x=2,expert=2", "x,expert"),
        ("x=2,y=2,z=2", "x,z"),
        ("z=2,context=2", "z,context"),
        ("x=2,pipe=2", "none"),
    ] {
        let layout = layout_with(&model, grid, 48, |request| {
            (request.experts_over, request.microbatch) = (Some(over.parse().unwrap()), None);
        });
        let options = GenerateOptions { prompt_chunk: 4, ..GenerateOptions::greedy(7) };
        let outcome = generated_by(&model, &layout, &options, &prompts);
        let found: Vec<_> = outcome.sequences.iter().map(|sequence| sequence.tokens.clone()).collect();
        assert_eq!(found, expected, "{grid}, experts over {over}");
    }
}

#[test]
fn every_layout_draws_the_same_at_any_temperature() {
    let samplings = [
        Sampling { temperature: 1.0, top_k: None, top_p: None, seed: 3 },
        Sampling { temperature: 0.02, top_k: Some(5), top_p: None, seed: 4 },
        Sampling { temperature: 0.05, top_k: None, top_p: Some(0.8), seed: 5 },
    ];
    for model in [gpt(), llama_model()] {
        let prompts = prompts(&model);
        for sampling in samplings {
            let options = GenerateOptions { sampling, ..GenerateOptions::greedy(8) };
            let one = generated(&model, "x=1", &options, &prompts).sequences;
            for grid in [
                "x=2",
                "y=2",
                "z=2",
                "data=4",
                "pipe=2",
                "context=2,data=2",
                "expert=2,pipe=2",
                "x=2,y=2,z=2",
                "y=2,data=2,pipe=2",
            ] {
                assert_eq!(generated(&model, grid, &options, &prompts).sequences, one, "{grid}, {sampling:?}");
            }
            let other = GenerateOptions { sampling: Sampling { seed: 99, ..sampling }, ..options.clone() };
            assert_ne!(generated(&model, "x=1", &other, &prompts).sequences, one, "{sampling:?}");
        }
    }
}

/// The largest distance of a program's logits from the serial model's; the run's ledgers are as predicted.
fn distance(program: &StepProgram, run: &ForwardOptions, tokens: &[u32]) -> f64 {
    let found = logits::<Cpu<f64>>(program, run, &drawn(SEED), tokens).unwrap();
    assert!(found.ledger_equal);
    let expected = serial(&program.model, &weights_of(&program.model), tokens);
    assert_eq!(found.values.len(), expected.len());
    let largest = expected.iter().fold(0.0, |most: f64, logit| most.max(logit.abs()));
    found.values.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / largest
}

#[test]
fn logits_of_every_position_are_the_serial_models() {
    for model in [gpt(), llama_model()] {
        let tokens: Vec<u32> = (0..model.seq_len as u32).map(|at| at * at % model.vocab as u32).collect();
        for grid in ["x=1", "x=2,y=2", "z=2,data=2", "x=4,pipe=2", "y=4,z=2", "context=2,pipe=4"] {
            // One pass; chunks, the last one with padding; tokens one by one.
            for chunk in [usize::MAX, 7, 1] {
                let program = logits_program(&model, &layout(&model, grid), tokens.len(), chunk).unwrap();
                let distance = distance(&program, &forward_options(2), &tokens);
                assert!(distance < 1e-11, "{grid}, {chunk}: {distance}");
            }
        }
    }
}

#[test]
fn a_broken_cache_is_seen() {
    for model in [gpt(), llama_model()] {
        let tokens: Vec<u32> = (0..10).map(|at| at * at % model.vocab as u32).collect();
        let program = logits_program(&model, &layout(&model, "x=2,data=2"), tokens.len(), 1).unwrap();
        let run = forward_options(1);
        assert!(distance(&program, &run, &tokens) < 1e-11);
        let first = |program: &StepProgram, is: fn(&Operation) -> bool| {
            program.stages[0].chunks[0].forward.ops.iter().position(|op| is(&op.operation)).unwrap()
        };
        // One block's keys and values are not stored.
        let unstored = edited_stage(&program, 0, |stage| {
            let at = first(&program, |operation| matches!(operation, Operation::StoreKeysValues(_)));
            stage.chunks[0].forward.ops.remove(at);
        });
        // They are stored after the attention that reads them, so that the newest position is not seen.
        let late = edited_stage(&program, 0, |stage| {
            let at = first(&program, |operation| matches!(operation, Operation::StoreKeysValues(_)));
            stage.chunks[0].forward.ops.swap(at, at + 1);
        });
        // One block reads another's.
        let exchanged = edited_stage(&program, 0, |stage| {
            let other = stage.caches[1];
            let at = first(&program, |operation| matches!(operation, Operation::CachedAttention(_)));
            if let Operation::CachedAttention(kind::CachedAttention { cache, .. }) =
                &mut stage.chunks[0].forward.ops[at].operation
            {
                *cache = other;
            }
        });
        for (what, broken) in [("unstored", unstored), ("late", late), ("exchanged", exchanged)] {
            let found = logits::<Cpu<f64>>(&broken, &run, &drawn(SEED), &tokens).unwrap().values;
            let expected = serial(&model, &weights_of(&model), &tokens);
            let gap = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(gap > 1e-6, "{what}: {gap}");
        }
    }
}

#[test]
fn the_second_pass_reads_what_the_first_has_stored() {
    let model = llama_model();
    let prompts = prompts(&model);
    let layout = layout(&model, "x=2");
    let options = GenerateOptions { prompt_chunk: 4, ..GenerateOptions::greedy(7) };
    let programs = GenerationPrograms::new(&model, &layout, &options, &prompts).unwrap();
    // The likeliest tokens may stay the likeliest; draws near temperature 0 depend on small differences.
    let sampling = Sampling { temperature: 1e-3, top_k: None, top_p: None, seed: 1 };
    let options = GenerateOptions { sampling, ..options };
    let run = |programs: &GenerationPrograms| {
        generate_on_cpu(programs, &options, &forward_options(1), &drawn(SEED), &prompts, &mut |_, _| Ok(())).unwrap()
    };
    let whole = run(&programs);
    assert_eq!(whole.difference, None);
    let prefill = replaced(&programs.prefill, |op| match op.operation {
        Operation::StoreKeysValues(_) => Vec::new(),
        _ => vec![*op],
    });
    let broken = run(&GenerationPrograms { prefill, ..programs });
    assert_ne!(broken.sequences, whole.sequences);
}

#[test]
fn random_layouts_generate_as_one_rank_does() {
    for_random(40, combined_cases(), |case| generates_as_one_rank(&case));
}

#[test]
fn described_blocks_generate_as_one_rank_does() {
    for_random(40, described_cases(), |case| generates_as_one_rank(&case));
}

fn generates_as_one_rank(case: &Case) -> Result<(), TestCaseError> {
    if case.model.patch_values.is_some() || !case.model.classic().causal {
        return Ok(());
    }
    let vocab = case.model.vocab as u32;
    let prompts = [vec![0], vec![1 % vocab]];
    let options = GenerateOptions::greedy(4);
    let tokens = |layout: &Layout, threads: usize| {
        let programs = GenerationPrograms::new(&case.model, layout, &options, &prompts).unwrap();
        let run = ForwardOptions { threads, collectives: case.collectives.clone(), ..ForwardOptions::default() };
        let outcome =
            generate_on_cpu(&programs, &options, &run, &drawn(case.seed), &prompts, &mut |_, _| Ok(())).unwrap();
        assert_eq!(outcome.difference, None, "{:?}", layout.grid);
        outcome.sequences
    };
    let one = Layout {
        grid: "x=1".parse().unwrap(),
        per_node: 1,
        chunks: 1,
        stage_blocks: vec![case.model.layers()],
        ..case.layout.clone()
    };
    assert_eq!(tokens(&case.layout, case.threads), tokens(&one, 1), "{:?}", case.layout);
    Ok(())
}

#[test]
fn sequences_end_at_the_stop_token_and_at_the_models_length() {
    let model = gpt();
    let prompts = prompts(&model);
    let greedy = generated(&model, "data=2", &GenerateOptions::greedy(6), &prompts).sequences;
    // The first sequence's third token stops it, and others where they have it.
    let stop = greedy[0].tokens[2];
    let options = GenerateOptions { stop: vec![stop], ..GenerateOptions::greedy(6) };
    for (stopped, whole) in generated(&model, "data=2", &options, &prompts).sequences.iter().zip(&greedy) {
        let expected = match whole.tokens.iter().position(|token| *token == stop) {
            Some(at) => GeneratedSequence { tokens: whole.tokens[..at].to_vec(), finish: Finish::Stop },
            None => whole.clone(),
        };
        assert_eq!(*stopped, expected);
    }
    let long = generated(&model, "x=2", &GenerateOptions::greedy(100), &prompts).sequences;
    for (sequence, prompt) in long.iter().zip(&prompts) {
        assert_eq!((sequence.finish, sequence.tokens.len()), (Finish::ModelLength, model.seq_len - prompt.len()));
    }
}

#[test]
fn what_cannot_be_generated_is_refused() {
    let refused = |model: &Model, options: &GenerateOptions, prompts: &[Vec<u32>]| {
        GenerationPrograms::new(model, &layout(model, "x=1"), options, prompts).unwrap_err().to_string()
    };
    let model = gpt();
    let greedy = GenerateOptions::greedy(3);
    let has = |text: String, part: &str| assert!(text.contains(part), "{text}");
    has(refused(&model, &greedy, &[vec![1], vec![]]), "prompt 2: it has no tokens");
    has(refused(&model, &greedy, &[vec![1; 24]]), "leave no room in the model's 24 positions");
    has(refused(&model, &greedy, &[vec![13]]), "token 13 is not below the vocabulary of 13");
    has(refused(&model, &greedy, &[]), "at least one prompt");
    has(refused(&model, &GenerateOptions::greedy(0), &[vec![1]]), "use 1 or more");
    has(refused(&vit(1), &greedy, &[vec![1]]), "patches");
    has(refused(&gpt().reshaped(|m| m.causal = false), &greedy, &[vec![1]]), "causal mask");
    let program = logits_program(&model, &layout(&model, "x=1"), 3, 2).unwrap();
    let error = logits::<Cpu<f64>>(&program, &forward_options(1), &drawn(1), &[1, 2]).unwrap_err().to_string();
    has(error, "2 tokens for a program of 3");
    assert!(logits_program(&model, &layout(&model, "x=1"), 25, 25).is_err());
    assert!(logits_program(&model, &layout(&model, "x=1"), 0, 1).is_err());
}

#[test]
fn single_precision_generates_too() {
    let model = llama_model();
    let prompts = prompts(&model);
    let layout = layout(&model, "x=2,z=2").stored_in(ElementType::F32);
    let options = GenerateOptions::greedy(5);
    let programs = GenerationPrograms::new(&model, &layout, &options, &prompts).unwrap();
    let weights: Weights = drawn(SEED);
    let run = forward_options(2);
    let outcome = generate_on_cpu(&programs, &options, &run, &weights, &prompts, &mut |_, _| Ok(())).unwrap();
    assert_eq!(outcome.difference, None);
    let wide = generated(&model, "x=1", &options, &prompts);
    assert_eq!(outcome.sequences, wide.sequences);
}
