//! A framework's step program: its practice for a layout.

use quadrille_spec::{Layout, Model, Overlap, Recompute};
use quadrille_step::{FoldedProgram, Formats, Practice, StepError, StepProgram};

use super::{AttentionKernel, Framework, Hiding, NarrowFormat, Problem};

/// Numbers that an eager norm keeps for its backward pass beside its output, in those of activations: input and quotient in
/// f32, the quotient again.
const EAGER_NORM: u64 = 5;
/// Bytes of a master copy, where the parameter is stored in fewer.
const MASTER_BYTES: u64 = 4;
/// Bytes of two moments and a master copy.
const WITH_MASTERS: u64 = 12;

impl Problem {
    /// The step program of a layout as the framework runs it.
    ///
    /// # Errors
    /// A layout that has no program.
    pub fn program(&self, layout: &Layout) -> Result<StepProgram, StepError> {
        let (layout, practice) = self.runs(&self.model, layout);
        StepProgram::with_practice(&self.model, &layout, practice)
    }

    /// The same with the stages that differ only.
    ///
    /// # Errors
    /// A layout that has no program.
    pub fn folded(&self, layout: &Layout) -> Result<FoldedProgram, StepError> {
        self.folded_of(&self.model, layout)
    }

    /// The same of another model, some of whose blocks are this one's.
    pub(super) fn folded_of(&self, model: &Model, layout: &Layout) -> Result<FoldedProgram, StepError> {
        let (layout, practice) = self.runs(model, layout);
        StepProgram::folded(model, &layout, practice)
    }

    /// How many times the mean the fullest rank of a layout has of the rows of experts.
    pub fn imbalance_in(&self, layout: &Layout) -> f64 {
        self.imbalance.times(layout.grid.size_of(layout.experts_over))
    }

    /// What the framework does in a layout, on the rank that gets most rows of experts.
    fn runs(&self, model: &Model, layout: &Layout) -> (Layout, Practice) {
        let (layout, practice) = self.framework.runs(model, layout);
        let imbalance = self.imbalance_in(&layout);
        (layout, Practice { imbalance, ..practice })
    }
}

impl Framework {
    /// The step program of a layout as the framework runs it, where loads of experts are equal.
    ///
    /// # Errors
    /// A layout that has no program.
    pub fn program(&self, model: &Model, layout: &Layout) -> Result<StepProgram, StepError> {
        let (layout, practice) = self.runs(model, layout);
        StepProgram::with_practice(model, &layout, practice)
    }

    /// The layout as its program has it, and what it does in it.
    fn runs(&self, model: &Model, layout: &Layout) -> (Layout, Practice) {
        if self.is_own() {
            let layout = Layout { dtype: self.dtype, gradients: self.gradients, ..layout.clone() };
            let practice = Practice { sparsity: self.sparsity, ..Practice::of(&layout) };
            (layout, practice)
        } else {
            (self.layout(layout), self.practice(model, layout))
        }
    }

    /// Of another framework: where scores are stored, selective recomputation makes scores again and nothing else
    /// (Korthikanti et al. 2022, section 5), within the operation of attention.
    fn layout(&self, layout: &Layout) -> Layout {
        let recompute = if self.makes_scores_again(layout.recompute) { Recompute::None } else { layout.recompute };
        Layout { recompute, ..layout.clone() }
    }

    /// Whether attention's backward pass computes its scores again.
    fn makes_scores_again(&self, recompute: Recompute) -> bool {
        self.attention == AttentionKernel::Stored && recompute == Recompute::Selective
    }

    /// What it does in a layout, in a step program.
    fn practice(&self, model: &Model, layout: &Layout) -> Practice {
        let Overlap { reduce_scatter, all_gather, .. } = layout.overlap;
        Practice {
            formats: self.formats(model, layout),
            gathers_inputs_again: self.gathers_inputs_again,
            makes_scores_again: self.makes_scores_again(layout.recompute),
            gates_apart: self.gates_apart,
            repeats_whole_segments: self.repeats_whole_segments,
            pads_shards: true,
            gathers_blocks: self.gathers_blocks,
            scatters_in_turn: self.scatters_in_turn,
            reduces_under_backward: self.reduces_under_backward && reduce_scatter,
            gathers_in_turn: false,
            gathers_under_forward: match self.gathers_under_forward {
                Hiding::Always => true,
                Hiding::Never => false,
                Hiding::Switched => all_gather,
            },
            sums_whole: self.sums_whole,
            sparsity: None,
            imbalance: 1.0,
            reserves_expert_rows: self.reserves_expert_rows,
            counts_tokens: false,
            weighs_activations: self.weighs_activations,
        }
    }

    fn formats(&self, model: &Model, layout: &Layout) -> Formats {
        let states = self.states;
        let values = self.activation_bytes;
        let masters = if states.optimizer >= WITH_MASTERS { MASTER_BYTES } else { 0 };
        let drops = model.dropout > 0.0;
        let stored = self.attention == AttentionKernel::Stored;
        // Eager scores keep the softmax in f32 beside its conversion; dropout keeps its result and a mask.
        let softmax = if self.eager.scores { 3 } else { 1 };
        let kept = (softmax + u64::from(drops)) * values + if drops { self.mask_bytes } else { 0 };
        let again = self.makes_scores_again(layout.recompute);
        let operands_kept = self.numbers.products.map_or(0, NarrowFormat::kept_bytes);
        let [operands, operand_gradients] = self.numbers.products.map_or([values; 2], NarrowFormat::gathered_bytes);
        Formats {
            values,
            operands,
            operand_gradients,
            weights: states.weight,
            vectors: states.weight,
            gathered: states.gathered_weight,
            gradients: states.gradient,
            sent: states.sent_gradient,
            vector_gradients: states.gradient,
            sent_vectors: states.sent_gradient,
            sums: values,
            logits: self.loss_bytes,
            masters,
            moments: states.optimizer - masters,
            masks: self.mask_bytes,
            scores: if stored && !again { kept } else { 0 },
            scores_meanwhile: if stored { values + if again { kept } else { 0 } } else { 0 },
            norms: if self.eager.norms { EAGER_NORM * values } else { 0 },
            gates: if self.eager.pointwise { values } else { 0 },
            kept_operands: if self.keeps_cast_operands { operands_kept } else { 0 },
        }
    }
}
