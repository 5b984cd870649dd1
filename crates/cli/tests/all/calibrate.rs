//! `quadrille calibrate`: this machine as a cluster that can be planned for, and logs of others.

use std::fs;

use quadrille_spec::{Algorithm, Cluster};
use serde_json::Value;

use crate::common::{json, run};
use crate::refusals::{folder_with, refused, refused_in};

#[test]
fn a_measured_machine_is_planned_for() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), "calibrate --quick --ranks 2 --runs 2 --out here.toml --json");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let cluster = Cluster::from_toml(&fs::read_to_string(folder.path().join("here.toml")).unwrap()).unwrap();
    assert_eq!(Cluster::from_toml(&cluster.to_toml().unwrap()).unwrap(), cluster);
    let calibration = cluster.calibration.as_ref().unwrap();
    assert_eq!((calibration.ranks, calibration.per_node, calibration.runs), (2, 2, 2));
    assert!(calibration.operations.iter().all(|row| row.rate > 0.0 && row.rate.is_finite()));
    let kinds = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send"];
    let measured = |kind: &str| calibration.collectives.iter().filter(|row| json_name(row.collective) == kind).count();
    assert!(kinds.iter().all(|kind| measured(kind) >= 4), "{:?}", calibration.collectives);
    let device = cluster.device.as_ref().unwrap();
    assert!(device.name.contains("quadrille calibrate on 2 ranks"), "{}", device.name);
    assert_eq!(document["device"]["name"], device.name.as_str());
    assert!(device.half_products.as_ref().is_some_and(|products| products.largest() > 0.5));
    let rows = |field: &str| document["calibration"][field].as_array().unwrap().len();
    assert_eq!(rows("collectives"), calibration.collectives.len());
    assert_eq!(rows("operations"), calibration.operations.len());
    let algorithms: Vec<Algorithm> = calibration.collectives.iter().map(|row| row.algorithm).collect();
    assert!([Algorithm::Native, Algorithm::Ring, Algorithm::Recursive].iter().all(|one| algorithms.contains(one)));
    assert!(document["error"]["mean"].as_f64().unwrap() >= 0.0 && document["seconds"].as_f64().unwrap() > 0.0);
    let plan = "plan --cluster here.toml --framework quadrille --model gpt-tiny --gpus 2 --global-batch 4 --json";
    let output = run(folder.path(), plan);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let plans: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(plans["plans"][0]["time_s"].as_f64().unwrap() > 0.0);
    let origins = plans["origins"].as_object().unwrap();
    assert!(origins.len() > 8 && origins.values().all(|origin| origin == "measured"), "{origins:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside the file");
}

/// One default of ranks and threads: what was measured without a word about them is what a run without one needs.
#[test]
fn a_usual_run_is_predicted_on_a_machine_that_was_measured_as_usual() {
    let folder = tempfile::tempdir().unwrap();
    for line in [
        "calibrate --quick --runs 1 --out here.toml",
        "train --steps 3 --out run",
        "report run --cluster here.toml --out page.html",
    ] {
        let output = run(folder.path(), line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    let predicted = "predicted: the step's program simulated with the native model's prices on the cluster calibrated";
    assert!(page.contains(predicted) && !page.contains("not predicted on the cluster"), "{page}");
}

#[test]
fn nodes_have_a_tier_of_their_own() {
    let document = json("calibrate --quick --ranks 4 --per-node 2 --runs 1 --out nodes.toml");
    let tiers = document["tiers"].as_array().unwrap();
    assert_eq!((tiers.len(), &tiers[0]["devices"], &tiers[1]["devices"]), (2, &2.into(), &Value::Null));
    assert_eq!(document["tier_errors"].as_array().unwrap().len(), 2);
    // Neighbours inside a node; the job, and each rank with its fellow on the other node, between them.
    let groups: Vec<(u64, u64)> = document["calibration"]["collectives"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["inner"].as_u64().unwrap(), row["group"].as_u64().unwrap()))
        .collect();
    assert!([(1, 2), (1, 4), (2, 2)].iter().all(|group| groups.contains(group)), "{groups:?}");
    let compared = document["algorithms"].as_array().unwrap();
    assert!(compared.iter().any(|one| one["algorithm"] == "hierarchical" && one["large"].as_f64() > Some(0.0)));
    let inside = document["group_bandwidths"].as_array().unwrap();
    assert_eq!((inside.len(), &inside[0]["inner"], &inside[0]["group"]), (1, &1.into(), &2.into()));
}

fn json_name(kind: quadrille_spec::CollectiveKind) -> String {
    serde_json::to_value(kind).unwrap().as_str().unwrap().to_owned()
}

const NCCL: &str = "\
# nThread 1 nGpus 8 minBytes 1048576 maxBytes 1073741824 step: 32(factor) warmup iters: 5 iters: 20 agg iters: 1
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
     1048576        262144     float     sum      -1    62.10   16.89   29.55      0    61.80   16.97   29.69      0
    33554432       8388608     float     sum      -1   310.50  108.07  189.12      0   309.10  108.56  189.98      0
  1073741824     268435456     float     sum      -1   8120.0  132.23  231.41      0   8110.0  132.40  231.70      0
";
const OSU: &str = "\
# OSU MPI Allgather Latency Test v7.4
# Size       Avg Latency(us)
64                     14.10
65536                  32.00
4194304               705.00
";

#[test]
fn logs_and_a_step_are_read_into_a_cluster() {
    let folder = folder_with("all_reduce.log", NCCL);
    fs::write(folder.path().join("osu.log"), OSU).unwrap();
    let layout = "grid = \"x=8,data=2\"\nglobal_batch = 32\nmicrobatch = 2\nper_node = 8\n";
    fs::write(folder.path().join("layout.toml"), layout).unwrap();
    let calibrate = |line: &str| {
        let output = run(folder.path(), &format!("calibrate {line}"));
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let read = |name: &str| Cluster::from_toml(&fs::read_to_string(folder.path().join(name)).unwrap()).unwrap();
    let text = calibrate("--out one.toml --cluster selene --from-nccl-tests all_reduce.log --ranks 8");
    assert!(text.contains("before") && text.contains("fitted"), "{text}");
    let selene = Cluster::preset("selene").unwrap();
    let one = read("one.toml");
    assert!(one.tiers[0] != selene.tiers[0] && one.tiers[1] == selene.tiers[1] && one.device == selene.device);
    calibrate("--out two.toml --cluster one.toml --from-osu osu.log --ranks 16 --per-node 8");
    let two = read("two.toml");
    assert!(two.tiers[0] == one.tiers[0] && two.tiers[1] != one.tiers[1]);
    assert!(two.source.contains("OSU benchmarks") && two.source.contains("nccl-tests"), "{}", two.source);
    let text = calibrate("--out three.toml --cluster two.toml --from-step gpt3-1.3b layout.toml 3.5 --json");
    let document: Value = serde_json::from_str(&text).unwrap();
    let step = &document["steps"]["steps"][0];
    assert!((step["seconds"].as_f64().unwrap() - 3.5).abs() < 1e-4 && step["measured_seconds"] == 3.5, "{document}");
    let factor = document["steps"]["factor"].as_f64().unwrap();
    let products = |cluster: &Cluster| cluster.device.as_ref().unwrap().products.largest();
    assert!((products(&read("three.toml")) / products(&two) / factor - 1.0).abs() < 1e-9);
    // The step that was read is the one that is priced, its vocabulary padded as the framework pads.
    let line =
        "explain --price --model gpt3-1.3b --framework megatron --cluster three.toml --layout layout.toml --json";
    let priced: Value = serde_json::from_slice(&run(folder.path(), line).stdout).unwrap();
    let ratio = priced["plan"]["time_s"].as_f64().unwrap() / step["seconds"].as_f64().unwrap();
    assert!((ratio - 1.0).abs() < 1e-6, "{ratio}");
    // What a layout was planned for ran its step, where nobody says otherwise.
    let planned = fs::read_to_string(folder.path().join("layout.toml")).unwrap() + "\n[planned]\nframework = 'fsdp'\n";
    fs::write(folder.path().join("planned.toml"), planned).unwrap();
    let factor = |layout: &str, more: &str| {
        let line = format!("--out four.toml --cluster two.toml --from-step gpt3-1.3b {layout}.toml 3.5 {more} --json");
        serde_json::from_str::<Value>(&calibrate(&line)).unwrap()["steps"]["factor"].as_f64().unwrap()
    };
    assert_eq!(factor("planned", ""), factor("layout", "--framework fsdp"));
    assert_eq!(factor("planned", "--framework megatron"), factor("layout", ""));
    assert_ne!(factor("planned", ""), factor("layout", ""));
    let both = "--from-step gpt3-1.3b layout.toml 3.5 --from-step gpt3-1.3b planned.toml 3.5";
    let output = run(folder.path(), &format!("calibrate --out four.toml --cluster two.toml {both}"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("planned for different programs"), "{told}");
}

#[test]
fn a_fit_that_describes_nothing_is_warned_of() {
    // The same size takes a thousandth and a thousand times as long.
    let scattered = NCCL.replace("61.80", "61800.0").replace("309.10", "0.3091").replace("8110.0", "8110000.0");
    let folder = folder_with("all_reduce.log", scattered);
    let calibrate = "calibrate --cluster selene --from-nccl-tests all_reduce.log --ranks 8 --out c.toml";
    let output = run(folder.path(), &format!("{calibrate} --json"));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let warning = document["warnings"][0].as_str().unwrap();
    assert!(warning.contains("the mean error"), "{warning}");
    assert!(String::from_utf8(output.stderr).unwrap().contains(&format!("warning: {warning}")));
    fs::write(folder.path().join("all_reduce.log"), NCCL).unwrap();
    let output = run(folder.path(), &format!("{calibrate} --json"));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["warnings"], output.stderr.len()), (&serde_json::json!([]), 0));
}

#[cfg(unix)]
#[test]
fn a_link_stays_a_link_and_what_is_read_is_not_written_over() {
    let folder = folder_with("all_reduce.log", NCCL);
    let selene = Cluster::preset("selene").unwrap().to_toml().unwrap();
    for name in ["read.toml", "written.toml"] {
        fs::write(folder.path().join(name), &selene).unwrap();
    }
    let link = folder.path().join("link.toml");
    std::os::unix::fs::symlink("written.toml", &link).unwrap();
    let calibrate = "calibrate --cluster read.toml --from-nccl-tests all_reduce.log --ranks 8 --out";
    assert!(run(folder.path(), &format!("{calibrate} link.toml")).status.success());
    assert!(link.is_symlink() && fs::read_to_string(folder.path().join("written.toml")).unwrap() != selene);
    assert!(run(folder.path(), &format!("{calibrate} /dev/null")).status.success());
    refused_in(folder.path(), &format!("{calibrate} read.toml"), &["would be written over or into --cluster"]);
    refused_in(folder.path(), &format!("{calibrate} all_reduce.log"), &["written over or into --from-nccl-tests"]);
    fs::write(folder.path().join("pair.log"), "# OSU MPI Latency Test v7.4\n1024 2.5\n").unwrap();
    let pair = "calibrate --cluster selene --from-osu pair.log --out c.toml";
    refused_in(folder.path(), pair, &["pair.log does not say where its two ranks were; give --per-node 1"]);
    assert!(run(folder.path(), &format!("{pair} --per-node 1")).status.success());
}

#[test]
fn what_cannot_be_calibrated_is_refused() {
    for (line, expected) in [
        ("calibrate --out c.toml --ranks 4 --per-node 3", "--per-node 3: nodes are full of ranks, and there are 4"),
        ("calibrate --out no/c.toml --ranks 2", "cannot write --out no/c.toml: No such file"),
        ("calibrate --out c.toml --ranks 1", "invalid value '1' for '--ranks <N>'"),
        ("calibrate --out c.toml --from-osu a.log", "--cluster <NAME|FILE>"),
        ("calibrate --out c.toml --cluster selene", "--cluster: it is what logs are read into"),
        ("calibrate --out c.toml --cluster selene --from-osu no.log", "cannot read no.log: No such file"),
        ("calibrate --out c.toml --cluster selene --quick --from-osu no.log", "--quick: nothing is measured here"),
        ("calibrate --out c.toml --cluster selene --from-step gpt2-124m no.toml 1", "cannot read no.toml"),
        ("calibrate --out c.toml --cluster selene --from-step gpt2-124m no.toml -1", "positive number of seconds"),
    ] {
        refused(line, &[expected]);
    }
}
