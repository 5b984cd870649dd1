//! The extension of the Python package `quadrille`: questions in the words of the command line, answers as JSON.
//!
//! Python makes words of keywords and dataclasses of documents; nothing is decided here. Work runs on a thread of its own and
//! without the interpreter's lock (`apart.rs`); a run's callback is called on the thread that has asked for the run (`training.rs`).

mod apart;
mod training;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use quadrille::run::layout_of_json;
use quadrille::spec::Model;
use quadrille_cli::command_line::{self, Failure, Flag};

use crate::apart::apart;

/// The extension `quadrille._quadrille`.
#[pymodule]
mod _quadrille {
    #[pymodule_export]
    use super::training::train;
    #[pymodule_export]
    use super::{cluster_names, document, flags, layout_file, model_names, model_of_hugging_face};
}

/// What a command finds, as JSON; an interruption is raised at once, and ends searches.
#[pyfunction]
fn document(py: Python<'_>, words: Vec<String>) -> PyResult<String> {
    let found = apart(py, move |cancel| command_line::document_until(&words, cancel))?;
    found.map(|document| document.to_string()).map_err(|failure| raised(py, &failure))
}

/// The flags of a command: name, whether a value may follow, whether it may be repeated.
#[pyfunction]
fn flags(command: Vec<String>) -> Vec<(String, bool, bool)> {
    let flags = command_line::flags(&command).into_iter();
    flags.map(|Flag { name, takes_value, repeats }| (name, takes_value, repeats)).collect()
}

/// The model of a configuration of Hugging Face, as JSON.
#[pyfunction]
fn model_of_hugging_face(py: Python<'_>, config: &str) -> PyResult<String> {
    let model = Model::from_hugging_face(config, &[]);
    let model = model.map_err(|error| raised(py, &Failure::usage(format!("config.json: {error}"))))?;
    serde_json::to_string(&model).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The text of a layout file, of a layout as documents show it.
#[pyfunction]
fn layout_file(py: Python<'_>, layout: &str) -> PyResult<String> {
    let refused = |error: String| raised(py, &Failure::usage(format!("layout: {error}")));
    let shown = serde_json::from_str(layout).and_then(layout_of_json).map_err(|error| refused(error.to_string()))?;
    shown.to_toml().map_err(|error| refused(error.to_string()))
}

/// The models that have a name.
#[pyfunction]
fn model_names() -> Vec<String> {
    Model::preset_names().map(str::to_owned).collect()
}

/// The clusters that have a name.
#[pyfunction]
fn cluster_names() -> Vec<String> {
    quadrille::spec::Cluster::preset_names().map(str::to_owned).collect()
}

/// A failure as the exception of its kind, which `quadrille.errors` has.
fn raised(py: Python<'_>, failure: &Failure) -> PyErr {
    let name = if failure.exit_code() == 2 { "InputError" } else { "WorkError" };
    let exception = py.import("quadrille.errors").and_then(|errors| errors.getattr(name)?.call1((failure.message(),)));
    exception.map_or_else(|error| error, PyErr::from_value)
}
