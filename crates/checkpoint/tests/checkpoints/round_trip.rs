//! What is read is what was written, however it was cut.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::common::{Tiling, about, number, tilings};
use proptest::prelude::*;
use quadrille_checkpoint::{Checkpoint, CheckpointError, Merge, Number, Quantity, TensorShape, merge};
use quadrille_spec::RealType;

/// Every number by [`Checkpoint::whole`], and pieces of rows by [`Checkpoint::read`], from several threads.
fn check<S: Number, T: Number + PartialEq + std::fmt::Debug>(checkpoint: &Checkpoint, tiling: &Tiling) {
    let stored = |tensor, quantity, row, col| {
        // Through the stored type, then into the type that is read.
        let number = number(tensor, quantity, row, col);
        if S::TYPE == RealType::F32 { T::from_f32(number as f32) } else { T::rounded(number) }
    };
    let quantities = || Quantity::NUMBERS.into_iter().filter(|quantity| checkpoint.has(*quantity));
    std::thread::scope(|scope| {
        for (tensor, TensorShape { name, rows, cols }) in tiling.tensors.iter().enumerate() {
            for quantity in quantities() {
                scope.spawn(move || {
                    let whole = checkpoint.whole::<T>(name, quantity).unwrap();
                    let expected = |at: usize| stored(tensor, quantity, at / cols, at % cols);
                    assert_eq!(whole, (0..rows * cols).map(expected).collect::<Vec<T>>(), "{name} {quantity}");
                    for row in 0..*rows {
                        let first = row % cols;
                        let last = (row % cols + 1 + row).min(*cols);
                        let mut part = vec![T::from_f32(0.0); last - first];
                        checkpoint.reader().read(name, quantity, row, first, &mut part).unwrap();
                        assert_eq!(part, whole[row * cols + first..row * cols + last]);
                    }
                });
            }
        }
    });
}

/// What the format's own library reads from a file, by tile.
fn independently_read(path: &Path) -> HashMap<String, (Vec<usize>, Vec<u8>)> {
    let bytes = fs::read(path).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    tensors.iter().map(|(name, view)| (name.to_owned(), (view.shape().to_vec(), view.data().to_vec()))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_tilings(tiling in tilings(), double in any::<bool>(), weights_only in any::<bool>()) {
        let folder = tempfile::tempdir().unwrap();
        let path = if double { tiling.write::<f64>(folder.path(), 7) } else { tiling.write::<f32>(folder.path(), 7) };
        let path = path.unwrap();
        let dtype = if double { RealType::F64 } else { RealType::F32 };
        let open = || Checkpoint::open(&path).unwrap();
        let checkpoint = open();
        prop_assert_eq!(checkpoint.about(), &about(7, dtype));
        prop_assert_eq!(checkpoint.tensors(), &tiling.tensors[..]);
        if double {
            check::<f64, f64>(&checkpoint, &tiling);
            check::<f64, f32>(&open().rounding(), &tiling);
        } else {
            check::<f32, f32>(&checkpoint, &tiling);
            check::<f32, f64>(&checkpoint, &tiling);
        }
        let summary = checkpoint.verify().unwrap();
        prop_assert_eq!((summary.tiles, summary.tensors), (tiling.tiles.len(), tiling.tensors.len()));
        prop_assert_eq!(summary.not_finite, []);
        // Merged: the same numbers in one file, a tile each.
        let merged = folder.path().join("merged");
        let options = Merge { dtype: Some(RealType::F32), weights_only };
        prop_assert_eq!(merge(open(), &merged, options).unwrap(), merged.clone());
        let merged = Checkpoint::open(&merged).unwrap();
        let both = !weights_only && checkpoint.has(Quantity::SecondMoment);
        prop_assert_eq!(merged.has(Quantity::FirstMoment), both);
        prop_assert_eq!(merged.files().map(|(_, _, tiles)| tiles).collect::<Vec<_>>(), [
            tiling.tensors.len() * if both { 3 } else { 1 }
        ]);
        check::<f32, f32>(&merged, &tiling);
    }

    #[test]
    fn the_files_are_safetensors_files(tiling in tilings()) {
        let folder = tempfile::tempdir().unwrap();
        let path = tiling.write::<f64>(folder.path(), 1).unwrap();
        for writer in tiling.writers() {
            let mut read = independently_read(&path.join(format!("rank-{writer:05}.safetensors")));
            for (tile, numbers) in tiling.tiles_of::<f64>(writer) {
                let (shape, bytes) = read.remove(&tile.name()).unwrap();
                prop_assert_eq!(shape, [tile.rows, tile.cols]);
                prop_assert_eq!(bytes, numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>());
            }
            prop_assert!(read.is_empty());
        }
    }
}

/// One tensor of one tile.
fn one(numbers: &[f64]) -> (tempfile::TempDir, Checkpoint) {
    let folder = tempfile::tempdir().unwrap();
    let shape = TensorShape { name: "x".to_owned(), rows: 1, cols: numbers.len() };
    let tile = quadrille_checkpoint::Tile {
        tensor: "x".to_owned(),
        quantity: Quantity::Value,
        row: 0,
        col: 0,
        rows: 1,
        cols: numbers.len(),
    };
    let draft = quadrille_checkpoint::Draft::begin(folder.path(), 1).unwrap();
    draft.write(0, &[(tile, numbers.into())]).unwrap();
    let path = draft.commit(&about(1, RealType::F64), &[shape], &[0]).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    (folder, checkpoint)
}

#[test]
fn rounding_is_never_silent() {
    let (_folder, checkpoint) = one(&[0.1, 1e300]);
    let mut number = [0.0_f32];
    let error = checkpoint.reader().read("x", Quantity::Value, 0, 0, &mut number).unwrap_err();
    assert!(
        matches!(error, CheckpointError::Rounding(_)) && error.to_string().contains("`checkpoint.merge` f32"),
        "{error}"
    );
    let checkpoint = checkpoint.rounding();
    checkpoint.reader().read("x", Quantity::Value, 0, 0, &mut number).unwrap();
    assert_eq!(number, [0.1_f32]);
    let error = checkpoint.reader().read("x", Quantity::Value, 0, 1, &mut number).unwrap_err();
    assert!(error.to_string().contains("tensor x") && error.to_string().contains("too large for f32"), "{error}");
}

#[test]
fn numbers_that_are_none_survive_and_are_counted() {
    let (folder, checkpoint) = one(&[f64::NAN, 1.0, f64::NEG_INFINITY, -0.0, f64::from_bits(1)]);
    let mut numbers = [0.0_f64; 5];
    checkpoint.reader().read("x", Quantity::Value, 0, 0, &mut numbers).unwrap();
    let bits = [f64::NAN, 1.0, f64::NEG_INFINITY, -0.0, f64::from_bits(1)].map(f64::to_bits);
    assert_eq!(numbers.map(f64::to_bits), bits);
    let not_finite = &checkpoint.verify().unwrap().not_finite[0];
    assert_eq!((not_finite.tensor.as_str(), not_finite.numbers), ("x", 2));
    // They were infinite before rounding.
    merge(checkpoint, &folder.path().join("m"), Merge { dtype: Some(RealType::F32), weights_only: true }).unwrap();
}

#[test]
fn what_is_not_there_is_named() {
    let (folder, checkpoint) = one(&[1.0, 2.0]);
    let mut out = [0.0_f64; 2];
    let mut message = |tensor, quantity, row, col| {
        checkpoint.reader().read(tensor, quantity, row, col, &mut out).unwrap_err().to_string()
    };
    assert!(message("y", Quantity::Value, 0, 0).contains("has no tensor y"));
    assert!(message("x", Quantity::FirstMoment, 0, 0).contains("no first moment of tensor x; it holds weights only"));
    for (row, col) in [(1, 0), (0, 1), (0, usize::MAX), (usize::MAX, 0)] {
        assert!(message("x", Quantity::Value, row, col).contains("it has 1 rows, 2 columns"));
    }
    let find = |path: &Path| Checkpoint::find(path).map(|checkpoint| checkpoint.path().to_path_buf());
    let path = folder.path().join("step-000000000001");
    assert_eq!(find(&path).unwrap(), path);
    assert_eq!(find(folder.path()).unwrap(), path);
    let run = tempfile::tempdir().unwrap();
    fs::rename(folder.path(), run.path().join("checkpoints")).unwrap();
    assert_eq!(find(run.path()).unwrap(), run.path().join("checkpoints/step-000000000001"));
    let empty = tempfile::tempdir().unwrap();
    assert!(find(empty.path()).unwrap_err().to_string().contains("is not a checkpoint: it has no manifest.json"));
    assert!(find(&empty.path().join("absent")).unwrap_err().to_string().contains("cannot read"));
}

proptest! {
    /// JSON readers may be off by the last bit.
    #[test]
    fn constants_are_read_as_the_same_bits(rate in any::<f64>().prop_filter("finite", |rate| rate.is_finite())) {
        let text = serde_json::to_string(&rate).unwrap();
        prop_assert_eq!(serde_json::from_str::<f64>(&text).unwrap().to_bits(), rate.to_bits());
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(value.as_f64().unwrap().to_bits(), rate.to_bits());
    }
}
