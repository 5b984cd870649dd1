//! Files of tuned products: written by the run that measures, replayed by later ones.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use quadrille_engine::MatmulChoices;
use quadrille_files::{beside, publish};
use quadrille_spec::ElementType;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::refusal::{Refusal, Setting};
use crate::{RunError, TuningSpec, documents};

/// Counts changes of the format.
const VERSION: u32 = 1;

/// What makes choices comparable, and the choices.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    dtype: ElementType,
    /// Of each rank.
    threads: usize,
    choices: MatmulChoices,
}

/// The part of every version.
#[derive(Deserialize)]
struct Header {
    version: u32,
}

/// What is done about the layouts of products.
pub enum Tuning {
    /// Products run as their operands are stored.
    Off,
    /// Measure before the first step; without a file for this run only.
    Measure(Option<Recorder>),
    /// Use the choices of an earlier run.
    Replay(MatmulChoices),
}

impl Tuning {
    /// Reads the file, or makes sure that it can be written. `threads` are those of each rank.
    pub fn open(spec: &TuningSpec, dtype: ElementType, threads: usize) -> Result<Self, RunError> {
        match spec {
            TuningSpec::Off => Ok(Self::Off),
            TuningSpec::Measure => Ok(Self::Measure(None)),
            TuningSpec::File(path) if path.exists() => Ok(Self::Replay(replayed(path, dtype, threads)?)),
            TuningSpec::File(path) => Ok(Self::Measure(Some(Recorder::new(path, dtype, threads)?))),
        }
    }
}

fn replayed(path: &Path, dtype: ElementType, threads: usize) -> Result<MatmulChoices, RunError> {
    let shown = path.display();
    let text = documents::TUNED.text(path)?;
    let foreign = |error: serde_json::Error| {
        Refusal::new(format!("cannot read {shown}: no tuned products: {error}; delete it to measure them anew"))
    };
    let Header { version } = serde_json::from_str(&text).map_err(foreign)?;
    if version != VERSION {
        return Err(Refusal::new(format!(
            "{shown} holds tuned products of version {version}, this program reads version {VERSION}; delete it to measure \
             them anew"
        ))
        .into());
    }
    let document: Document = serde_json::from_str(&text).map_err(foreign)?;
    if (document.dtype, document.threads) != (dtype, threads) {
        let with = |refusal: Refusal, dtype, threads| {
            let refusal = refusal.name(Setting::Dtype).text(format!(" {dtype} "));
            refusal.name(Setting::Threads).text(format!(" {threads}"))
        };
        let refusal = Refusal::new(format!("{shown} was tuned with "));
        let refusal = with(refusal, document.dtype, document.threads).text(", this run has ");
        return Err(with(refusal, dtype, threads).text("; use the same, or name another file").into());
    }
    Ok(document.choices)
}

/// A file to be: written beside, synced, renamed, so that a reader never sees half of it. It is opened before ranks
/// start, so that a path that cannot be written is found before the work; dropped, it leaves nothing.
pub struct Recorder {
    path: PathBuf,
    temporary: NamedTempFile,
    dtype: ElementType,
    threads: usize,
}

impl Recorder {
    fn new(path: &Path, dtype: ElementType, threads: usize) -> Result<Self, RunError> {
        let unwritable = |error: io::Error| {
            Refusal::new(format!("cannot write {}: {}", path.display(), quadrille_files::reason(&error)))
        };
        let temporary = beside(path).map_err(unwritable)?;
        Ok(Self { path: path.to_owned(), temporary, dtype, threads })
    }

    /// Writes the choices under the path's name.
    pub fn persist(self, choices: &MatmulChoices) -> Result<(), RunError> {
        let Self { path, mut temporary, dtype, threads } = self;
        let document = Document { version: VERSION, dtype, threads, choices: choices.clone() };
        let text = serde_json::to_string_pretty(&document).map_err(RunError::Document)?;
        let written = writeln!(temporary, "{text}").and_then(|()| publish(temporary, &path));
        written.map_err(RunError::unwritten(&path))
    }
}

#[cfg(test)]
mod tests {
    use quadrille_spec::Named;

    use super::*;

    fn message(result: Result<Tuning, RunError>) -> String {
        match result {
            Err(RunError::Refused(refusal)) => refusal.spelled(|setting| format!("--{}", setting.key())),
            Err(other) => panic!("no fault of the input: {other:?}"),
            Ok(_) => panic!("accepted"),
        }
    }

    #[test]
    fn what_is_recorded_is_replayed_by_the_same_type_and_threads_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tuned.json");
        let open = |dtype, threads| Tuning::open(&TuningSpec::File(path.clone()), dtype, threads);
        let Ok(Tuning::Measure(Some(recorder))) = open(ElementType::F32, 2) else { panic!("a new file") };
        assert!(!path.exists());
        recorder.persist(&MatmulChoices::default()).unwrap();
        let Ok(Tuning::Replay(choices)) = open(ElementType::F32, 2) else { panic!("the file is there") };
        assert_eq!(choices, MatmulChoices::default());
        for (dtype, threads, run) in
            [(ElementType::F64, 2, "dtype f64 --threads 2"), (ElementType::F32, 1, "dtype f32 --threads 1")]
        {
            let message = message(open(dtype, threads));
            assert!(message.contains("dtype f32 --threads 2, this run") && message.contains(run), "{message}");
        }
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("\"version\": 1", "\"more\": 3, \"version\": 2")).unwrap();
        assert!(message(open(ElementType::F32, 2)).contains("of version 2, this program reads version 1"));
        std::fs::write(&path, text.replace("\"version\"", "\"more\": 3, \"version\"")).unwrap();
        assert!(message(open(ElementType::F32, 2)).contains("unknown field `more`"));
    }

    #[test]
    fn a_path_that_cannot_be_written_is_found_at_once_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing/tuned.json");
        let message = message(Tuning::open(&TuningSpec::File(path.clone()), ElementType::F32, 1));
        let cause = folder.path().join("missing").metadata().unwrap_err();
        assert_eq!(message, format!("cannot write {}: {cause}", path.display()));
    }

    #[test]
    fn a_run_that_fails_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        drop(Tuning::open(&TuningSpec::File(folder.path().join("tuned.json")), ElementType::F32, 1).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
