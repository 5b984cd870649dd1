//! What is switched on or off changes no bit, but for biases in bf16, and is found where it is missing.

use std::collections::BTreeSet;
use std::env;
use std::process::Command;
use std::sync::Arc;

use quadrille_cuda::{DeviceKind, Driver, Emulator, GraphTrouble, emulate_by};
use quadrille_engine::{Device, Hyper, RunEvent, TrainOptions, random_batch};
use quadrille_spec::{ElementType, Layout, LayoutRequest, Model};
use quadrille_step::StepProgram;

use crate::careless::{self, LEAVES_OUT, Part};

/// The variable that switches.
const SWITCHES: &str = "QUADRILLE_DEVICE_SWITCHES";
/// The type, the grid, what is recomputed and, if they are others, the columns of a head, in a process of its own.
const RUN: &str = "QUADRILLE_TEST_RUN";
/// Columns of heads that tensor cores compute attention of.
const WIDE: usize = 80;
/// What its lines with numbers begin with.
const TOLD: &str = "step told: ";
/// What the line of its graphs begins with.
const GRAPHS: &str = "graphs told: ";
/// The variable that says what of graphs goes wrong.
const TROUBLE: &str = "QUADRILLE_TEST_GRAPH_TROUBLE";

/// What of graphs goes wrong without an end of the run.
pub const TROUBLES: [GraphTrouble; 4] =
    [GraphTrouble::Begins, GraphTrouble::Captures, GraphTrouble::Ends, GraphTrouble::Updates];

/// Three steps of several microbatches; what each gives is told in all bits.
#[test]
fn a_run_is_trained_and_told() {
    let Ok(run) = env::var(RUN) else { return };
    let mut words = run.split(' ');
    let [dtype, grid, recompute] = [(); 3].map(|()| words.next().unwrap());
    let (model, sequences) = match words.next().map_or(4, |columns| columns.parse().unwrap()) {
        // More keys than the usual kernels take at a time.
        WIDE => (Model::gpt(1, WIDE, 1, 32, 72), 4),
        columns => (Model::gpt(2, 2 * columns, 2, 32, 6).reshaped(|m| m.dropout = 0.2), 16),
    };
    let mut request = LayoutRequest::new(grid.parse().unwrap(), sequences);
    (request.microbatch, request.recompute) = (Some(2), recompute.parse().unwrap());
    let formats = [ElementType::F64, ElementType::F32, ElementType::Bf16];
    request.dtype = formats.into_iter().find(|format| format.to_string() == dtype).unwrap();
    let program = StepProgram::new(&model, &Layout::new(&model, &request).unwrap()).unwrap();
    let batch = random_batch(&model, 1, program.layout.seq_len);
    let hyper = Hyper { learning_rate: 3e-2, warmup_steps: 0, ..Hyper::default() };
    let mut tell = |event: RunEvent| {
        if let RunEvent::Step(record) = event {
            println!("{TOLD}{:x} {:x}", record.loss.to_bits(), record.grad_norm.to_bits());
        }
        Ok(())
    };
    // The last step is traced, which changes no bit either.
    let options = TrainOptions { trace: true, ..TrainOptions::new(3, hyper, 1) };
    careless::install();
    let trouble = env::var(TROUBLE).ok().map(|told| *TROUBLES.iter().find(|one| format!("{one:?}") == told).unwrap());
    let device = Emulator::new(1);
    let device = Arc::new(if let Some(trouble) = trouble { device.with_graph_trouble(trouble) } else { device });
    if env::var_os(LEAVES_OUT).is_none() {
        let driver: Arc<dyn Driver> = device.clone();
        emulate_by(0, &driver);
    }
    let outcome = DeviceKind::Emulated.train(&program, &options, &batch, None, &mut tell).unwrap();
    assert_eq!(outcome.difference, None, "ledgers are counted as they were predicted");
    let told = outcome.device_graphs().unwrap_or_default();
    if env::var_os(LEAVES_OUT).is_none() {
        let done = device.graphs();
        let told = [told.made, told.runs, told.updates, told.refused];
        assert_eq!(told, [done.made, done.runs, done.updates, done.refused], "what is told is what was done");
    }
    println!("{GRAPHS}{} {} {} {}", told.made, told.runs, told.updates, told.refused);
}

/// The lines of such a run in a process with these switches.
fn told(switches: &str, run: &str) -> Vec<String> {
    told_with_graphs(switches, run).0
}

/// The same, with how many graphs were made and run, launches changed, and rows refused.
pub fn told_with_graphs(switches: &str, run: &str) -> (Vec<String>, [u64; 4]) {
    told_by(command(switches, run), &format!("{switches} {run}"))
}

/// The same, where something of graphs goes wrong.
pub fn told_in_trouble(trouble: GraphTrouble, run: &str) -> (Vec<String>, [u64; 4]) {
    let mut command = command("graphs=on", run);
    command.env(TROUBLE, format!("{trouble:?}"));
    told_by(command, &format!("{trouble:?} {run}"))
}

fn told_by(mut command: Command, what: &str) -> (Vec<String>, [u64; 4]) {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{what}: {text}{}", String::from_utf8_lossy(&output.stderr));
    let lines = lines(&text, TOLD);
    assert_eq!(lines.len(), 3, "{text}");
    let graphs: Vec<u64> =
        lines_of(&text, GRAPHS).flat_map(|line| line.split(' ')).map(|n| n.parse().unwrap()).collect();
    (lines, graphs.try_into().unwrap())
}

/// The lines on a device that leaves a part out; none if the run fails.
pub fn told_without(leaves_out: Part, switches: &str, run: &str) -> Option<Vec<String>> {
    let output = command(switches, run).env(LEAVES_OUT, format!("{leaves_out:?}")).output().unwrap();
    output.status.success().then(|| lines(&String::from_utf8_lossy(&output.stdout), TOLD))
}

fn command(switches: &str, run: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "switched::a_run_is_trained_and_told", "--nocapture"]);
    command.env(SWITCHES, switches).env(RUN, run);
    command
}

fn lines_of<'t>(text: &'t str, begin: &str) -> impl Iterator<Item = &'t str> {
    text.lines().filter_map(move |line| line.split_once(begin)).map(|(_, line)| line)
}

fn lines(text: &str, begin: &str) -> Vec<String> {
    lines_of(text, begin).map(str::to_owned).collect()
}

/// Half as much at once, or all of it, gives the same steps; so do passes that are recomputed.
#[test]
fn switches_change_no_bit_but_biases_in_bf16() {
    if env::var("QUADRILLE_TEST_DEVICE").is_ok() {
        return;
    }
    for dtype in ["f64", "f32", "bf16"] {
        for grid in ["data=2", "x=2,z=2"] {
            let run = |recompute: &str| format!("{dtype} {grid} {recompute}");
            let apart = told("bias=off,squares=off,staging=off", &run("none"));
            assert_eq!(told("bias=off", &run("none")), apart, "{dtype} {grid}: squares and staging");
            let with_biases = told("bias=on", &run("none"));
            assert_eq!(with_biases == apart, dtype != "bf16", "{dtype} {grid}: biases that products add");
            for recompute in ["selective", "full"] {
                assert_eq!(
                    told("bias=on", &run(recompute)),
                    with_biases,
                    "{dtype} {grid}: biases, recomputed {recompute}"
                );
            }
        }
    }
    // Three steps are three, or nothing would be shown.
    assert_eq!(told("", "f64 data=2 none").iter().collect::<BTreeSet<_>>().len(), 3);
}

/// Attention by warpgroups gives a first step close to that of the usual kernels. That it is computed so is seen: of so many keys
/// sums are in another order.
#[test]
fn attention_by_warpgroups_is_close_to_that_by_warps() {
    if env::var("QUADRILLE_TEST_DEVICE").is_ok() {
        return;
    }
    let run = format!("bf16 data=2 none {WIDE}");
    let [by_warps, by_groups] = ["wgmma=off", "wgmma=on"].map(|switches| told(switches, &run));
    assert_ne!(by_warps, by_groups);
    let numbers = |line: &str| -> Vec<f64> {
        line.split(' ').map(|word| f64::from_bits(u64::from_str_radix(word, 16).unwrap())).collect()
    };
    let [by_warps, by_groups] = [by_warps, by_groups].map(|lines| numbers(&lines[0]));
    assert_eq!(by_warps.len(), by_groups.len());
    for (usual, other) in by_warps.into_iter().zip(by_groups) {
        assert!((usual - other).abs() <= 1e-3 * usual, "{other}, not {usual}");
    }
}

#[test]
fn unknown_switches_are_refused() {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "switched::a_run_is_trained_and_told"]);
    let output = command.env(SWITCHES, "biases=on").env(RUN, "f64 data=2 none").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("'biases=on'"), "{text}");
}
