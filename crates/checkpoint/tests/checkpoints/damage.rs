//! Damage of any file at any place is told, with the file's name and, where numbers are hit, the tensor's; nothing panics and
//! nothing is read in silence.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Tiling, copied, cut, message};
use proptest::prelude::*;
use quadrille_checkpoint::{Checkpoint, CheckpointError, Quantity, TensorShape};
use tempfile::TempDir;

/// Two tensors with moments, each in several tiles of three ranks; all tiles are larger than their names.
fn tiling() -> Tiling {
    let shape = |name: &str, rows, cols| TensorShape { name: name.to_owned(), rows, cols };
    let tensors = vec![shape("block.0.qkv.weight", 24, 72), shape("final_norm.gamma", 1, 240)];
    let mut tiles = Vec::new();
    for quantity in Quantity::NUMBERS {
        let parts = cut(24, 72, &[(0, true, 7), (1, false, 19), (0, false, 40), (2, true, 3)]);
        tiles.extend(parts.into_iter().enumerate().map(|(at, place)| (0, quantity, at % 3, place)));
        tiles.push((1, quantity, 1, (0, 0, 1, 240)));
    }
    Tiling { tensors, tiles }
}

fn written(step: u64) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = copied::<f32>(folder.path(), step, tiling);
    (folder, path)
}

/// Every number, as a run would read them.
fn read_all(path: &Path) -> Result<Vec<Vec<f32>>, CheckpointError> {
    let checkpoint = Checkpoint::open(path)?;
    let tensors = checkpoint.tensors().iter();
    let parts = tensors.flat_map(|shape| Quantity::NUMBERS.map(|quantity| (&shape.name, quantity)));
    parts.map(|(name, quantity)| checkpoint.whole(name, quantity)).collect()
}

/// What reading everything is refused with; verification must refuse it as well.
fn refusal(path: &Path) -> Result<String, TestCaseError> {
    let Err(error) = read_all(path) else { return Err(TestCaseError::fail("the damage was read in silence")) };
    if let Ok(checkpoint) = Checkpoint::open(path) {
        prop_assert!(checkpoint.verify().is_err() && !checkpoint.faults().1.is_empty());
    }
    Ok(message(&error))
}

const FILES: [&str; 4] =
    ["manifest.json", "rank-00000.safetensors", "rank-00001.safetensors", "rank-00002.safetensors"];

/// Where the numbers of a safetensors file begin.
fn data_start(bytes: &[u8]) -> usize {
    8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize
}

/// Which tensor the byte is of, by the format's own reader.
fn tensor_at(bytes: &[u8], place: usize) -> Option<String> {
    let data = data_start(bytes);
    let tensors = safetensors::SafeTensors::deserialize(bytes).unwrap();
    let hit = |view: &safetensors::tensor::TensorView<'_>| {
        let start = view.data().as_ptr() as usize - bytes.as_ptr() as usize;
        (start..start + view.data().len()).contains(&place)
    };
    assert!(place < data || tensors.iter().filter(|(_, view)| hit(view)).count() == 1);
    let (name, _) = tensors.iter().find(|(_, view)| hit(view))?;
    Some(name.split(['@', '#']).next().unwrap().to_owned())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bits(file in 0..FILES.len(), place in any::<prop::sample::Index>(), bit in 0_u32..8) {
        let (_folder, path) = written(3);
        let file = path.join(FILES[file]);
        let mut bytes = fs::read(&file).unwrap();
        let place = place.index(bytes.len());
        let rank = file.extension().is_some_and(|extension| extension == "safetensors");
        let tensor = if rank { tensor_at(&bytes, place) } else { None };
        bytes[place] ^= 1_u8 << bit;
        fs::write(&file, &bytes).unwrap();
        let message = refusal(&path)?;
        prop_assert!(message.contains(file.to_str().unwrap()), "{}", message);
        match tensor {
            // Only the checksum stands between this damage and the run.
            Some(tensor) => {
                prop_assert!(Checkpoint::open(&path).is_ok());
                prop_assert!(message.contains(&format!("of tensor {tensor} does not fit")), "{}", message);
            }
            None => prop_assert!(!message.contains("of tensor"), "{}", message),
        }
    }

    #[test]
    fn cut_short_or_longer(file in 0..FILES.len(), place in any::<prop::sample::Index>(), more in 0_usize..20) {
        let (_folder, path) = written(3);
        let file = path.join(FILES[file]);
        let mut bytes = fs::read(&file).unwrap();
        bytes.resize(if more > 0 { bytes.len() + more } else { place.index(bytes.len()) }, b' ');
        fs::write(&file, &bytes).unwrap();
        // Noticed without reading any number.
        let error = Checkpoint::open(&path).map(|_| ()).unwrap_err();
        prop_assert!(message(&error).contains(file.to_str().unwrap()), "{}", message(&error));
        refusal(&path)?;
    }

    #[test]
    fn a_stretch_of_other_bytes(
        file in 0..FILES.len(),
        place in any::<prop::sample::Index>(),
        other in prop_oneof![Just(vec![0; 512]), prop::collection::vec(any::<u8>(), 1..600)],
    ) {
        let (_folder, path) = written(3);
        let file = path.join(FILES[file]);
        let good = fs::read(&file).unwrap();
        let mut bytes = good.clone();
        let place = place.index(bytes.len());
        let end = bytes.len().min(place + other.len());
        bytes[place..end].copy_from_slice(&other[..end - place]);
        prop_assume!(bytes != good);
        fs::write(&file, &bytes).unwrap();
        let message = refusal(&path)?;
        prop_assert!(message.contains(file.to_str().unwrap()), "{}", message);
    }

    #[test]
    fn foreign_files(file in 0..FILES.len(), content in prop::collection::vec(any::<u8>(), 0..300)) {
        let (_folder, path) = written(3);
        let file = path.join(FILES[file]);
        fs::write(&file, &content).unwrap();
        prop_assert!(refusal(&path)?.contains(file.to_str().unwrap()));
    }
}

#[test]
fn missing_files_and_folders_in_their_place() {
    for name in FILES {
        let (_folder, path) = written(3);
        let file = path.join(name);
        fs::remove_file(&file).unwrap();
        let missing = refusal(&path).unwrap();
        // Without a manifest it is the folder that is at fault.
        let told = if name == FILES[0] { "it has no manifest.json" } else { "it is missing" };
        assert!(missing.contains(told) && missing.contains(path.to_str().unwrap()), "{missing}");
        fs::create_dir(&file).unwrap();
        assert!(refusal(&path).unwrap().contains("not a regular file"), "{name}");
    }
}

#[test]
fn files_of_another_checkpoint() {
    for other_step in [3, 4] {
        for name in &FILES[1..] {
            let (_folder, path) = written(3);
            // As long, and in other numbers or of another step.
            let other = tempfile::tempdir().unwrap();
            let mut tiling = tiling();
            if other_step == 3 {
                tiling.tensors.swap(0, 1);
                tiling.tiles.iter_mut().for_each(|tile| tile.0 = 1 - tile.0);
            }
            let other_path = tiling.write::<f32>(other.path(), other_step).unwrap();
            fs::copy(other_path.join(name), path.join(name)).unwrap();
            let message = refusal(&path).unwrap();
            assert!(message.contains(&format!("{name} is damaged: the checksum of its header")), "{message}");
        }
        // The manifest of another.
        let (_folder, path) = written(3);
        let (_other, other) = written(4);
        fs::copy(other.join(FILES[0]), path.join(FILES[0])).unwrap();
        assert!(refusal(&path).unwrap().contains("the checksum of its header"));
    }
}

#[test]
fn files_of_the_same_checkpoint_swapped() {
    let (_folder, path) = written(3);
    let [first, second, spare] =
        ["rank-00000.safetensors", "rank-00002.safetensors", "spare"].map(|name| path.join(name));
    fs::rename(&first, &spare).unwrap();
    fs::rename(&second, &first).unwrap();
    fs::rename(&spare, &second).unwrap();
    assert!(refusal(&path).unwrap().contains("rank-0000"));
}

#[test]
fn all_damage_is_listed() {
    let (_folder, path) = written(3);
    for name in &FILES[1..] {
        let mut bytes = fs::read(path.join(name)).unwrap();
        let data = data_start(&bytes);
        let place = if *name == FILES[3] { 20 } else { data + 1 };
        bytes[place] ^= 1;
        fs::write(path.join(name), &bytes).unwrap();
    }
    let (summary, faults) = Checkpoint::open(&path).unwrap().faults();
    let faults: Vec<String> = faults.iter().map(message).collect();
    assert_eq!(faults.len(), 3, "{faults:?}");
    for (name, words) in FILES[1..].iter().zip(["of tensor", "of tensor", "its header"]) {
        assert!(faults.iter().any(|fault| fault.contains(name) && fault.contains(words)), "{faults:?}");
    }
    let of_third = tiling().tiles.iter().filter(|tile| tile.2 == 2).count();
    assert_eq!(summary.tiles, tiling().tiles.len() - 2 - of_third);
}

#[test]
fn a_sound_checkpoint_is_read() {
    let (_folder, path) = written(3);
    assert_eq!(read_all(&path).unwrap().len(), 6);
    // Files that others have put beside are none of its own.
    fs::write(path.join("tokenizer.json"), "{}").unwrap();
    assert_eq!(Checkpoint::open(&path).unwrap().verify().unwrap().tiles, tiling().tiles.len());
}

/// Another program cuts a file that is open already: an error that names it, where a mapped file would end the process.
#[test]
fn files_that_are_cut_while_they_are_open() {
    for name in &FILES[1..] {
        let (_folder, path) = written(3);
        let checkpoint = Checkpoint::open(&path).unwrap();
        let file = path.join(name);
        let length = fs::metadata(&file).unwrap().len();
        fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(length / 2).unwrap();
        let parts = checkpoint.tensors().iter().map(|shape| &shape.name);
        let errors: Vec<CheckpointError> =
            parts.filter_map(|tensor| checkpoint.whole::<f32>(tensor, Quantity::Value).err()).collect();
        assert!(!errors.is_empty(), "{name}");
        for error in &errors {
            let message = message(error);
            assert!(message.contains(name) && message.contains("has become shorter"), "{message}");
        }
        let faults = checkpoint.faults().1;
        assert!(faults.iter().map(message).any(|fault| fault.contains(name) && fault.contains("shorter")));
    }
}
