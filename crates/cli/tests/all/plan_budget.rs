//! Nodes, days, money and failures of a plan.

use serde_json::Value;

use crate::common::{json, run};
use crate::refusals::{folder_with, refused, refused_in};

const CLUSTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/small_cluster.toml");

fn line(more: &str) -> String {
    format!("plan --model gpt2-124m --cluster {CLUSTER} --global-batch 32 --top 2 {more}")
}

fn number(value: &Value, field: &str) -> f64 {
    value[field].as_f64().unwrap_or_else(|| panic!("{field} in {value}"))
}

fn close(one: f64, other: f64) {
    assert!((one - other).abs() <= 1e-9 * one.abs().max(other.abs()), "{one} and {other}");
}

fn printed(line: &str) -> String {
    let output = run(std::path::Path::new("."), line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn nodes_are_full_of_devices() {
    // Nodes of four.
    assert_eq!(json(&line("--nodes 2"))["plans"], json(&line("--gpus 8"))["plans"]);
    assert_eq!(json(&line("--nodes 2 --per-node 2"))["gpus"], 4);
    assert_eq!(json(&line("--nodes 4 --nvs 2"))["gpus"], 8);
    let document = json(&line("--nodes 1,2 --pareto"));
    let devices = document["pareto"].as_array().unwrap().iter().map(|plan| plan["devices"].as_u64().unwrap());
    assert_eq!((devices.clone().min(), devices.max(), &document["gpus"]), (Some(4), Some(8), &8.into()));
    refused(&line("--nodes 2 --gpus 8"), &["--gpus 8 and --nodes 2", "leave one of them out"]);
    refused(&line("--nodes 2 --ranks 8"), &["--nodes 2 and --ranks 8", "leave one of them out"]);
    refused("paper megatron plan --nodes 2", &["unexpected argument '--nodes'"]);
    let one_tier = std::fs::read_to_string(CLUSTER).unwrap();
    let (device, _) = one_tier.split_once("[[tiers]]").unwrap();
    let endless =
        format!("{device}[[tiers]]\nname = \"all\"\nlinks = 4\nbandwidth = 1e10\nefficiency = 0.8\nlatency = 1e-6\n");
    let folder = folder_with("endless.toml", endless);
    let line = line("--nodes 2").replace(CLUSTER, "endless.toml");
    refused_in(folder.path(), &line, &["--nodes = 2", "nodes of small have no size", "--gpus", "tiers"]);
}

/// Hosts, whatever the innermost network joins: two dies of eight, four cards of eight, 18 hosts of four.
#[test]
fn nodes_are_hosts() {
    let of = |cluster: &str, more: &str| {
        let line = format!("plan --model gpt2-124m --cluster {cluster} --top 1 --fix y=1,z=1,pipe=1,context=1 {more}");
        let document = json(&line);
        let layout = &document["plans"][0]["layout"];
        (document["gpus"].as_u64().unwrap(), layout["per_node"].as_u64().unwrap())
    };
    assert_eq!(of("frontier", "--nodes 4"), (32, 8));
    assert_eq!(of("frontier", "--nodes 4 --per-node 8"), (32, 8));
    assert_eq!(of("pcie-8x-l40s", "--nodes 2"), (16, 8));
    assert_eq!(of("gb200-nvl72", "--nodes 18"), (72, 4));
    assert_eq!(of("summit", "--nodes 2"), (12, 6));
    let priced = "explain --price --model gpt2-124m --global-batch 64 --grid";
    // A job of 64 has no whole nodes of six devices; as many as are named can be used.
    assert_eq!(json(&format!("{priced} data=64 --cluster summit"))["plan"]["layout"]["per_node"], 4);
    refused(&format!("{priced} data=64 --cluster summit --per-node 6"), &["per-node=6", "try --per-node 4"]);
    refused(
        &format!("{priced} data=64 --cluster summit --per-node 32"),
        &["a node of summit has 6 devices", "--per-node 4"],
    );
    assert_eq!(json(&format!("{priced} data=64 --cluster summit --per-node 4"))["plan"]["layout"]["per_node"], 4);
    refused(&format!("{priced} x=2,data=32 --cluster summit --per-node 6"), &["per-node=6", "try --per-node 4\n"]);
    refused(&format!("{priced} data=64 --cluster gb300-nvl72 --per-node 64"), &["a node of gb300-nvl72 has 4 devices"]);
    for (cluster, grid, launched) in [
        ("frontier", "data=64", "--nnodes 8 --nproc-per-node 8"),
        ("gb200-nvl72", "x=4,data=18", "--nnodes 18 --nproc-per-node 4"),
        ("pcie-8x-l40s", "x=4,data=4", "--nnodes 2 --nproc-per-node 8"),
    ] {
        let text = printed(&format!("export --to megatron --model gpt2-124m --grid {grid} --cluster {cluster}"));
        assert!(text.contains(launched), "{cluster}: {text}");
    }
}

#[test]
fn nodes_vary() {
    let table = |more: &str| {
        let text = printed(&format!("sweep --model gpt2-124m --cluster {CLUSTER} --global-batch 32 {more}"));
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let header = reader.headers().unwrap().clone();
        let at = header.iter().position(|name| name == "devices").unwrap();
        reader.records().map(|row| row.unwrap()[at].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(table("--vary nodes=1,2"), ["4", "8"]);
    // Whichever is named first, nodes are full.
    assert_eq!(table("--vary nodes=1,2 --vary nvs=2,4"), ["2", "4", "4", "8"]);
    assert_eq!(table("--vary nvs=2,4 --nodes 2"), ["8", "8"], "nodes are those of the cluster as it is");
    let sweep = format!("sweep --model gpt2-124m --cluster {CLUSTER}");
    refused(&format!("{sweep} --vary nodes=1,2 --vary gpus=4,8"), &["gpus", "varies twice"]);
    refused(&format!("{sweep} --vary nodes=1,2 --gpus 8"), &["--vary nodes", "--gpus", "leave"]);
}

#[test]
fn costs_have_a_currency() {
    let document = json(&line("--gpus 8 --tokens 300e9 --price-per-hour 2 --currency EUR"));
    let plan = &document["plans"][0];
    assert_eq!((&plan["currency"], number(plan, "cost")), (&"EUR".into(), 2.0 * number(plan, "device_hours")));
    let dollars = json(&line("--gpus 8 --tokens 300e9 --price-per-hour 2"));
    assert_eq!((&dollars["plans"][0]["currency"], &dollars["plans"][0]["cost"]), (&"USD".into(), &plan["cost"]));
    assert_eq!(json(&line("--gpus 8 --tokens 1e9"))["plans"][0]["currency"], Value::Null);
    // 3,164 and some device-hours, as it happens.
    let text = printed(&line("--gpus 8 --tokens 300e9 --price-per-hour 2 --currency EUR"));
    let cost = format!("{:.0}", number(plan, "cost"));
    let (thousands, rest) = cost.split_at(cost.len() - 3);
    assert!(text.contains(&format!(" {thousands},{rest} EUR")), "{cost} in {text}");
    refused(&line("--gpus 8 --currency EUR"), &["--currency = EUR", "give --price-per-hour"]);
    let priced = line("--gpus 8 --tokens 1e9 --price-per-hour 2");
    refused(&format!("{priced} --currency euro"), &["--currency = euro", "three capital letters", "EUR"]);
}

#[test]
fn plans_are_done_in_time_or_are_none() {
    let days = |gpus: usize| number(&json(&line(&format!("--gpus {gpus} --tokens 1e12")))["plans"][0], "days");
    let slow = days(4);
    let fast = days(8);
    assert!(fast < slow, "{fast} and {slow}");
    let between = f64::midpoint(fast, slow);
    // Between them only the larger number is done.
    let document = json(&line(&format!("--gpus 2,4,8 --tokens 1e12 --days {between}")));
    assert_eq!((&document["gpus"], number(&document, "within_days")), (&8.into(), between));
    assert!(document["plans"].as_array().unwrap().iter().all(|plan| number(plan, "days") <= between));
    assert!(number(&document["advised"]["plan"], "days") <= between);
    // With much time the smallest is enough.
    assert_eq!(json(&line(&format!("--gpus 2,4,8 --tokens 1e12 --days {}", 10.0 * slow)))["gpus"], 2);
    let front = json(&line(&format!("--gpus 2,4,8 --pareto --tokens 1e12 --days {}", slow * 1.001)));
    assert_eq!(front["fewest_gpus"], 4);
    assert!(front["pareto"].as_array().unwrap().iter().all(|plan| number(plan, "days") <= slow * 1.001));
    // Of one number larger ones are looked at, of several only those.
    let late = format!("within {between} days");
    let fastest = format!("the fastest of 4 devices takes {slow:.1} days; ");
    refused(
        &line(&format!("--gpus 4 --tokens 1e12 --days {between}")),
        &[&late, &fastest, &format!("8 devices take {fast:.1} days")],
    );
    refused(&line(&format!("--gpus 2,4 --tokens 1e12 --days {between}")), &[&late, &fastest, "nor does one of 2"]);
    refused(
        &line("--gpus 8 --tokens 1e12 --days 1e-3"),
        &["within 0.001 days", "nor does one of 16, 32, 64", "more days"],
    );
    // Numbers are short however large they are.
    refused(&line("--gpus 8 --tokens 1e300 --days 1"), &["within 1 day: the fastest of 8 devices takes ", "e289 days"]);
    refused(&line("--gpus 8 --days 30"), &["--days = 30", "depends on its tokens", "--tokens"]);
    refused(&line("--gpus 8 --tokens 1e9 --days 0"), &["--days = 0", "positive"]);
    refused(&line("--gpus 4,8"), &["several numbers of devices", "--pareto", "--days"]);
    let sweep = format!("sweep --vary gpus=4,8 --model gpt2-124m --cluster {CLUSTER} --global-batch 32");
    let table = printed(&format!("{sweep} --tokens 1e12 --days {between}"));
    let rows: Vec<_> = table.lines().collect();
    assert!(rows[1].contains(&fastest) && !rows[2].contains("within"), "{table}");
}

#[test]
fn failures_cost_time_and_money() {
    let asked = "--gpus 8 --tokens 1e12 --price-per-hour 2";
    let without = json(&line(asked));
    let with = json(&line(&format!("{asked} --goodput")));
    let ideal = &without["plans"][0];
    let plan = &with["plans"][0];
    assert_eq!((&plan["time_s"], &ideal["goodput"]), (&ideal["time_s"], &Value::Null));
    let goodput = &plan["goodput"];
    let failures = &with["failures"];
    close(number(failures, "mtbf_hours"), 16_384.0 * 54.0 * 24.0 / 419.0);
    close(number(goodput, "failures_per_day"), 8.0 * 24.0 / number(failures, "mtbf_hours"));
    let states = number(&plan["memory"], "parameters") + number(&plan["memory"], "optimizer");
    close(number(goodput, "checkpoint_s"), states / number(failures, "checkpoint_bandwidth"));
    close(number(goodput, "interval_s"), number(goodput, "interval_steps") * number(plan, "time_s"));
    let share = number(goodput, "share");
    assert!(share < 1.0 && share > 0.99, "{share}");
    for field in ["days", "device_hours", "cost"] {
        close(number(plan, field) * share, number(ideal, field));
    }
    // By the closed form of the expected time.
    let rate = number(goodput, "failures_per_day") / 86_400.0;
    let segment = number(goodput, "interval_s") + number(goodput, "checkpoint_s");
    let expected = (600.0 * rate).exp() * (rate * segment).exp_m1() / rate;
    close(share, number(goodput, "interval_s") / expected);
    // Devices that fail more often leave less, whatever is said of checkpoints and restarts counts.
    let often = json(&line(&format!("{asked} --mtbf 100 --checkpoint-seconds 30 --restart-seconds 60")));
    let plan = &often["plans"][0]["goodput"];
    assert!(number(plan, "share") < share && number(plan, "interval_s") < number(goodput, "interval_s"));
    assert_eq!((number(plan, "checkpoint_s"), number(&often["failures"], "restart_s")), (30.0, 60.0));
    let text = printed(&line(&format!("{asked} --goodput")));
    for words in
        ["useful", "checkpoint every", "measured elsewhere: Llama 3 405B", "600.0 s (assumed)", "expected ones"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    refused(&line("--gpus 8 --restart-seconds 60"), &["--restart-seconds = 60", "--goodput or --mtbf"]);
    refused(&line("--gpus 8 --mtbf 0"), &["--mtbf = 0", "positive"]);
    refused(
        &line("--gpus 8 --goodput --checkpoint-seconds 3 --checkpoint-bandwidth 1e9"),
        &["--checkpoint-seconds = 3", "--checkpoint-bandwidth", "leave one of them out"],
    );
    let offloaded = line("--gpus 8 --goodput --framework quadrille --offload host");
    refused(&offloaded, &["--goodput", "host", "--checkpoint-seconds"]);
}
