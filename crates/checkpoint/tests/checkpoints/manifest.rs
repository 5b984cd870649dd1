//! Manifests that someone has edited, checksum included.

use std::fs;
use std::path::Path;

use crate::common::{Tiling, copied, cut, message};
use proptest::prelude::*;
use quadrille_checkpoint::{Checkpoint, CheckpointError, Quantity, TensorShape};
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

fn tiling() -> Tiling {
    let shape = |name: &str, rows, cols| TensorShape { name: name.to_owned(), rows, cols };
    let tensors = vec![shape("a.weight", 6, 8), shape("b.bias", 1, 10)];
    let mut tiles = Vec::new();
    for quantity in Quantity::NUMBERS {
        let parts = cut(6, 8, &[(0, true, 2), (0, false, 3), (1, false, 3)]);
        tiles.extend(parts.into_iter().enumerate().map(|(at, place)| (0, quantity, at % 2, place)));
        tiles.push((1, quantity, 1, (0, 0, 1, 10)));
    }
    Tiling { tensors, tiles }
}

/// Replaces the manifest by an edited one with a checksum that fits.
fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let file = path.join("manifest.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    change(&mut manifest);
    if let Some(object) = manifest.as_object_mut() {
        object.shift_remove("checksum");
    }
    let text = manifest.to_string();
    let body = format!("{},\n", text.strip_suffix('}').unwrap_or(&text));
    let checksum = xxh3_64(body.as_bytes());
    fs::write(&file, format!("{body}\"checksum\": \"{checksum:016x}\"\n}}\n")).unwrap();
}

/// All numbers' bits.
fn read_all(path: &Path) -> Result<Vec<u64>, CheckpointError> {
    let checkpoint = Checkpoint::open(path)?;
    let mut all = Vec::new();
    for shape in checkpoint.tensors() {
        for quantity in Quantity::NUMBERS.into_iter().filter(|quantity| checkpoint.has(*quantity)) {
            all.extend(checkpoint.whole::<f64>(&shape.name, quantity)?.into_iter().map(f64::to_bits));
        }
    }
    Ok(all)
}

/// The edited checkpoint is refused with these words, and the file's name.
#[track_caller]
fn refused(words: &str, change: impl FnOnce(&mut Value)) {
    let folder = tempfile::tempdir().unwrap();
    let path = copied::<f64>(folder.path(), 5, tiling);
    edit(&path, change);
    let message = message(&read_all(&path).expect_err(words));
    assert!(message.contains(words) && message.contains(path.to_str().unwrap()), "'{words}' is not in: {message}");
}

/// The tiles of the first file.
fn tiles(manifest: &mut Value) -> &mut Vec<Value> {
    manifest["files"][0]["tiles"].as_array_mut().unwrap()
}

#[test]
fn an_edit_that_changes_nothing_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = copied::<f64>(folder.path(), 5, tiling);
    let before = read_all(&path).unwrap();
    edit(&path, |_| ());
    assert_eq!(read_all(&path).unwrap(), before);
}

#[test]
fn tiles_that_do_not_cover_tensors_once() {
    refused("tensor a.weight (value) is not covered exactly once: 12 of its 48 numbers", |m| drop(tiles(m).remove(0)));
    refused("need more than its", |m| {
        for _ in 0..99 {
            let tile = tiles(m)[0].clone();
            tiles(m).push(tile);
        }
    });
    refused("overlap", |m| {
        // Two tiles of the same shape at the same place, one of another quantity gone.
        let place = tiles(m)[0].clone();
        let twin =
            tiles(m).iter_mut().rev().find(|tile| tile["rows"] == place["rows"] && tile["cols"] == place["cols"]);
        *twin.unwrap() = place;
    });
    refused("is not inside its 6 x 8 numbers", |m| tiles(m)[0]["row"] = json!(u64::MAX));
    refused("are in no tile", |m| m["tensors"][0]["rows"] = json!(7));
    refused("are in no tile", |m| {
        m["tensors"].as_array_mut().unwrap().push(json!({"name": "c", "rows": 1, "cols": 1}))
    });
    refused("tensor b.bias (first moment) is not covered exactly once: 10 of its 10", |m| {
        let tiles = m["files"][1]["tiles"].as_array_mut().unwrap();
        tiles.retain(|tile| tile["tensor"] != "b.bias" || tile["quantity"] == "value");
    });
    refused("in no tile", |m| m["files"] = json!([]));
    refused("it lists no tensor", |m| (m["tensors"], m["files"]) = (json!([]), json!([])));
}

#[test]
fn sizes_beyond_any_machine() {
    refused("tensor a.weight has 18446744073709551615 x 8 numbers", |m| m["tensors"][0]["rows"] = json!(u64::MAX));
    refused("in no tile", |m| m["tensors"][0]["rows"] = json!(1_u64 << 56));
    refused("need more than its", |m| tiles(m)[0]["rows"] = json!(u64::MAX));
    refused("need more than its", |m| tiles(m)[0]["rows"] = json!(1_u64 << 50));
    refused("bytes, and 1152921504606846976 were written", |m| {
        // A tensor that would fill the world, and a file that is said to hold it.
        m["files"][0]["bytes"] = json!(1_u64 << 60);
    });
    refused("0 x 8", |m| m["tensors"][0]["rows"] = json!(0));
}

#[test]
fn what_the_files_do_not_say() {
    refused("does not say what the manifest says", |m| {
        // Two tiles of the same shape change places: every tensor is still covered exactly once.
        let first = tiles(m)[0].clone();
        let second = tiles(m)[2].clone();
        assert_ne!(first["quantity"], second["quantity"]);
        for field in ["rows", "cols", "row", "col"] {
            assert_eq!(first[field], second[field]);
        }
        tiles(m)[0]["quantity"] = second["quantity"].clone();
        tiles(m)[2]["quantity"] = first["quantity"].clone();
    });
    refused("does not say what the manifest says", |m| tiles(m)[0]["checksum"] = json!("0123456789abcdef"));
    refused("does not say what the manifest says", |m| m["about"]["step"] = json!(6));
    refused("the checksum of its header does not fit", |m| m["files"][1]["header"] = json!("0123456789abcdef"));
    refused("does not fit", |m| {
        let other = m["files"][1]["name"].clone();
        m["files"][1]["name"] = m["files"][0]["name"].clone();
        m["files"][0]["name"] = other;
        let bytes = m["files"][1]["bytes"].clone();
        m["files"][1]["bytes"] = m["files"][0]["bytes"].clone();
        m["files"][0]["bytes"] = bytes;
    });
    refused("rank-00007.safetensors is damaged: it is missing", |m| {
        m["files"][0]["name"] = json!("rank-00007.safetensors")
    });
    // Numbers of half the size leave room in the file.
    refused("does not fit", |m| m["about"]["dtype"] = json!("f32"));
}

#[test]
fn names_and_types() {
    for name in ["../rank-00000.safetensors", "/etc/passwd", "rank-0.safetensors", "rank-+0000.safetensors", ""] {
        refused("is no name of a rank's file", |m| m["files"][0]["name"] = json!(name));
    }
    refused("it lists rank-00001.safetensors twice", |m| m["files"][0]["name"] = json!("rank-00001.safetensors"));
    refused("a tile of unlisted tensor \"c\"", |m| tiles(m)[0]["tensor"] = json!("c"));
    refused("it lists tensor b.bias twice", |m| m["tensors"][0]["name"] = json!("b.bias"));
    refused("\"a@0\" is no name of a tensor", |m| m["tensors"][0]["name"] = json!("a@0"));
    refused("no number of 16 digits", |m| tiles(m)[0]["checksum"] = json!("xyz"));
    refused("no number of 16 digits", |m| m["files"][0]["header"] = json!("+123456789abcdef"));
    refused("cannot be read: unknown field `extra`", |m| m["extra"] = json!(1));
    refused("cannot be read: unknown variant `mean`", |m| tiles(m)[0]["quantity"] = json!("mean"));
    refused("cannot be read: invalid", |m| tiles(m)[0]["row"] = json!(-1));
    refused("without tiles", |m| m["files"][0]["tiles"] = json!([]));
}

#[test]
fn other_formats_and_versions() {
    for version in [0, 1, 3] {
        let rule = format!("is of version {version} of the format, and this program reads version 2");
        refused(&rule, |m| m["version"] = json!(version));
    }
    refused("it is no manifest of quadrille-checkpoint", |m| m["format"] = json!("torch"));
    refused("it is no manifest of quadrille-checkpoint", |m| *m = json!([1]));
    // Another version may have other fields, and another layout of the text.
    let folder = tempfile::tempdir().unwrap();
    let path = copied::<f64>(folder.path(), 5, tiling);
    fs::write(path.join("manifest.json"), "{\"version\": 3, \"shards\": [], \"format\": \"quadrille-checkpoint\"}")
        .unwrap();
    assert!(matches!(read_all(&path), Err(CheckpointError::OtherVersion { found: 3, .. })));
}

#[test]
fn models_and_layouts_that_are_none() {
    refused("its model cannot be used: heads=5 does not divide hidden = 24", |m| {
        m["about"]["model"]["heads"] = json!(5)
    });
    refused("unknown field `width`", |m| m["about"]["model"]["width"] = json!(5));
    refused("its layout cannot be used: x=5", |m| m["about"]["layout"]["grid"] = json!("x=5"));
    refused("its layout cannot be used: grid = none", |m| m["about"]["layout"]["grid"] = json!(null));
    refused("its layout cannot be used", |m| m["about"]["layout"]["global_batch"] = json!(u64::MAX));
}

/// Every place in a document where there is a value.
fn paths(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| paths(value, &format!("{at}/{name}"), found)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, value)| paths(value, &format!("{at}/{i}"), found))
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any value anywhere: refused, or the numbers are the same.
    #[test]
    fn any_edit(
        place in any::<prop::sample::Index>(),
        other in prop_oneof![
            Just(json!(0)), Just(json!(1)), Just(json!(2)), Just(json!(6)), Just(json!(-1)), Just(json!(u64::MAX)),
            Just(json!(1_u64 << 40)), Just(json!(0.5)), Just(json!("x")), Just(json!("value")), Just(json!("f32")),
            Just(json!(null)), Just(json!(true)), Just(json!([])), Just(json!({})),
            Just(json!("0123456789abcdef")), any::<u32>().prop_map(|n| json!(n)),
        ],
        remove in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = copied::<f64>(folder.path(), 5, tiling);
        let before = read_all(&path).unwrap();
        edit(&path, |manifest| {
            let mut found = Vec::new();
            paths(manifest, "", &mut found);
            let chosen = place.get(&found);
            let (parent, name) = chosen.rsplit_once('/').unwrap_or(("", ""));
            match manifest.pointer_mut(parent) {
                Some(Value::Object(fields)) if remove => drop(fields.shift_remove(name)),
                Some(Value::Array(items)) if remove => drop(items.remove(name.parse().unwrap())),
                _ => *manifest.pointer_mut(chosen).unwrap() = other,
            }
        });
        match read_all(&path) {
            Ok(after) => prop_assert_eq!(after, before),
            Err(error) => prop_assert!(message(&error).contains(path.to_str().unwrap()), "{}", message(&error)),
        }
    }
    /// A header that was changed, in a manifest that has been told: refused, or the numbers are the same.
    #[test]
    fn any_header(
        place in any::<prop::sample::Index>(),
        other in prop_oneof![
            any::<u8>().prop_map(|byte| vec![byte]),
            "[0-9]{1,3}".prop_map(String::into_bytes),
            Just(b"\"".to_vec()),
            Just(b"}".to_vec()),
            Just(b"99999999999999999999".to_vec()),
        ],
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = copied::<f64>(folder.path(), 5, tiling);
        let before = read_all(&path).unwrap();
        let file = path.join("rank-00000.safetensors");
        let mut bytes = fs::read(&file).unwrap();
        let data = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let place = place.index(data - other.len());
        bytes[place..place + other.len()].copy_from_slice(&other);
        fs::write(&file, &bytes).unwrap();
        edit(&path, |manifest| manifest["files"][0]["header"] = json!(format!("{:016x}", xxh3_64(&bytes[..data]))));
        match read_all(&path) {
            Ok(after) => prop_assert_eq!(after, before),
            Err(error) => prop_assert!(message(&error).contains(file.to_str().unwrap()), "{}", message(&error)),
        }
    }
}
