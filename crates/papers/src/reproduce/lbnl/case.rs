//! Searches of the paper.

use std::fmt;

use quadrille_spec::{Model, SpecError};
use serde::Deserialize;

use crate::lbnl::{Configuration, PUBLISHED_BATCH, Ranked, Search, Shape, System, training_steps};

/// Tensor sizes, stages and microbatch.
pub type Sizes = [u64; 4];

/// A search, in the words of the published outputs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub strategy: String,
    pub model: String,
    pub gpu: String,
    pub nvs: u64,
    pub gpus: u64,
    #[serde(default = "published_batch")]
    pub batch: u64,
}

fn published_batch() -> u64 {
    PUBLISHED_BATCH
}

impl fmt::Display for Case {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let Self { strategy, model, gpu, nvs, gpus, .. } = self;
        write!(formatter, "{strategy} {model}, {gpus} {gpu} nvs {nvs}")
    }
}

impl Case {
    pub fn search(&self) -> Result<Search, SpecError> {
        let system = System::named(&self.gpu)?.with_fast_domain(self.nvs)?;
        Search::new(Shape::named(&self.model)?, system, self.strategy.parse()?, self.gpus, self.batch)
    }

    /// The fastest configuration that fits.
    pub fn best(&self) -> Result<Ranked, SpecError> {
        self.search()?.run(1).ranked.first().copied().ok_or_else(|| self.without_configuration())
    }

    /// The fastest configuration, whether or not it fits, of these sizes.
    pub fn fastest(&self, sizes: Sizes) -> Result<Ranked, SpecError> {
        let mut fastest: Option<Ranked> = None;
        self.search()?.for_each(|ranked| {
            let Configuration { cut, pipe, .. } = ranked.configuration;
            let found = [cut.hidden.size, cut.sequence.size, pipe.size, cut.microbatch];
            if found == sizes && fastest.is_none_or(|fastest| ranked < fastest) {
                fastest = Some(ranked);
            }
        });
        fastest.ok_or_else(|| self.without_configuration())
    }

    pub fn without_configuration(&self) -> SpecError {
        SpecError::invalid("published figures", self, "there is a configuration of it", "correct the case")
    }
}

/// Days of the paper's training in steps of `seconds`.
pub fn days(case: &Case, seconds: f64) -> Result<f64, SpecError> {
    let preset = Shape::PUBLISHED.iter().find(|(published, _)| *published == case.model);
    let model = Model::preset(preset.map_or(case.model.as_str(), |(_, preset)| preset))?;
    Ok(seconds * training_steps(&model, case.batch) / 86_400.0)
}
