//! What is said when a run goes on.

use std::path::PathBuf;

use quadrille_data::{Documents, Goldfish, InputFormat, SpecialTokens, TokenizerChoice};
use quadrille_engine::{DivergencePolicy, LossScale, OnDivergence, OnSaveFailure};
use quadrille_spec::{Collectives, Model, Offload, Tier};

use super::{
    CheckpointSpec, CollectivesSpec, DataPath, DataSpec, HeldOut, LayoutSpec, OptimizerSpec, OutputSpec, RunSpec,
    StartSpec, StatesSpec, TuningSpec, ValidationSpec,
};

/// What is to be other than when the run began or last went on; what is `None` stays. To take something away, go on with a
/// changed specification ([`crate::Prepared::resume_as`]). A run keeps its model and seed once it
/// has a checkpoint: others are refused.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunChanges {
    /// [`RunSpec::model`].
    pub model: Option<Model>,
    /// [`RunSpec::layout`].
    pub layout: Option<LayoutSpec>,
    /// [`RunSpec::start`], for a run that has no checkpoint yet.
    pub start: Option<StartSpec>,
    /// [`RunSpec::steps`].
    pub steps: Option<u64>,
    /// [`RunSpec::seed`].
    pub seed: Option<u64>,
    /// [`RunSpec::optimizer`].
    pub optimizer: Option<OptimizerSpec>,
    /// [`RunSpec::data`].
    pub data: DataChanges,
    /// [`ValidationSpec::every`].
    pub validate_every: Option<u64>,
    /// [`ValidationSpec::batches`].
    pub validation_batches: Option<u64>,
    /// [`CheckpointSpec::every`].
    pub checkpoint_every: Option<u64>,
    /// [`CheckpointSpec::keep`].
    pub keep: Option<usize>,
    /// [`CheckpointSpec::on_failure`].
    pub on_save_failure: Option<OnSaveFailure>,
    /// What is done with a step that is not applied.
    pub on_divergence: Option<OnDivergence>,
    /// The largest loss that is applied, as a multiple of the usual one.
    pub largest_loss: Option<f64>,
    /// [`RunSpec::loss_scale`].
    pub loss_scale: Option<LossScale>,
    /// [`CollectivesSpec::algorithm`].
    pub collectives: Option<Collectives>,
    /// [`CollectivesSpec::tiers`], those of another cluster.
    pub tiers: Option<Vec<Tier>>,
    /// [`RunSpec::tuning`].
    pub tuning: Option<TuningSpec>,
    /// [`RunSpec::states`]. A layout that keeps them on the device takes the files back.
    pub states: Option<StatesSpec>,
    /// [`RunSpec::threads`].
    pub threads: Option<usize>,
    /// [`RunSpec::timeout`].
    pub timeout: Option<f64>,
    /// [`OutputSpec::log`]: begun anew. One that stays is gone on with.
    pub log: Option<PathBuf>,
    /// [`OutputSpec::trace`].
    pub trace: Option<PathBuf>,
}

/// What is to be read other than before; what is `None` stays.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DataChanges {
    /// [`DataSpec::paths`].
    pub paths: Option<Vec<DataPath>>,
    /// [`DataSpec::tokenizer`].
    pub tokenizer: Option<TokenizerChoice>,
    /// [`DataSpec::text_field`].
    pub text_field: Option<String>,
    /// [`DataSpec::format`].
    pub format: Option<InputFormat>,
    /// [`DataSpec::binary`].
    pub binary: Option<bool>,
    /// [`DataSpec::skip_bad_lines`].
    pub skip_bad_lines: Option<bool>,
    /// [`SpecialTokens::parsed`].
    pub parse_special: Option<bool>,
    /// [`DataSpec::documents`].
    pub documents: Option<Documents>,
    /// [`DataSpec::held_out`].
    pub held_out: Option<HeldOut>,
    /// [`DataSpec::goldfish`].
    pub goldfish: Option<Goldfish>,
    /// [`DataSpec::cache`].
    pub cache: Option<PathBuf>,
}

/// Parts of the data that have to be equal in a continued run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataComparison {
    /// The samples, and so the content of files and the way to read them.
    Samples,
    /// The content of files.
    Files,
    /// Nothing: the data are named anew.
    Nothing,
}

impl DataChanges {
    /// Data of the continued run that have to be those of the run so far, which `before` describes: all, but where files are named
    /// anew, or are to be read otherwise.
    pub fn comparison(&self, before: &DataSpec) -> DataComparison {
        let differs = |changed: &DataSpec| {
            let other = DataSpec { goldfish: before.goldfish, cache: before.cache.clone(), ..changed.clone() };
            other != *before
        };
        if self.paths.is_some() || self.held_out.is_some() {
            DataComparison::Nothing
        } else if differs(&self.clone().apply(before.clone())) {
            DataComparison::Files
        } else {
            DataComparison::Samples
        }
    }

    /// What is read from now on.
    #[must_use]
    pub fn apply(self, before: DataSpec) -> DataSpec {
        DataSpec {
            paths: self.paths.unwrap_or(before.paths),
            tokenizer: self.tokenizer.or(before.tokenizer),
            text_field: self.text_field.unwrap_or(before.text_field),
            format: self.format.unwrap_or(before.format),
            binary: self.binary.unwrap_or(before.binary),
            skip_bad_lines: self.skip_bad_lines.unwrap_or(before.skip_bad_lines),
            special: SpecialTokens { parsed: self.parse_special.unwrap_or(before.special.parsed), ..before.special },
            documents: self.documents.unwrap_or(before.documents),
            held_out: self.held_out.unwrap_or(before.held_out),
            goldfish: self.goldfish.or(before.goldfish),
            cache: self.cache.unwrap_or(before.cache),
        }
    }
}

impl RunChanges {
    /// What decides the run from now on, of one that `before` has decided.
    #[must_use]
    pub fn apply(self, before: RunSpec) -> RunSpec {
        let loss_scale = self.loss_scale_after(&before);
        let layout = self.layout.unwrap_or(before.layout);
        let states = match (self.states, layout.layout.offload) {
            (Some(said), _) => said,
            (None, Offload::None) => StatesSpec::Memory,
            (None, _) => before.states,
        };
        RunSpec {
            model: self.model.unwrap_or(before.model),
            layout,
            start: self.start.unwrap_or(before.start),
            steps: self.steps.unwrap_or(before.steps),
            seed: self.seed.unwrap_or(before.seed),
            optimizer: self.optimizer.unwrap_or(before.optimizer),
            data: self.data.apply(before.data),
            validation: ValidationSpec {
                every: self.validate_every.unwrap_or(before.validation.every),
                batches: self.validation_batches.unwrap_or(before.validation.batches),
            },
            checkpoints: CheckpointSpec {
                every: self.checkpoint_every.or(before.checkpoints.every),
                keep: self.keep.unwrap_or(before.checkpoints.keep),
                on_failure: self.on_save_failure.unwrap_or(before.checkpoints.on_failure),
            },
            divergence: DivergencePolicy {
                action: self.on_divergence.unwrap_or(before.divergence.action),
                largest_loss: self.largest_loss.or(before.divergence.largest_loss),
            },
            loss_scale,
            collectives: CollectivesSpec {
                algorithm: self.collectives.unwrap_or(before.collectives.algorithm),
                tiers: self.tiers.unwrap_or(before.collectives.tiers),
            },
            tuning: self.tuning.unwrap_or(before.tuning),
            states,
            threads: self.threads.or(before.threads),
            timeout: self.timeout.unwrap_or(before.timeout),
            outputs: OutputSpec { log: self.log.or(before.outputs.log), trace: self.trace.or(before.outputs.trace) },
        }
    }

    /// What is said; else what was before, or what is usual of the type where that is now another one.
    fn loss_scale_after(&self, before: &RunSpec) -> Option<LossScale> {
        let dtype = |layout: &LayoutSpec| layout.layout.dtype;
        let now = self.layout.as_ref().map_or(dtype(&before.layout), dtype);
        let usual = if now == dtype(&before.layout) { before.loss_scale } else { LossScale::usual(now) };
        self.loss_scale.or(usual)
    }
}
