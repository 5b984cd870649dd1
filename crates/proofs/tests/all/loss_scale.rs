//! Scaled losses: powers of two change no bit, save gradients that are too small for their type, and give way to steps whose
//! gradients are too large.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use half::f16;
use quadrille_checkpoint::{About, Checkpoint, Draft, Folder, Quantity, TensorShape, Tile};
use quadrille_comm::{JobOptions, run_ranks};
use quadrille_engine::{
    Backend, Cpu, DivergencePolicy, EngineError, Held, Hyper, InitialValues, LossScale, OnDivergence, OnSaveFailure,
    RankEngine, Restore, RunEvent, Saving, Start, StepRecord, TrainOptions, tensor_shapes, train_on_cpu,
};
use quadrille_proofs::{SEED, hyper, llama, program_with, random_samples};
use quadrille_spec::ElementType;
use quadrille_step::StepProgram;
use serde_json::{Value, json};

use crate::checkpoints::about;
use crate::samo::{drawn, pruned_of};

const GRIDS: [&str; 3] = ["x=1", "x=2,data=2", "y=2,z=2,pipe=2"];
const F16: ElementType = ElementType::F16;

fn program(grid: &str, dtype: ElementType) -> StepProgram {
    program_with(&llama(2), grid, 8, |request| (request.dtype, request.microbatch) = (dtype, Some(4)))
}

/// What each rank has after a step at each of `scales`: the outcomes, its gradients and its state, to the bit.
type Bits = (Vec<[u64; 2]>, Vec<Held>, Vec<Held>);

fn bits_at<B: Backend>(program: &StepProgram, scales: &[u32]) -> Vec<Bits> {
    let batch = random_samples(program);
    let ranks = run_ranks(&JobOptions::new(program.layout.grid.ranks()), |context| {
        let initial = InitialValues::Perturbed;
        let mut engine = RankEngine::<B>::new(program, context, 1, hyper(Some(0.1)), SEED, initial)?;
        let mut outcomes = Vec::new();
        for scale in scales {
            engine.set_loss_scale(*scale);
            let outcome = engine.step(&batch)?;
            outcomes.push([outcome.loss.to_bits(), outcome.gradient_norm.to_bits()]);
        }
        Ok((outcomes, engine.gradients()?, engine.weights()?))
    });
    ranks.unwrap()
}

/// The root of the squares of what is between two tensors, as a part of the first one's.
fn gap(a: &[f64], b: &[f64]) -> f64 {
    let root = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|number| number * number).sum::<f64>().sqrt();
    root(&mut a.iter().zip(b).map(|(a, b)| a - b)) / root(&mut a.iter().copied())
}

#[test]
fn powers_of_two_change_no_bit_where_numbers_keep_their_range() {
    for grid in GRIDS {
        let wide = program(grid, ElementType::F32);
        let plain = bits_at::<Cpu<f32>>(&wide, &[1; 3]);
        for scales in [[1024; 3], [1 << 16, 2, 1 << 24]] {
            assert!(bits_at::<Cpu<f32>>(&wide, &scales) == plain, "{grid} in f32 at {scales:?}");
        }
        // In f16 differences of large numbers may still be too small to have all their bits.
        let narrow = program(grid, F16);
        let [some, others] = [1 << 18, 1 << 19].map(|scale| bits_at::<Cpu<f16>>(&narrow, &[scale]));
        for ((_, some, _), (_, others, _)) in some.iter().zip(&others) {
            let gaps = some.iter().zip(others).map(|(some, others)| gap(&some.numbers, &others.numbers));
            assert!(gaps.fold(0.0, f64::max) < 1e-5, "{grid} in f16");
        }
    }
}

/// A checkpoint of these numbers, in which a run has the given state.
fn committed(
    program: &StepProgram,
    folder: &Path,
    step: u64,
    run: Value,
    numbers: impl Fn(&str, Quantity, usize) -> Vec<f32>,
) -> Arc<Checkpoint> {
    let tiles = |TensorShape { name, rows, cols }: TensorShape| {
        let tile = |quantity| Tile { tensor: name.clone(), quantity, row: 0, col: 0, rows, cols };
        Quantity::NUMBERS.map(|quantity| (tile(quantity), Cow::Owned(numbers(&name, quantity, rows * cols))))
    };
    let shapes = tensor_shapes(program);
    let tiles: Vec<_> = shapes.iter().cloned().flat_map(tiles).collect();
    let draft = Draft::begin(folder, step).unwrap();
    draft.write(0, &tiles).unwrap();
    let about = About { step, run, ..about(program, SEED, &Start::Drawn) };
    Arc::new(Checkpoint::open(&draft.commit(&about, &shapes, &[0]).unwrap()).unwrap())
}

#[test]
fn gradients_that_are_too_small_for_f16_are_there_when_they_are_scaled() {
    let program = program("x=1", F16);
    let folder = tempfile::tempdir().unwrap();
    // What flows back through so small a head is less than half the smallest number of the type. Its rows are not constant:
    // a row of gradients of logits sums to nothing.
    let weights = committed(&program, folder.path(), 0, json!({}), |name, quantity, elements| match quantity {
        Quantity::Value if name == "head.weight" => (0..elements)
            .map(|index| if index % 3 == 0 { f32::from(f16::MIN_POSITIVE_SUBNORMAL) } else { 0.0 })
            .collect(),
        Quantity::Value => (0..elements).map(|index| 0.5 * (index as f32).sin()).collect(),
        Quantity::FirstMoment | Quantity::SecondMoment | Quantity::Kept => vec![0.0; elements],
    });
    let batch = random_samples(&program);
    let vanished = |scale: u32| {
        let ranks = run_ranks(&JobOptions::new(1), |context| {
            let initial = InitialValues::Training;
            let mut engine = RankEngine::<Cpu<f16>>::new(&program, context, 1, hyper(None), SEED, initial)?;
            engine.load(&weights, Restore::Values)?;
            engine.set_loss_scale(scale);
            assert!(engine.step(&batch)?.applied);
            Ok(engine.gradients()?)
        });
        let gradients = ranks.unwrap().remove(0);
        gradients.iter().filter(|gradient| gradient.numbers.iter().all(|number| *number == 0.0)).count()
    };
    assert_eq!(vanished(1), tensor_shapes(&program).len() - 1, "all but the head's");
    assert_eq!(vanished(1 << 16), 0);
}

/// The negative control: at a scale that is much too large.
#[test]
fn a_step_at_too_large_a_scale_leaves_parameters_masters_and_moments() {
    for (grid, is_pruned) in GRIDS.into_iter().flat_map(|grid| [(grid, false), (grid, true)]) {
        let whole = program(grid, F16);
        let program = if is_pruned { pruned_of("0.6", whole) } else { whole };
        let batch = random_samples(&program);
        run_ranks(&JobOptions::new(program.layout.grid.ranks()), |context| {
            let initial = InitialValues::Perturbed;
            let mut engine = RankEngine::<Cpu<f16>>::new(&program, context, 1, hyper(None), SEED, initial)?;
            if is_pruned {
                engine.prune(&drawn("0.6"), initial)?;
            }
            let mut step = |scale| {
                engine.set_loss_scale(scale);
                let outcome = engine.step(&batch)?;
                Ok::<_, EngineError>((outcome, (engine.weights()?, engine.masters()?, engine.own_tiles()?)))
            };
            let (first, before) = step(1024)?;
            let (second, after) = step(1 << 31)?;
            assert!(first.applied && !second.applied && second.loss.is_finite() && !second.gradient_norm.is_finite());
            assert!(before == after, "{grid}: something was updated");
            let (third, later) = step(1024)?;
            assert!(third.applied && after.1 != later.1, "{grid}: the next step is as any other");
            Ok(())
        })
        .unwrap();
    }
}

/// Numbers by the name of the parameter.
type Named = BTreeMap<String, Vec<f64>>;

/// A rank's parameters as the optimizer has them, and their gradients.
fn optimized(engine: &mut RankEngine<Cpu<f16>>, names: &[String]) -> Result<[Named; 2], EngineError> {
    let masters = engine.masters()?.into_iter().zip(engine.weights()?);
    let parameters = masters.map(|(master, weight)| master.unwrap_or(weight).numbers);
    let gradients = engine.gradients()?.into_iter().map(|held| held.numbers);
    Ok([names.iter().cloned().zip(parameters).collect(), names.iter().cloned().zip(gradients).collect()])
}

/// AdamW (Loshchilov and Hutter 2019, algorithm 2) with the constants of [`hyper`], written anew.
#[derive(Default)]
struct PlainAdamW {
    updates: i32,
    moments: BTreeMap<String, [Vec<f64>; 2]>,
}

impl PlainAdamW {
    /// Parameters after one more update.
    fn update(&mut self, rate: f64, parameters: &Named, gradients: &Named) -> Named {
        let beta1 = 0.9_f64;
        let beta2 = 0.95_f64;
        let epsilon = 1e-6;
        self.updates += 1;
        let [correction1, correction2] = [beta1, beta2].map(|beta| 1.0 - beta.powi(self.updates));
        let mut after = parameters.clone();
        for (name, numbers) in &mut after {
            let gradient = &gradients[name];
            assert_eq!(numbers.len(), gradient.len(), "{name}");
            let zeros = || [(); 2].map(|()| vec![0.0; gradient.len()]);
            let [first, second] = self.moments.entry(name.clone()).or_insert_with(zeros);
            let decays = [".weight", ".table", ".positions"].iter().any(|ending| name.ends_with(ending));
            let decay = if decays { 0.1 } else { 0.0 };
            for (at, number) in numbers.iter_mut().enumerate() {
                first[at] = beta1 * first[at] + (1.0 - beta1) * gradient[at];
                second[at] = beta2 * second[at] + (1.0 - beta2) * gradient[at].powi(2);
                let mean = first[at] / correction1;
                let square = second[at] / correction2;
                *number -= rate * (mean / (square.sqrt() + epsilon) + decay * *number);
            }
        }
        after
    }
}

/// Six overflows are what `auto` needs from its first scale down to its least.
#[test]
fn skipped_steps_count_for_the_learning_rate_and_not_for_the_moments() {
    let scales = [[1 << 31; 6].as_slice(), &[1024, 1 << 31, 1024, 1024]].concat();
    let hyper = Hyper { learning_rate: 1e-3, warmup_steps: 20, weight_decay: 0.1, ..hyper(None) };
    for grid in GRIDS {
        let program = program(grid, F16);
        let batch = random_samples(&program);
        run_ranks(&JobOptions::new(program.layout.grid.ranks()), |context| {
            let parameters = &program.of_rank(context.rank()).parameters;
            let names: Vec<_> = parameters.iter().map(|parameter| parameter.name.clone()).collect();
            let initial = InitialValues::Perturbed;
            let mut engine = RankEngine::<Cpu<f16>>::new(&program, context, 1, hyper, SEED, initial)?;
            let mut plain = PlainAdamW::default();
            let mut before = Named::new();
            for (step, scale) in (1..).zip(&scales) {
                engine.set_loss_scale(*scale);
                assert_eq!(engine.step(&batch)?.applied, *scale == 1024, "{grid}: step {step}");
                let [after, gradients] = optimized(&mut engine, &names)?;
                if *scale == 1024 {
                    let rate = 1e-3 * f64::from(step) / 20.0;
                    for (name, expected) in plain.update(rate, &before, &gradients) {
                        let gaps = after[&name].iter().zip(expected).map(|(after, expected)| (after - expected).abs());
                        let worst = gaps.fold(0.0, f64::max);
                        // An update is about as large as the rate.
                        assert!(worst < 2e-3 * rate, "{grid}: {name} after step {step} is off by {worst:e}");
                    }
                }
                before = after;
            }
            Ok(())
        })
        .unwrap();
    }
}

/// Trains to the end of step `steps` with checkpoints after each, and tells what was skipped.
fn run(
    grid: &str,
    folder: &Path,
    start: Start,
    steps: u64,
    rule: LossScale,
    action: OnDivergence,
) -> Result<(Vec<StepRecord>, Vec<String>), EngineError> {
    let program = program(grid, F16);
    let first = start.steps_done();
    let about = About { step: first, ..about(&program, SEED, &Start::Drawn) };
    let on_failure = OnSaveFailure::Stop;
    let options = TrainOptions {
        start,
        loss_scale: Some(rule),
        divergence: DivergencePolicy { action, largest_loss: None },
        saving: Some(Saving { folder: folder.to_owned(), every: Some(1), keep: 100, on_failure, about }),
        ..TrainOptions::new(steps, hyper(None), SEED)
    };
    let mut skipped = Vec::new();
    let outcome = train_on_cpu(&program, &options, &random_samples(&program), None, &mut |event| {
        if let RunEvent::Skipped { reason, .. } = event {
            skipped.push(reason);
        }
        Ok(())
    })?;
    Ok((outcome.records, skipped))
}

fn opened(folder: &Path, step: u64) -> Arc<Checkpoint> {
    Arc::new(Checkpoint::open(&Folder::new(folder).path_of(step)).unwrap())
}

/// Parameters, which are the masters, and moments of a checkpoint.
fn state(checkpoint: &Checkpoint) -> Vec<Vec<f32>> {
    let mut names: Vec<_> = checkpoint.tensors().iter().map(|each| each.name.clone()).collect();
    names.sort();
    let of = |name: &String| Quantity::NUMBERS.map(|quantity| checkpoint.whole(name, quantity).unwrap());
    names.iter().flat_map(of).collect()
}

/// What a run decides by, and what comes of it, to the bit.
fn decided(records: &[StepRecord]) -> Vec<(u64, u64, Option<u32>, bool, bool)> {
    let of = |each: &StepRecord| (each.step, each.loss.to_bits(), each.loss_scale, each.applied, each.overflow);
    records.iter().map(of).collect()
}

/// A run of two steps, then as if it had come to this scale after so many good steps.
fn at_scale(grid: &str, folder: &Path, scale: u32, good: u32) -> Arc<Checkpoint> {
    let begun = folder.join("begun");
    if !begun.exists() {
        run(grid, &begun, Start::Drawn, 2, LossScale::Auto, OnDivergence::Stop).unwrap();
    }
    let held = opened(&begun, 2);
    assert_eq!(held.about().run["loss_scale"], json!({ "scale": LossScale::FIRST, "good_steps": 2 }));
    let state = json!({ "loss_scale": { "scale": scale, "good_steps": good } });
    let folder = folder.join(format!("at-{scale}"));
    committed(&program(grid, F16), &folder, 2, state, |name, quantity, _| held.whole(name, quantity).unwrap())
}

/// From step 3 on, and once more from what was held after each of its first steps.
fn with_resumptions(grid: &str, folder: &Path, from: &Arc<Checkpoint>) -> (Vec<StepRecord>, Vec<String>) {
    let whole = folder.join(format!("whole-{}", from.about().run["loss_scale"]["scale"]));
    let resumed = |at: &Arc<Checkpoint>, folder: &Path| {
        run(grid, folder, Start::Resumed(Arc::clone(at)), 20, LossScale::Auto, OnDivergence::Stop).unwrap()
    };
    let (records, skipped) = resumed(from, &whole);
    for step in [3, 4, 6] {
        let again = whole.with_extension(step.to_string());
        let (same, _) = resumed(&opened(&whole, step), &again);
        assert_eq!(decided(&same), decided(&records)[step as usize - 2..], "{grid} from step {step}");
        assert!(state(&opened(&again, 20)) == state(&opened(&whole, 20)), "{grid} from step {step}");
    }
    for record in &records {
        // The checkpoint at the beginning lacks the number: its two steps count as updates.
        let applied = records.iter().filter(|other| other.applied && other.step <= record.step).count();
        let updates = opened(&whole, record.step).about().run["updates"].clone();
        assert_eq!(updates, json!(2 + applied), "{grid}: step {}", record.step);
    }
    for record in records.iter().take_while(|record| record.overflow) {
        assert!(state(&opened(&whole, record.step)) == state(from), "{grid}: step {} is no update", record.step);
    }
    (records, skipped)
}

#[test]
fn too_large_a_scale_is_halved_step_by_step_and_resumed_runs_go_on_alike() {
    for grid in ["x=1", "x=2,data=2"] {
        let folder = tempfile::tempdir().unwrap();
        let from = at_scale(grid, folder.path(), LossScale::LARGEST, 150);
        let (records, skipped) = with_resumptions(grid, folder.path(), &from);
        let too_large = records.iter().take_while(|record| record.overflow).count();
        assert!((2..10).contains(&too_large), "{grid}: {too_large} steps were skipped");
        let mut scale = LossScale::LARGEST;
        for record in &records {
            assert_eq!((record.loss_scale, record.applied), (Some(scale), !record.overflow), "{grid}: {record:?}");
            scale = if record.overflow { scale / 2 } else { scale };
        }
        assert_eq!(skipped.len(), records.iter().filter(|record| record.overflow).count());
        let first = "its gradient is not finite at the loss scale 16777216, which is 8388608 from here on";
        assert_eq!(skipped[0], first);
    }
}

#[test]
fn a_scale_is_doubled_after_200_good_steps_also_of_a_resumed_run() {
    let folder = tempfile::tempdir().unwrap();
    let from = at_scale("x=2,data=2", folder.path(), 1 << 14, 197);
    let (records, _) = with_resumptions("x=2,data=2", folder.path(), &from);
    let scales: Vec<_> = records.iter().map(|record| record.loss_scale.unwrap()).collect();
    assert_eq!(scales, [[1 << 14; 3].as_slice(), &[1 << 15; 15]].concat());
}

/// Skipped steps of which none is applied any more end the run, at the 50th in a row.
#[test]
fn a_run_that_skips_fifty_steps_in_a_row_ends() {
    let folder = tempfile::tempdir().unwrap();
    let run =
        |name: &str, steps, rule| run("x=2", &folder.path().join(name), Start::Drawn, steps, rule, OnDivergence::Skip);
    let (records, skipped) = run("fewer", 49, LossScale::Fixed(1 << 31)).unwrap();
    assert_eq!((records.len(), skipped.len()), (49, 49));
    let error = run("more", 60, LossScale::Fixed(1 << 31)).unwrap_err().to_string();
    for words in [
        "50 steps in a row were skipped, up to step 50",
        "at the loss scale 2147483648",
        "a smaller `run.loss_scale`, or auto",
    ] {
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_fixed_scale_stays_and_a_gradient_that_is_not_finite_is_a_divergence() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, action| {
        let rule = LossScale::Fixed(1 << 31);
        run("x=2", &folder.path().join(name), Start::Drawn, 3, rule, action)
    };
    let error = run("stopped", OnDivergence::Stop).unwrap_err().to_string();
    assert!(error.contains("the gradient norm of step 1 is "), "{error}");
    let (records, skipped) = run("skipped", OnDivergence::Skip).unwrap();
    assert!(records.iter().all(|each| each.loss_scale == Some(1 << 31) && !each.applied && !each.overflow));
    assert!(skipped.len() == 3 && skipped[0].contains("the first number that is not finite is in "), "{skipped:?}");
}
