//! Checkpoints of pruned models: any layout, format and tier goes on from those of any other, and masks that do not fit are
//! refused.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use half::bf16;
use quadrille_checkpoint::{About, Checkpoint, Draft, Quantity, TensorShape, Tile};
use quadrille_comm::{JobOptions, run_ranks};
use quadrille_engine::{
    Backend, Cpu, EngineError, InitialValues, RankEngine, Restore, Start, assemble, tensor_shapes, writers,
};
use quadrille_proofs::{SEED, hyper, llama, program_with, random_samples, rebuilt};
use quadrille_spec::{ElementType, Layout, Offload, Zero};
use quadrille_step::{KeptCounts, StepProgram};
use quadrille_verify::{Reference, VerifyOptions, verify_on_cpu};

use crate::checkpoints::about;
use crate::samo::{drawn, mask_of, pruned, pruned_of, stepped};

/// What a run of some steps in a layout writes.
fn written<B: Backend>(
    program: &StepProgram,
    folder: &Path,
    steps: u64,
    start: impl Fn(&mut RankEngine<B>) -> Result<(), EngineError> + Sync,
) -> Checkpoint {
    let batch = random_samples(program);
    run_ranks(&JobOptions::new(program.layout.grid.ranks()), |context| {
        let initial = InitialValues::Perturbed;
        let mut engine = RankEngine::<B>::new(program, context, 1, hyper(Some(0.1)), SEED, initial)?;
        start(&mut engine)?;
        (0..steps).try_for_each(|_| engine.step(&batch).map(drop))?;
        let tiles: Vec<_> =
            engine.own_tiles()?.into_iter().map(|(tile, numbers)| (tile, Cow::Owned(numbers))).collect();
        Ok(Draft::begin(folder, 1)?.write::<B::Real>(context.rank(), &tiles)?)
    })
    .unwrap();
    let draft = Draft::begin(folder, 1).unwrap();
    let writers = draft.written(&writers(program));
    let about = About { step: 1, ..about(program, SEED, &Start::Drawn) };
    Checkpoint::open(&draft.commit(&about, &tensor_shapes(program), &writers).unwrap()).unwrap()
}

/// A program of the same model and another layout, pruned as a checkpoint says.
fn continued(whole: &StepProgram, checkpoint: &Arc<Checkpoint>) -> StepProgram {
    Start::Values(checkpoint.clone()).program(&whole.model, &whole.layout).unwrap()
}

/// The largest difference between the tensors of two checkpoints, of values, masks and moments.
fn apart(one: &Checkpoint, other: &Checkpoint) -> f64 {
    let mut most = 0.0_f64;
    for tensor in one.tensors() {
        assert_eq!(one.prunes(&tensor.name), other.prunes(&tensor.name));
        let kept = one.prunes(&tensor.name).then_some(Quantity::Kept);
        for quantity in Quantity::NUMBERS.into_iter().chain(kept) {
            let [a, b] = [one, other].map(|each| each.whole::<f64>(&tensor.name, quantity).unwrap());
            most = a.iter().zip(&b).fold(most, |most, (a, b)| most.max((a - b).abs()));
        }
    }
    most
}

/// It holds whole tensors and masks, so that any layout and ZeRO stage goes on from it as the run itself would.
#[test]
fn any_layout_goes_on_from_a_pruned_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let in_f64 = |grid: &str, zero| pruned("0.9", grid, zero, ElementType::F64);
    let first = in_f64("z=2,data=2", Zero::Gradients);
    let prune = |engine: &mut RankEngine<Cpu<f64>>| engine.prune(&drawn("0.9"), InitialValues::Perturbed);
    let checkpoint = Arc::new(written(&first, &folder.path().join("first"), 1, prune));
    let on = stepped::<Cpu<f64>>(&first, Some(&drawn("0.9")), 2);
    for parameter in first.stages[0].parameters.iter().filter(|parameter| parameter.compressed.is_some()) {
        let mask: Vec<f64> = checkpoint.whole(&parameter.name, Quantity::Kept).unwrap();
        let expected = mask_of("0.9", &parameter.name, mask.len());
        assert!(mask.iter().map(|kept| *kept != 0.0).eq(expected), "{}", parameter.name);
        for quantity in Quantity::NUMBERS {
            let numbers: Vec<f64> = checkpoint.whole(&parameter.name, quantity).unwrap();
            assert!(mask.iter().zip(numbers).all(|(kept, number)| *kept != 0.0 || number == 0.0));
        }
    }
    let grids =
        [("x=1", Zero::Off), ("x=2,pipe=2", Zero::Off), ("data=4", Zero::Gradients), ("y=2,data=2", Zero::Optimizer)];
    for (at, (grid, zero)) in grids.into_iter().enumerate() {
        let program = continued(&rebuilt(&in_f64(grid, zero), |_| ()), &checkpoint);
        let next = written::<Cpu<f64>>(&program, &folder.path().join(format!("next {at}")), 1, |engine| {
            engine.load(&checkpoint, Restore::Everything)
        });
        for (index, parameter) in first.stages[0].parameters.iter().enumerate() {
            let expected = assemble(parameter, on.iter().map(|rank| &rank[index]).enumerate()).unwrap();
            let found: Vec<f64> = next.whole(&parameter.name, Quantity::Value).unwrap();
            let apart = expected.iter().zip(&found).fold(0.0_f64, |most, (a, b)| most.max((a - b).abs()));
            assert!(apart < 1e-11, "{}: {apart} on {grid}", parameter.name);
        }
    }
}

/// Masters, moments and masks pass through bf16, states in the host's memory, tied tables and f32 in every bit.
#[test]
fn formats_and_tiers_hand_everything_on() {
    let folder = tempfile::tempdir().unwrap();
    let model = llama(1).reshaped(|m| (m.kv_heads, m.tied_head) = (4, true));
    let whole = |grid: &str, dtype, zero| {
        program_with(&model, grid, 8, |request| (request.dtype, request.zero) = (dtype, zero))
    };
    let first = pruned_of("0.8", whole("x=4,data=2", ElementType::Bf16, Zero::Optimizer));
    let prune = |engine: &mut RankEngine<Cpu<bf16>>| engine.prune(&drawn("0.8"), InitialValues::Perturbed);
    let begun = Arc::new(written(&first, &folder.path().join("first"), 1, prune));
    let load = |engine: &mut RankEngine<Cpu<f32>>| engine.load(&begun, Restore::Everything);
    for (at, grid) in ["x=1", "x=2,pipe=2", "z=2,data=2"].into_iter().enumerate() {
        let program = continued(&whole(grid, ElementType::F32, Zero::Off), &begun);
        let through = written(&program, &folder.path().join(format!("f32 {at}")), 0, load);
        assert_eq!(apart(&begun, &through), 0.0, "{grid}");
        let layout =
            Layout { offload: Offload::Host, bucket: 30, ..program.layout.clone().stored_in(ElementType::Bf16) };
        let offloaded = StepProgram::pruned(&model, &layout, program.kept.clone()).unwrap();
        let again = written::<Cpu<bf16>>(&offloaded, &folder.path().join(format!("bf16 {at}")), 0, |engine| {
            engine.load(&through, Restore::Everything)
        });
        assert_eq!(apart(&begun, &again), 0.0, "{grid}, states in the host's memory");
    }
}

/// A checkpoint that prunes is for programs that prune, and the other way round.
#[test]
fn masks_of_another_program_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let first = pruned("0.5", "data=2", Zero::Off, ElementType::F64);
    let path = folder.path().join("first");
    let prune = |engine: &mut RankEngine<Cpu<f64>>| engine.prune(&drawn("0.5"), InitialValues::Perturbed);
    let checkpoint = written(&first, &path, 1, prune);
    let load = |program: &StepProgram| {
        run_ranks(&JobOptions::new(program.layout.grid.ranks()), |context| {
            let initial = InitialValues::Perturbed;
            let mut engine = RankEngine::<Cpu<f64>>::new(program, context, 1, hyper(None), SEED, initial)?;
            Ok(engine.load(&checkpoint, Restore::Values)?)
        })
        .unwrap_err()
        .to_string()
    };
    assert!(load(&rebuilt(&first, |_| ())).contains("prunes the tensor embedding.table"));
    let fewer = pruned("0.9", "data=2", Zero::Off, ElementType::F64);
    assert!(load(&fewer).contains("the program has room for"), "{}", load(&fewer));
    let options = VerifyOptions::new(1, SEED);
    let report = verify_on_cpu(&first, &options, &mut Reference::new(&first, &options));
    assert!(report.unwrap_err().to_string().contains("are kept is not known"));
}

/// What is no matrix, no tensor, or more than a tile has, is refused before anything is built on it.
#[test]
fn counts_that_no_mask_gives_are_refused() {
    let whole = program_with(&llama(1), "x=2", 4, |_| ());
    let refused = |name: &str, count: usize| {
        let counts: KeptCounts = [(name.to_owned(), count)].into();
        StepProgram::pruned(&whole.model, &whole.layout, counts).unwrap_err().to_string()
    };
    for name in ["block.0.norm1.gamma", "block.9.up.weight", "nothing"] {
        assert!(refused(name, 1).contains(&format!("{name} has a mask")), "{}", refused(name, 1));
    }
    assert!(refused("block.0.up.weight", usize::MAX).contains("elements are kept of a tile of"));
    // A checkpoint of the same tensors, one of which has a mask that no program takes.
    let folder = tempfile::tempdir().unwrap();
    let shapes = tensor_shapes(&whole);
    let masked = "final_norm.gamma";
    assert!(shapes.iter().any(|shape| shape.name == masked), "{shapes:?}");
    let tiles = shapes.iter().flat_map(|shape: &TensorShape| {
        let kept = (shape.name == masked).then_some(Quantity::Kept);
        let tile = |quantity| (Tile::whole(shape, quantity), Cow::Owned(vec![1.0_f64; shape.rows * shape.cols]));
        [Quantity::Value].into_iter().chain(kept).map(tile)
    });
    let draft = Draft::begin(folder.path(), 1).unwrap();
    draft.write(0, &tiles.collect::<Vec<_>>()).unwrap();
    let about = About { step: 1, ..about(&whole, SEED, &Start::Drawn) };
    let checkpoint = Checkpoint::open(&draft.commit(&about, &shapes, &[0]).unwrap()).unwrap();
    let error = Start::Values(Arc::new(checkpoint)).program(&whole.model, &whole.layout).unwrap_err().to_string();
    assert!(error.contains("final_norm.gamma has a mask"), "{error}");
}

/// A checkpoint that contradicts its mask is of two models at once.
#[test]
fn weights_that_a_mask_prunes_must_be_zero() {
    let whole = program_with(&llama(1), "x=2", 4, |request| request.dtype = ElementType::F64);
    let folder = tempfile::tempdir().unwrap();
    let shapes = tensor_shapes(&whole);
    let loaded = |name: &str, pruned: f64| {
        let tiles = shapes.iter().flat_map(|shape: &TensorShape| {
            let masked = shape.name == "block.0.up.weight";
            let elements = shape.rows * shape.cols;
            let mask = (0..elements).map(|element| f64::from(u8::from(element != 5))).collect::<Vec<_>>();
            let numbers = (0..elements).map(|element| if masked && element == 5 { pruned } else { 0.5 }).collect();
            let value = (Tile::whole(shape, Quantity::Value), Cow::Owned(numbers));
            [value].into_iter().chain(masked.then(|| (Tile::whole(shape, Quantity::Kept), Cow::Owned(mask))))
        });
        let draft = Draft::begin(&folder.path().join(name), 1).unwrap();
        draft.write(0, &tiles.collect::<Vec<(Tile, Cow<[f64]>)>>()).unwrap();
        let about = About { step: 1, ..about(&whole, SEED, &Start::Drawn) };
        let checkpoint = Arc::new(Checkpoint::open(&draft.commit(&about, &shapes, &[0]).unwrap()).unwrap());
        let program = continued(&whole, &checkpoint);
        let ranks = run_ranks(&JobOptions::new(2), |context| {
            let initial = InitialValues::Training;
            let mut engine = RankEngine::<Cpu<f64>>::new(&program, context, 1, hyper(None), SEED, initial)?;
            Ok(engine.load(&checkpoint, Restore::Values)?)
        });
        ranks.map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(loaded("zero", 0.0), Ok(()));
    for (name, number) in [("one", 1.0), ("none", f64::NAN)] {
        assert!(loaded(name, number).unwrap_err().contains("a weight of block.0.up.weight is not zero"), "{name}");
    }
}
