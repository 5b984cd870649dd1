//! The rules of layouts without messages and without allocation, for millions of candidates.
//!
//! They are those of `Layout::new`, which says in words what is broken: a property test holds the two against each other.

use std::fmt;

use quadrille_cost::native::Candidate;
use quadrille_spec::{Activations, Axis, Linear, Model, Recompute, Schedule};

/// What a layout breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// x cuts heads and the perceptron, and keys in whole heads.
    X,
    /// y cuts the residual stream.
    Y,
    /// z cuts every weight's tile.
    Z,
    /// Each context rank has two equal pieces of a sequence.
    Context,
    /// Data cuts the batch.
    Data,
    /// Pieces of layers have a block.
    Pieces,
    /// Several chunks, and the groups of microbatches of the interleaved schedule.
    Interleaved,
    /// Microbatches cut the share of a data rank, and are cut by z, y, x and overlap chunks.
    Microbatch,
    /// SUMMA's activations, sizes and panels.
    Summa,
    /// Recomputation of more blocks than there are, or nothing to keep.
    Recompute,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::X => "x divides the heads and the perceptron's width, and cuts keys and values in whole heads",
            Self::Y => "y divides the hidden size",
            Self::Z => "z divides every weight's tile",
            Self::Context => "context cuts sequences into two equal pieces a rank",
            Self::Data => "data divides the global batch",
            Self::Pieces => "every piece of layers has a block",
            Self::Interleaved => "interleaved chunks and groups of microbatches",
            Self::Microbatch => "the microbatch is cut evenly",
            Self::Summa => "SUMMA cuts evenly into panels",
            Self::Recompute => "recomputed blocks",
        })
    }
}

/// A model with a batch: what candidates are held against.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// The model.
    pub model: &'a Model,
    /// Sequences in a step, at least 1.
    pub global_batch: usize,
    /// Tokens in a sequence, at most as many as the model has positions.
    pub seq_len: usize,
}

impl Rules<'_> {
    /// Every rule.
    ///
    /// # Errors
    /// A rule that is broken; those of the grid first.
    pub fn check(&self, candidate: &Candidate) -> Result<(), Rule> {
        self.check_grid(candidate.sizes)?;
        self.check_pass(candidate)?;
        self.check_schedule(candidate)?;
        self.check_recompute(candidate.recompute, candidate.keep_communicated)
    }

    /// What depends on the sizes of the axes alone.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check_grid(&self, [x, y, z, context, data, pipe]: [usize; 6]) -> Result<(), Rule> {
        let model = self.model;
        let (h, f) = (model.hidden, model.ffn);
        let keep = |kept: bool, rule: Rule| if kept { Ok(()) } else { Err(rule) };
        keep(pipe <= model.layers + 2, Rule::Pieces)?;
        let keys = model.kv_heads;
        let whole_keys = keys.is_multiple_of(x) || x.is_multiple_of(keys);
        keep(model.heads.is_multiple_of(x) && f.is_multiple_of(x) && whole_keys, Rule::X)?;
        keep(h.is_multiple_of(y), Rule::Y)?;
        let table = model.vocab.div_ceil(x * y) * h;
        let qkv = (model.heads + 2 * keys.max(x)) * model.head_dim();
        // Where ranks hold copies of keys, z takes whole rows of them.
        let rows = if x > keys { h / y } else { 0 };
        let tiles = [h / y * (qkv / x), h / x * (h / y), h / y * (model.up_width() / x), f * h / (x * y), table, rows];
        keep(tiles.iter().all(|tile| tile.is_multiple_of(z)), Rule::Z)?;
        keep(context == 1 || self.seq_len.is_multiple_of(2 * context), Rule::Context)?;
        keep(self.global_batch.is_multiple_of(data), Rule::Data)
    }

    /// What depends on the grid and on how a microbatch is cut in a pass: linear layers, activations, overlap chunks.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check_pass(&self, candidate: &Candidate) -> Result<(), Rule> {
        let [x, y, z, context, data, pipe] = candidate.sizes;
        let summa = candidate.linear == Linear::Summa;
        let scattered = candidate.activations == Activations::Scattered;
        if summa {
            let (panels, h, f) = (candidate.summa_panels, self.model.hidden, self.model.ffn);
            let even = |size: usize| h.is_multiple_of(size) && f.is_multiple_of(size);
            let whole = panels > 0 && panels.is_multiple_of(x) && panels.is_multiple_of(y);
            if !scattered || !even(x) || !even(y) || !whole || !even(panels) {
                return Err(Rule::Summa);
            }
        }
        if let Some(values) = self.model.patch_values {
            // Patches are embedded by a weight that is cut like the residual stream's columns.
            let columns = self.model.hidden / if summa { x } else { y };
            if !(values * columns).is_multiple_of(z) {
                return Err(Rule::Z);
            }
        }
        let (share, microbatch, chunks) = (self.global_batch / data, candidate.microbatch, candidate.overlap_chunks);
        let cut = if summa || scattered { y } else { 1 };
        let whole = microbatch > 0 && chunks > 0 && chunks <= self.global_batch;
        if !whole || !share.is_multiple_of(microbatch) || !microbatch.is_multiple_of(z * chunks * cut) {
            return Err(Rule::Microbatch);
        }
        let rows = microbatch / z * (self.seq_len / context) / chunks;
        // Between stages, and between products of scattered activations, rows are cut over x.
        let cut = !summa && (scattered || pipe > 1);
        if cut && !rows.is_multiple_of(x) { Err(Rule::Microbatch) } else { Ok(()) }
    }

    /// What depends on the pipeline: pieces of layers and microbatches.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check_schedule(&self, candidate: &Candidate) -> Result<(), Rule> {
        let (pipe, chunks) = (candidate.size(Axis::Pipe), candidate.chunks);
        let most = self.model.layers + 2;
        if chunks == 0 || chunks > most || pipe * chunks > most {
            return Err(Rule::Pieces);
        }
        let interleaved = candidate.schedule == Schedule::Interleaved;
        if chunks > 1 && (!interleaved || pipe == 1) {
            return Err(Rule::Interleaved);
        }
        // Groups are as long as the pipeline, the last too.
        let microbatches = self.global_batch / candidate.size(Axis::Data) / candidate.microbatch;
        let grouped = microbatches >= pipe && microbatches.is_multiple_of(pipe);
        if interleaved && !grouped { Err(Rule::Interleaved) } else { Ok(()) }
    }

    /// What depends on recomputation.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check_recompute(&self, recompute: Recompute, keep_communicated: bool) -> Result<(), Rule> {
        let kept = match recompute {
            Recompute::None => !keep_communicated,
            Recompute::Selective => true,
            Recompute::Full { every } => every <= self.model.layers,
        };
        if kept { Ok(()) } else { Err(Rule::Recompute) }
    }
}
