//! What a terminal is shown, and what pipes and files get.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::run;

const BINARY: &str = env!("CARGO_BIN_EXE_quadrille");
const CLUSTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/small_cluster.toml");

/// What a command prints on a terminal of so many columns, with these variables in its environment: `script` of util-linux
/// makes the terminal.
fn shown_with(folder: &Path, columns: usize, variables: &[(&str, &str)], line: &str) -> String {
    let mut command = Command::new("script");
    // A shell may set COLUMNS anew after each command.
    let said: String = variables.iter().map(|(name, value)| format!("{name}={value} ")).collect();
    // `-e` hands on how the command ended.
    command.args(["-qec", &format!("stty cols {columns} rows 50; {said}{BINARY} {line}"), "/dev/null"]);
    for name in ["COLUMNS", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"] {
        command.env_remove(name);
    }
    command.env("TERM", "xterm").current_dir(folder).stdin(Stdio::null());
    let output = command.output().expect("script of util-linux");
    assert_eq!(output.status.success(), !line.contains("nonsense"), "{line}");
    String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n")
}

fn shown(folder: &Path, columns: usize, line: &str) -> String {
    shown_with(folder, columns, &[], line)
}

/// What the same prints into a pipe.
fn piped(folder: &Path, line: &str) -> String {
    let output = run(folder, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

/// A run of a small model, in the folder `run`.
fn with_run() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    piped(folder.path(), "train --model gpt-tiny --set vocab=256 --ranks 2 --steps 2 --checkpoint-every 1 --out run");
    folder
}

#[test]
fn no_line_is_wider_than_a_terminal() {
    let folder = with_run();
    for line in [
        "plan --model gpt-20b --gpus 32 --cluster perlmutter --explain",
        "plan --model gpt2-124m --gpus 4..8 --pareto --tokens 1e9 --price-per-hour 2 --goodput --top 2",
        "paper lbnl plan --strategy 2d --model gpt3-1t --gpus 1024 --cluster b200 --nvs 8",
        "paper axonn plan --gpus 8",
        "paper atp plan --model gpt3-175b --interconnect ic2",
        "paper megatron plan --model gpt3-175b --gpus 1024 --global-batch 1536 --cluster selene",
        "sweep --model gpt2-124m --vary gpus=2..8",
        "verify --ranks 2 --all-grids",
        "validate published",
        "bench pipeline --steps 1 --pass-ms 1 --stages 2 --microbatches 2",
        "paper megatron reproduce",
        "checkpoint info run",
        "checkpoint verify run --all",
        "eval --from run",
        "explain --model gpt-tiny --grid x=2,pipe=2 --timeline",
        "explain --model llama3-8b --grid x=4,z=2,context=2,data=4,pipe=4 --per-node 8 --global-batch 512 --zero 1",
        "explain --model moe-tiny --grid x=2,expert=2",
        "explain --model gpt-tiny --grid x=2,y=2 --program",
        "report run",
        "plan --gpus nonsense",
    ] {
        for columns in [80, 120] {
            let text = shown(folder.path(), columns, &format!("{line} --quiet --color never"));
            assert!(!text.is_empty() && widest(&text) <= columns, "{line} in {columns} columns:\n{text}");
        }
    }
}

#[test]
fn tables_grow_with_the_terminal_and_are_complete_in_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let line = "plan --model gpt2-124m --gpus 8 --top 3 --color never";
    let [narrow, wide] = [80, 200].map(|columns| shown(folder.path(), columns, line));
    assert!(narrow.contains("not shown in 80 columns: ") && !narrow.contains("  HFU  "), "{narrow}");
    assert!(!wide.contains("not shown") && wide.contains("  HFU  "), "{wide}");
    let piped = piped(folder.path(), line);
    assert!(widest(&piped) > 120 && piped.contains("  in a domain  microbatch  "), "{piped}");
    // The environment says how wide a terminal is, if it does; of a pipe it says nothing.
    let said = shown_with(folder.path(), 80, &[("COLUMNS", "200")], line);
    assert!(said.contains("  HFU  "), "{said}");
}

#[test]
fn a_sweep_is_a_table_on_a_terminal_and_values_in_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("sweep --model gpt2-124m --cluster {CLUSTER} --global-batch 32 --vary gpus=1,2 --quiet");
    let table = shown(folder.path(), 80, &format!("{line} --color never"));
    assert!(
        table.starts_with("gpt2-124m on ")
            && table.contains("\nlayout  gpus      step")
            && !table.contains("vary_gpus"),
        "{table}"
    );
    assert!(piped(folder.path(), &line).starts_with("vary_gpus,notation,grid,"), "{line}");
    let text = shown(folder.path(), 80, &format!("{line} --out values.csv"));
    let values = fs::read_to_string(folder.path().join("values.csv")).unwrap();
    assert!(text.is_empty() && values.starts_with("vary_gpus,notation,grid,"), "{text}{values}");
}

#[test]
fn a_priced_table_is_a_table_on_a_terminal_and_values_in_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let best =
        "paper lbnl plan --strategy 2d --model gpt3-1t --cluster b200 --nvs 8 --gpus 1024 --csv best.csv --quiet";
    piped(folder.path(), best);
    let line = "paper lbnl estimate --csv best.csv";
    let values = piped(folder.path(), line);
    let table = shown(folder.path(), 100, &format!("{line} --color never"));
    assert!(values.starts_with("strategy,model,gpu,") && !values.contains("all rows"), "{values}");
    assert!(table.starts_with("all rows: strategy 2d, model gpt3_1T") && widest(&table) <= 100, "{table}");
    assert!(!table.contains(','.to_string().repeat(2).as_str()) && table.lines().count() > 10, "{table}");
    // Rows that are alike in everything are rows all the same.
    let best = fs::read_to_string(folder.path().join("best.csv")).unwrap();
    let [header, row] = [0, 1].map(|at| best.lines().nth(at).unwrap());
    fs::write(folder.path().join("twice.csv"), format!("{header}\n{row}\n{row}\n")).unwrap();
    let table = shown(folder.path(), 100, "paper lbnl estimate --csv twice.csv --quiet --color never");
    assert_eq!(table.lines().filter(|line| line.trim() == "2d").count(), 2, "{table}");
}

#[test]
fn a_timeline_fits_terminals_of_forty_columns() {
    let folder = tempfile::tempdir().unwrap();
    let line = "explain --model gpt-tiny --grid x=2,pipe=2 --timeline --quiet --color never";
    for columns in [40, 59, 60, 100] {
        let text = shown(folder.path(), columns, line);
        let stages: Vec<&str> = text.lines().filter(|line| line.starts_with("stage ") && line.ends_with('|')).collect();
        assert_eq!(stages.len(), 2, "{columns} columns:\n{text}");
        assert!(widest(&text) <= columns, "{columns} columns:\n{text}");
    }
}

#[test]
fn colours_are_for_terminals_unless_something_else_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let line = "plan --model gpt2-124m --gpus 2 --top 1";
    let is_colored = |text: &str| text.contains('\u{1b}');
    let on_terminal = |variables: &[(&str, &str)], more: &str| {
        is_colored(&shown_with(folder.path(), 80, variables, &format!("{line} -q {more}")))
    };
    assert!(on_terminal(&[], "") && on_terminal(&[], "--color auto"));
    assert!(!on_terminal(&[("NO_COLOR", "1")], "") && !on_terminal(&[], "--color never"));
    assert!(on_terminal(&[("NO_COLOR", "1")], "--color=always"));
    assert!(!is_colored(&piped(folder.path(), line)));
    let forced = piped(folder.path(), &format!("{line} --color always"));
    assert!(forced.contains("\u{1b}[1mparts of a step\u{1b}[0m\n"), "{forced}");
    // The help and what is wrong with a command line follow the same flag.
    let refused =
        |more: &str| String::from_utf8(run(folder.path(), &format!("{line} --gpus x {more}")).stderr).unwrap();
    assert!(is_colored(&refused("--color always")) && !is_colored(&refused("")));
    assert!(is_colored(&piped(folder.path(), "plan --help --color always")));
    assert!(!is_colored(&shown(folder.path(), 80, "plan --help --color never")));
    // Words of an error that is found later.
    let failed = |more: &str| String::from_utf8(run(folder.path(), &format!("report none {more}")).stderr).unwrap();
    assert!(failed("--color always").starts_with("\u{1b}[1m\u{1b}[31merror\u{1b}[0m: "));
    assert!(failed("").starts_with("error: "));
}

#[test]
fn quiet_tells_results_alone_and_verbose_tells_more() {
    let folder = tempfile::tempdir().unwrap();
    let line = "train --model gpt-tiny --set vocab=256 --ranks 2 --steps 2";
    let usual = run(folder.path(), line);
    let quiet = run(folder.path(), &format!("{line} --quiet"));
    assert!(String::from_utf8_lossy(&usual.stderr).contains("step     1"));
    assert_eq!((quiet.stdout, quiet.stderr.len()), (usual.stdout, 0));
    // Errors are told in any case.
    assert!(!run(folder.path(), "report none -q").stderr.is_empty());
    let plan = "plan --model gpt2-124m --gpus 2";
    let told = |more: &str| String::from_utf8(run(folder.path(), &format!("{plan} {more}")).stderr).unwrap();
    assert_eq!(told(""), "");
    for words in ["cluster selene: built in", "model gpt2-124m: built in", "took "] {
        assert!(told("-v").contains(words), "{words} is not in {}", told("-v"));
    }
    let both = run(folder.path(), &format!("{plan} -q -v"));
    assert_eq!(both.status.code(), Some(2));
}

/// The names that other programs have for axes, wherever axes are named.
#[test]
fn other_names_of_axes_mean_the_same() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("layout.toml"), "grid = \"tp=2,dp=2\"\nglobal_batch = 8\n").unwrap();
    for (other, own) in [
        ("explain --model gpt-tiny --grid tp=2,cp=2,pp=2", "explain --model gpt-tiny --grid x=2,context=2,pipe=2"),
        ("explain --model gpt-tiny --grid fsdp=2,DP=2", "explain --model gpt-tiny --grid z=2,data=2"),
        (
            "explain --model gpt-tiny --layout layout.toml",
            "explain --model gpt-tiny --grid x=2,data=2 --global-batch 8",
        ),
        (
            "explain --model gpt-tiny --grid x=2,y=2 --order y,tp,fsdp,dp",
            "explain --model gpt-tiny --grid x=2,y=2 --order y,x,z,data",
        ),
        (
            "verify --model gpt-tiny --ranks 2 --all-grids --axes tp,pp",
            "verify --model gpt-tiny --ranks 2 --all-grids --axes x,pipe",
        ),
        (
            "sweep --model gpt2-124m --vary gpus=8 --fix tp=2,pp=2,vpp=2 --max dp=2 --min cp=1",
            "sweep --model gpt2-124m --vary gpus=8 --fix x=2,pipe=2,chunks=2 --max data=2 --min context=1",
        ),
    ] {
        assert_eq!(piped(folder.path(), other), piped(folder.path(), own), "{other}");
    }
}
