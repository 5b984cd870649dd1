//! Experts: every way to spread them, and every way to send rows there, equals the serial model, which is asked token by token;
//! what is sent is what closed forms and a person count; switches change no bit; what is broken is caught.

use proptest::prelude::*;
use quadrille_proofs::{
    Trajectory, assert_caught, expert_cases, for_random, holds, is_collective, layout_with, mixture_of,
    mixture_of_width, operations, prove, rebuilt, replaced, trajectory,
};
use quadrille_spec::{
    Activations, Axis, AxisSet, Capacity, CollectiveKind, Dispatch, DropOrder, ElementType, Experts, FeedForward,
    KeepWeights, Model, Overlap, Recompute, Schedule, Zero,
};
use quadrille_step::{Collective, Op, Operation, Scalar, StepProgram, kind, predict};

#[test]
fn layouts_with_experts_equal_the_serial_model() {
    for_random(50, expert_cases(), |case| holds(&case, ElementType::F64));
}

#[test]
fn experts_in_single_precision_are_close_to_the_serial_model() {
    for_random(15, expert_cases(), |case| holds(&case, ElementType::F32));
}

/// In f32 from rounded weights. What a weight decides about places may be rounded to the other side.
#[test]
fn experts_in_16_bits_are_close_to_the_serial_model() {
    let first_come = expert_cases().prop_filter("places by choice", |case| {
        let mut experts = case.model.blocks.kinds().iter().filter_map(|block| block.feed_forward.experts());
        experts.all(|experts| experts.capacity.is_none_or(|capacity| capacity.drop == DropOrder::Choice))
    });
    for_random(12, first_come, |case| holds(&case, ElementType::Bf16));
}

fn spread(axes: &[Axis]) -> Option<AxisSet> {
    Some(axes.iter().copied().collect())
}

fn bits(program: &StepProgram, threads: usize) -> Vec<Trajectory> {
    let ranks = trajectory(program, 2, threads).unwrap();
    ranks.into_iter().map(|rank| Trajectory { ledger: None, ..rank }).collect()
}

/// Two blocks with experts beside a shared perceptron, on two ranks of every axis.
pub fn unbroken(model: &Model, activations: Activations, over: &[Axis], dispatch: Dispatch) -> StepProgram {
    let layout = layout_with(model, "x=2,y=2,z=2,expert=2", 16, |request| {
        (request.activations, request.dispatch, request.overlap) = (activations, dispatch, Overlap::NONE);
        (request.experts_over, request.microbatch) = (spread(over), Some(4));
    });
    StepProgram::new(model, &layout).unwrap()
}

#[test]
fn switches_change_no_bit() {
    assert_switches_change_no_bit(&mixture_of(2));
}

pub fn assert_switches_change_no_bit(model: &Model) {
    let base = unbroken(model, Activations::Scattered, &[Axis::Z, Axis::Expert], Dispatch::Dropped);
    let reference = bits(&base, 1);
    assert!(bits(&base, 3) == reference, "threads");
    type Change = fn(&mut quadrille_spec::Layout);
    let changes: [(&str, Change); 8] = [
        ("overlap", |layout| layout.overlap = Overlap::ALL),
        ("oaa", |layout| layout.overlap = Overlap { all_to_all: true, ..Overlap::NONE }),
        ("selective", |layout| layout.recompute = Recompute::Selective),
        ("full", |layout| layout.recompute = Recompute::Full { every: 1 }),
        ("full:2", |layout| layout.recompute = Recompute::Full { every: 2 }),
        ("cac", |layout| (layout.recompute, layout.keep_communicated) = (Recompute::Full { every: 1 }, true)),
        ("weights", |layout| layout.keep_weights = KeepWeights::Step),
        ("zb-h1", |layout| layout.schedule = Schedule::ZeroBubble),
    ];
    for (what, change) in changes {
        let changed = rebuilt(&base, change);
        assert!(bits(&changed, 1) == reference, "{what}");
    }
}

/// All-to-alls are under way while the shared perceptron computes, forward and backward.
#[test]
fn all_to_alls_run_under_the_shared_perceptron() {
    let plain = unbroken(&mixture_of(2), Activations::Scattered, &[Axis::Z, Axis::Expert], Dispatch::Dropped);
    let hidden = |program: &StepProgram| {
        let chunk = &program.stages[0].chunks[0];
        let of = |ops: &[Op]| {
            let mut under_way = 0;
            let mut products = 0;
            for op in ops {
                match op.operation {
                    Operation::Issue(it) if it.kind == CollectiveKind::AllToAll => under_way += 1,
                    Operation::Wait(it) if it.kind == CollectiveKind::AllToAll => under_way -= 1,
                    Operation::Gemm(_) if under_way > 0 => products += 1,
                    _ => {}
                }
            }
            products
        };
        [of(&chunk.forward.ops), of(&chunk.backward.ops)]
    };
    assert_eq!(hidden(&plain), [0, 0]);
    let overlapping = rebuilt(&plain, |layout| layout.overlap = Overlap { all_to_all: true, ..Overlap::NONE });
    let [forward, backward] = hidden(&overlapping);
    // Two products of the shared perceptron in each of two blocks, and four and more backward.
    assert!(forward >= 4 && backward >= 8, "{forward} {backward}");
}

/// Places for every choice are as good as places without end.
#[test]
fn what_has_places_for_all_drops_nothing() {
    let with = |factor: Option<f64>| {
        let mut model = mixture_of(1);
        model.blocks = model.blocks.each(|block| {
            if let FeedForward::Experts(experts) = &mut block.feed_forward {
                experts.capacity = factor.map(|factor| Capacity { factor, group: None, drop: DropOrder::Choice });
            }
        });
        let layout = layout_with(&model, "x=2,expert=2", 8, |request| request.experts_over = spread(&[Axis::Expert]));
        bits(&StepProgram::new(&model, &layout).unwrap(), 1)
    };
    let Experts { count, per_token, .. } = *mixture_of(1).blocks.first().feed_forward.experts().unwrap();
    let all = count as f64 / per_token as f64;
    assert!(with(Some(all)) == with(Some(100.0)));
    assert!(with(Some(all)) != with(Some(0.5)), "half of all places are too few");
}

/// Elements of an axis's collectives of a kind, in the steps of rank 0.
fn sent(program: &StepProgram, key: &str, kind: CollectiveKind) -> u64 {
    let ledger = &predict(program).ranks[0];
    let bytes = ledger.axes.get(key).and_then(|kinds| kinds.get(&kind)).map_or(0, |transfer| transfer.wire_bytes);
    bytes / program.layout.dtype.bytes()
}

/// `x=2,expert=4`, hidden 64, experts of 128 with gates, 8 of which tokens choose 2, sequences of 64 tokens, 2 in a
/// microbatch, capacity 1 in groups of 64: 16 places for a group, 32 for a rank, half of them for each rank along x.
#[test]
fn a_small_step_is_counted_by_hand() {
    let text = "name = 'by hand'\nlayers = 1\nhidden = 64\nheads = 4\nffn = 128\nvocab = 64\nseq_len = 64\nbiases = false\n\
                activation = 'swiglu'\nnorm = 'rms'\nexperts = 8\ncapacity = 1.0\n";
    let model = Model::from_toml(text, &[]).unwrap();
    let program = |grid: &str, over: &[Axis]| {
        let layout = layout_with(&model, grid, 8, |request| {
            request.experts_over = spread(over);
            request.microbatch = Some(2);
        });
        StepProgram::new(&model, &layout).unwrap()
    };
    let program = program("x=2,expert=4", &[Axis::Expert]);
    assert_eq!(sent(&program, "expert", CollectiveKind::AllToAll), 24_576);
    let chunk = &program.stages[0].chunks[0];
    let of = |kind: CollectiveKind, name: &str| {
        let ops = chunk.forward.ops.iter().chain(&chunk.backward.ops);
        let issued = ops.filter_map(|op| match op.operation {
            Operation::Issue(it) if it.kind == kind && it.axes == Axis::X.only() => Some(it),
            _ => None,
        });
        let of_rows = issued.filter(|it| program.stages[0].value(it.output).name.contains(name));
        let part = |it: Collective| match kind {
            CollectiveKind::AllGather => program.stages[0].value(it.input).local_elements,
            CollectiveKind::ReduceScatter => program.stages[0].value(it.output).local_elements,
            // A ring of two sends the buffer once.
            _ => program.stages[0].value(it.output).local_elements,
        };
        of_rows.map(part).sum::<usize>()
    };
    let gathered = of(CollectiveKind::AllGather, "dispatched") + of(CollectiveKind::AllGather, "results");
    assert_eq!(gathered, 16_384);
    let scattered =
        of(CollectiveKind::ReduceScatter, "experts down") + of(CollectiveKind::ReduceScatter, "d dispatched");
    assert_eq!(scattered, 16_384);
    assert_eq!(of(CollectiveKind::AllReduce, "choices"), 16);
    // Of the router 8 x 64, of the norm before it 64; a ring of 8 sends 7/4 of them.
    let once = program.stages[0].update.ops.iter().filter_map(is_collective);
    let router: usize = once
        .filter(|it| matches!(it.kind, CollectiveKind::AllReduce))
        .filter(|it| ["router", "norm2"].iter().any(|name| program.stages[0].value(it.output).name.contains(name)))
        .map(|it| program.stages[0].value(it.output).local_elements * 7 / 4 / 2)
        .sum();
    assert_eq!(router, 1008);
}

/// TED's own units: forward and backward on 4 ranks of x and 4 of experts, where an expert's places are 192 elements.
#[test]
fn rows_in_the_units_of_the_paper() {
    let text = "name = 'units'\nlayers = 1\nhidden = 8\nheads = 4\nffn = 16\nvocab = 64\nseq_len = 16\nbiases = false\n\
                experts = 4\nexperts_per_token = 1\ncapacity = 1.0\ncapacity_group = 4\n";
    let model = Model::from_toml(text, &[]).unwrap();
    let total = |activations: Activations, dispatch: Dispatch| {
        let layout = layout_with(&model, "x=4,expert=4", 4, |request| {
            (request.activations, request.dispatch) = (activations, dispatch);
            request.experts_over = spread(&[Axis::Expert]);
        });
        let program = StepProgram::new(&model, &layout).unwrap();
        let stage = &program.stages[0];
        let names = ["dispatched", "experts down", "d results", "d dispatched"];
        let ops = stage.chunks[0].forward.ops.iter().chain(&stage.chunks[0].backward.ops);
        let rows = ops.filter_map(|op| match op.operation {
            Operation::Issue(it) if names.contains(&stage.value(it.output).name.as_str()) => Some(it),
            _ => None,
        });
        // A ring of four.
        let sent = |it: Collective| {
            let input = stage.value(it.input).local_elements;
            let output = stage.value(it.output).local_elements;
            match it.kind {
                CollectiveKind::AllReduce => 2 * 3 * input / 4,
                _ => 3 * input.max(output) / 4,
            }
        };
        let all_to_all = |it: &Collective| it.kind == CollectiveKind::AllToAll;
        let (exchanged, others): (Vec<_>, Vec<_>) = rows.partition(all_to_all);
        // 16 tokens of a rank have 16 places of 8 columns: 128 elements stand for 192.
        let units = |collectives: Vec<Collective>| collectives.into_iter().map(sent).sum::<usize>() * 192 / 128;
        (units(exchanged), units(others))
    };
    assert_eq!(total(Activations::Replicated, Dispatch::Duplicated), (576, 576));
    assert_eq!(total(Activations::Replicated, Dispatch::Dropped), (144, 864));
    assert_eq!(total(Activations::Scattered, Dispatch::Dropped), (144, 576));
}

/// Communication-aware recomputation repeats no all-to-all; without it every third is a repetition.
#[test]
fn repeated_all_to_alls_are_a_third() {
    let base = unbroken(&mixture_of(2), Activations::Scattered, &[Axis::Expert], Dispatch::Dropped);
    let exchanged = |recompute: Recompute, keep: bool| {
        let program = rebuilt(&base, |layout| (layout.recompute, layout.keep_communicated) = (recompute, keep));
        sent(&program, "expert", CollectiveKind::AllToAll)
    };
    let none = exchanged(Recompute::None, false);
    let full = Recompute::Full { every: 1 };
    assert_eq!(exchanged(full, true), none);
    assert_eq!(2 * exchanged(full, false), 3 * none);
}

/// The collectives of all passes and of the update, in order of issue.
pub fn collectives(program: &StepProgram) -> Vec<Collective> {
    let issues = operations(program).into_iter().filter(|(_, op)| matches!(op.operation, Operation::Issue(_)));
    issues.filter_map(|(_, op)| is_collective(op)).collect()
}

/// Without one collective: what it should have sent is what the rank has itself.
fn without(program: &StepProgram, dropped: Collective) -> StepProgram {
    let Collective { kind, input, output, axes, .. } = dropped;
    let instead: Vec<Operation> = match kind {
        CollectiveKind::AllReduce => Vec::new(),
        CollectiveKind::AllToAll => {
            vec![kind::Accumulate { input, output, write: quadrille_step::Write::Overwrite }.into()]
        }
        _ => vec![kind::SliceRows { axis: axes.iter().next().unwrap(), input, output }.into()],
    };
    replaced(program, |op| match op.operation {
        Operation::Issue(it) if it == dropped => instead.iter().map(|it| Op { operation: *it, ..*op }).collect(),
        Operation::Wait(it) if it == dropped => Vec::new(),
        _ => vec![*op],
    })
}

#[test]
fn every_collective_of_experts_matters() {
    let layouts = [
        (Activations::Scattered, vec![Axis::Z, Axis::Expert], Dispatch::Dropped),
        (Activations::Replicated, vec![Axis::Expert], Dispatch::Dropped),
        (Activations::Replicated, vec![Axis::Expert], Dispatch::Duplicated),
    ];
    let own = ["router", "dispatched", "experts", "results", "routes"];
    for (activations, over, dispatch) in layouts {
        let program = unbroken(&mixture_of(2), activations, &over, dispatch);
        let report = prove(&program, 1).unwrap();
        assert!(report.ok, "{report:?}");
        let stage = &program.stages[0];
        let mut caught = 0;
        for collective in collectives(&program).into_iter().filter(|it| it.kind != CollectiveKind::AllGather) {
            let name = &stage.value(collective.output).name;
            if own.iter().any(|part| name.contains(part)) {
                let change = format!("{activations}, {dispatch}: no {} of {name}", collective.kind.name());
                assert_caught(&without(&program, collective), 1, &change);
                caught += 1;
            }
        }
        assert!(caught >= 16, "{caught}");
    }
}

/// A sequence lies on several ranks along x and context, each of which knows its own tokens' choices.
#[test]
fn choices_are_counted_over_whole_sequences() {
    let model = mixture_of_width(2, 16);
    for grid in ["x=2,z=2", "context=2,z=2", "x=2,context=2"] {
        let layout = layout_with(&model, grid, 4, |request| request.microbatch = Some(2));
        let program = StepProgram::new(&model, &layout).unwrap();
        assert!(prove(&program, 1).unwrap().ok, "{grid}");
        let name = |it: &Collective| &program.stages[0].value(it.output).name;
        let counts: Vec<Collective> = collectives(&program).into_iter().filter(|it| name(it) == "choices").collect();
        assert_eq!(counts.len(), 2, "{grid}: one in each block");
        for collective in counts {
            assert_caught(&without(&program, collective), 1, &format!("{grid}: choices stay on their ranks"));
        }
    }
}

#[test]
fn losses_of_routers_are_summed_over_ranks() {
    let program = unbroken(&mixture_of(2), Activations::Scattered, &[Axis::Expert], Dispatch::Dropped);
    let broken = replaced(&program, |op| match op.operation {
        Operation::ReduceScalar(kind::ReduceScalar { scalar: Scalar::Routers { .. }, .. }) => Vec::new(),
        _ => vec![*op],
    });
    assert_caught(&broken, 1, "losses of routers stay on their ranks");
}

/// Ranks whose sequences have different numbers of tokens and targets.
#[test]
fn tokens_and_targets_are_counted_over_ranks() {
    for grid in ["z=2,data=2", "context=2", "x=2,expert=2,pipe=2"] {
        let program = StepProgram::new(&mixture_of(2), &layout_with(&mixture_of(2), grid, 8, |_| ())).unwrap();
        assert!(prove(&program, 1).unwrap().ok, "{grid}");
        let broken = replaced(&program, |op| match op.operation {
            Operation::ReduceScalar(kind::ReduceScalar { scalar: Scalar::Batch, .. }) => Vec::new(),
            _ => vec![*op],
        });
        assert_caught(&broken, 1, &format!("{grid}: tokens and targets stay on their ranks"));
    }
}

/// ZeRO shards the states of experts over the ranks that have the same ones alone.
#[test]
fn states_of_experts_are_sharded_over_their_own_replicas() {
    let plain = unbroken(&mixture_of(2), Activations::Scattered, &[Axis::Expert], Dispatch::Dropped);
    let layout = layout_with(&mixture_of(2), "expert=2,data=2", 16, |request| {
        (request.experts_over, request.zero) = (spread(&[Axis::Expert]), Zero::Optimizer);
    });
    let sharded = StepProgram::new(&mixture_of(2), &layout).unwrap();
    let replicas = |name: &str| {
        let parameter = sharded.stages[0].parameters.iter().find(|it| it.name.ends_with(name)).unwrap();
        let [whole, own] = [parameter.value, parameter.updated].map(|id| sharded.stages[0].value(id).local_elements);
        whole / own
    };
    assert_eq!((replicas("experts.up.weight"), replicas("qkv.weight")), (2, 4));
    assert!(plain.stages[0].parameters.iter().all(|it| it.value == it.updated));
}
