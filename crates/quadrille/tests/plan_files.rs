//! Layouts that `plan --out` writes: every command that takes a layout file reads them, as the layout that was planned.

#[path = "common/run.rs"]
mod run;

use std::fs;
use std::path::Path;
use std::process::Output;

use quadrille_spec::{EvenPieces, LayoutFile, Model, RandomStream};
use run::run;

/// A search, as the words that follow `plan`.
#[derive(Debug, Clone)]
struct Case {
    layers: usize,
    ranks: usize,
    words: String,
}

/// A random search of a small model.
fn case(number: u64) -> Case {
    let random = RandomStream::new(2026, "searches whose layouts are written").substream(number);
    let mut index = 0..;
    let mut pick = |of: u64| random.below(index.next().unwrap(), of) as usize;
    let (layers, ranks) = (1 + pick(13), [2, 3, 4, 6, 8, 12, 16][pick(7)]);
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

impl Case {
    fn plan(&self, folder: &Path, more: &str) -> Output {
        let Self { layers, ranks, words } = self;
        run(folder, &format!("plan --model gpt-tiny --set layers={layers} --ranks {ranks} --top 1{words} {more}"))
    }
}

/// The text of a planned layout, if the search finds one; that every command reads it alike is checked.
fn check(case: &Case) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let planned = case.plan(folder.path(), "--out layout.toml");
    if !planned.status.success() {
        assert!(matches!(planned.status.code(), Some(1 | 2)), "{case:?}: {}", error(&planned));
        return None;
    }
    let text = read("layout.toml");
    let model = Model { layers: case.layers, ..Model::preset("gpt-tiny").unwrap() };
    let file = LayoutFile::from_toml(&text).unwrap();
    let layout = file.validate(&model).unwrap_or_else(|error| panic!("{case:?}: {error}: {text}"));
    assert_eq!(LayoutFile::of(&layout), file, "{case:?}");
    assert!(
        EvenPieces::new(case.layers, layout.pieces(), 1).blocks().eq(layout.stage_blocks.iter().copied()),
        "{text}"
    );
    // The same search, told what the file says, chooses it again.
    let again = case.plan(folder.path(), "--layout layout.toml --out again.toml");
    assert!(again.status.success(), "{case:?}: {text}{}", error(&again));
    assert_eq!(read("again.toml"), text, "{case:?}");
    let explain = format!("explain --model gpt-tiny --set layers={} --layout layout.toml --json", case.layers);
    let explained = run(folder.path(), &explain);
    assert!(explained.status.success(), "{case:?}: {text}{}", error(&explained));
    let document: serde_json::Value = serde_json::from_slice(&explained.stdout).unwrap();
    assert_eq!(document["layout"]["stage_blocks"], serde_json::json!(layout.stage_blocks), "{case:?}");
    assert_eq!(document["layout"]["grid"], layout.grid.to_string(), "{case:?}");
    Some(text)
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn planned_layouts_are_read_as_they_were_planned() {
    let pipeline = |text: &&String| !text.contains("pipe=1\"");
    let found: Vec<String> = (0..60).filter_map(|number| check(&case(number))).collect();
    // Enough of them to mean something.
    assert!(found.len() >= 20, "{} of 60 searches found a layout", found.len());
    assert!(found.iter().filter(pipeline).count() >= 8);
}

/// Ten layers on four stages: the pieces in the middle are longer, and that is as equal as possible.
#[test]
fn longer_pieces_in_the_middle_are_read() {
    let words = " --global-batch 8 --cluster dgx-a100 --fix pipe=4".to_owned();
    let text = check(&Case { layers: 10, ranks: 4, words }).unwrap();
    assert!(text.contains("stage_blocks = [2, 3, 3, 2]"), "{text}");
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("layout.toml"), text).unwrap();
    let verified = run(folder.path(), "verify --model gpt-tiny --set layers=10 --layout layout.toml");
    assert!(verified.status.success(), "{}", error(&verified));
}

/// Chunks that do not divide the layers are planned where they are asked for.
#[test]
fn uneven_interleaving_is_read() {
    let words =
        " --global-batch 8 --cluster dgx-a100 --fix pipe=2 --fix schedule=interleaved --fix chunks=2".to_owned();
    let text = check(&Case { layers: 7, ranks: 2, words }).unwrap();
    assert!(text.contains("stage_blocks = [2, 2, 2, 1]"), "{text}");
}
