//! A model and the constants of its training, as users describe them: a name or a file, and fields in place of its own.

use std::path::Path;

use quadrille_spec::{Model, ModelFile, SpecError};

use crate::{OptimizerSpec, Refusal, RunError, described};

/// A model with its training constants.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The model.
    pub model: Model,
    /// The constants of its training.
    pub optimizer: OptimizerSpec,
}

/// Where a model is from.
#[derive(Debug, Clone, Copy)]
pub enum ModelSource<'a> {
    /// A preset's name or a file ([`described::model`]).
    Named(&'a str),
    /// A Hugging Face configuration ([`described::model_of_hugging_face`]).
    HuggingFace(&'a Path),
    /// It is known.
    Known(&'a Model),
}

impl Settings {
    /// A model and training constants, of which each text of `set` replaces a field, as `layers=4` or `weight_decay=0`.
    ///
    /// ```
    /// use quadrille_engine::Hyper;
    /// use quadrille_run::{ModelSource, Settings};
    ///
    /// let set = ["layers=1".to_owned(), "clip=2".to_owned()];
    /// let settings = Settings::new(ModelSource::Named("gpt-tiny"), &set, Hyper::default().into())?;
    /// assert_eq!((settings.model.layers(), settings.optimizer.clip), (1, Some(2.0)));
    /// # Ok::<(), quadrille_run::RunError>(())
    /// ```
    ///
    /// # Errors
    /// A file that cannot be read; no such preset or field; a rule that is broken.
    pub fn new(of: ModelSource, set: &[String], optimizer: OptimizerSpec) -> Result<Self, RunError> {
        let (optimizer, fields) = Self::replaced(set, optimizer)?;
        let model = match of {
            ModelSource::Named(name) => described::model(name, &fields)?,
            ModelSource::HuggingFace(path) => described::model_of_hugging_face(path, &fields)?,
            ModelSource::Known(model) => {
                let mut file = ModelFile::of(model);
                fields.iter().try_for_each(|(field, value)| file.set(field, value))?;
                file.validate()?
            }
        };
        Ok(Self { model, optimizer })
    }

    /// What `set` makes of training constants, and the fields of a model that it replaces.
    ///
    /// # Errors
    /// No such field; a rule of the constants that is broken.
    pub fn replaced(
        set: &[String],
        mut optimizer: OptimizerSpec,
    ) -> Result<(OptimizerSpec, Vec<(String, String)>), RunError> {
        let mut fields = Vec::new();
        for (key, value) in assignments(set)? {
            if ModelFile::knows(&key) {
                fields.push((key, value));
            } else if !optimizer.set(&key, &value)? {
                let known = ModelFile::FIELDS.into_iter().chain(OptimizerSpec::names()).map(str::to_owned).collect();
                return Err(SpecError::Unknown { what: "field", name: key, known }.into());
            }
        }
        Ok((optimizer, fields))
    }

    /// The fields of a model that `set` replaces, where nothing is trained.
    ///
    /// # Errors
    /// No such field of models.
    pub fn replaced_of_model(set: &[String]) -> Result<Vec<(String, String)>, RunError> {
        let fields = assignments(set)?;
        match fields.iter().find(|(key, _)| !ModelFile::knows(key)) {
            None => Ok(fields),
            Some((key, _)) => {
                let known = ModelFile::FIELDS.map(str::to_owned).to_vec();
                Err(SpecError::Unknown { what: "model field", name: key.clone(), known }.into())
            }
        }
    }
}

/// The keys and values of texts `key=value`.
///
/// # Errors
/// A text without `=`.
pub fn assignments(set: &[String]) -> Result<Vec<(String, String)>, Refusal> {
    let assignment = |text: &String| match text.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(Refusal::new(format!("`run.set` {text}: write it as key=value"))),
    };
    set.iter().map(assignment).collect()
}
