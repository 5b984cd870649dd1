//! A program that is given another layout with the same operations is that layout's program.

use quadrille_spec::{Layout, LayoutRequest, Model};
use quadrille_step::{Lifetimes, Members, Operation, Placement, StageProgram, StepProgram};

fn program(model: &Model, line: &str) -> StepProgram {
    let mut words = line.split(' ');
    let mut next = || words.next().unwrap();
    let grid = next();
    let batch = next();
    let microbatch = next();
    let seq_len = next();
    let mut request = LayoutRequest {
        microbatch: Some(microbatch.parse().unwrap()),
        seq_len: Some(seq_len.parse().unwrap()),
        ..LayoutRequest::new(grid.parse().unwrap(), batch.parse().unwrap())
    };
    for word in words {
        match word.split_once('=').unwrap() {
            ("linear", value) => request.linear = value.parse().unwrap(),
            ("panels", value) => request.summa_panels = Some(value.parse().unwrap()),
            ("zero", value) => request.zero = value.parse().unwrap(),
            ("chunks", value) => request.overlap_chunks = value.parse().unwrap(),
            ("keep", value) => request.keep_weights = value.parse().unwrap(),
            ("recompute", value) => request.recompute = value.parse().unwrap(),
            ("schedule", value) => request.schedule = value.parse().unwrap(),
            (key, _) => panic!("{key}"),
        }
    }
    StepProgram::new(model, &Layout::new(model, &request).unwrap()).unwrap()
}

/// All that a stage counts: values, storages, parameters, operations; what depends on the number of microbatches, and whose
/// panels are whose, apart.
fn counted(mut stage: StageProgram) -> StageProgram {
    stage.steps.clear();
    stage.storages.iter_mut().for_each(|info| (info.instances, info.kept) = (1, false));
    for chunk in &mut stage.chunks {
        for section in [&mut chunk.forward, &mut chunk.backward, &mut chunk.weight_gradient] {
            section.lifetimes = Lifetimes::default();
            section.ops.iter_mut().for_each(|op| forget_root(&mut op.operation));
        }
    }
    stage.update.lifetimes = Lifetimes::default();
    stage.placement = Placement::default();
    stage
}

fn forget_root(operation: &mut Operation) {
    if let Operation::Issue(collective) | Operation::Wait(collective) = operation
        && let Members::Root(root) = &mut collective.members
    {
        *root = 0;
    }
}

#[test]
fn programs_of_other_sizes_are_those_of_their_layouts() {
    let gpt = Model::gpt(4, 96, 24, 1001, 64).reshaped(|m| {
        m.heads = 24;
        m.kv_heads = 24;
        m.dropout = 0.1;
    });
    let grouped = gpt.reshaped(|m| m.kv_heads = 2);
    let patches = gpt.reshaped(|m| {
        m.patch_values = Some(40);
        m.vocab = 0;
        m.tied_head = false;
    });
    for (model, from, to) in [
        (&gpt, "x=2,y=2,z=2,data=2 64 16 64", "x=4,y=3,z=4,data=6 144 24 32"),
        (&gpt, "x=2,pipe=2 8 2 32 chunks=2", "x=3,pipe=2 24 6 64 chunks=2"),
        (&gpt, "z=2,context=2,data=2 8 2 64 zero=2 keep=step", "z=4,context=4,data=3 24 8 32 zero=2 keep=step"),
        (&gpt, "data=2,context=2 8 2 64 zero=1 recompute=full:2", "data=5,context=4 10 2 32 zero=1 recompute=full:2"),
        (&gpt, "x=2,y=3 18 3 64 linear=summa panels=6", "x=2,y=3 36 6 64 linear=summa panels=6"),
        (&gpt, "x=2,y=3,z=2 36 6 64 linear=summa panels=12", "x=4,y=2,z=3 36 36 32 linear=summa panels=12"),
        (&gpt, "x=2,y=2,pipe=3 24 2 64 linear=summa panels=12", "x=4,y=6,pipe=3 24 6 64 linear=summa panels=12"),
        (&grouped, "x=4,data=2 8 4 64 zero=1", "x=4,data=3 12 2 32 zero=1"),
        (&gpt, "pipe=2,z=2 8 2 64 schedule=zb-h1", "pipe=2,z=3 36 6 32 schedule=zb-h1"),
        (&patches, "x=2,y=2,z=2 16 4 64 recompute=selective", "x=3,y=2,z=4 48 24 32 recompute=selective"),
    ] {
        let from = program(model, from);
        let to = program(model, to);
        for (mut from, to) in from.stages.into_iter().zip(to.stages) {
            assert_ne!(from.values, to.values, "the sizes differ");
            from.resize(&to.layout);
            from.place_storages();
            assert_eq!(counted(from), counted(to));
        }
    }
}
