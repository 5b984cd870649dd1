//! Negative controls: what is wrong in a program, however little, makes the proof fail. Every control also shows that the
//! unbroken program passes.
//!
//! An all-gather is not simply left out, since its buffer may still hold the right values from the pass before; it
//! gathers over the wrong axis instead.

use quadrille_proofs::{
    assert_caught, edited, edited_at, edited_stage, is_collective, latent, llama, model, operations, pass_operations,
    program, prove, replaced, trajectory, vit,
};
use quadrille_spec::{
    Activations, Axis, AxisSet, CollectiveKind, Model, Norm, Normalization, NormedOver, Overlap, QueryKeyNorm,
};
use quadrille_step::{
    AxisList, Collective, GemmPass, Members, Op, Operation, Parameter, Reduction, Scalar, StepProgram, Write,
    declared_axes, kind, predict,
};

const BOTH: [Activations; 2] = [Activations::Replicated, Activations::Scattered];

/// Two microbatches of one layer on two ranks of every axis.
fn unbroken(activations: Activations) -> StepProgram {
    unbroken_of(&model(1), activations)
}

/// The same of a vision transformer, of a Llama whose one key is on both ranks of x, and of one with latent attention.
fn other_families(activations: Activations) -> [StepProgram; 3] {
    other_models().map(|model| unbroken_of(&model, activations))
}

fn other_models() -> [Model; 3] {
    [vit(1), llama(1).reshaped(|m| m.kv_heads = 1), latent(1)]
}

fn unbroken_of(model: &Model, activations: Activations) -> StepProgram {
    let program = program(model, "x=2,y=2,z=2,data=2", activations, Overlap::NONE, 16, 4);
    let report = prove(&program, 1).unwrap();
    assert!(report.ok, "{report:?}");
    program
}

/// The collectives of all sections, in order of issue.
fn collectives(program: &StepProgram) -> Vec<Collective> {
    let issues = operations(program).into_iter().filter(|(_, op)| matches!(op.operation, Operation::Issue(_)));
    issues.filter_map(|(_, op)| is_collective(op)).collect()
}

fn describe(program: &StepProgram, collective: &Collective) -> String {
    let name = &program.stages[0].value(collective.output).name;
    format!("{} of {name} over {}", collective.kind.name(), collective.axes.key())
}

/// Replaces one collective by others: none, or one in its place.
fn exchanged(program: &StepProgram, old: Collective, new: &[Operation]) -> StepProgram {
    replaced(program, |op| match op.operation {
        Operation::Issue(collective) if collective == old => {
            new.iter().map(|operation| Op { operation: *operation, ..*op }).collect()
        }
        Operation::Wait(collective) if collective == old => Vec::new(),
        _ => vec![*op],
    })
}

/// Leaves a reduction out: each rank goes on with its own addend.
fn unreduced(program: &StepProgram, collective: Collective) -> StepProgram {
    let Collective { input, output, axes, .. } = collective;
    match collective.kind {
        CollectiveKind::AllReduce => exchanged(program, collective, &[]),
        _ => {
            let axis = axes.iter().next().unwrap();
            exchanged(program, collective, &[Operation::SliceRows(kind::SliceRows { axis, input, output })])
        }
    }
}

#[test]
fn every_reduction_matters() {
    for activations in BOTH {
        let count = assert_reductions_matter(&unbroken(activations));
        assert!(count > 40, "{count}");
    }
}

#[test]
fn every_reduction_of_other_families_matters() {
    for activations in BOTH {
        let [vit, llama, latent] = other_families(activations);
        // Of numbers that are predicted; of the gradients of weights that several ranks of x hold; of a key that all heads share.
        let own = ["predictions", "d block.0.qkv.weight of keys and values", "d shared key"];
        for (program, own) in [vit, llama, latent].into_iter().zip(own) {
            let values = &program.stages[0].values;
            assert!(collectives(&program).iter().any(|c| values[c.input.0].name.starts_with(own)), "{own}");
            let count = assert_reductions_matter(&program);
            assert!(count > 20, "{count}");
        }
    }
}

/// Queries and keys are normed over all heads: statistics, what norms leave in gradients, and gradients of gammas and betas, of
/// which both ranks of x have those of the one key.
#[test]
fn every_reduction_of_norms_over_all_heads_matters() {
    let mut model = llama(1).reshaped(|m| m.kv_heads = 1);
    model.blocks = model.blocks.each(|block| {
        let rule = Normalization { kind: Norm::Layer, ..block.norm };
        block.attention.qk_norm = Some(QueryKeyNorm { rule, over: NormedOver::AllHeads });
    });
    let program = unbroken_of(&model, Activations::Scattered);
    let name = |c: &Collective| &program.stages[0].value(c.output).name;
    let of_gradients = ["d block.0.query_norm", "d block.0.key_norm"];
    let is_of_norms = |c: &Collective| {
        let of_rows = ["row sums", "centered squares", "norm backward sums"].contains(&name(c).as_str());
        of_rows && c.axes == Axis::X.only() || of_gradients.iter().any(|start| name(c).starts_with(start))
    };
    let reductions: Vec<_> = collectives(&program).into_iter().filter(is_of_norms).collect();
    let copies = reductions.iter().filter(|c| matches!(c.members, Members::Blocks(2))).count();
    assert_eq!((reductions.len(), copies), (12, 2));
    for collective in reductions {
        assert_caught(&unreduced(&program, collective), 1, &format!("no {}", describe(&program, &collective)));
    }
}

/// Leaves out one reduction after the other; says how many there are.
fn assert_reductions_matter(program: &StepProgram) -> usize {
    let reductions = collectives(program);
    let reductions: Vec<_> = reductions.iter().filter(|c| c.kind != CollectiveKind::AllGather).collect();
    for collective in &reductions {
        let change = format!("{}: no {}", program.layout.activations, describe(program, collective));
        assert_caught(&unreduced(program, **collective), 1, &change);
    }
    reductions.len()
}

#[test]
fn every_scalar_reduction_matters() {
    for program in [unbroken(Activations::Scattered)].into_iter().chain(other_families(Activations::Scattered)) {
        for dropped in [Scalar::Loss, Scalar::GradientNormSquared] {
            let is_dropped = |op: &Op| matches!(op.operation, Operation::ReduceScalar(kind::ReduceScalar { scalar, .. }) if scalar == dropped);
            let broken = edited(&program, |_, _, update| update.retain(|op| !is_dropped(op)));
            assert_caught(&broken, 1, &format!("{}: no reduction of {dropped:?}", program.model.name));
        }
    }
}

/// The same collective over other axes.
fn over(program: &StepProgram, old: Collective, axes: AxisSet) -> StepProgram {
    let new = Collective { axes, ..old };
    exchanged(program, old, &[Operation::Issue(new), Operation::Wait(new)])
}

/// `axes` with two of them exchanged; `None` if that changes nothing.
fn swapped(axes: AxisSet, [a, b]: [Axis; 2]) -> Option<AxisSet> {
    let other = |axis| match axis {
        _ if axis == a => b,
        _ if axis == b => a,
        _ => axis,
    };
    let swapped = axes.iter().map(other).collect();
    (swapped != axes).then_some(swapped)
}

#[test]
fn every_collective_needs_its_own_axis() {
    for activations in BOTH {
        let program = unbroken(activations);
        let declared = declared_axes(&program.stages[0]);
        let mut gathers = 0;
        for collective in collectives(&program) {
            for pair in [[Axis::X, Axis::Y], [Axis::Z, Axis::Data]] {
                let Some(axes) = swapped(collective.axes, pair).filter(|axes| declared.contains(axes)) else {
                    continue;
                };
                let change = format!("{activations}: {}, over {}", describe(&program, &collective), axes.key());
                assert_caught(&over(&program, collective, axes), 1, &change);
                gathers += usize::from(collective.kind == CollectiveKind::AllGather);
            }
        }
        assert!(gathers > 10, "{gathers}");
    }
}

/// The program with another set of axes for the reduction of a gradient, consistently.
fn reduced_over(program: &StepProgram, index: usize, axes: AxisSet) -> StepProgram {
    let Parameter { gradient, unreduced, .. } = program.stages[0].parameters[index];
    let old = Collective {
        kind: CollectiveKind::AllReduce,
        axes: unreduced,
        members: Members::All,
        reduction: Reduction::Sum,
        input: gradient,
        output: gradient,
    };
    edited_stage(&over(program, old, axes), 0, |stage| stage.parameters[index].unreduced = axes)
}

#[test]
fn gradients_are_reduced_over_neither_too_few_nor_too_many_axes() {
    for activations in BOTH {
        let program = unbroken(activations);
        for (index, parameter) in program.stages[0].parameters.iter().enumerate() {
            for axis in Axis::AXONN {
                let axes = if parameter.unreduced.contains(axis) {
                    parameter.unreduced.without(axis.only())
                } else {
                    parameter.unreduced.union(axis.only())
                };
                if axes.is_empty() {
                    continue; // Left out altogether: `every_reduction_matters`.
                }
                let change = format!("{activations}: {} reduced over {}", parameter.name, axes.key());
                assert_caught(&reduced_over(&program, index, axes), 1, &change);
            }
        }
    }
}

#[test]
fn every_gradient_counts_once_in_the_norm() {
    assert_counts_once_in_the_norm(&unbroken(Activations::Scattered));
    for mut model in other_models() {
        // What works through scores alone is seen in the norm of all where queries and keys are normed: scores are large then.
        model.blocks = model.blocks.each(|block| {
            let of_heads = QueryKeyNorm { rule: block.norm, over: NormedOver::Head };
            block.attention.qk_norm = block.attention.latent.map(|_| of_heads);
        });
        assert_counts_once_in_the_norm(&unbroken_of(&model, Activations::Scattered));
    }
}

fn assert_counts_once_in_the_norm(program: &StepProgram) {
    for index in 0..program.stages[0].parameters.len() {
        let counts = |op: &Op| matches!(op.operation, Operation::SumSquares(kind::SumSquares { parameter, .. }) if parameter.0 == index);
        let name = &program.stages[0].parameters[index].name;
        let never = edited(program, |_, _, update| update.retain(|op| !counts(op)));
        assert_caught(&never, 1, &format!("{name} is not in the norm"));
        let twice = edited(program, |_, _, update| {
            let at = update.iter().position(counts).unwrap();
            update.insert(at, update[at]);
        });
        assert_caught(&twice, 1, &format!("{name} is twice in the norm"));
    }
}

#[test]
fn shards_count_once_in_the_norm() {
    // As if a weight were replicated over z, or a bias cut over data: another rank set would own it.
    let program = unbroken(Activations::Scattered);
    for (index, parameter) in program.stages[0].parameters.iter().enumerate() {
        let broken = edited_stage(&program, 0, |stage| {
            let sharding = &mut stage.values[parameter.gradient.0].sharding;
            if sharding.flat.is_empty() {
                sharding.rows = [Axis::Data].into_iter().collect()
            } else {
                sharding.flat = AxisList::default()
            }
        });
        assert_caught(&broken, 1, &format!("{index}: another owner of {}", parameter.name));
    }
}

#[test]
fn every_microbatch_counts_once() {
    for (grid, activations) in [("x=2,y=2,z=2", BOTH[0]), ("x=2,y=2,z=2", BOTH[1]), ("x=2,y=2", BOTH[1])] {
        let program = program(&model(1), grid, activations, Overlap::NONE, 8, 4);
        assert!(prove(&program, 2).unwrap().ok);
        for (at, op) in pass_operations(&program) {
            if { op.operation }.write_mut() != Some(&mut Write::AccumulateMicrobatches) {
                continue;
            }
            for wrong in [Write::Overwrite, Write::Accumulate] {
                let broken = edited_at(&program, at, |ops, at| set_write(&mut ops[at].operation, wrong));
                let change = format!("{grid}, {activations}: {} at {at:?}: {wrong:?}", op.operation.name());
                assert_caught(&broken, 2, &change);
            }
        }
    }
}

fn set_write(operation: &mut Operation, new: Write) {
    if let Some(write) = operation.write_mut() {
        *write = new;
    }
}

#[test]
fn products_overwrite_and_sums_add() {
    let program = unbroken(Activations::Scattered);
    for (at, op) in pass_operations(&program) {
        let wrong = match { op.operation }.write_mut() {
            Some(Write::Overwrite) if matches!(op.operation, Operation::Gemm(_)) => Write::Accumulate,
            Some(Write::Accumulate) => Write::Overwrite,
            _ => continue,
        };
        let broken = edited_at(&program, at, |ops, at| set_write(&mut ops[at].operation, wrong));
        assert_caught(&broken, 1, &format!("{} at {at:?}: {wrong:?}", op.operation.name()));
    }
}

#[test]
fn work_in_place_is_done_once() {
    for activations in BOTH {
        let program = unbroken(activations);
        for (at, op) in pass_operations(&program) {
            if !matches!(op.operation, Operation::Bias(_) | Operation::AddPositions(_) | Operation::Residual(_)) {
                continue;
            }
            let name = op.operation.name();
            let never = edited_at(&program, at, |ops, at| _ = ops.remove(at));
            assert_caught(&never, 1, &format!("{activations}: no {name} at {at:?}"));
            let twice = edited_at(&program, at, |ops, at| ops.insert(at, *op));
            assert_caught(&twice, 1, &format!("{activations}: {name} twice at {at:?}"));
        }
    }
}

/// Embedded tokens, and their gradient, are multiplied with their factor once, and logits are capped once.
#[test]
fn ends_are_scaled_and_capped_once() {
    for tied_head in [true, false] {
        let ends = Model { tied_head, embedding_scale: 3.5, logit_cap: Some(0.5), ..model(1) };
        let program = unbroken_of(&ends, Activations::Scattered);
        let is_end = |op: &Op| matches!(op.operation, Operation::Scale(_) | Operation::CapLogits(_));
        let ends: Vec<_> = pass_operations(&program).into_iter().filter(|(_, op)| is_end(op)).collect();
        assert_eq!(ends.len(), 3, "forward, backward, and the cap");
        for (at, op) in ends {
            let name = op.operation.name();
            let never = edited_at(&program, at, |ops, at| _ = ops.remove(at));
            assert_caught(&never, 1, &format!("no {name} at {at:?}"));
            let twice = edited_at(&program, at, |ops, at| ops.insert(at, *op));
            assert_caught(&twice, 1, &format!("{name} twice at {at:?}"));
        }
    }
}

#[test]
fn every_parameter_moves_once() {
    let program = unbroken(Activations::Scattered);
    for (at, op) in program.stages[0].update.ops.iter().enumerate() {
        if let Operation::AdamW(kind::AdamW { parameter, .. }) = op.operation {
            let name = &program.stages[0].parameters[parameter.0].name;
            let never = edited(&program, |_, _, update| _ = update.remove(at));
            assert_caught(&never, 1, &format!("{name} does not move"));
            let twice = edited(&program, |_, _, update| update.insert(at, *op));
            assert_caught(&twice, 1, &format!("{name} moves twice"));
        }
    }
}

#[test]
fn weight_gradients_come_from_the_right_product() {
    let program = unbroken(Activations::Replicated);
    let is_product =
        |op: &Op| matches!(op.operation, Operation::Gemm(kind::Gemm { pass: GemmPass::WeightGradient, .. }));
    for (at, op) in pass_operations(&program).into_iter().filter(|(_, op)| is_product(op)) {
        let twice = edited_at(&program, at, |ops, at| {
            let mut again = *op;
            set_write(&mut again.operation, Write::Accumulate);
            ops.insert(at + 1, again);
        });
        assert_caught(&twice, 1, &format!("the product at {at:?} is added twice"));
    }
}

/// A maximum taken a second time changes no number: only the ledgers can tell.
#[test]
fn a_collective_too_many_is_counted() {
    let program = unbroken(Activations::Scattered);
    let maximum = collectives(&program).into_iter().find(|c| c.reduction == Reduction::Max).unwrap();
    let [issue, wait] = [Operation::Issue(maximum), Operation::Wait(maximum)];
    let wasteful = exchanged(&program, maximum, &[issue, wait, issue, wait]);
    assert!(prove(&wasteful, 1).unwrap().ok, "the numbers are right");

    let counted = |program: &StepProgram| trajectory(program, 1, 1).unwrap();
    let predicted = predict(&program).ranks;
    for (rank, run) in counted(&program).into_iter().enumerate() {
        assert_eq!(run.ledger.unwrap(), predicted[rank]);
    }
    for (rank, run) in counted(&wasteful).into_iter().enumerate() {
        let ledger = run.ledger.unwrap();
        assert_ne!(ledger, predicted[rank]);
        let calls = |ledger: &quadrille_spec::RankLedger| ledger.axes["x+y"][&CollectiveKind::AllReduce].calls;
        let microbatches = program.layout.microbatches() as u64;
        assert_eq!(calls(&ledger), calls(&predicted[rank]) + microbatches);
    }
}
