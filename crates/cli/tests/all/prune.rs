//! `quadrille prune`: weights that become zero, and what can be done with them.

use std::path::Path;

use quadrille_checkpoint::{Checkpoint, Quantity};

use serde_json::Value;

use crate::common::run;
use crate::refusals::refused_in;

/// A run of a tiny model with a checkpoint after every second of twelve steps.
fn trained(folder: &Path) {
    let line = "train --model gpt-tiny --set vocab=256 --set seq_len=32 --tokenizer bytes --grid x=1 --threads 1 --steps 12 \
                --checkpoint-every 2 --keep 10 --lr 1e-4 --out run";
    let output = run(folder, line);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn json(folder: &Path, line: &str) -> Value {
    let output = run(folder, &format!("{line} --json"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_pruned_checkpoint_is_evaluated_and_pruned_again() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    trained(at);
    let document = json(at, "prune --from run --sparsity 0.75 --out pruned");
    let tensors = document["tensors"].as_array().unwrap();
    assert!(tensors.iter().all(|each| each["tensor"].as_str().unwrap().ends_with(".weight")), "{document}");
    for each in tensors {
        let elements = each["elements"].as_u64().unwrap();
        let kept = each["kept"].as_u64().unwrap();
        assert_eq!(kept, elements - elements * 3 / 4);
    }
    let pruned = Checkpoint::open(&at.join("pruned")).unwrap();
    let mask: Vec<f32> = pruned.whole("block.0.up.weight", Quantity::Kept).unwrap();
    let weights: Vec<f32> = pruned.whole("block.0.up.weight", Quantity::Value).unwrap();
    assert!(mask.iter().zip(&weights).all(|(kept, weight)| *kept == 1.0 || *weight == 0.0));

    let told = String::from_utf8(run(at, "checkpoint info pruned").stdout).unwrap();
    assert!(told.contains("25.0%"), "{told}");
    assert!(json(at, "checkpoint verify pruned")["checkpoints"][0]["faults"].as_array().unwrap().is_empty());
    std::fs::write(at.join("text"), "1+1=2;".repeat(200)).unwrap();
    let of = |from: &str| json(at, &format!("eval --from {from} --data text --tokenizer bytes --grid x=2"));
    assert_ne!(of("pruned")["loss"], of("run")["loss"]);
    let output = run(at, "prune --from pruned --rewind run/checkpoints/step-000000000002 --sparsity 0.9 --out ticket");
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains(" 10.0%") && told.contains("with the weights of step 2"), "{told}");
    let among = "prune --from run --sparsity 0.5 --out run/checkpoints/step-000000000099";
    refused_in(at, among, &["--out", "among the checkpoints of the run run", "choose another place"]);
}

/// The run's newest checkpoint keeps the mask, and nothing else but what it keeps.
fn assert_masked(folder: &Path, mask: &[f32]) {
    let checkpoint = Checkpoint::find(folder).unwrap();
    assert_eq!(checkpoint.whole::<f32>("block.0.up.weight", Quantity::Kept).unwrap(), mask);
    for quantity in Quantity::NUMBERS {
        let numbers: Vec<f32> = checkpoint.whole("block.0.up.weight", quantity).unwrap();
        let pairs = || mask.iter().zip(&numbers);
        assert!(pairs().all(|(kept, number)| *kept == 1.0 || *number == 0.0), "{quantity}");
        // A unit of which nothing goes on has no gradient.
        let [kept, moved] = [0.0, f32::MIN_POSITIVE]
            .map(|least| pairs().filter(|(kept, number)| **kept == 1.0 && number.abs() >= least).count());
        assert!(20 * moved > 19 * kept, "{quantity}: {moved} of {kept}");
    }
}

/// Only kept weights learn, in any layout, and a run of a pruned model goes on as one.
#[test]
fn a_pruned_model_is_trained_and_stays_pruned() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    trained(at);
    json(at, "prune --from run --sparsity 0.9 --tables --out pruned");
    let pruned = Checkpoint::open(&at.join("pruned")).unwrap();
    let mask: Vec<f32> = pruned.whole("block.0.up.weight", Quantity::Kept).unwrap();
    let done = |line: &str| {
        let output = run(at, line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let train = "train --from pruned --tokenizer bytes --steps 3 --threads 1 --dtype bf16 --checkpoint-every 2";
    done(&format!("{train} --grid x=2,data=2 --zero 1 --out sparse"));
    assert_masked(&at.join("sparse"), &mask);
    done("train --resume sparse --steps 5 --grid z=2,pipe=2 --zero 0");
    assert_masked(&at.join("sparse"), &mask);
    assert!(done("checkpoint info sparse").contains("10.0%"));
    // What a run's pages say of its program, they say of the pruned one.
    done("report sparse --out report");
    let losses =
        |out: &str| json(at, &format!("eval --from {out} --tokenizer bytes --grid x=1"))["loss"].as_f64().unwrap();
    assert!(losses("sparse") < losses("pruned"), "{} {}", losses("sparse"), losses("pruned"));
    done("memorize --from sparse --generate-tokens 8 --grid x=1 --out learnt");
}

#[test]
fn masks_of_a_run_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    trained(folder.path());
    let document = json(folder.path(), "prune --when run --sparsity 0.5");
    let steps = document["steps"].as_array().unwrap();
    assert_eq!(steps.iter().map(|step| step["step"].as_u64().unwrap()).collect::<Vec<_>>(), [2, 4, 6, 8, 10, 12]);
    let counts: Vec<_> = steps.iter().map(|step| step["to_those_before"].as_array().unwrap().len()).collect();
    assert_eq!(counts, [0, 1, 2, 3, 4, 4]);
    // Weights hardly move in so few steps.
    assert_eq!(document["settled_at"], 10, "{document}");
    let told = String::from_utf8(run(folder.path(), "prune --when run --sparsity 0.5").stdout).unwrap();
    assert!(told.contains("settled at step 10"), "{told}");
}

#[test]
fn what_cannot_be_pruned_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    refused_in(at, "prune --from run --sparsity 1 --out x", &["--sparsity", "'1'", "less than 1"]);
    refused_in(at, "prune --sparsity 0.5", &["--from"]);
    refused_in(at, "prune --from run --sparsity 0.5", &["--out"]);
    refused_in(at, "prune --from run --sparsity 0.5 --out x", &["cannot read run"]);
    refused_in(at, "prune --when . --sparsity 0.5", &["has no checkpoints step-..."]);
    refused_in(at, "prune --when . --from run --out x --sparsity 0.5", &["'--when <DIR>' cannot be used with"]);
    refused_in(at, "prune --when . --out x --sparsity 0.5", &["'--when <DIR>' cannot be used with"]);
}
