//! Input that cannot be used, kind by kind: exit code 2, nothing on standard output, a message on standard error that
//! names the thing and the remedy, no file left.

use std::fs;

use crate::common::{json, run};
use crate::refusals::{folder_with, refused, refused_in};

/// gpt-tiny with a vocabulary for bytes, one step.
const TRAIN: &str = "train --model gpt-tiny --set vocab=256";

/// A model file without faults.
const MODEL: &str = "name='mine'\nlayers=1\nhidden=12\nheads=3\nvocab=17\nseq_len=8\n";

#[test]
fn unknown_flags_and_commands_suggest_known_ones() {
    refused("train --stepz 3", &["--stepz", "'--steps'"]);
    refused("trian", &["trian", "'train'"]);
    refused("explain extra", &["extra", "--help"]);
    refused("train --steps 1 --steps 2", &["--steps", "multiple times"]);
}

#[test]
fn grid_syntax() {
    for (grid, words) in [
        ("", ["''", "x=2,y=2,z=1,data=2"]),
        ("x", ["'x'", "x=2,y=2,z=1,data=2"]),
        ("x=2,,y=2", ["x=2,,y=2", "not axis=size"]),
        ("x=", ["size of x", "whole number"]),
        ("x=two", ["'two'", "whole number"]),
        ("x=-1", ["'-1'", "whole number"]),
        ("x=1.5", ["'1.5'", "whole number"]),
        ("w=2", ["unknown axis 'w'", "x, y, z, context, expert, data, pipe"]),
        ("x=2,x=2", ["x=2,x=2", "twice"]),
    ] {
        refused(&format!("explain --grid={grid}"), &words);
    }
}

#[test]
fn sizes_of_zero_and_beyond_any_machine() {
    refused("explain --grid y=0", &["y = 0", "at least one rank", "use 1"]);
    refused("explain --grid x=18446744073709551615", &["at most 16777216 ranks", "smaller"]);
    refused("explain --grid x=4294967296,y=4294967296", &["x=4294967296,y=4294967296", "at most"]);
    refused("explain --grid x=99999999999999999999", &["99999999999999999999"]);
    for command in ["plan", "explain", "verify --all-grids", "train"] {
        refused(&format!("{command} --ranks 0"), &["--ranks 0", "at least one"]);
        refused(&format!("{command} --ranks 18446744073709551615"), &["18446744073709551615", "at most"]);
    }
}

#[test]
fn sizes_that_do_not_divide_name_the_nearest_that_do() {
    for command in ["explain", "verify", "train --set vocab=256"] {
        let line = |layout: &str| format!("{command} --model gpt-tiny {layout}");
        refused(&line("--grid x=5"), &["x=5", "heads = 12", "try x=4 or 6"]);
        refused(&line("--grid y=5"), &["y=5", "hidden = 48", "try y=4 or 6"]);
        refused(&line("--grid z=7"), &["z=7", "qkv weight", "try z="]);
        refused(&line("--grid data=3 --global-batch 4"), &["global-batch = 4", "data=3", "try --global-batch 3 or 6"]);
        refused(&line("--grid z=4 --global-batch 6"), &["microbatch = 6", "z=4", "try --global-batch 4 or 8"]);
        refused(&line("--grid y=2 --global-batch 3"), &["microbatch = 3", "z*y = 1*2", "try --global-batch 2 or 4"]);
        refused(&line("--grid data=2 --microbatch 3"), &["microbatch = 3", "2 sequences", "try"]);
    }
    refused("paper axonn plan --model gpt-tiny --gpus 7 --global-batch 3", &["no legal grid of 7 ranks", "nearest"]);
}

/// The search for the nearest sizes ends at the largest number that there is.
#[test]
fn a_microbatch_at_the_end_of_all_numbers() {
    let words = ["microbatch = 18446744073709551615", "2 sequences", "--microbatch 2"];
    refused("explain --model gpt-tiny --grid data=2 --microbatch 18446744073709551615", &words);
}

#[test]
fn ranks_and_grids_that_contradict_each_other() {
    refused("train --grid x=2,y=2 --ranks 8", &["--ranks 8", "4 ranks", "leave one of them out"]);
    refused("verify --all-grids --grid x=2", &["--all-grids", "--grid", "--ranks"]);
    refused("paper axonn plan --grid x=2", &["unexpected argument '--grid'"]);
    refused("explain --grid x=2 --rank 2", &["--rank 2", "0 to 1"]);
}

#[test]
fn unknown_models_and_files_that_are_none() {
    refused("explain --model gpt5", &["'gpt5'", "known: gpt-tiny, gpt-demo"]);
    refused("explain --model missing.toml", &["missing.toml", "No such file"]);
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("folder.toml")).unwrap();
    refused_in(folder.path(), "explain --model folder.toml", &["folder.toml", "directory"]);
    let bytes: Vec<u8> = (0..4096_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    refused_in(folder_with("m.toml", bytes).path(), "explain --model m.toml", &["m.toml", "UTF-8"]);
    refused_in(folder_with("m.toml", vec![0; 1 << 20]).path(), "explain --model m.toml", &["a model", "line 1"]);
}

#[test]
fn model_files_with_faults_name_line_and_field() {
    for (text, words) in [
        ("hello world".to_owned(), ["hello world", "line 1"]),
        (String::new(), ["m.toml: cannot read a model: there is nothing in it", "missing field `name`"]),
        (MODEL.replace("heads=3\n", ""), ["a model", "missing field `heads`"]),
        (format!("{MODEL}width=3"), ["width=3", "line 7: unknown field `width`, expected one of `name`"]),
        (MODEL.replace("=12", "='12'"), ["hidden='12'", "line 3: invalid type: string"]),
        (MODEL.replace("=12", "=-12"), ["hidden=-12", "line 3"]),
        (MODEL.replace("=12", "=13"), ["heads=3 does not divide hidden = 13", "heads=1 or 13"]),
        (MODEL.replace("=12", "=0"), ["hidden = 0", "1..="]),
        (MODEL.replace("mine", ""), ["name", "1 to 100"]),
    ] {
        refused_in(folder_with("m.toml", text).path(), "explain --model m.toml --grid x=1", &words);
    }
}

#[test]
fn set_takes_known_fields_only() {
    refused("explain --set width=3", &["'width'", "known: name, layers", "weight_decay"]);
    refused("explain --set layers", &["--set layers", "key=value"]);
    refused("explain --set =3", &["unknown field ''", "known: name"]);
    for value in ["", "two", "-1", "1.5", "99999999999999999999"] {
        refused(&format!("explain --set layers={value}"), &[&format!("layers = '{value}'"), "whole number"]);
    }
    for field in ["layers", "hidden", "heads", "ffn", "vocab", "seq_len"] {
        refused(&format!("explain --set {field}=0"), &[&format!("{field} = 0"), "1..="]);
        refused(&format!("explain --set {field}=18446744073709551615"), &[field, "1..=", "smaller"]);
    }
    refused("explain --set biases=1", &["biases = '1'", "true or false"]);
    for value in ["1", "-0.1", "nan", "inf"] {
        refused(&format!("explain --set dropout={value}"), &["dropout", "[0, 1)"]);
    }
    refused("explain --set norm_epsilon=0", &["norm_epsilon = 0", "(0, 1]"]);
}

#[test]
fn every_field_of_training_has_a_rule() {
    for (field, values) in [
        ("learning_rate", ["-1", "nan", "inf", "fast"]),
        ("final_fraction", ["-0.1", "1.1", "nan", "x"]),
        ("warmup_steps", ["-1", "1.5", "nan", "x"]),
        ("beta1", ["-0.1", "1", "nan", "x"]),
        ("beta2", ["-0.1", "1", "nan", "x"]),
        ("epsilon", ["0", "-1", "nan", "x"]),
        ("weight_decay", ["-1", "nan", "inf", "x"]),
        ("clip", ["0", "-1", "nan", "x"]),
    ] {
        for value in values {
            refused(&format!("{TRAIN} --set {field}={value}"), &[field, value, "it "]);
        }
    }
    for value in ["nan", "inf", "-1"] {
        refused(&format!("{TRAIN} --lr={value}"), &["at least 0"]);
        refused(&format!("verify --lr={value}"), &["at least 0"]);
    }
    refused(&format!("{TRAIN} --lr=fast"), &["'fast'", "--lr"]);
}

#[test]
fn batches_and_sequences_beyond_reason() {
    for batch in ["18446744073709551615", "9223372036854775808", "99999999999", "16777217"] {
        for grid in ["x=1", "x=2,data=2", "y=2,z=2"] {
            refused(&format!("explain --grid {grid} --global-batch {batch}"), &["global-batch", batch, "16777216"]);
        }
    }
    refused("explain --global-batch 0", &["global-batch = 0", "1 to 16777216"]);
    refused("explain --grid x=1 --microbatch 0", &["microbatch = 0", "at least 1", "--microbatch 1"]);
    refused("explain --grid x=1 --seq-len 0", &["seq-len = 0", "1 to "]);
    refused("explain --grid x=1 --seq-len 129", &["seq-len = 129", "128 positions", "--set seq_len"]);
    refused("explain --grid x=1 --seq-len 18446744073709551615", &["128 positions"]);
    refused("explain --grid x=1 --per-node 0", &["per-node = 0", "at least 1"]);
    for batch in ["two", "1e3", "1.5", "18446744073709551616"] {
        refused(&format!("explain --global-batch {batch}"), &[batch, "--global-batch"]);
    }
}

/// Sizes are only numbers to `explain`: it neither allocates them nor lets a count overflow.
#[test]
fn models_that_no_machine_holds_are_explained_or_refused() {
    let huge = "--set hidden=1048576 --set heads=1024 --set vocab=16777216 --set seq_len=16777216";
    refused(&format!("explain --grid x=2,y=2 --rank 0 --global-batch 16777216 {huge}"), &["more than can be counted"]);
    let document = json(&format!("explain --grid x=8,y=8,z=8,data=8 --rank 0 --seq-len 64 {huge}"));
    assert!(document["ranks"][0]["memory"]["peak"].as_u64().unwrap() > 1 << 40);
    let batch = json("explain --grid x=2,data=2 --rank 0 --global-batch 16777216");
    assert_eq!(batch["layout"]["microbatch"], 8_388_608);
}

#[test]
fn clusters() {
    for command in ["plan", "explain --grid x=2", "train --ranks 2"] {
        refused(&format!("{command} --cluster titan"), &["'titan'", "local, perlmutter, frontier, alps"]);
    }
    refused("train --cluster missing.toml", &["missing.toml", "No such file"]);
    let base = "name='c'\nsource='s'\nintra_node_bandwidth=1e9\n";
    for (text, words) in [
        ("nonsense".to_owned(), ["nonsense", "line 1"]),
        ("name='c'".to_owned(), ["a cluster", "missing field"]),
        (format!("{base}nics=4"), ["nics=4", "unknown field `nics`"]),
        (base.replace("1e9", "'fast'"), ["line 3: invalid type: string \"fast\"", "expected a number"]),
        (format!("{base}device_memory = 0.5"), ["line 4: invalid type: number `0.5`", "expected a whole number"]),
        (format!("{base}device = 3"), ["line 4: invalid type: integer `3`", "the name of a device, or a table"]),
        (format!("{base}origins = {{ intra_node_bandwidth = 3 }}"), ["line 4", "expected a word in quotes"]),
        (base.replace("1e9", "-1.0"), ["intra_node_bandwidth = -1", "bytes or FLOP per second"]),
        (base.replace("1e9", "nan"), ["intra_node_bandwidth = NaN", "bytes or FLOP per second"]),
        (format!("{base}devices_per_node=4"), ["devices_per_node = 4", "inter_node_bandwidth"]),
    ] {
        refused_in(folder_with("c.toml", text).path(), "plan --cluster c.toml", &words);
    }
}

#[test]
fn names_of_options() {
    refused("explain --overlap most", &["--overlap", "'most'", "all, none, oar, ors, oag"]);
    refused("explain --overlap oar,,ors", &["--overlap", "''"]);
    for order in ["x", "x,y,z", "x,x,y,z", "x,y,z,data,x"] {
        refused(&format!("explain --order {order}"), &["--order", order, "x,y,z,data"]);
    }
    refused("explain --order a,b,c,d", &["unknown axis 'a'", "x, y, z, context, expert, data, pipe"]);
    refused("explain --activations dense", &["--activations", "'dense'", "scattered, replicated"]);
    refused("train --dtype f8", &["--dtype", "'f8'", "f32, f64, bf16, f16"]);
    refused("plan --dtype f8", &["--dtype", "'f8'", "f32, f64, bf16, f16"]);
    refused("plan --dtype bf16", &["--dtype", "megatron", "--framework quadrille"]);
    refused("plan --gradients f64", &["--gradients", "megatron", "bf16"]);
    refused(
        "train --gradients bf16",
        &["gradients = bf16", "values in f32 have gradients in f32", "leaving --gradients out"],
    );
    refused(
        "verify --dtype bf16 --gradients f16",
        &["gradients = f16", "values in bf16 have gradients in bf16 or f32"],
    );
    refused("plan --top 0", &["--top", "'0'", "at least 1"]);
    refused("plan --cost lbnl", &["unexpected argument '--cost'"]);
    refused("paper guess plan", &["unrecognized subcommand 'guess'"]);
    refused("paper samo plan", &["unrecognized subcommand 'plan'"]);
    refused("paper axonn plan --gpus 0", &["--gpus", "from 1 to 16777216"]);
    refused("paper axonn plan --gpus 18446744073709551615", &["--gpus", "16777216 is the largest"]);
    refused("train --tokenizer words", &["--tokenizer", "`words`", "gpt2", "bytes"]);
}

/// A file that is no description is named.
#[test]
fn files_that_are_no_toml_are_named() {
    let folder = folder_with("book.txt", "hello\n");
    for line in ["train --model book.txt --grid x=1", "plan --cluster book.txt --gpus 8"] {
        refused_in(folder.path(), line, &["book.txt", "hello", "line 1"]);
    }
    let device = "[device]\nname = \"d\"\nsource = \"s\"\n";
    let file = |line: &str| folder_with("d.toml", format!("name = \"c\"\nsource = \"s\"\n{device}{line}\n"));
    for (line, words) in [
        ("efficiencies = \"fitted\"", &["unknown field `efficiencies`", "origins"][..]),
        ("memmory = 1", &["unknown field `memmory`", "did you mean 'memory'?"]),
        ("memory = 1", &["missing field"]),
    ] {
        refused_in(file(line).path(), "plan --cluster d.toml --gpus 8", &[&["d.toml"], words].concat());
    }
    let number = folder_with("d.toml", "name = \"c\"\nsource = \"s\"\ndevice = 7\n");
    refused_in(
        number.path(),
        "plan --cluster d.toml --gpus 8",
        &["the name of a device, or a table that describes one"],
    );
}

/// A picture or a checkpoint is no text; whoever means its bytes says so.
#[test]
fn binary_data_are_refused_unless_they_are_meant() {
    let picture = [&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], &[7; 4000]].concat();
    let folder = folder_with("picture.png", picture);
    let train = "train --model gpt-tiny --set vocab=256 --grid x=1 --steps 1 --global-batch 2 --data picture.png";
    let prepare = "data prepare picture.png --tokenizer bytes --out made";
    refused_in(
        folder.path(),
        "memorize --data picture.png --seq-len 32 --generate-tokens 4",
        &["picture.png is no text", "--force-binary"],
    );
    for line in [train, prepare] {
        refused_in(folder.path(), line, &["picture.png is no text", "byte 0", "--force-binary"]);
        let output = run(folder.path(), &format!("{line} --force-binary"));
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        // What was read once because it was meant is no text for others.
        refused_in(folder.path(), line, &["picture.png is no text"]);
    }
    refused("train --model vit-tiny --grid x=1 --force-binary", &["--force-binary: vit-tiny reads patches"]);
    let inspected = run(folder.path(), "data info picture.png");
    assert!(String::from_utf8_lossy(&inspected.stdout).contains("binary"));
}

#[test]
fn what_has_nothing_in_it_is_refused() {
    for text in ["", "\n", "# grid = 'x=2'\n"] {
        let words = ["l.toml: grid = none: a layout's file says at least one of its choices", "grid = \"x=2,pipe=2\""];
        refused_in(folder_with("l.toml", text).path(), "explain --layout l.toml", &words);
    }
    let folder = folder_with("run.json", "");
    for line in ["train --resume .", "report ."] {
        refused_in(folder.path(), line, &["run.json has nothing in it", "newest checkpoint: --from"]);
    }
}

#[test]
fn data_that_is_missing_or_empty() {
    refused(&format!("{TRAIN} --data missing.txt"), &["missing.txt", "No such file"]);
    refused_in(folder_with("empty.txt", "").path(), &format!("{TRAIN} --data empty.txt"), &["empty.txt", "non-empty"]);
    let folder = folder_with(".hidden", "text");
    refused_in(folder.path(), &format!("{TRAIN} --data ."), &["nothing to read", "hidden files are skipped"]);
    refused(&format!("{TRAIN} --data /dev/null"), &["/dev/null", "neither a file nor a folder"]);
    refused(&format!("{TRAIN} --data"), &["--data", "value is required"]);
}

#[test]
fn a_corpus_that_is_shorter_than_a_sample() {
    let folder = folder_with("short.txt", "hello");
    // Its tokens are whole and stay; a second run finds them and says the same.
    let line = format!("{TRAIN} --data short.txt --log log.jsonl");
    assert_eq!(run(folder.path(), &line).status.code(), Some(2));
    refused_in(folder.path(), &line, &["16 tokens", "at least 17", "shorten the sequence"]);
    assert!(!folder.path().join("log.jsonl").exists());
}

#[test]
fn text_that_is_no_utf8_is_for_bytes_only() {
    let folder = folder_with("bad.txt", b"good text \xff\xfe bad text");
    fs::create_dir(folder.path().join("cache")).unwrap();
    let line = "train --model gpt-tiny --set vocab=50257 --tokenizer gpt2 --cache cache --data bad.txt";
    refused_in(folder.path(), line, &["bad.txt", "not UTF-8", "offset 10", "`bytes`"]);
}

#[test]
fn a_tokenizer_needs_its_vocabulary() {
    refused("train --model gpt-tiny", &["bytes has 256 ids", "has 67", "--set vocab=256"]);
    refused(&format!("{TRAIN} --tokenizer gpt2"), &["gpt2 has 50257 ids", "has 256", "--set vocab=50257"]);
}

#[test]
fn logs_that_cannot_be_written() {
    refused(&format!("{TRAIN} --log missing/log.jsonl"), &["missing/log.jsonl", "No such file"]);
    refused(&format!("{TRAIN} --log ."), &["cannot write the log .", "directory"]);
}

#[test]
fn damaged_files_of_tuned_products() {
    let whole = r#"{"choices":[{"stored":"nn","m":1,"n":1,"k":1,"run_as":"nn","seconds":[1,1,1]}]}"#;
    let texts = ["", "{", "{}", "[1]", &whole[..40], &whole.replace("run_as\":\"nn", "run_as\":\"tt")];
    for text in texts {
        let folder = folder_with("tuned.json", text);
        refused_in(folder.path(), &format!("{TRAIN} --tune-matmul tuned.json --log l"), &["tuned.json", "no tuned"]);
    }
    refused_in(folder_with("tuned.json", [0xff; 99]).path(), &format!("{TRAIN} --tune-matmul tuned.json"), &["UTF-8"]);
    refused(&format!("{TRAIN} --tune-matmul ."), &["cannot read .", "directory"]);
}

#[test]
fn tuned_products_of_another_run_and_files_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("{TRAIN} --grid x=2 --steps 1 --tune-matmul tuned.json");
    assert!(run(folder.path(), &format!("{line} --threads 1")).status.success());
    let words = ["tuned.json", "--dtype f32 --threads 1", "--dtype f64 --threads 1", "another file"];
    refused_in(folder.path(), &format!("{line} --threads 1 --dtype f64"), &words);
    refused_in(folder.path(), &format!("{line} --threads 2"), &["tuned.json", "--threads 2"]);
    // Found before the first step, with no log begun.
    refused(&format!("{TRAIN} --tune-matmul missing/tuned.json --log log"), &["cannot write missing/tuned.json"]);
}

#[test]
fn runs_that_this_machine_cannot_hold() {
    let words = ["of memory", "are free", "use a smaller"];
    for line in
        ["train --model gpt3-175b --grid x=2", "verify --model gpt3-175b --grid x=2", "bench step --model gpt3-175b"]
    {
        refused(line, &words);
    }
    refused("train --grid x=1 --set seq_len=16777216", &words);
    refused("train --grid data=4096", &["4096 ranks", "at most 512 ranks"]);
}

#[test]
fn files_that_would_be_written_over_what_is_read() {
    let folder = folder_with("text.txt", "some text ".repeat(100));
    let line = format!("{TRAIN} --data text.txt --log text.txt");
    refused_in(folder.path(), &line, &["--log", "text.txt", "--data text.txt", "another file"]);
    assert_eq!(fs::read_to_string(folder.path().join("text.txt")).unwrap().len(), 1000);
    refused_in(folder.path(), &format!("{TRAIN} --log same --tune-matmul same"), &["--tune-matmul", "--log same"]);
}

#[test]
fn tuned_products_of_another_shape() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("{TRAIN} --grid x=1 --threads 1 --steps 1 --tune-matmul tuned.json");
    assert!(run(folder.path(), &line).status.success());
    refused_in(folder.path(), &format!("{line} --set hidden=24"), &["nothing of the product", "another file"]);
}

#[test]
fn times_threads_steps_and_seeds() {
    for command in ["verify", TRAIN] {
        for timeout in ["0", "-1", "nan", "inf", "1e300"] {
            refused(&format!("{command} --timeout={timeout}"), &["--timeout", "positive number of seconds"]);
        }
        refused(&format!("{command} --threads 0"), &["--threads 0", "at least one"]);
        refused(&format!("{command} --threads 99999999999"), &["--threads 99999999999", "at most 1024"]);
        refused(&format!("{command} --steps 0"), &["--steps 0", "at least one"]);
        refused(&format!("{command} --steps=-1"), &["--steps", "-1"]);
        refused(&format!("{command} --seed 18446744073709551616"), &["--seed", "18446744073709551616"]);
    }
}

#[test]
fn works_and_files_of_reproduce() {
    refused("paper alexnet reproduce", &["unrecognized subcommand 'alexnet'"]);
    refused("paper megatron reproduce --csv missing/points.csv", &["cannot write --csv missing/points.csv"]);
}
