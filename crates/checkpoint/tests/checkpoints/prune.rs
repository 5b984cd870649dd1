//! Pruned checkpoints: which weights are kept, against sorting, and what is written of them.

use std::borrow::Cow;
use std::path::Path;

use proptest::prelude::*;
use quadrille_checkpoint::{
    About, Checkpoint, Draft, Merge, Pruning, Quantity, Scope, TensorShape, Tile, merge, prune,
};
use quadrille_spec::{RealType, Sparsity};

use crate::common::about;

/// All tensors of the model that the description is of.
fn shapes(about: &About) -> Vec<TensorShape> {
    let shape = |parameter: quadrille_spec::ModelParameter| {
        let rows = parameter.rows;
        let cols = parameter.cols;
        TensorShape { name: parameter.name(), rows, cols }
    };
    about.model.all_parameters().map(shape).collect()
}

/// A checkpoint of a step with these weights.
fn committed(folder: &Path, step: u64, weight: impl Fn(usize, usize) -> f32) -> Checkpoint {
    let about = about(step, RealType::F32);
    let shapes = shapes(&about);
    let tile = |(tensor, shape): (usize, &TensorShape)| {
        let TensorShape { name, rows, cols } = shape.clone();
        let numbers: Vec<f32> = (0..rows * cols).map(|index| weight(tensor, index)).collect();
        (Tile { tensor: name, quantity: Quantity::Value, row: 0, col: 0, rows, cols }, Cow::Owned(numbers))
    };
    let tiles: Vec<_> = shapes.iter().enumerate().map(tile).collect();
    let draft = Draft::begin(folder, step).unwrap();
    draft.write(0, &tiles).unwrap();
    Checkpoint::open(&draft.commit(&about, &shapes, &[0]).unwrap()).unwrap()
}

/// Many of equal magnitude, of either sign, and zeros.
fn coarse(tensor: usize, index: usize) -> f32 {
    let word = (tensor * 1_000_003 + index).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (word % 41) as f32 / 4.0 - 5.0
}

fn pruning(sparsity: &str, scope: Scope, tables: bool) -> Pruning {
    Pruning { sparsity: sparsity.parse().unwrap(), scope, tables }
}

/// Which elements of each tensor are kept; `None` of those that are not pruned.
fn masks(checkpoint: &Checkpoint) -> Vec<Option<Vec<f64>>> {
    let mask = |(tensor, shape): (usize, &TensorShape)| {
        let kept = || checkpoint.whole(&shape.name, Quantity::Kept).unwrap();
        checkpoint.is_pruned(tensor).then(kept)
    };
    checkpoint.tensors().iter().enumerate().map(mask).collect()
}

/// Which of the weights sorting keeps: the larger ones, of equal ones the first; of so many thousandths.
fn by_sorting(weights: &[f32], pruned: usize) -> Vec<f64> {
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by(|a, b| weights[*b].abs().total_cmp(&weights[*a].abs()).then(a.cmp(b)));
    let kept = weights.len() - weights.len() * pruned / 1000;
    let mut mask = vec![0.0; weights.len()];
    order[..kept].iter().for_each(|index| mask[*index] = 1.0);
    mask
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn exactly_the_smallest_weights_are_pruned(part in 0..1000_usize, global: bool, tables: bool) {
        let folder = tempfile::tempdir().unwrap();
        let source = committed(folder.path(), 7, coarse);
        let scope = if global { Scope::Global } else { Scope::Layer };
        let sparsity: Sparsity = format!("0.{part:03}").parse().unwrap();
        let (path, told) =
            prune(&source, None, &folder.path().join("pruned"), Pruning { sparsity, scope, tables }).unwrap();
        let pruned = Checkpoint::open(&path).unwrap();
        prop_assert_eq!(pruned.about(), source.about());
        prop_assert!(!pruned.has(Quantity::FirstMoment) && pruned.faults().1.is_empty());

        let masks = masks(&pruned);
        let weights = |tensor: &usize| source.whole::<f32>(&source.tensors()[*tensor].name, Quantity::Value).unwrap();
        let chosen: Vec<usize> = (0..masks.len()).filter(|tensor| masks[*tensor].is_some()).collect();
        for (tensor, shape) in source.tensors().iter().enumerate() {
            let is_matrix = shape.name.starts_with("block.") && shape.name.ends_with(".weight");
            let is_table = tables && ["embedding.table", "head.weight"].contains(&shape.name.as_str());
            prop_assert_eq!(masks[tensor].is_some(), is_matrix || is_table, "{}", shape.name);
            let mask = masks[tensor].clone().unwrap_or_else(|| vec![1.0; shape.rows * shape.cols]);
            let expected: Vec<f32> = weights(&tensor).iter().zip(&mask).map(|(w, kept)| w * *kept as f32).collect();
            prop_assert_eq!(pruned.whole::<f32>(&shape.name, Quantity::Value).unwrap(), expected);
        }
        let found: Vec<Vec<f64>> = chosen.iter().map(|tensor| masks[*tensor].clone().unwrap()).collect();
        match scope {
            Scope::Layer => {
                for (tensor, mask) in chosen.iter().zip(&found) {
                    prop_assert_eq!(mask, &by_sorting(&weights(tensor), part));
                }
            }
            Scope::Global => {
                let all: Vec<f32> = chosen.iter().flat_map(weights).collect();
                prop_assert_eq!(found.concat(), by_sorting(&all, part));
            }
        }
        let counts: Vec<u64> = found.iter().map(|mask| mask.iter().sum::<f64>() as u64).collect();
        prop_assert_eq!(told.iter().map(|pruned| pruned.kept).collect::<Vec<_>>(), counts);
    }
}

#[test]
fn what_was_pruned_stays_pruned_and_merging_keeps_masks() {
    let folder = tempfile::tempdir().unwrap();
    let source = committed(folder.path(), 7, coarse);
    let at = |name: &str| folder.path().join(name);
    let pruned = |source: &Checkpoint, sparsity, name| {
        let (path, _) = prune(source, None, &at(name), pruning(sparsity, Scope::Layer, false)).unwrap();
        Checkpoint::open(&path).unwrap()
    };
    let half = pruned(&source, "0.5", "half");
    assert_eq!(masks(&pruned(&half, "0.25", "less")), masks(&half));
    assert_eq!(masks(&pruned(&half, "0.9", "more")), masks(&pruned(&source, "0.9", "at once")));
    // Also what the second time is not pruned, and where weights come from before the first.
    let early = committed(&folder.path().join("early"), 1, |_, index| index as f32 + 1.0);
    let (path, _) = prune(&source, None, &at("tables"), pruning("0.5", Scope::Layer, true)).unwrap();
    let tables = Checkpoint::open(&path).unwrap();
    let (path, _) = prune(&tables, Some(&early), &at("ticket"), pruning("0.75", Scope::Layer, false)).unwrap();
    let ticket = Checkpoint::open(&path).unwrap();
    let of = |checkpoint: &Checkpoint, quantity| checkpoint.whole::<f64>("embedding.table", quantity).unwrap();
    assert_eq!(of(&ticket, Quantity::Kept), of(&tables, Quantity::Kept));
    let kept = of(&tables, Quantity::Kept);
    let expected: Vec<f64> = kept.iter().enumerate().map(|(index, kept)| kept * (index as f64 + 1.0)).collect();
    assert_eq!(of(&ticket, Quantity::Value), expected);
    let expected = masks(&half);
    let merged = merge(half, &at("merged"), Merge { dtype: Some(RealType::F64), weights_only: true }).unwrap();
    let merged = Checkpoint::open(&merged).unwrap();
    assert_eq!(masks(&merged), expected);
    assert!(merged.faults().1.is_empty());
}

#[test]
fn rewound_weights_are_the_earlier_ones_under_the_later_mask() {
    let folder = tempfile::tempdir().unwrap();
    let early = committed(folder.path(), 1, |_, index| index as f32 + 1.0);
    let late = committed(folder.path(), 9, coarse);
    let pruning = pruning("0.75", Scope::Global, false);
    let at = |name: &str| folder.path().join(name);
    let (path, _) = prune(&late, Some(&early), &at("rewound"), pruning).unwrap();
    let rewound = Checkpoint::open(&path).unwrap();
    assert_eq!(rewound.about().step, 1);
    let (path, _) = prune(&late, None, &at("plain"), pruning).unwrap();
    let mask = masks(&Checkpoint::open(&path).unwrap());
    assert_eq!(masks(&rewound), mask);
    let tensor = rewound.tensors().iter().position(|shape| shape.name == "block.1.up.weight").unwrap();
    let weights: Vec<f64> = rewound.whole("block.1.up.weight", Quantity::Value).unwrap();
    for (index, (weight, kept)) in weights.iter().zip(mask[tensor].as_ref().unwrap()).enumerate() {
        assert_eq!(*weight, kept * (index as f64 + 1.0));
    }
}

#[test]
fn what_cannot_be_pruned_is_refused_and_leaves_nothing() {
    for text in ["1", "-0.1", "1.5", "nan", "", ".", "0.", "1e-1", "90%", "0.1234567890123456789"] {
        assert_eq!(text.parse::<Sparsity>(), Err(Sparsity::RULE), "{text}");
    }
    // As decimals are, not as their nearest binary numbers: 0.29 of 100 are 29.
    for (text, elements, kept) in
        [("0.29", 100, 71), ("0.57", 5120 * 20480, 45_088_768), ("0", 7, 7), (".999", 1000, 1)]
    {
        assert_eq!(text.parse::<Sparsity>().unwrap().kept(elements), kept, "{text}");
    }
    let folder = tempfile::tempdir().unwrap();
    let source = committed(folder.path(), 7, coarse);
    let other = committed(&folder.path().join("other"), 7, coarse);
    let foreign = {
        let about = about(3, RealType::F32);
        let shape = TensorShape { name: "x".to_owned(), rows: 1, cols: 1 };
        let tile = Tile { tensor: "x".to_owned(), quantity: Quantity::Value, row: 0, col: 0, rows: 1, cols: 1 };
        let draft = Draft::begin(&folder.path().join("foreign"), 3).unwrap();
        draft.write(0, &[(tile, Cow::Owned(vec![1.0_f32]))]).unwrap();
        Checkpoint::open(&draft.commit(&about, &[shape], &[0]).unwrap()).unwrap()
    };
    let target = folder.path().join("pruned");
    let pruning = pruning("0.5", Scope::Layer, false);
    let later = committed(folder.path(), 8, coarse);
    for (earlier, reason) in [(&foreign, "it is of another model"), (&later, "it is of the later step 8, not before 7")]
    {
        let error = prune(&source, Some(earlier), &target, pruning).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains("take an earlier checkpoint of its run"), "{error}");
    }
    assert!(prune(&foreign, None, &target, pruning).unwrap_err().to_string().contains("has no tensor block.0"));
    // A byte of the weights that is not what was written.
    let file = other.path().join("rank-00000.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    let last = bytes.len() / 2;
    bytes[last] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let damaged = Checkpoint::open(other.path()).unwrap();
    let error = prune(&damaged, None, &target, pruning).unwrap_err();
    assert!(format!("{error:?}").contains("DamagedTile"), "{error}");
    assert!(!target.exists() && !target.with_extension("partial").exists());
}

#[test]
fn a_mask_is_covered_whole_checked_and_said_to_be_a_mask() {
    let folder = tempfile::tempdir().unwrap();
    let source = committed(folder.path(), 7, coarse);
    let (path, _) = prune(&source, None, &folder.path().join("pruned"), pruning("0.5", Scope::Layer, false)).unwrap();
    let manifest = std::fs::read_to_string(path.join("manifest.json")).unwrap();
    assert!(manifest.contains("\"quantity\":\"kept\""));
    let whole = std::fs::read_to_string(source.path().join("manifest.json")).unwrap();
    assert!(!whole.contains("\"quantity\":\"kept\""));

    let file = path.join("rank-00000.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let (_, faults) = Checkpoint::open(&path).unwrap().faults();
    assert!(matches!(&faults[..], [fault] if fault.to_string().contains("#kept@0,0")), "{faults:?}");
    let absent = source.whole::<f32>("block.0.up.weight", Quantity::Kept).unwrap_err().to_string();
    assert!(absent.contains("has no kept elements of tensor block.0.up.weight; it is not pruned"), "{absent}");

    let about = about(8, RealType::F32);
    let shape = TensorShape { name: "x".to_owned(), rows: 2, cols: 2 };
    let tile = |quantity, rows| Tile { tensor: "x".to_owned(), quantity, row: 0, col: 0, rows, cols: 2 };
    let draft = Draft::begin(folder.path(), 8).unwrap();
    let tiles =
        [(tile(Quantity::Value, 2), Cow::Owned(vec![1.0_f32; 4])), (tile(Quantity::Kept, 1), Cow::Owned(vec![1.0; 2]))];
    draft.write(0, &tiles).unwrap();
    let error = draft.commit(&about, &[shape], &[0]).unwrap_err().to_string();
    assert!(error.contains("tensor x (kept elements) is not covered exactly once"), "{error}");
}
