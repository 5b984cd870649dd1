//! The checkpoints of a run: which is the newest, and what is removed.

use std::fs;
use std::path::{Path, PathBuf};

use quadrille_checkpoint::{Checkpoint, Draft, Folder, Quantity};
use tempfile::TempDir;

use crate::common::{message, small};

/// Checkpoints of these steps, written in this order.
fn written(steps: &[u64]) -> (TempDir, Folder) {
    let folder = tempfile::tempdir().unwrap();
    steps.iter().for_each(|step| drop(small(2, 3).write::<f32>(folder.path(), *step).unwrap()));
    let checkpoints = Folder::new(folder.path());
    (folder, checkpoints)
}

fn steps(folder: &Folder) -> Vec<u64> {
    folder.list().unwrap().into_iter().map(|(step, _)| step).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Changes the last number of a checkpoint.
fn spoil(path: &Path) {
    let file = path.join("rank-00000.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(file, bytes).unwrap();
}

#[test]
fn a_folder_that_is_not_there_has_no_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let folder = Folder::new(&folder.path().join("absent"));
    assert!(folder.list().unwrap().is_empty() && folder.newest().unwrap().is_none());
    assert!(folder.clean().unwrap().is_empty() && folder.prune(1).unwrap().is_empty());
}

#[test]
fn the_newest_is_that_of_the_last_step() {
    let (root, folder) = written(&[20, 9, 100, 1_000_000_000_000_000]);
    assert_eq!(steps(&folder), [1_000_000_000_000_000, 100, 20, 9]);
    assert_eq!(folder.newest().unwrap().unwrap().about().step, 1_000_000_000_000_000);
    assert_eq!(names(root.path())[0], "step-000000000009");
    // What is none of ours is not listed.
    for name in ["step-7", "step-000000000x10", "step-000000000200.partial", "best", "step-+00000000300"] {
        fs::create_dir(root.path().join(name)).unwrap();
    }
    fs::write(root.path().join("step-000000000400"), "").unwrap();
    assert_eq!(steps(&folder).len(), 4);
}

#[test]
fn a_damaged_newest_is_never_passed_over() {
    let (_root, folder) = written(&[1, 2, 3, 4]);
    let error = |folder: &Folder| message(&folder.newest().unwrap_err());
    // A damaged number is found when it is read, and the one before is offered.
    spoil(&folder.path_of(4));
    let mut row = [0.0_f32; 3];
    let newest = folder.newest().unwrap().unwrap();
    newest.reader().read("x", Quantity::Value, 0, 0, &mut row).unwrap();
    let damaged = message(&newest.reader().read("x", Quantity::Value, 1, 0, &mut row).unwrap_err());
    for words in ["step-000000000004 cannot be used", "step-000000000003, which opens", "of tensor x"] {
        assert!(damaged.contains(words), "{damaged}");
    }
    fs::remove_file(folder.path_of(4).join("rank-00000.safetensors")).unwrap();
    assert!(error(&folder).contains("step-000000000003, which opens: the checkpoint's file"));
    fs::write(folder.path_of(3).join("manifest.json"), "{}").unwrap();
    assert!(
        error(&folder).contains("step-000000000002, which opens") && error(&folder).contains("rank-00000.safetensors")
    );
    [1, 2].iter().for_each(|step| fs::remove_file(folder.path_of(*step).join("manifest.json")).unwrap());
    assert!(error(&folder).contains("no earlier one opens"));
}

#[test]
fn pruning_keeps_the_newest() {
    let (root, folder) = written(&[1, 2, 3, 4, 5]);
    assert!(folder.prune(9).unwrap().is_empty());
    assert_eq!(folder.prune(2).unwrap(), [3, 2, 1].map(|step| folder.path_of(step)));
    assert_eq!(names(root.path()), ["step-000000000004", "step-000000000005"]);
    assert_eq!(folder.prune(0).unwrap(), [folder.path_of(4)]);
    assert_eq!(steps(&folder), [5]);
}

#[test]
fn pruning_never_removes_the_last_one_that_opens() {
    let (_root, folder) = written(&[1, 2, 3, 4, 5]);
    [3, 4, 5].iter().for_each(|step| fs::write(folder.path_of(*step).join("manifest.json"), "{}").unwrap());
    assert_eq!(folder.prune(2).unwrap(), [3, 1].map(|step| folder.path_of(step)));
    assert_eq!(steps(&folder), [5, 4, 2]);
    Checkpoint::open(&folder.path_of(2)).unwrap();
}

/// A user's folder of that name is no checkpoint, and none to count.
#[test]
fn pruning_leaves_folders_without_a_manifest() {
    let (root, folder) = written(&[1, 2, 3]);
    for step in [0, 9] {
        fs::create_dir(folder.path_of(step)).unwrap();
        fs::write(folder.path_of(step).join("notes"), "kept").unwrap();
    }
    assert_eq!(folder.prune(2).unwrap(), [folder.path_of(1)]);
    assert_eq!((steps(&folder), names(root.path()).len()), (vec![9, 3, 2, 0], 4));
}

/// Whoever has opened a checkpoint reads it to its end, whatever is pruned meanwhile.
#[test]
fn a_checkpoint_that_is_read_may_be_removed() {
    let (_root, folder) = written(&[1, 2]);
    let old = Checkpoint::open(&folder.path_of(1)).unwrap();
    let same = Checkpoint::open(&folder.path_of(2)).unwrap();
    assert_eq!(folder.prune(1).unwrap(), [folder.path_of(1)]);
    for shape in same.tensors() {
        let [old, same] = [&old, &same].map(|one| one.whole::<f32>(&shape.name, Quantity::Value).unwrap());
        assert_eq!(old, same);
    }
}

#[test]
fn several_may_prune_at_once() {
    let (_root, folder) = written(&(1..=12).collect::<Vec<u64>>());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| folder.prune(2))).collect();
        threads.into_iter().for_each(|thread| drop(thread.join().unwrap().unwrap()));
    });
    assert_eq!(steps(&folder), [12, 11]);
    assert!(folder.partial().unwrap().is_empty());
}

#[test]
fn unfinished_checkpoints_are_cleaned_and_nothing_else() {
    let (root, folder) = written(&[1]);
    Draft::begin(root.path(), 2).unwrap().write(0, &small(2, 3).tiles_of::<f32>(0)).unwrap();
    fs::write(root.path().join("notes.partial"), "mine").unwrap();
    fs::create_dir(root.path().join("other.partial")).unwrap();
    // A removal that was cut off.
    fs::create_dir(root.path().join("step-000000000000.removed.partial")).unwrap();
    let expected: Vec<PathBuf> =
        ["step-000000000000.removed.partial", "step-000000000002.partial"].map(|name| root.path().join(name)).into();
    assert_eq!(folder.partial().unwrap(), expected);
    assert!(folder.prune(1).unwrap().is_empty());
    assert_eq!(folder.clean().unwrap(), expected);
    assert_eq!(names(root.path()), ["notes.partial", "other.partial", "step-000000000001"]);
}
