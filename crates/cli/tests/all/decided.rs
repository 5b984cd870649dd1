//! What decides a run is in its folder: a run that goes on asks no command line of the past and no defaults of today.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::common::run;
use crate::run_folders::{TINY, copy_run, losses, succeed};

fn description(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("run.json")).unwrap()).unwrap()
}

fn describe(folder: &Path, description: &Value) {
    fs::write(folder.join("run.json"), serde_json::to_vec(description).unwrap()).unwrap();
}

/// All of the last checkpoint: parameters and moments, to the bit.
fn last_tiles(folder: &Path, step: u64) -> Vec<Vec<u8>> {
    let checkpoint = folder.join(format!("checkpoints/step-{step:012}"));
    let mut files: Vec<PathBuf> = fs::read_dir(checkpoint).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "safetensors"));
    files.sort();
    files.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Nothing of this is what a program takes where nothing is said.
const UNUSUAL: &str = "--grid x=2,data=2 --order data,x,y,z --zero 1 --overlap none --recompute full --seed 5 --lr 1e-2 \
                       --set beta2=0.9 --set warmup_steps=1 --set clip=none --steps 6 --global-batch 8 --seq-len 16 \
                       --checkpoint-every 3 --keep 2 --goldfish k=3,h=4 --validation 0.02 --validate-every 2 \
                       --validation-batches 1 --on-divergence skip --largest-loss 9 --collectives ring";

/// Without a checkpoint there is nothing to go on from: the run begins anew, here with the parameters of another model.
#[test]
fn a_run_without_checkpoints_takes_the_model_of_its_new_parameters() {
    let folder = tempfile::tempdir().unwrap();
    succeed(folder.path(), &format!("{TINY} --set hidden=48 --steps 2 --out other"));
    succeed(folder.path(), &format!("{TINY} --steps 2 --out run"));
    fs::remove_dir_all(folder.path().join("run/checkpoints")).unwrap();
    succeed(folder.path(), "train --resume run --from other --steps 3");
    assert_eq!(description(&folder.path().join("run"))["spec"]["model"]["hidden"], 48);
}

#[test]
fn neither_the_command_line_nor_defaults_decide_a_run_that_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, resumed] = ["whole", "resumed"].map(|name| folder.path().join(name));
    succeed(folder.path(), &format!("{TINY} {UNUSUAL} --out whole"));
    copy_run(&whole, &resumed, 3);
    let before = description(&resumed);
    // Another line, which this program does not even know.
    let mut other = before.clone();
    other["command"] = json!(["--stepz", "3"]);
    describe(&resumed, &other);
    succeed(folder.path(), "train --resume resumed");
    assert_eq!(losses(&resumed), losses(&whole));
    assert_eq!(last_tiles(&resumed, 6), last_tiles(&whole, 6));
    let after = description(&resumed);
    assert_eq!(after["spec"], before["spec"]);
    assert_eq!(after["command"], other["command"], "nothing more was said");
    let events = fs::read_to_string(resumed.join("events.jsonl")).unwrap();
    assert_eq!(events.matches("\"kind\":\"validation\"").count(), 3, "{events}");
    // What is said replaces one choice, and is kept in turn.
    succeed(folder.path(), "train --resume resumed --steps 8 --set beta1=0.8 --grid x=2,pipe=2 --zero 0");
    let said = description(&resumed);
    let mut expected = before["spec"].clone();
    expected["steps"] = json!(8);
    expected["optimizer"]["beta1"] = json!(0.8);
    for (field, value) in [
        ("grid", json!("x=2,y=1,z=1,data=1,pipe=2")),
        ("zero", json!(0)),
        ("microbatch", json!(1)),
        ("stage_blocks", said["spec"]["layout"]["choices"]["stage_blocks"].clone()),
    ] {
        expected["layout"]["choices"][field] = value;
    }
    assert_eq!(said["spec"], expected);
    let command = said["command"].as_array().unwrap();
    assert_eq!(command[2], "--resume", "{command:?}");
    succeed(folder.path(), "report resumed");
}

/// Choices that nobody has made follow from the others, also later.
#[test]
fn what_nobody_has_chosen_follows_from_what_is_said_later() {
    let folder = tempfile::tempdir().unwrap();
    let run_folder = folder.path().join("run");
    succeed(folder.path(), &format!("{TINY} --ranks 4 --steps 2 --out run"));
    let layout = description(&run_folder)["spec"]["layout"].clone();
    assert_eq!(
        layout["open"],
        json!(["grid", "per_node", "summa_panels", "microbatch_group", "stage_blocks", "microbatch"])
    );
    assert_eq!(layout["choices"]["global_batch"], 8);
    // The grid of two ranks is chosen anew, the batch stays.
    succeed(folder.path(), "train --resume run --ranks 2 --steps 3");
    let layout = description(&run_folder)["spec"]["layout"].clone();
    assert_eq!((&layout["choices"]["per_node"], &layout["choices"]["global_batch"]), (&json!(2), &json!(8)));
    assert!(layout["open"].as_array().unwrap().contains(&json!("grid")));
    succeed(folder.path(), "train --resume run --grid data=4 --steps 4");
    let layout = description(&run_folder)["spec"]["layout"].clone();
    assert_eq!(layout["choices"]["per_node"], 4);
    assert!(!layout["open"].as_array().unwrap().contains(&json!("grid")));
    let output = run(folder.path(), "train --resume run --ranks 2 --steps 5");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && message.contains("does not match the run's grid"), "{message}");
}

#[test]
fn a_description_that_says_too_little_or_too_much_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let run_folder = folder.path().join("run");
    succeed(folder.path(), &format!("{TINY} --grid x=2 --steps 2 --out run"));
    let whole = description(&run_folder);
    let with = |change: fn(&mut Value)| {
        let mut other = whole.clone();
        change(&mut other);
        describe(&run_folder, &other);
        let output = run(folder.path(), "train --resume run --steps 3");
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    for (change, words) in [
        ((|value| drop(value.as_object_mut().unwrap().remove("spec"))) as fn(&mut Value), "missing field `spec`"),
        (|value| value["version"] = json!(3), "version 3 of a run's description, and this program reads version 2"),
        (|value| value["version"] = json!(1), "version 1 of a run's description, and this program reads version 2"),
        (
            |value| value["spec"]["version"] = json!(1),
            "version 1 of what decides a run, and this program reads version 2",
        ),
        (|value| value["spec"]["version"] = json!(3), "version 3 of what decides a run"),
        (|value| value["spec"]["more"] = json!(2), "unknown field `more`"),
        (|value| value["spec"]["optimizer"]["beta1"] = json!(1.0), "beta1 = 1: it must lie in [0, 1)"),
        (|value| value["spec"]["layout"]["choices"]["grid"] = json!("x=3"), "layout: per-node=2 does not divide"),
        (|value| value["spec"]["layout"]["open"] = json!(["zero"]), "unknown choice that follows from others"),
    ] {
        let message = with(change);
        assert!(message.contains("run.json") || message.contains("beta1"), "{message}");
        assert!(message.contains(words), "{message}");
    }
}
