//! Checkpoints: any layout reads any other's, bit for bit, and training goes on from it as if nothing had happened.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestCaseError;
use quadrille_checkpoint::{About, Checkpoint, Draft, Folder, Quantity, TensorShape, Tile};
use quadrille_comm::{JobOptions, run_ranks};
use quadrille_engine::{
    Cpu, EngineError, InitialValues, LossScale, OnSaveFailure, RankEngine, Restore, RunEvent, Saving, Start,
    TrainOptions, TrainOutcome, random_batch, tensor_shapes, train_on_cpu, writers,
};
use quadrille_proofs::{Case, combined_cases, expert_cases, hyper, layout_with, llama};
use quadrille_spec::{Algorithm, Axis, Choice, ElementType, Grid, Layout, LayoutRequest, Model, Zero};
use quadrille_step::StepProgram;
use serde_json::Value;

/// Steps before and after the checkpoint.
const BEFORE: u64 = 2;
const AFTER: u64 = 2;

pub fn about(program: &StepProgram, seed: u64, start: &Start) -> About {
    let (step, samples, tokens) = match start {
        Start::Resumed(checkpoint) => (checkpoint.about().step, checkpoint.about().samples, checkpoint.about().tokens),
        _ => (0, 0, 0),
    };
    About {
        model: program.model.clone(),
        layout: program.layout.clone(),
        dtype: program.layout.dtype.real(),
        step,
        samples,
        tokens,
        seed,
        hyper: Value::Null,
        data: Value::Null,
        run: Value::Null,
        hugging_face: None,
    }
}

/// Trains to the end of step `steps`, writing checkpoints after every second step.
fn run(case: &Case, layout: &Layout, folder: &Path, start: Start, steps: u64) -> Result<TrainOutcome, EngineError> {
    run_as(case, &in_f64(layout), folder, start, steps)
}

fn in_f64(layout: &Layout) -> Layout {
    layout.clone().stored_in(ElementType::F64)
}

/// The same in the layout's own types.
pub fn run_as(
    case: &Case,
    layout: &Layout,
    folder: &Path,
    start: Start,
    steps: u64,
) -> Result<TrainOutcome, EngineError> {
    let program = StepProgram::new(&case.model, layout).unwrap_or_else(|error| panic!("{layout:?}: {error}"));
    let saving = Saving {
        folder: folder.to_path_buf(),
        every: Some(2),
        keep: 10,
        on_failure: OnSaveFailure::Stop,
        about: about(&program, case.seed, &start),
    };
    let options = TrainOptions {
        start,
        threads: case.threads,
        saving: Some(saving),
        loss_scale: LossScale::usual(layout.dtype),
        ..TrainOptions::new(steps, hyper(case.clip), case.seed)
    };
    let batch = random_batch(&case.model, case.seed, layout.seq_len);
    train_on_cpu(&program, &options, &batch, None, &mut |_: RunEvent| Ok(()))
}

/// Another layout of the same model and batch: the first legal one of those that `choice` leads to.
fn other(case: &Case, choice: &Index) -> Layout {
    let sizes = |number: usize| -> Option<Grid> {
        let grid = Axis::ALL
            .iter()
            .enumerate()
            .map(|(place, axis)| format!("{axis}={}", number / 3_usize.pow(place as u32) % 3 + 1));
        let grid: Grid = grid.collect::<Vec<_>>().join(",").parse().ok()?;
        (grid.ranks() <= 8).then_some(grid)
    };
    let zeros = [Zero::Off, Zero::Optimizer, Zero::Gradients];
    let all = 3_usize.pow(Axis::COUNT as u32);
    let first = choice.index(all);
    let legal = (0..all).filter_map(|offset| {
        let number = (first + 7 * offset) % all;
        let mut request = LayoutRequest::new(sizes(number)?, case.layout.global_batch);
        request.seq_len = Some(case.layout.seq_len);
        request.zero = zeros[number % 3];
        let spreads = ["expert", "none", "x,expert", "z,context"];
        request.experts_over = spreads[number % 4].parse().ok().filter(|_| case.model.has_experts());
        Layout::if_legal(&case.model, &request)
    });
    legal.into_iter().next().unwrap_or_else(|| case.layout.clone())
}

/// The bits of everything that a checkpoint holds.
pub fn bits(checkpoint: &Checkpoint) -> Vec<(String, Quantity, Vec<u64>)> {
    let whole = |name: &str, quantity| {
        let numbers = checkpoint.whole::<f64>(name, quantity).unwrap();
        (name.to_owned(), quantity, numbers.into_iter().map(f64::to_bits).collect())
    };
    let tensors = checkpoint.tensors().iter();
    let mut all: Vec<_> =
        tensors.flat_map(|each| Quantity::NUMBERS.map(|quantity| whole(&each.name, quantity))).collect();
    // Layouts list tensors in the order of their stages.
    all.sort();
    all
}

pub fn opened(folder: &Path, step: u64) -> Arc<Checkpoint> {
    Arc::new(Checkpoint::open(&Folder::new(folder).path_of(step)).unwrap())
}

fn check(case: &Case, choice: &Index) -> Result<(), TestCaseError> {
    let folder = tempfile::tempdir().unwrap();
    let [whole, same, resharded] = ["whole", "same", "resharded"].map(|name| folder.path().join(name));
    let fail = |error: EngineError| TestCaseError::fail(error.to_string());
    let uninterrupted = run(case, &case.layout, &whole, Start::Drawn, BEFORE + AFTER).map_err(fail)?;
    let middle = opened(&whole, BEFORE);
    prop_assert_eq!(middle.about().samples, BEFORE * case.layout.global_batch as u64);

    // In the same layout every bit is as if the run had gone on.
    let resumed = run(case, &case.layout, &same, Start::Resumed(Arc::clone(&middle)), BEFORE + AFTER).map_err(fail)?;
    let losses =
        |run: &TrainOutcome| run.records.iter().map(|each| (each.loss.to_bits(), each.tokens)).collect::<Vec<_>>();
    prop_assert_eq!(&losses(&uninterrupted)[BEFORE as usize..], losses(&resumed));
    let end = opened(&whole, BEFORE + AFTER);
    let again = opened(&same, BEFORE + AFTER);
    prop_assert!(bits(&end) == bits(&again), "the same layout");
    prop_assert_eq!((end.about().samples, end.about().tokens), (again.about().samples, again.about().tokens));

    // Another layout has every bit of the state, and goes on from it to within rounding.
    let layout = other(case, choice);
    let held = rewritten(case, &layout, &resharded, &middle).map_err(fail)?;
    prop_assert!(bits(&middle) == bits(&held), "{}", layout.grid);
    let resumed = run(case, &layout, &resharded, Start::Resumed(middle), BEFORE + AFTER).map_err(fail)?;
    for (a, b) in uninterrupted.records[BEFORE as usize..].iter().zip(&resumed.records) {
        prop_assert!((a.loss - b.loss).abs() <= 1e-11 * a.loss.abs(), "{} and {} on {}", a.loss, b.loss, layout.grid);
    }
    let after = opened(&resharded, BEFORE + AFTER);
    for tensor in end.tensors() {
        let [a, b] = [&end, &after].map(|each| each.whole::<f64>(&tensor.name, Quantity::Value).unwrap());
        let most = a.iter().fold(0.0, |most: f64, number| most.max(number.abs()));
        let apart = a.iter().zip(&b).fold(0.0, |most: f64, (a, b)| most.max((a - b).abs()));
        prop_assert!(apart <= 1e-11 * most.max(1.0), "{} of {} on {}", apart, tensor.name, layout.grid);
    }
    Ok(())
}

/// What a layout writes that has loaded a checkpoint.
fn rewritten(case: &Case, layout: &Layout, folder: &Path, from: &Checkpoint) -> Result<Checkpoint, EngineError> {
    let layout = in_f64(layout);
    let program = StepProgram::new(&case.model, &layout).unwrap_or_else(|error| panic!("{layout:?}: {error}"));
    let step = from.about().step;
    run_ranks(&JobOptions::new(layout.grid.ranks()), |context| {
        let initial = InitialValues::Perturbed;
        let mut engine = RankEngine::<Cpu<f64>>::new(&program, context, 1, hyper(None), 0, initial)?;
        engine.load(from, Restore::Everything)?;
        let tiles: Vec<_> =
            engine.own_tiles()?.into_iter().map(|(tile, numbers)| (tile, Cow::Owned(numbers))).collect();
        Ok(Draft::begin(folder, step)?.write::<f64>(context.rank(), &tiles)?)
    })?;
    let about = About { layout, ..from.about().clone() };
    let path = Draft::begin(folder, step)?.commit(&about, &tensor_shapes(&program), &writers(&program))?;
    Ok(Checkpoint::open(&path)?)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_layout_reads_any_others(case in combined_cases(), choice in any::<Index>()) {
        check(&case, &choice)?;
    }

    /// Whatever axes spread experts.
    #[test]
    fn any_spread_of_experts_reads_any_others(case in expert_cases(), choice in any::<Index>()) {
        check(&case, &choice)?;
    }
}

/// Columns of weights that several ranks hold, written by one of them.
#[test]
fn keys_that_several_ranks_hold_are_written_once() {
    let model = llama(1).reshaped(|m| m.kv_heads = 1);
    let case = |grid: &str| Case {
        model: model.clone(),
        layout: layout_with(&model, grid, 4, |_| ()),
        threads: 1,
        seed: 5,
        clip: None,
        collectives: Choice::Always(Algorithm::Native),
        sparsity: None,
    };
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("first");
    let second = folder.path().join("second");
    let held = case("x=4,data=2");
    run(&held, &held.layout, &first, Start::Drawn, BEFORE).unwrap();
    let written = opened(&first, BEFORE);
    for (at, grid) in ["x=1", "x=2,y=2", "x=4,z=2"].into_iter().enumerate() {
        let other = case(grid);
        let again = rewritten(&other, &other.layout, &second.join(at.to_string()), &written).unwrap();
        assert!(bits(&written) == bits(&again), "{grid}");
    }
}

#[test]
fn a_parameter_that_is_no_number_is_named_by_all_ranks() {
    let model = Model::preset("gpt-tiny").unwrap();
    let program = |grid: &str| {
        let request = LayoutRequest { dtype: ElementType::F64, ..LayoutRequest::new(grid.parse().unwrap(), 8) };
        StepProgram::new(&model, &Layout::new(&model, &request).unwrap()).unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let serial = program("x=1");
    let draft = Draft::begin(folder.path(), 0).unwrap();
    let tiles: Vec<(Tile, Cow<[f64]>)> = tensor_shapes(&serial)
        .into_iter()
        .map(|TensorShape { name, rows, cols }| {
            let mut numbers = vec![0.01; rows * cols];
            if name == "block.1.up.weight" {
                numbers[rows * cols - 1] = f64::NAN;
            }
            (Tile { tensor: name, quantity: Quantity::Value, row: 0, col: 0, rows, cols }, Cow::Owned(numbers))
        })
        .collect();
    draft.write(0, &tiles).unwrap();
    let path = draft.commit(&about(&serial, 1, &Start::Drawn), &tensor_shapes(&serial), &[0]).unwrap();
    let checkpoint = Arc::new(Checkpoint::open(&path).unwrap());
    for grid in ["x=1", "x=2", "x=2,y=2,pipe=2", "z=2,data=2"] {
        let options = TrainOptions {
            start: Start::Values(Arc::clone(&checkpoint)),
            timeout: std::time::Duration::from_secs(20),
            ..TrainOptions::new(2, hyper(None), 1)
        };
        let batch = random_batch(&model, 1, model.seq_len);
        let error =
            train_on_cpu(&program(grid), &options, &batch, None, &mut |_: RunEvent| Ok(())).unwrap_err().to_string();
        assert!(error.contains("the parameter block.1.up.weight, before the step"), "{grid}: {error}");
    }
}
