//! ZeRO: what is sharded over data and context takes a share of the memory, costs the bytes of the all-reduce that it
//! replaces, and changes no result; weights gathered over z may be kept for a step.

use quadrille_engine::{Held, Shard, assemble};
use quadrille_proofs::{
    Traffic, Trajectory, assert_caught, assert_stopped, bits, edited_at, edited_stage, hyper, is_collective, model,
    operations, program_with, prove, rebuilt, replaced, trajectory_with,
};
use quadrille_spec::CollectiveKind::{AllGather, AllReduce, ReduceScatter};
use quadrille_spec::{Axis, KeepWeights, MemoryClass, Model, RankLedger, Recompute, Zero};
use quadrille_step::{Op, Operation, Parameter, StageProgram, StepProgram, When, kind, predict};

const GRIDS: [&str; 7] =
    ["data=2", "data=3", "context=2", "data=3,context=2", "x=2,data=3", "y=2,z=2,data=2", "z=2,context=2,data=2"];

fn sharded(grid: &str, zero: Zero) -> StepProgram {
    program_with(&Model { dropout: 0.1, ..model(2) }, grid, 24, |request| {
        (request.zero, request.microbatch) = (zero, Some(4));
    })
}

fn peak(program: &StepProgram, class: MemoryClass) -> u64 {
    predict(program).ranks[0].memory.peak_of[&class] / 8
}

/// Elements of each parameter on a rank without ZeRO, and whether it is a matrix.
fn parameters(program: &StepProgram) -> Vec<(usize, bool)> {
    let stage: &StageProgram = &program.stages[0];
    let elements = |parameter: &Parameter| stage.value(parameter.value).local_elements;
    stage.parameters.iter().map(|parameter| (elements(parameter), is_matrix(parameter))).collect()
}

fn is_matrix(parameter: &Parameter) -> bool {
    parameter.decay && parameter.name != "embedding.positions"
}

/// States of a share of every parameter, rounded up; in stage 2 also the gradients of matrices. Vectors, and everything
/// else, are padded to whole shares.
#[test]
fn states_take_a_share_of_the_memory() {
    for grid in GRIDS {
        let whole = sharded(grid, Zero::Off);
        let [data, context] = [Axis::Data, Axis::Context].map(|axis| whole.layout.grid.size(axis));
        let parameters = parameters(&whole);
        let sum = |of: &dyn Fn(usize, bool) -> usize| {
            parameters.iter().map(|(n, matrix)| of(*n, *matrix)).sum::<usize>() as u64
        };
        let share = |n: usize| n.div_ceil(data * context);
        let padded = |n: usize| share(n) * data * context;
        assert_eq!(peak(&whole, MemoryClass::Optimizer), 2 * sum(&|n, _| n));
        assert_eq!(peak(&whole, MemoryClass::Gradients), sum(&|n, _| n));
        for zero in [Zero::Optimizer, Zero::Gradients] {
            let program = sharded(grid, zero);
            assert_eq!(peak(&program, MemoryClass::Optimizer), 2 * sum(&|n, _| share(n)), "{grid}, {zero}");
            assert_eq!(peak(&program, MemoryClass::Parameters), sum(&|n, _| padded(n)), "{grid}, {zero}");
            let kept = |n, matrix| if matrix && zero == Zero::Gradients { share(n) } else { padded(n) };
            assert_eq!(peak(&program, MemoryClass::Gradients), sum(&kept), "{grid}, {zero}");
        }
    }
}

/// Wire bytes of the step, without the f64 scalars of loss and norm.
fn wire(ledger: &RankLedger) -> u64 {
    let layers = ledger.layers.iter().filter(|layer| layer.layer != "step");
    layers.flat_map(|layer| layer.axes.values()).flat_map(|kinds| kinds.values()).map(|each| each.wire_bytes).sum()
}

/// A ring all-reduce is a reduce-scatter and an all-gather. Where two data ranks share every parameter evenly, stage 1
/// sends what the all-reduce sends, to the byte; stage 2 scatters matrices in every microbatch.
#[test]
fn stage_1_sends_what_the_all_reduce_sends() {
    let [off, optimizer, gradients] = [Zero::Off, Zero::Optimizer, Zero::Gradients].map(|zero| sharded("data=2", zero));
    assert!(parameters(&off).iter().all(|(elements, _)| elements.is_multiple_of(2)));
    let matrices: usize = parameters(&off).iter().filter(|(_, matrix)| *matrix).map(|(elements, _)| elements).sum();
    let passes = off.layout.microbatches();
    for rank in 0..2 {
        let sent = |program: &StepProgram| wire(&predict(program).ranks[rank]);
        assert_eq!(sent(&optimizer), sent(&off));
        assert_eq!(sent(&gradients) - sent(&off), (8 * (passes - 1) * matrices / 2) as u64);
    }
}

/// On grids with other axes: over data, matrices were reduced; now everything is scattered and gathered, padded.
#[test]
fn shards_travel_over_data_as_counted_by_hand() {
    for grid in ["x=2,data=3", "y=2,z=2,data=2", "data=3"] {
        let off = sharded(grid, Zero::Off);
        let data = off.layout.grid.size(Axis::Data);
        let padded = |n: usize| n.div_ceil(data) * data;
        let all = parameters(&off);
        let matrices: Vec<usize> = all.iter().filter(|(_, matrix)| *matrix).map(|(elements, _)| *elements).collect();
        let total: usize = all.iter().map(|(elements, _)| padded(*elements)).sum();
        let of_matrices: usize = matrices.iter().map(|elements| padded(*elements)).sum();
        let layout = &off.layout;
        let passes = off.layout.microbatches();
        let over_data = |program: &StepProgram| Traffic::of(&predict(program).ranks[0].axes, 8).over(Axis::Data);

        // Without x, y and z vectors are also summed over data and z, under another key.
        let mut reduced = Traffic::default();
        reduced.add(&layout.grid, Axis::Data, AllReduce, matrices.len(), matrices.iter().sum());
        assert_eq!(over_data(&off), reduced, "{grid}");

        let mut stage_1 = Traffic::default();
        stage_1.add(&layout.grid, Axis::Data, ReduceScatter, all.len(), total);
        stage_1.add(&layout.grid, Axis::Data, AllGather, all.len(), total);
        assert_eq!(over_data(&sharded(grid, Zero::Optimizer)), stage_1, "{grid}");

        let mut stage_2 = stage_1.clone();
        stage_2.add(&layout.grid, Axis::Data, ReduceScatter, matrices.len() * (passes - 1), of_matrices * (passes - 1));
        assert_eq!(over_data(&sharded(grid, Zero::Gradients)), stage_2, "{grid}");
    }
}

#[test]
fn shards_equal_the_serial_model() {
    for grid in GRIDS {
        for zero in [Zero::Optimizer, Zero::Gradients] {
            let report = prove(&sharded(grid, zero), 3).unwrap();
            assert!(report.ok, "{grid}, {zero}: {report:?}");
        }
    }
}

/// Losses and weights of two steps without clipping: with it the norm, which adds up shard by shard, decides the last bit.
fn unclipped(program: &StepProgram) -> Vec<(Vec<u64>, Vec<Vec<u64>>)> {
    let losses = |run: &Trajectory| run.outcomes.iter().map(|outcome| outcome.loss).collect();
    let runs = trajectory_with(program, 2, 1, hyper(None)).unwrap();
    runs.iter().map(|run| (losses(run), run.weights.clone())).collect()
}

/// Stage 1 sums the same numbers in the same order where gradients are reduced over data and context alone. On other
/// grids gradients of vectors are reduced in two steps instead of one, so that their last bits may differ.
#[test]
fn stage_1_changes_no_bit_where_only_data_is_cut() {
    for grid in ["data=2", "data=3", "context=2", "data=3,context=2"] {
        assert!(unclipped(&sharded(grid, Zero::Optimizer)) == unclipped(&sharded(grid, Zero::Off)), "{grid}");
    }
}

/// The whole gradients of matrices after one step, before clipping.
fn gradients_of_matrices(program: &StepProgram) -> Vec<Vec<u64>> {
    let stage = &program.stages[0];
    let runs = trajectory_with(program, 1, 1, hyper(None)).unwrap();
    let matrices = stage.parameters.iter().enumerate().filter(|(_, parameter)| is_matrix(parameter));
    let whole = |(index, parameter): (usize, &Parameter)| {
        let floats = |run: &Trajectory| run.gradients[index].iter().map(|bits| f64::from_bits(*bits)).collect();
        let shard = |rank| Shard::of(stage, parameter, parameter.reduced, program.layout.grid.coordinate(rank));
        let held = |(rank, run): (usize, &Trajectory)| Held { shard: shard(rank), numbers: floats(run) };
        let held: Vec<Held> = runs.iter().enumerate().map(held).collect();
        let tensor = assemble(parameter, held.iter().enumerate()).unwrap();
        tensor.into_iter().map(f64::to_bits).collect()
    };
    matrices.map(whole).collect()
}

#[test]
fn stage_1_changes_no_bit_of_gradients_of_matrices() {
    for grid in GRIDS {
        let [off, optimizer] = [Zero::Off, Zero::Optimizer].map(|zero| gradients_of_matrices(&sharded(grid, zero)));
        assert_eq!(off.len(), 1 + 2 * 4, "the table and four weights of two blocks");
        assert!(off == optimizer, "{grid}");
    }
}

/// With one microbatch there is nothing that stage 2 adds in another order.
#[test]
fn stage_2_changes_no_bit_with_one_microbatch() {
    for grid in ["data=2", "context=2"] {
        let whole = rebuilt(&sharded(grid, Zero::Off), |layout| layout.global_batch = 4 * layout.grid.size(Axis::Data));
        let shards = rebuilt(&whole, |layout| layout.zero = Zero::Gradients);
        assert_eq!(whole.layout.microbatches(), 1);
        assert!(unclipped(&shards) == unclipped(&whole), "{grid}");
    }
}

/// A weight is gathered once per step instead of twice per microbatch (three times with recomputation), the tied table
/// once instead of three times; the gathered weights are held all the time.
#[test]
fn kept_weights_are_gathered_once() {
    for recompute in [Recompute::None, Recompute::Full { every: 1 }] {
        let used = rebuilt(&sharded("x=2,y=2,z=2", Zero::Off), |layout| layout.recompute = recompute);
        let kept = rebuilt(&used, |layout| layout.keep_weights = KeepWeights::Step);
        let matrices: Vec<usize> =
            parameters(&used).into_iter().filter(|(_, matrix)| *matrix).map(|(n, _)| 2 * n).collect();
        let gathers = |program: &StepProgram| Traffic::of(&predict(program).ranks[0].axes, 8).get(Axis::Z, AllGather);
        let [table, blocks @ ..] = matrices.as_slice() else { panic!("weights") };
        let passes = used.layout.microbatches();
        // Recomputation gathers three of a block's four again: qkv, projection and up.
        let again: Vec<usize> = match recompute {
            Recompute::None => Vec::new(),
            _ => blocks.chunks(4).flat_map(|block| block[..3].to_vec()).collect(),
        };
        let per_pass = 3 * table + 2 * blocks.iter().sum::<usize>() + again.iter().sum::<usize>();
        let calls = 3 + 2 * blocks.len() + again.len();
        assert_eq!(gathers(&used), [(passes * calls) as u64, (passes * per_pass) as u64], "{recompute}");
        let once: usize = matrices.iter().sum();
        assert_eq!(gathers(&kept), [matrices.len() as u64, once as u64], "{recompute}");
        assert_eq!(peak(&kept, MemoryClass::GatheredWeights), once as u64);
        assert!(bits(&kept) == bits(&used), "{recompute}");
        assert!(prove(&kept, 2).unwrap().ok);
    }
}

/// Without its only gather a kept weight is not there.
#[test]
fn every_kept_weight_is_gathered() {
    let kept = rebuilt(&sharded("z=2", Zero::Off), |layout| layout.keep_weights = KeepWeights::Step);
    let gathers =
        |op: &Op| op.when == When::First && matches!(op.operation, Operation::Wait(each) if each.kind == AllGather);
    for (place, _) in operations(&kept).into_iter().filter(|(_, op)| gathers(op)) {
        let never = edited_at(&kept, place, |ops, at| {
            let gather = is_collective(&ops[at]);
            ops.retain(|op| is_collective(op) != gather);
        });
        assert_caught(&never, 1, &format!("no gather at {place:?}"));
    }
}

/// Scatters of gradients left out, in the update (stage 1) and in the passes (stage 2).
#[test]
fn every_scatter_of_gradients_matters() {
    for zero in [Zero::Optimizer, Zero::Gradients] {
        let program = sharded("data=2", zero);
        let scatters =
            |(_, op): &(_, &Op)| matches!(op.operation, Operation::Issue(each) if each.kind == ReduceScatter);
        let scatters: Vec<_> = operations(&program).into_iter().filter(scatters).collect();
        assert_eq!(scatters.len(), parameters(&program).len());
        for (place, op) in scatters {
            let old = is_collective(op).unwrap();
            let input = old.input;
            let output = old.output;
            let in_place = program.stages[0].value(input).storage == program.stages[0].value(output).storage;
            let broken = replaced(&program, |op| match op.operation {
                Operation::Issue(each) if each == old && !in_place => {
                    vec![Op {
                        operation: Operation::SliceRows(kind::SliceRows { axis: Axis::Data, input, output }),
                        ..*op
                    }]
                }
                Operation::Issue(each) | Operation::Wait(each) if each == old => Vec::new(),
                _ => vec![*op],
            });
            assert_caught(&broken, 1, &format!("{zero}: no scatter at {place:?}"));
        }
    }
}

/// Scatters after what they are for.
#[test]
fn scatters_come_before_the_norm() {
    let program = sharded("data=2", Zero::Optimizer);
    let late = edited_stage(&program, 0, |stage| {
        let (scatters, mut rest): (Vec<Op>, Vec<Op>) =
            stage.update.ops.drain(..).partition(|op| is_collective(op).is_some_and(|each| each.kind == ReduceScatter));
        let gathers = rest.iter().position(|op| is_collective(op).is_some()).unwrap();
        rest.splice(gathers..gathers, scatters);
        stage.update.ops = rest;
    });
    // The first gather comes after the norm and the first update.
    assert_caught(&late, 1, "gradients are scattered after the norm is taken");
}

/// The gather of updated shards, which the next step waits for: left out, and not waited for.
#[test]
fn every_gather_of_updated_shards_matters() {
    let program = sharded("data=2", Zero::Optimizer);
    let gathers: Vec<_> =
        operations(&program).into_iter().filter(|(_, op)| matches!(op.operation, Operation::WaitCarried(_))).collect();
    assert_eq!(gathers.len(), parameters(&program).len());
    for (place, op) in gathers {
        let Operation::WaitCarried(gather) = op.operation else { unreachable!("found as one") };
        let name = &program.stages[0].value(gather.output).name;
        let never = replaced(&program, |op| match op.operation {
            Operation::Issue(each) | Operation::WaitCarried(each) if each == gather => Vec::new(),
            _ => vec![*op],
        });
        assert_caught(&never, 2, &format!("{name} is not gathered"));
        let no_wait = edited_at(&program, place, |ops, at| _ = ops.remove(at));
        // Without the comparison between steps, which waits for everything.
        let message = trajectory_with(&no_wait, 2, 1, hyper(None)).unwrap_err().to_string();
        assert!(message.contains("in flight without a wait") && message.contains(name), "{name}: {message}");
    }
    // A gather that is waited for as if it belonged to this step.
    let (place, _) =
        operations(&program).into_iter().find(|(_, op)| matches!(op.operation, Operation::WaitCarried(_))).unwrap();
    let first = edited_at(&program, place, |ops, at| {
        if let Operation::WaitCarried(gather) = ops[at].operation {
            ops[at].operation = Operation::Wait(gather);
        }
    });
    assert_stopped(&first, &["embedding", "wait"], "the first step waits for a gather that nobody began");
}
