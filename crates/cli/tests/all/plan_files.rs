//! Layouts that `plan --out` writes: every command that takes a layout file reads them, as the layout that was planned.

use std::fs;
use std::path::Path;
use std::process::Output;

use quadrille_spec::{Classic, EvenPieces, Layout, LayoutFile, Model, RandomStream, Schedule};
use serde_json::Value;

use crate::common::run;

/// A search, as the words that follow `plan`.
#[derive(Debug, Clone)]
struct Case {
    layers: usize,
    ranks: usize,
    words: String,
}

/// Draws numbers, one after the other.
fn draws(purpose: &str, number: u64) -> impl FnMut(u64) -> usize {
    let random = RandomStream::new(2026, purpose).substream(number);
    let mut index = 0..;
    move |of| random.below(index.next().unwrap(), of) as usize
}

/// A random search of a small model.
fn case(number: u64) -> Case {
    let mut pick = draws("searches whose layouts are written", number);
    let layers = 1 + pick(13);
    let ranks = [2, 3, 4, 6, 8, 12, 16][pick(7)];
    let mut words = format!(" --global-batch {} --any-layout", [8, 12, 24, 32][pick(4)]);
    words += [" --cluster dgx-a100", " --cluster dgx-h100", " --cluster frontier"][pick(3)];
    words += [" --framework megatron", " --framework fsdp", " --framework quadrille"][pick(3)];
    words += ["", " --fix zero=1", " --fix recompute=full:2", " --fix schedule=zb-h1", " --max x=1"][pick(5)];
    words += ["", "", " --fix pipe=2", " --fix pipe=3", " --fix pipe=4", " --fix pipe=6", " --fix pipe=8"][pick(7)];
    if !words.contains("schedule") {
        words += ["", "", " --fix schedule=interleaved --fix chunks=2", " --fix schedule=interleaved --fix chunks=3"]
            [pick(4)];
    }
    Case { layers, ranks, words }
}

/// A random search that fixes a schedule and some of all switches, of a model whose layers seldom divide evenly.
fn switched(number: u64) -> Case {
    let mut pick = draws("switches of layouts that are written", number);
    let grids =
        ["pipe=2", "pipe=3", "pipe=4", "x=2,pipe=2", "z=2,pipe=2", "x=2,y=2", "z=2,data=2", "context=2,pipe=2", "x=1"];
    let grid = grids[pick(9)];
    let schedules = Schedule::ALL.map(|(name, _)| name);
    let mut words = format!(" --global-batch 12 --any-layout --cluster dgx-a100 --fix {grid}");
    let schedule = schedules[pick(5)];
    if grid.contains("pipe") {
        words += &format!(" --fix schedule={schedule}");
        words += ["", " --fix chunks=2"][usize::from(schedule == "interleaved" && pick(2) == 0)];
    }
    for switch in [
        "recompute=selective",
        "recompute=full:2,cac=true",
        "zero=2",
        "keep-weights=step",
        "overlap=oar+ors",
        "overlap-chunks=2",
        "activations=replicated",
        "linear=summa",
        "microbatch=2",
    ] {
        let repeats = words.contains("recompute") && switch.contains("recompute");
        if pick(4) == 0 && !repeats {
            words += &format!(" --fix {switch}");
        }
    }
    Case { layers: 5 + pick(8), ranks: [4, 6, 8][pick(3)], words }
}

impl Case {
    fn plan(&self, folder: &Path, more: &str) -> Output {
        let Self { ranks, words, .. } = self;
        run(folder, &format!("plan {} --ranks {ranks} --top 1 --exotic{words} {more}", self.model_flags()))
    }

    /// Narrower than `gpt-tiny`, so that the serial model is soon done, with a vocabulary of bytes.
    fn model(&self) -> Model {
        Model::preset("gpt-tiny").unwrap().reshaped(|m| {
            m.layers = self.layers;
            m.hidden = 24;
            m.ffn = 48;
            m.vocab = 256;
        })
    }

    fn model_flags(&self) -> String {
        let Classic { layers, hidden, ffn, vocab, .. } = self.model().classic();
        format!("--model gpt-tiny --set layers={layers} --set hidden={hidden} --set ffn={ffn} --set vocab={vocab}")
    }

    /// The document of another command, to which the model and the planned layout are given.
    fn document(&self, folder: &Path, command: &str) -> Value {
        let output = run(folder, &format!("{command} {} --layout layout.toml --json", self.model_flags()));
        assert!(output.status.success(), "{self:?}: {command}: {}", error(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The layout that a command says it has read.
    fn reported(&self, shown: &Value) -> Layout {
        let shown: LayoutFile = serde_json::from_value(shown.clone()).unwrap();
        shown.validate(&self.model()).unwrap()
    }
}

/// The planned layout, if the search finds one; that the file says it, and that `plan` and `explain` read it, is checked.
fn check(case: &Case, folder: &Path) -> Option<Layout> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let planned = case.plan(folder, "--json --out layout.toml");
    if !planned.status.success() {
        assert!(matches!(planned.status.code(), Some(1 | 2)), "{case:?}: {}", error(&planned));
        return None;
    }
    let text = read("layout.toml");
    let file = LayoutFile::from_toml(&text).unwrap();
    let layout = file.validate(&case.model()).unwrap_or_else(|error| panic!("{case:?}: {error}: {text}"));
    let document: Value = serde_json::from_slice(&planned.stdout).unwrap();
    let kept = file.planned().unwrap_or_else(|| panic!("{case:?}: {text}")).clone();
    assert_eq!(document["framework"], *kept.framework, "{case:?}");
    assert_eq!(LayoutFile::of(&layout).planned_for(kept), file, "{case:?}");
    assert_eq!(case.reported(&document["plans"][0]["layout"]), layout, "{case:?}");
    assert!(
        EvenPieces::new(case.layers, layout.pieces(), 1).blocks().eq(layout.stage_blocks.iter().copied()),
        "{text}"
    );
    // The same search, told what the file says, chooses it again.
    let again = case.plan(folder, "--layout layout.toml --out again.toml");
    assert!(again.status.success(), "{case:?}: {text}{}", error(&again));
    assert_eq!(read("again.toml"), text, "{case:?}");
    assert_eq!(case.reported(&case.document(folder, "explain")["layout"]), layout, "{case:?}");
    Some(layout)
}

/// [`check`] for `train` and `verify`, which do what the file says.
fn check_run(case: &Case, folder: &Path) -> Option<Layout> {
    let layout = check(case, folder)?;
    let trained = case.document(folder, "train --steps 1 --threads 1");
    assert_eq!(case.reported(&trained["layout"]), layout, "{case:?}");
    assert_eq!(trained["ledger"]["equal"], true, "{case:?}");
    let verified = &case.document(folder, "verify --steps 1 --threads 1 --dtype f32")["grids"][0];
    assert_eq!(case.reported(&verified["layout"]), layout, "{case:?}");
    assert_eq!(verified["ok"], true, "{case:?}");
    Some(layout)
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn planned_layouts_are_read_as_they_were_planned() {
    let checked = |number| check(&case(number), tempfile::tempdir().unwrap().path());
    let found: Vec<Layout> = (0..60).filter_map(checked).collect();
    // Enough of them to mean something.
    assert!(found.len() >= 20, "{} of 60 searches found a layout", found.len());
    assert!(found.iter().filter(|layout| layout.pieces() > 1).count() >= 8);
}

#[test]
fn planned_layouts_run_as_they_were_planned() {
    let checked = |number| check_run(&switched(number), tempfile::tempdir().unwrap().path());
    let found: Vec<Layout> = (0..40).filter_map(checked).collect();
    assert!(found.len() >= 10, "{} of 40 searches found a layout", found.len());
    let uneven = |layout: &&Layout| layout.stage_blocks.windows(2).any(|pair| pair[0] != pair[1]);
    assert!(found.iter().filter(uneven).count() >= 3, "{}", found.iter().filter(uneven).count());
    let count = |kind: fn(&Layout) -> String| found.iter().map(kind).collect::<std::collections::BTreeSet<_>>().len();
    assert_eq!(count(|layout| layout.schedule.to_string()), Schedule::ALL.len());
    let least = [
        ("recompute", count(|layout| layout.recompute.to_string()), 3),
        ("zero", count(|layout| layout.zero.to_string()), 2),
        ("keep-weights", count(|layout| layout.keep_weights.to_string()), 2),
        ("overlap", count(|layout| layout.overlap.to_string()), 2),
        ("overlap-chunks", count(|layout| layout.overlap_chunks.to_string()), 2),
        ("activations", count(|layout| layout.activations.to_string()), 2),
        ("linear", count(|layout| layout.linear.to_string()), 2),
    ];
    assert!(least.iter().all(|(_, seen, wanted)| seen >= wanted), "{least:?}");
}

/// Ten layers on four stages: the pieces in the middle are longer, and that is as equal as possible.
#[test]
fn longer_pieces_in_the_middle_are_read() {
    let words = " --global-batch 8 --cluster dgx-a100 --fix pipe=4".to_owned();
    let case = Case { layers: 10, ranks: 4, words };
    let layout = check_run(&case, tempfile::tempdir().unwrap().path()).unwrap();
    assert_eq!(layout.stage_blocks, [2, 3, 3, 2]);
}

/// Chunks that do not divide the layers are planned where they are asked for.
#[test]
fn uneven_interleaving_is_read() {
    let words =
        " --global-batch 8 --cluster dgx-a100 --fix pipe=2 --fix schedule=interleaved --fix chunks=2".to_owned();
    let case = Case { layers: 7, ranks: 2, words };
    let layout = check_run(&case, tempfile::tempdir().unwrap().path()).unwrap();
    assert_eq!(layout.stage_blocks, [2, 2, 2, 1]);
}
