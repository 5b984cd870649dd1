//! Pruned weights: every layout equals the masked serial model, and what is held and sent is what the closed forms say.

use proptest::prelude::*;
use quadrille_comm::{JobOptions, run_ranks};
use quadrille_engine::{Backend, Cpu, EngineError, Held, InitialValues, Masks, RankEngine};
use quadrille_proofs::{
    Case, SEED, combined_cases, edited, for_random, holds, hyper, llama, model, program_with, random_samples, rebuilt,
};
use quadrille_spec::{CollectiveKind, ElementType, MemoryClass, Offload, RandomStream, Sparsity, Zero};
use quadrille_step::{Kept, Op, Operation, ParameterId, StepProgram, kind, predict};
use quadrille_verify::{Reference, VerifyOptions, VerifyReport, verify_on_cpu};

fn sparsity(text: &str) -> Sparsity {
    text.parse().unwrap()
}

fn options(part: &str, steps: u64) -> VerifyOptions {
    VerifyOptions { sparsity: Some(sparsity(part)), hyper: hyper(Some(0.1)), ..VerifyOptions::new(steps, SEED) }
}

fn proven(program: &StepProgram, part: &str) -> Result<VerifyReport, EngineError> {
    let options = options(part, 3);
    verify_on_cpu(program, &options, &mut Reference::new(program, &options))
}

/// The program of a small model, of which this part is pruned.
pub fn pruned(part: &str, grid: &str, zero: Zero, dtype: ElementType) -> StepProgram {
    let whole = program_with(&llama(2), grid, 16, |request| {
        (request.zero, request.dtype, request.microbatch) = (zero, dtype, Some(4));
    });
    pruned_of(part, whole)
}

/// The program of a whole model, pruned.
pub fn pruned_of(part: &str, whole: StepProgram) -> StepProgram {
    options(part, 1).pruned(whole).unwrap()
}

/// Which elements of a tensor the mask of a part keeps.
pub fn mask_of(part: &str, tensor: &str, elements: usize) -> impl Iterator<Item = bool> {
    let stream = RandomStream::new(SEED, &format!("mask {tensor}"));
    let part = sparsity(part).part();
    (0..elements as u64).map(move |element| f64::from(stream.word(element)) / 4_294_967_296.0 >= part)
}

/// No element pruned, or as many as leave every gradient something to be measured by: where nothing goes on from a norm but
/// differences, it is all rounding.
const PARTS: [&str; 4] = ["0", "0.3", "0.5", "0.7"];

/// Whether several ranks hold a key, which is refused of pruned models.
fn shares_keys(case: &Case) -> bool {
    case.model.blocks.kinds().iter().any(|block| case.layout.kv_copies(&block.attention) > 1)
}

#[test]
fn random_layouts_equal_the_masked_serial_model() {
    for_random(30, (combined_cases(), prop::sample::select(PARTS.to_vec())), |(case, part)| {
        if shares_keys(&case) {
            Ok(())
        } else {
            holds(&Case { sparsity: Some(sparsity(part)), ..case }, ElementType::F64)
        }
    });
}

#[test]
fn random_layouts_in_other_formats_equal_it_too() {
    let formats = [ElementType::F32, ElementType::Bf16, ElementType::F16].to_vec();
    for_random(9, (combined_cases(), prop::sample::select(formats)), |(case, dtype)| {
        if shares_keys(&case) { Ok(()) } else { holds(&Case { sparsity: Some(sparsity("0.7")), ..case }, dtype) }
    });
}

/// So many are pruned that some tiles keep nothing.
#[test]
fn nearly_everything_may_be_pruned() {
    for (grid, zero) in [("x=2,z=2", Zero::Off), ("data=4", Zero::Gradients), ("y=2,pipe=2", Zero::Off)] {
        for part in ["0.9", "0.95"] {
            let program = pruned(part, grid, zero, ElementType::F64);
            let report = proven(&program, part).unwrap();
            assert!(report.ok, "{part} on {grid}: {report:?}");
        }
        let least = pruned("0.999", grid, zero, ElementType::F64);
        assert!(least.kept.values().any(|kept| *kept == 0));
        assert!(proven(&least, "0.999").unwrap().ledger_equal);
    }
}

/// With all elements kept the numbers are those of the whole model, in every bit, where sums have the same order: over z and
/// data as well as in the update. Rows of a table are summed by microbatches, of which there is one here.
#[test]
fn nothing_pruned_changes_no_bit() {
    for (grid, zero, dtype) in [
        ("x=1", Zero::Off, ElementType::F32),
        ("x=2,data=2", Zero::Off, ElementType::F32),
        ("z=2,data=2", Zero::Gradients, ElementType::Bf16),
        ("y=2,data=2", Zero::Optimizer, ElementType::F64),
    ] {
        let whole = program_with(&llama(2), grid, 8, |request| (request.zero, request.dtype) = (zero, dtype));
        let kept = pruned_of("0", whole.clone());
        assert!(!kept.kept.is_empty() && whole.kept.is_empty());
        let numbers = |program: &StepProgram, masks: Option<&Masks>| match dtype {
            ElementType::Bf16 => stepped::<Cpu<half::bf16>>(program, masks, 2),
            ElementType::F32 => stepped::<Cpu<f32>>(program, masks, 2),
            _ => stepped::<Cpu<f64>>(program, masks, 2),
        };
        let [a, b] = [numbers(&kept, Some(&drawn("0"))), numbers(&whole, None)];
        assert!(a == b, "{grid}, {zero}, {dtype}");
    }
}

/// The masks of [`pruned`].
pub fn drawn(part: &str) -> Masks {
    Masks::Drawn { seed: SEED, sparsity: sparsity(part) }
}

/// The weights of all ranks after some steps.
pub fn stepped<B: Backend>(program: &StepProgram, masks: Option<&Masks>, steps: u64) -> Vec<Vec<Held>> {
    let batch = random_samples(program);
    let ranks = run_ranks(&JobOptions::new(program.layout.grid.ranks()), |context| {
        let initial = InitialValues::Perturbed;
        let mut engine = RankEngine::<B>::new(program, context, 1, hyper(Some(0.1)), SEED, initial)?;
        masks.map_or(Ok(()), |masks| engine.prune(masks, initial))?;
        (0..steps).try_for_each(|_| engine.step(&batch).map(drop))?;
        Ok(engine.weights()?)
    });
    ranks.unwrap()
}

/// Bytes of a kept element: a gradient, a master where there is one, two moments and a place; of a dense one the weight
/// (specification of the memory optimisations, 3.3). Sums over replicas send kept elements alone, those over z all.
#[test]
fn states_and_reductions_are_of_kept_elements() {
    for (dtype, gradients, each) in [
        (ElementType::F32, ElementType::F32, 16),
        (ElementType::Bf16, ElementType::Bf16, 2 + 4 + 8 + 4),
        (ElementType::Bf16, ElementType::F32, 4 + 4 + 8 + 4),
        (ElementType::F64, ElementType::F64, 8 + 16 + 4),
    ] {
        for zero in [Zero::Off, Zero::Optimizer] {
            let whole = program_with(&model(1), "z=2,data=2", 8, |request| {
                (request.zero, request.dtype, request.gradients) = (zero, dtype, Some(gradients));
            });
            let kept = options("0.75", 1).pruned(whole.clone()).unwrap();
            let [whole_ledger, ledger] = [&whole, &kept].map(|program| predict(program).ranks.remove(0));
            let stage = &kept.stages[0];
            let states = |memory: &std::collections::BTreeMap<MemoryClass, u64>| {
                memory[&MemoryClass::Gradients] + memory[&MemoryClass::Optimizer]
            };
            let mut saved = 0_i64;
            let mut less_sent = 0_i64;
            for parameter in stage.parameters.iter().filter(|parameter| parameter.compressed.is_some()) {
                let tile = parameter.rows * parameter.cols / 2;
                let count = stage.value(parameter.compressed.unwrap()).local_elements;
                assert_eq!(count, kept.kept[&parameter.name]);
                assert!(count * 4 < tile + 4 * tile / 5 && count * 4 > tile / 2, "{count} of {tile}");
                let parts = if zero == Zero::Off { 1 } else { 2 };
                let [gradient, index] = [gradients.bytes() as i64, 4];
                let updated = each - gradient - index;
                // ZeRO pads what it cuts.
                let cut = |elements: usize| elements.div_ceil(parts);
                saved += gradient * (parts * cut(tile) - parts * cut(count)) as i64 - index * count as i64;
                saved += updated * (cut(tile) - cut(count)) as i64;
                less_sent += gradient * (tile - count) as i64;
            }
            assert_eq!(
                states(&whole_ledger.memory.now) as i64 - states(&ledger.memory.now) as i64,
                saved,
                "{dtype}, gradients {gradients}, {zero}"
            );
            if zero == Zero::Off {
                let reduced = |ledger: &quadrille_spec::RankLedger| {
                    ledger.axes["data"][&CollectiveKind::AllReduce].payload_bytes as i64
                };
                assert_eq!(reduced(&whole_ledger) - reduced(&ledger), less_sent);
            }
            assert_eq!(whole_ledger.axes["z"], ledger.axes["z"]);
            assert_eq!(whole_ledger.memory.now[&MemoryClass::Parameters], ledger.memory.now[&MemoryClass::Parameters]);
        }
    }
}

/// The operation of a parameter that `of` picks, each time that it comes.
fn without(ops: &mut Vec<Op>, of: impl Fn(&Operation) -> bool) {
    let before = ops.len();
    ops.retain(|op| !of(&op.operation));
    assert!(ops.len() < before);
}

#[test]
fn wrong_masks_and_missing_steps_are_noticed() {
    let right = pruned("0.5", "data=2", Zero::Off, ElementType::F64);
    assert!(proven(&right, "0.5").unwrap().ok);
    let caught = |program: &StepProgram, change: &str| {
        let report = proven(program, "0.5").unwrap();
        assert!(report.ledger_equal, "{change}: {report:?}");
        assert!(!report.ok, "{change} was not noticed: {report:?}");
    };
    let of = |name: &str| ParameterId(right.stages[0].parameters.iter().position(|each| each.name == name).unwrap());
    let [own, other] = ["block.0.qkv.weight", "block.1.qkv.weight"].map(of);
    let expands = |operation: &Operation| matches!(operation, Operation::Expand(op) if op.parameter == own);
    caught(&edited(&right, |_, _, update| without(update, expands)), "kept elements that do not go back");
    // Both tensors have room for as many elements, so that the other's places fit.
    let mut counts = right.kept.clone();
    let most = [own, other].map(|id| counts[&right.stages[0].parameters[id.0].name]).into_iter().max().unwrap();
    counts.extend([own, other].map(|id| (right.stages[0].parameters[id.0].name.clone(), most)));
    let roomy = StepProgram::pruned(&right.model, &right.layout, counts).unwrap();
    assert!(proven(&roomy, "0.5").unwrap().ok, "room that is not needed changes nothing");
    for which in ["gradient", "weight", "expanded"] {
        let swapped = edited(&roomy, |_, backward, update| {
            let ops: Vec<&mut Op> =
                if which == "gradient" { backward.iter_mut().collect() } else { update.iter_mut().collect() };
            for op in ops {
                match &mut op.operation {
                    Operation::Compress(kind::Compress { parameter, .. })
                        if which != "expanded" && *parameter == own =>
                    {
                        *parameter = other
                    }
                    Operation::Expand(kind::Expand { parameter, .. }) if which == "expanded" && *parameter == own => {
                        *parameter = other
                    }
                    _ => {}
                }
            }
        });
        caught(&swapped, &format!("a {which} by the mask of another tile"));
    }
    let uncompressed = edited(&right, |_, _, update| {
        without(update, |operation| matches!(operation, Operation::Compress(op) if op.parameter == own))
    });
    caught(&uncompressed, "weights that are not what they were before the update");
}

/// Buckets of states in the host's memory hold kept elements; they change no bit.
#[test]
fn offloading_moves_kept_elements_alone() {
    for dtype in [ElementType::F32, ElementType::Bf16] {
        let plain = pruned("0.9", "z=2,data=2", Zero::Optimizer, dtype);
        let layout = quadrille_spec::Layout { offload: Offload::Host, bucket: 50, ..plain.layout.clone() };
        let offloaded = StepProgram::pruned(&plain.model, &layout, plain.kept.clone()).unwrap();
        let numbers = |program: &StepProgram| match dtype {
            ElementType::Bf16 => stepped::<Cpu<half::bf16>>(program, Some(&drawn("0.9")), 3),
            _ => stepped::<Cpu<f32>>(program, Some(&drawn("0.9")), 3),
        };
        assert!(numbers(&plain) == numbers(&offloaded));
        // Begun before the norm is known, which is clipped: updated twice.
        let layout = quadrille_spec::Layout { optimizer_overlap: true, ..layout };
        let overlapped = StepProgram::pruned(&plain.model, &layout, plain.kept.clone()).unwrap();
        assert!(numbers(&plain) == numbers(&overlapped));
        assert!(proven(&overlapped, "0.9").unwrap().ok);
        assert!(proven(&offloaded, "0.9").unwrap().ok);
        let host =
            |program: &StepProgram| predict(program).ranks[0].memory.now.get(&MemoryClass::Host).copied().unwrap_or(0);
        assert!(host(&offloaded) > 0 && 2 * host(&offloaded) < host(&rebuilt(&offloaded, |_| ())));
    }
}

/// Copies of a key would lie at different places among what their ranks keep, and be summed in different orders.
#[test]
fn pruned_keys_that_several_ranks_would_hold_are_refused() {
    let whole = program_with(&llama(1).reshaped(|m| m.kv_heads = 1), "x=4", 4, |_| ());
    let error = options("0.6", 1).pruned(whole).unwrap_err().to_string();
    assert!(error.contains("block.0.qkv.weight is pruned") && error.contains("use x=1 or less"), "{error}");
}

/// A tile that keeps more than another is as long as all of them, and what is behind its own elements is nothing.
#[test]
fn tiles_are_as_long_as_the_fullest() {
    let program = pruned("0.5", "x=2,z=2", Zero::Off, ElementType::F64);
    let stage = &program.stages[0];
    for parameter in stage.parameters.iter().filter(|parameter| parameter.compressed.is_some()) {
        let count = program.kept[&parameter.name];
        assert_eq!(stage.value(parameter.reduced).pruned, Some(Kept::Counted(count)));
        let mask: Vec<bool> = mask_of("0.5", &parameter.name, parameter.rows * parameter.cols).collect();
        let of_rank = |rank| {
            let place = program.layout.grid.coordinate(rank);
            let shard = quadrille_engine::Shard::of(stage, parameter, parameter.value, place);
            let rows = shard.runs().filter(|run| run.row < parameter.rows);
            let elements = rows.flat_map(|run| (0..run.len).map(move |at| run.row * parameter.cols + run.col + at));
            elements.filter(|element| mask[*element]).count()
        };
        let counts: Vec<usize> = (0..4).map(of_rank).collect();
        assert_eq!(*counts.iter().max().unwrap(), count);
    }
    // A place less, and the fullest tile has no room.
    let mut less = program.kept.clone();
    let first = less.values_mut().next().unwrap();
    *first -= 1;
    let less = StepProgram::pruned(&program.model, &program.layout, less).unwrap();
    assert!(proven(&less, "0.5").unwrap_err().to_string().contains("has room for"));
}
