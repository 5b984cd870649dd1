//! Models, layouts and clusters as users name them: by a preset's name or a file.

use std::borrow::Cow;
use std::path::Path;

use quadrille_files::Document;
use quadrille_hugging_face::CONFIGURATION;
use quadrille_spec::{Cluster, Field, LayoutFile, Model, ModelFile, SpecError};

use crate::documents::{CLUSTER, LAYOUT, MODEL};
use crate::{OpenLayout, RunError};

/// The model of a preset or a file, with other values of some of its fields.
///
/// # Errors
/// A file that cannot be read; no such preset; a rule of models that is broken.
pub fn model(name: &str, overrides: &[(String, String)]) -> Result<Model, RunError> {
    Model::from_toml(&preset_or_file(name, &MODEL, Model::preset_text)?, overrides).map_err(named(name))
}

/// The model of a Hugging Face configuration, with other values of some of its fields.
///
/// # Errors
/// A file that cannot be read; what this program does not have.
pub fn model_of_hugging_face(path: &Path, overrides: &[(String, String)]) -> Result<Model, RunError> {
    Model::from_hugging_face(&CONFIGURATION.text(path)?, overrides).map_err(RunError::description(path))
}

/// Fields of a preset or a model file, not yet validated.
///
/// # Errors
/// A file that cannot be read, or is no model; no such preset.
pub fn model_file(name: &str) -> Result<ModelFile, RunError> {
    ModelFile::from_toml(&preset_or_file(name, &MODEL, Model::preset_text)?).map_err(named(name))
}

/// Text of a Hugging Face configuration.
///
/// # Errors
/// A file that cannot be read.
pub fn configuration(path: &Path) -> Result<String, RunError> {
    Ok(CONFIGURATION.text(path)?)
}

/// The cluster of a preset or a file.
///
/// # Errors
/// A file that cannot be read; no such preset; a rule of clusters that is broken.
pub fn cluster(name: &str) -> Result<Cluster, RunError> {
    Cluster::from_toml(&preset_or_file(name, &CLUSTER, Cluster::preset_text)?).map_err(named(name))
}

/// What a layout's file says; its choices are known, and are not yet held against a model.
///
/// # Errors
/// A file that cannot be read, or says nothing; a choice that is not known, with its line.
pub fn layout_file(path: &Path) -> Result<LayoutFile, RunError> {
    let text = LAYOUT.text(path)?;
    let file = LayoutFile::from_toml(&text).map_err(RunError::description(path))?;
    // Nobody names a file that is to say nothing: it is another one, or was cut short.
    if file.iter().next().is_none() {
        let rule = "a layout's file says at least one of its choices";
        let error = SpecError::invalid(Field::Grid.key(), "none", rule, "add it, e.g. grid = \"x=2,pipe=2\"");
        return Err(RunError::description(path)(error));
    }
    match OpenLayout::with_interval(file.clone()).request() {
        Ok(_) => Ok(file),
        Err(error) => {
            Err(RunError::Description { path: path.to_owned(), line: unknown_choice(&text), error: error.into() })
        }
    }
}

/// Whether a name looks like a file's, so that it is no preset's.
pub fn names_file(name: &str) -> bool {
    name.ends_with(".toml") || name.contains('/') || Path::new(name).is_file()
}

/// An error of what is called so: text that is no such thing is a file's, which is named.
fn named(name: &str) -> impl FnOnce(SpecError) -> RunError {
    move |error| match error {
        error @ (SpecError::Syntax { .. } | SpecError::Empty { .. }) => RunError::description(Path::new(name))(error),
        error => error.into(),
    }
}

/// The text of a preset, or of a file if the name looks like one.
fn preset_or_file(
    name: &str,
    file: &Document,
    preset: fn(&str) -> Result<&'static str, SpecError>,
) -> Result<Cow<'static, str>, RunError> {
    if names_file(name) { Ok(file.text(Path::new(name))?.into()) } else { Ok(preset(name)?.into()) }
}

/// The number of the first line that names a choice which is not known.
fn unknown_choice(text: &str) -> Option<usize> {
    let rules = |alone| OpenLayout::with_interval(alone).request().map(drop);
    let known = |line: &str| LayoutFile::from_toml(line).map_or(Ok(()), rules);
    text.lines().position(|line| known(line).is_err()).map(|index| index + 1)
}
