//! `quadrille paper lbnl plan` and `estimate`: tables in and out, against the outputs of LBNL's own code, and
//! what is refused.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{json, run};
use crate::refusals::{folder_with, refused, refused_in};

/// A table of one configuration.
const HEADER: &str = "strategy,model,gpu,nvs,dp,tp1,tp2,pp,microbatch,summa_nb,nvs_tp1,nvs_tp2,nvs_dp,nvs_pp";
const LINE: &str = "2d,gpt3_1T,B200,8,16,8,1,4,1,0,8,1,1,1";

/// A file of the plan crate.
fn published(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../papers").join(path)
}

/// The cells of a table, its header first.
fn cells(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split(',').collect()).collect()
}

/// What a successful command prints.
fn printed(folder: &Path, line: &str) -> String {
    let output = run(folder, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What `estimate` makes of a table.
fn estimated(table: &str) -> String {
    let folder = folder_with("in.csv", table);
    printed(folder.path(), "paper lbnl estimate --csv in.csv")
}

#[track_caller]
fn assert_equal_tables(found: &str, expected: &str, texts: usize) {
    let found = cells(found);
    let expected = cells(expected);
    assert_eq!(found[0], expected[0]);
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found[1..].iter().zip(&expected[1..]) {
        assert_eq!(found[..texts], expected[..texts]);
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found[texts..].iter().zip(&expected[texts..]) {
            let found = found.parse::<f64>().unwrap();
            let expected = expected.parse::<f64>().unwrap();
            assert!((found - expected).abs() <= 1e-9 * expected.abs(), "{found}, not {expected}");
        }
    }
}

#[test]
fn the_published_table_is_printed_again() {
    let path = published("tests/data/lbnl/reference_random.csv");
    let found = printed(Path::new("."), &format!("paper lbnl estimate --csv {}", path.display()));
    assert_equal_tables(&found, &fs::read_to_string(path).unwrap(), 14);
}

#[test]
fn columns_come_in_any_order_and_others_are_left_out() {
    let plain = estimated(&format!("{HEADER}\n{LINE}\n"));
    let reversed = |line: &str| line.split(',').rev().collect::<Vec<_>>().join(" , ");
    let shuffled = format!("note,{}\r\n\"a, b\",{}\r\n", reversed(HEADER), reversed(LINE));
    assert_eq!(estimated(&shuffled), plain);
    assert_eq!(plain.lines().count(), 2);
    // The preset's name means the same model.
    assert_eq!(
        estimated(&format!("{HEADER}\n{}", LINE.replace("gpt3_1T", "gpt3-1t"))),
        plain.replace("gpt3_1T", "gpt3-1t")
    );
    assert_eq!(estimated(&format!("{HEADER}\n")).lines().count(), 1, "no configurations, no prices");
}

#[test]
fn batch_of_a_step() {
    let table = |batch: u64| format!("{HEADER},global_batch\n{LINE},{batch}\n");
    let times = |batch: u64| -> f64 { cells(&estimated(&table(batch)))[1][14].parse().unwrap() };
    assert_eq!(estimated(&table(4096)), estimated(&format!("{HEADER}\n{LINE}\n")));
    assert!(times(8192) > 1.9 * times(4096));
}

#[test]
fn what_is_planned_can_be_estimated() {
    let folder = tempfile::tempdir().unwrap();
    let line = "paper lbnl plan --strategy summa --model gpt3-1t --cluster h200 --nvs 8 --gpus 2048 --csv best.csv";
    printed(folder.path(), line);
    let best = fs::read_to_string(folder.path().join("best.csv")).unwrap();
    let all = fs::read_to_string(published("published/lbnl_top10.csv")).unwrap();
    let expected = all.lines().filter(|line| line.starts_with("summa,gpt3_1T,H200,8,2048,"));
    let expected: Vec<_> = all.lines().take(1).chain(expected).collect();
    assert_eq!(expected.len(), 11);
    assert_equal_tables(&best, &expected.join("\n"), 17);

    assert_eq!(printed(folder.path(), "paper lbnl estimate --csv best.csv --out priced.csv"), "");
    let priced = fs::read_to_string(folder.path().join("priced.csv")).unwrap();
    let best = cells(&best);
    let priced = cells(&priced);
    assert_eq!(best.len(), priced.len());
    for (best, priced) in best.iter().zip(&priced).skip(1) {
        assert_eq!(best[6..16], priced[4..14], "the configuration");
        assert_eq!(best[17..25], priced[14..22], "times and memory, digit for digit");
    }
}

#[test]
fn people_read_a_table() {
    let line = "paper lbnl plan --strategy 1d --model gpt3-1t --cluster b200 --nvs 8 --gpus 1024 --top 3";
    let text = printed(Path::new("."), line);
    let (clock, rest): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.contains("configurations/s"));
    assert!(clock.len() == 1 && clock[0].starts_with("326 of 2554 configurations fit into 192.0 GB (searched in "));
    let expected = "\
gpt3-1t on 1024 B200 in fast domains of 8, strategy 1d, batch 4096, by LBNL's model
days: 119209 steps, 1e12 tokens; parts in percent of a step

step       dp  tp1  tp2   pp  microbatch  panels  in domain  compute  memory  tp comm  dp comm  pp comm  bubble     holds   days
30.1294 s   4    2    1  128           1       -    2*2*1*2     85.4     0.7      2.3      0.3      0.3    11.0  175.2 GB  41.57
30.1405 s   8    2    1   64           1       -    2*2*1*2     85.4     0.7      2.3      0.6      0.1    10.9  191.0 GB  41.59
30.2634 s   4    2    1  128           1       -    1*2*1*4     85.0     0.7      2.3      0.6      0.4    11.0  175.2 GB  41.76";
    assert_eq!(rest.join("\n"), expected);
}

#[test]
fn documents_say_what_was_searched() {
    let line = "paper lbnl plan --strategy 2d --model vit-era5 --cluster b200 --nvs 4 --gpus 16384 --top 5";
    let document = json(line);
    for (field, value) in [("model", "vit-era5"), ("cluster", "B200"), ("cost", "lbnl"), ("strategy", "2d")] {
        assert_eq!(document[field], value);
    }
    for (field, value) in [("gpus", 16_384), ("nvs", 4), ("global_batch", 4096), ("candidates", 12_371)] {
        assert_eq!(document[field], value);
    }
    // 80 epochs of 40 years of hours.
    let steps = 28_051_200.0 / 4096.0;
    assert_eq!(document["steps"], steps);
    let plans = document["plans"].as_array().unwrap();
    assert_eq!(plans.len(), 5);
    for plan in plans {
        let number = |field: &str| plan[field].as_f64().unwrap();
        let sum =
            |field: &str| plan[field].as_object().unwrap().values().map(|part| part.as_f64().unwrap()).sum::<f64>();
        assert!((sum("parts_s") / number("time_s") - 1.0).abs() < 1e-12);
        assert!((sum("memory") / number("memory_bytes") - 1.0).abs() < 1e-12);
        assert!(number("memory_bytes") <= 192e9);
        assert!((number("days") / (steps * number("time_s") / 86_400.0) - 1.0).abs() < 1e-12);
    }
    assert!(plans.is_sorted_by(|a, b| a["time_s"].as_f64() < b["time_s"].as_f64()));
    // The fast domain of the system's own file.
    let own = "paper lbnl plan --strategy 1d --cluster h200 --gpus 1024";
    assert_eq!(json(own)["nvs"], 64);
    assert_eq!(json(own)["model"], "gpt3-1t");
}

#[test]
fn a_search_in_which_nothing_fits_says_what_would_be_needed() {
    let line = "paper lbnl plan --strategy 1d --model vit-era5 --cluster b200 --nvs 8 --gpus 4096";
    let text = printed(Path::new("."), line);
    assert!(text.contains("\n0 of 1567 configurations fit into 192.0 GB"), "{text}");
    assert!(text.ends_with("the smallest takes 196.8 GB; use more GPUs, or GPUs with more memory\n"), "{text}");
    let document = json(line);
    assert_eq!((&document["feasible"], document["plans"].as_array().unwrap().len()), (&0.into(), 0));
    assert!(document["least_memory_bytes"].as_f64().unwrap() > 192e9);
}

#[test]
fn tables_that_cannot_be_priced() {
    let refused_table = |table: &str, words: &[&str]| {
        refused_in(folder_with("in.csv", table).path(), "paper lbnl estimate --csv in.csv", words);
        // A file that was asked for does not come into being either.
        refused_in(folder_with("in.csv", table).path(), "paper lbnl estimate --csv in.csv --out out.csv", words);
    };
    let line = |from: &str, to: &str| format!("{HEADER}\n{LINE}\n{}\n", LINE.replacen(from, to, 1));
    for (table, words) in [
        (line("2d", "3d"), ["line 3", "unknown strategy '3d'", "1d, 2d, summa"]),
        (line("gpt3_1T", "gpt4"), ["line 3", "unknown model 'gpt4'", "gpt3_1T"]),
        (line("gpt3_1T", "llama2-7b"), ["line 3", "activation = swiglu", "gelu"]),
        (line("B200", "b300"), ["line 3", "unknown system 'b300'", "b200-next"]),
        (line("B200,8", "B200,0"), ["line 3", "nvs = 0", "at least 1"]),
        (line("16,8", "16.0,8"), ["line 3", "dp = 16.0: it is a whole number", "e.g. 8"]),
        (line("16,8", "-16,8"), ["line 3", "dp = -16: it is a whole number", "e.g. 8"]),
        (line("16,8", ",8"), ["line 3", "dp = : it is a whole number", "e.g. 8"]),
        (line("16,8", "99999999999999999999,8"), ["line 3", "dp = 99999999999999999999", "whole number"]),
        (line("16,8", "16,0"), ["line 3", "tp1 = 0", "at least 1"]),
        (line("0,8,1,1,1", "0,16,1,1,1"), ["line 3", "nvs_tp1 = 16", "use 8 or less"]),
        (line("1,4,1,0", "1,4,1,2"), ["line 3", "summa_nb = 2: strategy 2d has no panels", "use 0"]),
        (line("1,4,1,0", "1,4,512,0"), ["line 3", "dp*microbatch = 8192", "use 4096 or less"]),
        (line("1,4,1,0", "1,4,1"), ["line 3 has 13 cells", "the header 14", "every column"]),
        (line("2d", "3d").replace('\n', "\r\n"), ["line 3", "unknown strategy '3d'", "1d, 2d, summa"]),
        (line("2d", "3d").replace('\n', "\n\n"), ["line 5", "unknown strategy '3d'", "1d, 2d, summa"]),
        (line("1,4,1,0", "1,4,1").replace('\n', "\r\n\r\n"), ["line 5 has 13 cells", "the header 14", "every column"]),
        (HEADER.replace(",pp", ""), ["line 1", "there is no column 'pp'", "nvs_pp"]),
        (format!("{HEADER},dp\n"), ["line 1", "header = dp", "once"]),
        (String::new(), ["line 1", "there is no column 'strategy'", "begin the table"]),
    ] {
        refused_table(&table, &words);
    }
    let bytes = [HEADER.as_bytes(), b"\n", LINE.as_bytes(), b"\n\xff", LINE.as_bytes()].concat();
    refused_in(folder_with("in.csv", bytes).path(), "paper lbnl estimate --csv in.csv", &["line 3", "UTF-8"]);
}

#[test]
fn files_that_cannot_be_used() {
    refused("paper lbnl estimate --csv missing.csv", &["cannot read missing.csv"]);
    refused("paper lbnl estimate --csv .", &["cannot read .", "directory"]);
    refused("paper lbnl estimate", &["--csv"]);
    refused("estimate --csv in.csv", &["unrecognized subcommand 'estimate'"]);
    refused("paper axonn estimate --csv in.csv", &["unrecognized subcommand 'estimate'"]);
    let folder = folder_with("in.csv", format!("{HEADER}\n{LINE}\n"));
    refused_in(
        folder.path(),
        "paper lbnl estimate --csv in.csv --out in.csv",
        &["--out", "--csv", "name another file"],
    );
    refused_in(folder.path(), "paper lbnl estimate --csv in.csv --out no/out.csv", &["cannot write --out no/out.csv"]);
    let plan = "paper lbnl plan --strategy 1d --cluster b200 --gpus 64";
    refused(&format!("{plan} --csv no/best.csv"), &["cannot write --csv no/best.csv"]);
    let model = "name = 'mine'\nlayers = 4\nhidden = 512\nheads = 4\nvocab = 64\nseq_len = 512\n";
    let folder = folder_with("mine.toml", model);
    refused_in(folder.path(), &format!("{plan} --model mine.toml --csv mine.toml"), &["--csv", "--model"]);
}

#[test]
fn searches_that_cannot_be_made() {
    let with = |more: &str| format!("paper lbnl plan --strategy 2d --model gpt3-175b --cluster b200 --gpus 64 {more}");
    refused("paper lbnl plan --cluster b200 --gpus 64", &["required arguments", "--strategy <NAME>"]);
    refused("paper lbnl plan --cluster b200 --strategy 1d", &["required arguments", "--gpus <N>"]);
    refused("paper lbnl plan --strategy 1d --gpus 64", &["required arguments", "--cluster <NAME>"]);
    refused("paper lbnl plan --strategy 1d --gpus 64 --cluster local", &["'local'", "a100, h200, b200, b200-next"]);
    refused("paper lbnl plan --strategy 3d", &["--strategy", "unknown strategy '3d'"]);
    for (flag, rule) in [
        ("--gpus 0", "it is a whole number from 1 to 16777216"),
        ("--nvs 0", "it is a whole number from 1 to 16777216"),
    ] {
        refused(&format!("paper lbnl plan --strategy 1d --cluster b200 {flag}"), &[&flag[..5], rule]);
    }
    refused(&with("--nvs 5"), &["--nvs 5", "no configuration", "use --nvs 4 or 8"]);
    refused(&with("--nvs 8 --global-batch 0"), &["global_batch = 0", "at least 1"]);
    refused(&with("--dtype f32"), &["unexpected argument '--dtype'"]);
    refused(&with("--model llama2-7b").replace(" --model gpt3-175b", ""), &["activation = swiglu", "GPT and ViT"]);
    refused(
        "paper lbnl plan --strategy 1d --model gpt3-175b --cluster b200 --gpus 8191 --nvs 8191",
        &["--gpus 8191", "no configuration", "96 layers", "smaller factors"],
    );
    // Options of other commands.
    for option in [
        "--ranks 8",
        "--per-node 8",
        "--seq-len 128",
        "--linear summa",
        "--grid x=8",
        "--microbatch 1",
        "--schedule gpipe",
        "--zero 1",
        "--recompute full",
        "--overlap none",
        "--order x,y,z,data",
        "--layout layout.toml",
        "--interconnect ic2",
    ] {
        let (name, _) = option.split_once(' ').unwrap();
        refused(&with(option), &[&format!("unexpected argument '{name}'")]);
    }
    for option in ["--strategy 1d", "--nvs 8", "--csv best.csv"] {
        let (name, _) = option.split_once(' ').unwrap();
        refused(&format!("paper axonn plan {option}"), &[&format!("unexpected argument '{name}'")]);
    }
}
