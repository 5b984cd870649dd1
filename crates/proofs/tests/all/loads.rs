//! Biases of routers, which follow the loads of all ranks: the optimizer has nothing of them, nor has the norm; what is broken
//! is caught.

use half::f16;
use quadrille_comm::{JobOptions, run_ranks};
use quadrille_engine::{Cpu, InitialValues, RankEngine, Samples};
use quadrille_proofs::{
    Place, SEED, assert_caught, edited_at, hyper, is_collective, layout_with, mixture_of, operations, prove,
    random_samples,
};
use quadrille_spec::{
    Activations, CollectiveKind, ElementType, FeedForward, MemoryClass, Model, Offload, PADDING, RankLedger, Zero,
};
use quadrille_step::{Collective, Op, Operation, ParameterId, StepProgram, Write, kind, predict};

use crate::experts::collectives;

/// Two blocks with eight experts each.
fn biased() -> Model {
    let mut model = mixture_of(2);
    model.blocks = model.blocks.each(|block| {
        if let FeedForward::Experts(experts) = &mut block.feed_forward {
            experts.router.bias_rate = 0.01;
        }
    });
    model
}

fn program(model: &Model, grid: &str, activations: Activations, zero: Zero, dtype: ElementType) -> StepProgram {
    let layout = layout_with(model, grid, 16, |request| {
        (request.activations, request.zero, request.dtype) = (activations, zero, dtype);
        request.microbatch = Some(2);
    });
    StepProgram::new(model, &layout).unwrap()
}

/// In f64, with several microbatches.
fn unbroken(grid: &str, activations: Activations, zero: Zero) -> StepProgram {
    program(&biased(), grid, activations, zero, ElementType::F64)
}

const LAYOUTS: [(&str, Activations, Zero); 4] = [
    ("x=2,z=2,expert=2", Activations::Scattered, Zero::Off),
    ("x=2,context=2,data=2", Activations::Replicated, Zero::Off),
    ("y=2,expert=2,data=2", Activations::Scattered, Zero::Optimizer),
    ("expert=2,data=2,pipe=2", Activations::Scattered, Zero::Gradients),
];

/// The reductions of loads, with their places.
fn reductions_of_loads(program: &StepProgram) -> Vec<Place> {
    let is_of_loads = |(at, op): &(Place, &Op)| {
        let reduced = is_collective(op).filter(|it| it.kind != CollectiveKind::AllGather);
        reduced.is_some_and(|it| program.stages[at.stage].value(it.output).name.contains("router.bias"))
    };
    operations(program).into_iter().filter(is_of_loads).map(|(at, _)| at).collect()
}

#[test]
fn loads_are_summed_over_all_ranks_that_have_tokens() {
    for (grid, activations, zero) in LAYOUTS {
        let program = unbroken(grid, activations, zero);
        assert!(prove(&program, 2).unwrap().ok, "{grid}");
        let reductions = reductions_of_loads(&program);
        assert_eq!(reductions.len(), 4, "{grid}: begun and waited for in each block");
        // From the last on, so that the places of others stay.
        let broken = reductions
            .into_iter()
            .rev()
            .fold(program, |program, at| edited_at(&program, at, |ops, at| _ = ops.remove(at)));
        assert_caught(&broken, 1, &format!("{grid}: loads stay on their ranks"));
    }
}

#[test]
fn loads_are_counted_in_every_microbatch_once() {
    let program = unbroken("x=2,expert=2", Activations::Scattered, Zero::Off);
    let counts = operations(&program).into_iter().filter(|(_, op)| matches!(op.operation, Operation::CountLoads(_)));
    let counts: Vec<_> = counts.collect();
    assert_eq!(counts.len(), 2, "one in each block");
    for (at, op) in counts {
        let overwritten = edited_at(&program, at, |ops, at| {
            *ops[at].operation.write_mut().unwrap() = Write::Overwrite;
        });
        assert_caught(&overwritten, 1, "the last microbatch's alone");
        let twice = edited_at(&program, at, |ops, at| {
            let mut again = *op;
            *again.operation.write_mut().unwrap() = Write::Accumulate;
            ops.insert(at + 1, again);
        });
        assert_caught(&twice, 1, "twice");
    }
}

#[test]
fn biases_move_once_a_step() {
    for (grid, activations, zero) in LAYOUTS {
        let program = unbroken(grid, activations, zero);
        let moves: Vec<_> = operations(&program)
            .into_iter()
            .filter(|(_, op)| matches!(op.operation, Operation::FollowLoads(_)))
            .collect();
        assert_eq!(moves.len(), 2, "{grid}: one in each block");
        let (at, op) = moves[0];
        assert_caught(&edited_at(&program, at, |ops, at| _ = ops.remove(at)), 1, &format!("{grid}: it does not move"));
        assert_caught(&edited_at(&program, at, |ops, at| ops.insert(at, *op)), 1, &format!("{grid}: it moves twice"));
    }
}

/// Were loads in the norm, gradients would be clipped by them.
#[test]
fn loads_are_in_no_norm() {
    let program = unbroken("x=2,expert=2", Activations::Scattered, Zero::Off);
    let stage = &program.stages[0];
    let index = stage.parameters.iter().position(|it| it.name == "block.0.router.bias").unwrap();
    let squares = kind::SumSquares { parameter: ParameterId(index), gradient: stage.parameters[index].reduced };
    // Where all gradients are complete.
    let squares_of_others =
        operations(&program).into_iter().filter(|(_, op)| matches!(op.operation, Operation::SumSquares(_)));
    let (at, op) = squares_of_others.map(|(at, op)| (at, *op)).next_back().unwrap();
    let counted = edited_at(&program, at, |ops, at| ops.insert(at, Op { operation: squares.into(), ..op }));
    assert_caught(&counted, 1, "loads are in the norm");
}

/// Tokens of the first step; others of its positions are padding.
fn tokens(program: &StepProgram) -> u64 {
    let positions = program.layout.tokens_per_step();
    let mut inputs = vec![0; positions];
    let mut targets = inputs.clone();
    let samples = Samples::Tokens { inputs: &mut inputs, targets: &mut targets };
    random_samples(program)(1, 0, samples).unwrap();
    let tokens = inputs.iter().filter(|token| **token != PADDING).count();
    assert!(tokens < positions, "no position is padding");
    tokens as u64
}

/// What a step tells of loads are those of its tokens, whoever has them.
#[test]
fn loads_of_a_step_are_those_of_all_its_tokens() {
    let told = LAYOUTS.map(|(grid, activations, zero)| {
        let program = unbroken(grid, activations, zero);
        let batch = random_samples(&program);
        let ranks = run_ranks(&JobOptions::new(program.layout.grid.ranks()), |context| {
            let initial = InitialValues::Perturbed;
            let mut engine = RankEngine::<Cpu<f64>>::new(&program, context, 1, hyper(None), SEED, initial)?;
            let routed = engine.step(&batch)?.router.unwrap();
            Ok((routed.most, routed.most_at, routed.idle, routed.imbalance, engine.loads_of_step().to_vec()))
        });
        let ranks = ranks.unwrap();
        assert!(ranks.iter().all(|rank| *rank == ranks[0]), "{grid}: ranks tell the same");
        let (most, [block, expert], idle, imbalance, loads) = ranks[0].clone();
        // Two of eight experts a token in each of two blocks.
        let all = 2 * tokens(&program);
        assert_eq!([&loads[..8], &loads[8..]].map(|loads| loads.iter().sum::<u64>()), [all; 2], "{grid}");
        assert_eq!(most, loads.iter().max().copied().unwrap() as f64 / (all as f64 / 8.0), "{grid}");
        assert_eq!(loads[8 * block + expert], *loads.iter().max().unwrap(), "{grid}");
        assert_eq!(idle, loads.iter().filter(|load| **load == 0).count(), "{grid}");
        let ranks = program.layout.grid.size_of(program.layout.experts_over);
        let fullest = |loads: &[u64]| loads.chunks(8 / ranks).map(|loads| loads.iter().sum::<u64>()).max().unwrap();
        let means = [&loads[..8], &loads[8..]].map(|loads| fullest(loads) as f64 / (all as f64 / ranks as f64));
        assert!((imbalance - means.iter().sum::<f64>() / 2.0).abs() < 1e-12, "{grid}: {imbalance}");
        loads
    });
    assert!(told.iter().all(|loads| *loads == told[0]), "{told:?}");
}

/// Eight loads of four bytes a block, which a ring of four sends three quarters of twice; eight biases and their loads in memory,
/// and no states.
#[test]
fn bytes_of_biases_are_counted_by_hand() {
    let of = |model: &Model| {
        let program = program(model, "expert=2,data=2", Activations::Scattered, Zero::Off, ElementType::F32);
        let ledger = predict(&program).ranks[0].clone();
        let names = |it: &Collective| program.stages[0].value(it.output).name.clone();
        let reduced: Vec<_> = collectives(&program).iter().map(names).filter(|it| it.contains("bias")).collect();
        (ledger, reduced)
    };
    let (with, of_biases) = of(&biased());
    let (without, _) = of(&mixture_of(2));
    assert_eq!(of_biases.iter().filter(|name| name.contains("router")).count(), 2);
    let sent = |ledger: &RankLedger| {
        let kinds = ledger.axes.values();
        kinds.filter_map(|kinds| Some(kinds.get(&CollectiveKind::AllReduce)?.wire_bytes)).sum::<u64>()
    };
    assert_eq!(sent(&with) - sent(&without), 2 * (8 * 4) * 2 * 3 / 4);
    let held = |class| with.memory.peak_of[&class] - without.memory.peak_of[&class];
    let classes = [MemoryClass::Parameters, MemoryClass::Gradients, MemoryClass::Optimizer];
    assert_eq!(classes.map(held), [2 * 8 * 4, 2 * 8 * 4, 0]);
}

#[test]
fn a_step_that_is_skipped_leaves_biases() {
    let plain = LAYOUTS.map(|(grid, activations, zero)| program(&biased(), grid, activations, zero, ElementType::F16));
    // Updates begin before the norm is known.
    let overlapped = layout_with(&biased(), "expert=2,data=2", 16, |request| {
        (request.dtype, request.offload, request.bucket) = (ElementType::F16, Offload::Host, Some(50));
        (request.optimizer_overlap, request.microbatch) = (true, Some(2));
    });
    let overlapped = StepProgram::new(&biased(), &overlapped).unwrap();
    for program in plain.into_iter().chain([overlapped]) {
        let grid = program.layout.grid;
        let batch = random_samples(&program);
        run_ranks(&JobOptions::new(program.layout.grid.ranks()), |context| {
            let initial = InitialValues::Perturbed;
            let mut engine = RankEngine::<Cpu<f16>>::new(&program, context, 1, hyper(None), SEED, initial)?;
            let parameters = &program.of_rank(context.rank()).parameters;
            let mut step = |scale| {
                engine.set_loss_scale(scale);
                let applied = engine.step(&batch)?.applied;
                let held = engine.weights()?.into_iter().zip(parameters);
                let biases = held.filter(|(_, it)| !it.is_trained()).map(|(held, _)| held.numbers);
                Ok::<_, quadrille_engine::EngineError>((applied, biases.collect::<Vec<_>>()))
            };
            let [first, second, third] = [step(1024)?, step(1 << 31)?, step(1024)?];
            assert_eq!([first.0, second.0, third.0], [true, false, true], "{grid:?}");
            assert!(first.1 == second.1 && second.1 != third.1, "{grid:?}");
            Ok(())
        })
        .unwrap();
    }
}
