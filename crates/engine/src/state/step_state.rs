//! State of the step under way: its number and microbatch, its samples, expert queues and totals.

use quadrille_spec::{Axis, Dropout};
use quadrille_step::{Collective, DropoutSite, Layer, Loads, Parts, Queues, ValueId, Verdict, Write};
use quadrille_tensor::Shape;

use super::samples::{BatchCounts, MicrobatchSamples};
use crate::backend::{ElementMask, Positions};
use crate::generate::PassPositions;
use crate::rank_program::RankProgram;
use crate::{Backend, Rows, Totals};

/// The step that a rank executes, and what operations depend on beside their operands.
pub(crate) struct StepState<'a, B: Backend> {
    pub rank: RankProgram<'a>,
    /// Keys dropout.
    pub seed: u64,
    /// Counted from 1; 0 before the first step.
    pub number: u64,
    pub microbatch: usize,
    /// The layer of the operation that is executed.
    pub layer: Layer,
    pub samples: MicrobatchSamples<B>,
    /// Sequences of the global batch, from its first on, that count: all of them except in an evaluation's last batch.
    pub sequences: usize,
    /// Counts of the step's global batch, if its routers need them: this rank's until they are summed.
    pub counts: Option<BatchCounts>,
    /// Positions of a pass of generation.
    pub pass: PassPositions,
    /// Queues of experts that drop nothing, of the last pass over each microbatch.
    pub loads: Loads,
    /// Totals of the last step that was done.
    pub totals: Totals,
    /// Outcome of the last update, if it was begun before the norm was known.
    pub verdict: Verdict,
    /// Number of choices of each expert in the step, of all blocks.
    pub chosen: Vec<u64>,
}

impl<'a, B: Backend> StepState<'a, B> {
    /// The state before the first step.
    pub fn new(rank: RankProgram<'a>, seed: u64) -> Self {
        Self {
            rank,
            seed,
            number: 0,
            microbatch: 0,
            layer: Layer::Step,
            samples: MicrobatchSamples::default(),
            sequences: rank.program.layout.global_batch,
            counts: None,
            pass: PassPositions::default(),
            loads: Loads::new(),
            totals: Totals::default(),
            verdict: Verdict::default(),
            chosen: Vec::new(),
        }
    }

    /// Tokens of the step's global batch, without padding.
    pub fn tokens(&self) -> f64 {
        let all = self.rank.program.layout.tokens_per_step() as f64;
        self.counts.map_or(all, |counts| counts.tokens)
    }

    /// The first sequence, in the global batch, of this rank's part of the current microbatch.
    pub fn first_sequence(&self) -> usize {
        self.rank.first_sequence(self.microbatch)
    }

    /// Sequences of this rank's part of the current microbatch, from its first on, that count.
    pub fn counted_sequences(&self) -> usize {
        let layout = &self.rank.program.layout;
        let own = layout.microbatch / layout.grid.size(Axis::Z);
        self.sequences.saturating_sub(self.first_sequence()).min(own)
    }

    /// Rows of a value, from its first on, that belong to sequences that count.
    pub fn counted_rows(&self, id: ValueId) -> usize {
        let rows = self.rank.sample_rows(id);
        let tokens = self.rank.context_part().tokens(self.rank.program.layout.seq_len);
        (self.counted_sequences() * tokens).clamp(rows.start, rows.end) - rows.start
    }

    /// Position in the global batch of a value's rows.
    pub fn rows_of(&self, id: ValueId) -> Rows {
        self.rank.rows_of(id, self.microbatch)
    }

    /// The positions of a value's rows in their sequences.
    pub fn positions(&self, id: ValueId) -> Positions<'_> {
        self.pass.of(self.rows_of(id))
    }

    /// The queues of the current pass whose rows a value has.
    pub fn queues_of(&self, id: ValueId) -> Option<&Queues> {
        let counts = self.rank.value(id).counts?;
        self.loads.get(&(counts, self.microbatch))
    }

    /// Rows of a value on this rank.
    pub fn local_rows(&self, id: ValueId) -> usize {
        let value = self.rank.value(id);
        let layout = &self.rank.program.layout;
        self.queues_of(id).map_or(value.local_rows, |queues| queues.rows(value, layout, self.rank.place))
    }

    /// Elements of a value on this rank.
    pub fn local_elements(&self, id: ValueId) -> usize {
        let value = self.rank.value(id);
        self.queues_of(id).map_or(value.local_elements, |_| self.local_rows(id) * value.local_cols)
    }

    /// Local rows and columns.
    pub fn shape(&self, id: ValueId) -> Shape {
        Shape { rows: self.local_rows(id), cols: self.rank.value(id).local_cols }
    }

    /// The parts in which a collective moves rows of queues; `None` for other collectives.
    pub fn queue_parts(&self, collective: &Collective) -> Option<Parts> {
        self.queues_of(collective.input)?.parts(self.rank.program, collective, self.rank.place)
    }

    /// True if a write adds to the present contents.
    pub fn accumulates(&self, write: Write) -> bool {
        match write {
            Write::Overwrite => false,
            Write::Accumulate => true,
            Write::AccumulateMicrobatches => self.microbatch > 0,
        }
    }

    /// The dropout of this step at a site.
    pub fn dropout(&self, site: DropoutSite) -> Dropout {
        Dropout::new(self.seed, &site.to_string(), self.number, self.rank.program.model.dropout)
    }

    /// A dropout over the elements of a value.
    pub fn element_mask(&self, site: DropoutSite, id: ValueId) -> ElementMask {
        let dropout = self.dropout(site);
        let rows = self.rows_of(id);
        let first_col = self.rank.first_col(id);
        ElementMask { dropout, rows, first_col, cols: self.rank.value(id).cols }
    }
}
