//! What is refused while a checkpoint is being written.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use quadrille_checkpoint::{Checkpoint, Draft, Folder, Quantity, TensorShape, Tile};
use quadrille_spec::RealType;

use crate::common::{about, message, small};

fn tile(row: usize, rows: usize) -> Tile {
    Tile { tensor: "x".to_owned(), quantity: Quantity::Value, row, col: 0, rows, cols: 2 }
}

fn shapes(rows: usize) -> [TensorShape; 1] {
    [TensorShape { name: "x".to_owned(), rows, cols: 2 }]
}

/// Writes tiles of these rows, a rank each, and commits.
fn commit(folder: &Path, tiles: &[Tile], shapes: &[TensorShape], writers: &[usize]) -> Result<Checkpoint, String> {
    let numbers = vec![1.0_f32; 99];
    for (writer, tile) in tiles.iter().enumerate() {
        let part = numbers[..tile.rows * tile.cols].into();
        Draft::begin(folder, 1).unwrap().write(writer, &[(tile.clone(), part)]).unwrap();
    }
    let draft = Draft::begin(folder, 1).unwrap();
    let path = draft.commit(&about(1, RealType::F32), shapes, writers).map_err(|error| message(&error))?;
    Ok(Checkpoint::open(&path).unwrap())
}

fn refused(tiles: &[Tile], shapes: &[TensorShape], writers: &[usize], words: &str) {
    let folder = tempfile::tempdir().unwrap();
    let error = commit(folder.path(), tiles, shapes, writers).unwrap_err();
    assert!(error.contains(words) && error.contains("step-000000000001"), "{error}");
    // Nothing looks like a checkpoint, and the next attempt finds a free place.
    assert!(Folder::new(folder.path()).newest().unwrap().is_none());
    Draft::begin(folder.path(), 1).unwrap().discard().unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn ranks_that_do_not_fit_together() {
    let folder = tempfile::tempdir().unwrap();
    commit(folder.path(), &[tile(0, 1), tile(1, 2)], &shapes(3), &[1, 0]).unwrap();
    refused(&[tile(0, 1), tile(1, 1)], &shapes(3), &[0, 1], "x (value) is not covered exactly once: 2 of its 6");
    refused(&[tile(0, 2), tile(1, 2)], &shapes(3), &[0, 1], "the tiles of 2 x 2 at 0,0 and 2 x 2 at 1,0 overlap");
    refused(&[tile(0, 4)], &shapes(3), &[0], "is not inside its 3 x 2 numbers");
    refused(&[tile(0, 3)], &shapes(3), &[0, 1], "rank-00001.safetensors is damaged: it is missing");
    refused(&[tile(0, 3), tile(0, 3)], &shapes(3), &[0], "rank-00001.safetensors of another attempt");
    refused(&[tile(0, 3)], &shapes(3), &[0, 0], "it lists rank-00000.safetensors twice");
    let moment = Tile { quantity: Quantity::FirstMoment, ..tile(0, 3) };
    refused(&[tile(0, 3), moment.clone()], &shapes(3), &[0, 1], "x (second moment) is not covered");
    refused(&[moment], &shapes(3), &[0], "x (value) is not covered");
    let other = Tile { tensor: "y".to_owned(), ..tile(0, 1) };
    refused(&[tile(0, 3), other], &shapes(3), &[0, 1], "rank 1 wrote y@0,0, a tile of no listed tensor");
}

#[test]
fn what_one_rank_writes() {
    let folder = tempfile::tempdir().unwrap();
    let draft = Draft::begin(folder.path(), 1).unwrap();
    let refused = |tile: Tile, numbers: &[f64], words: &str| {
        let error = draft.write(0, &[(tile, numbers.into())]).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    refused(tile(0, 2), &[1.0; 3], "tile x@0,0 of 2 x 2 was given 3 numbers");
    refused(tile(0, 0), &[], "tile x@0,0 has 0 x 2 numbers");
    refused(tile(usize::MAX, usize::MAX), &[1.0], "was given 1 numbers");
    for name in ["", "a@b", "a#b", "a\nb", &"long".repeat(99)] {
        refused(Tile { tensor: name.to_owned(), ..tile(0, 1) }, &[1.0; 2], "is no name of a tensor");
    }
    let pair = || (tile(0, 1), [1.0_f64, 2.0][..].into());
    let twice = draft.write(0, &[pair(), pair()]).unwrap_err().to_string();
    assert!(twice.contains("rank 0 has tile x@0,0 twice"), "{twice}");
    draft.write::<f64>(0, &[]).unwrap();
    let partial = folder.path().join("step-000000000001.partial");
    assert_eq!(fs::read_dir(&partial).unwrap().count(), 0);
    let mut writer = draft.writer(0, vec![tile(0, 1)]).unwrap();
    writer.push(&[1.0_f64]).unwrap();
    assert!(writer.push(&[2.0, 3.0]).unwrap_err().to_string().contains("1 numbers more than its tiles have"));
    drop(writer);
    let mut writer = draft.writer(0, vec![tile(0, 1)]).unwrap();
    writer.push(&[1.0_f64]).unwrap();
    assert!(writer.finish().unwrap_err().to_string().contains("tile x@0,0 has 1 of its 2 numbers"));
    assert_eq!(fs::read_dir(&partial).unwrap().count(), 0);
}

#[test]
fn a_description_that_could_not_be_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let begin = || {
        let draft = Draft::begin(folder.path(), 1).unwrap();
        draft.write(0, &small(1, 1).tiles_of::<f32>(0)).unwrap();
        draft
    };
    let tensors = small(1, 1).tensors;
    let refused = |about, words: &str| {
        let error = message(&begin().commit(&about, &tensors, &[0]).unwrap_err());
        assert!(error.contains(words), "{error}");
    };
    let good = about(1, RealType::F32);
    refused(about(2, RealType::F32), "it was begun as step 1 and is about step 2");
    refused(about(1, RealType::F64), "it is of step 1, rank 0, in f32, and the checkpoint of step 1, rank 0, in f64");
    let model = good.model.reshaped(|m| m.heads = 5);
    refused(
        quadrille_checkpoint::About { model, ..good.clone() },
        "its model cannot be used: kv_heads=3 does not divide heads = 5",
    );
    let path = begin().commit(&good, &tensors, &[0]).unwrap();
    // A finished one is never written to.
    let error = Draft::begin(folder.path(), 1).unwrap_err().to_string();
    assert!(error.contains("it exists already") && error.contains(path.to_str().unwrap()), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Told when it is finished, or when the numbers are read.
    #[test]
    fn files_damaged_between_write_and_commit(place in any::<prop::sample::Index>(), bit in 0_u32..8) {
        let folder = tempfile::tempdir().unwrap();
        let draft = Draft::begin(folder.path(), 1).unwrap();
        draft.write(0, &small(3, 4).tiles_of::<f32>(0)).unwrap();
        let file = folder.path().join("step-000000000001.partial/rank-00000.safetensors");
        let mut bytes = fs::read(&file).unwrap();
        let place = place.index(bytes.len());
        bytes[place] ^= 1_u8 << bit;
        fs::write(&file, bytes).unwrap();
        let result = draft.commit(&about(1, RealType::F32), &small(3, 4).tensors, &[0]);
        let result = result.and_then(|path| Checkpoint::open(&path)?.whole::<f32>("x", Quantity::Value));
        let expected = small(3, 4).tiles_of::<f32>(0).into_iter().flat_map(|(_, numbers)| numbers.into_owned());
        match result {
            // A bit in the upper case of a letter or in the padding changes no meaning.
            Ok(numbers) => prop_assert_eq!(numbers, expected.collect::<Vec<f32>>()),
            Err(error) => prop_assert!(message(&error).contains("step-000000000001"), "{}", message(&error)),
        }
    }
}
