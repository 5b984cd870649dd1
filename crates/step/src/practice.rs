//! What a framework does in a layout beyond what the layout says: how numbers are stored, what is kept, and when it is sent.
//! This program's engine has a practice like others.

use quadrille_spec::{AxisSet, ElementType, Layout, Sparsity};

use crate::Format;

/// How a framework runs a layout.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Practice {
    /// How numbers are stored.
    pub formats: Formats,
    /// Whether the inputs of products that scattered activations gather are gathered again for the backward pass, under the
    /// product of the input gradient; else they are kept (Korthikanti et al. 2022, section 4.2.2).
    pub gathers_inputs_again: bool,
    /// Whether the backward pass of attention computes the scores again, which its forward pass has not kept (section 5
    /// there). It is part of one operation: prices alone ask.
    pub makes_scores_again: bool,
    /// Whether both halves of a gated perceptron's first matrix are matrices of their own to the backward pass: each gives its input
    /// gradient, which is summed over the axes that cut it before both are added, where inputs are neither scattered nor panels of
    /// SUMMA, and no experts'. Prices alone ask: no engine runs it.
    pub gates_apart: bool,
    /// Whether full recomputation repeats the last product of a segment too, whose result nobody needs again.
    pub repeats_whole_segments: bool,
    /// Whether shards over z are padded to equal lengths; else z has to divide what it cuts.
    pub pads_shards: bool,
    /// Whether the weights of a block are gathered over z together and stay until its pass ends.
    pub gathers_blocks: bool,
    /// Whether ORS waits for the scattering of a gradient where the next one begins; else at the end of the backward pass.
    pub scatters_in_turn: bool,
    /// Whether the reductions of gradients that come once a step run under the last microbatch's backward pass.
    pub reduces_under_backward: bool,
    /// Whether each of ZeRO's gathers of updated weights begins when its parameter is updated; else when all are.
    pub gathers_in_turn: bool,
    /// Whether ZeRO's gathers of updated weights run under the next step's first forward pass.
    pub gathers_under_forward: bool,
    /// The axes over which ZeRO shards states, where gradients are summed whole on all ranks that replicate a parameter; else they
    /// are scattered, over all axes that replicate it.
    pub sums_whole: Option<AxisSet>,
    /// How much of the matrices of blocks is pruned, where it is asked before there are masks: what is kept of a tile is then
    /// an estimate, and no engine runs it.
    pub sparsity: Option<Sparsity>,
    /// How many times the rows that equal loads bring come to this rank's experts that drop nothing, as far as tokens can choose
    /// it so often: at least 1. More than 1 is the fullest rank of others that have fewer: of use to prices, and no engine runs it.
    pub imbalance: f64,
    /// True if buffers of experts that drop nothing are reserved for the most rows that tokens may choose, as far as
    /// [`Layout::expert_rows`] lets them; else they have the rows that are routed: those of equal loads, times [`Self::imbalance`].
    pub reserves_expert_rows: bool,
    /// True if ranks sum their numbers of tokens and targets before the first pass of a step with experts, whose routers' losses are
    /// means over the tokens that are no padding.
    pub counts_tokens: bool,
    /// True if the weights of a router scale the results of the experts' activation function, so that nothing needs the results of
    /// their last product for the backward pass; else these are scaled, and kept. Used by prices alone: no engine runs it.
    pub weighs_activations: bool,
}

/// Bytes of an element, by what numbers are for; of what is not kept at all 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Formats {
    /// Activations and their gradients, and what is packed of them.
    pub values: u64,
    /// Activations of a block on their way to products, gathered over axes that cut weights; whoever reads them has them as values.
    pub operands: u64,
    /// The same of their gradients.
    pub operand_gradients: u64,
    /// Matrices and tables as they are stored.
    pub weights: u64,
    /// Parameters of norms and biases.
    pub vectors: u64,
    /// What is gathered of a parameter over z.
    pub gathered: u64,
    /// Gradients of matrices and tables, in which microbatches are summed.
    pub gradients: u64,
    /// The same on their way.
    pub sent: u64,
    /// Gradients of vectors.
    pub vector_gradients: u64,
    /// The same on their way.
    pub sent_vectors: u64,
    /// Sums over rows.
    pub sums: u64,
    /// Logits, with their copies at the worst moment of the loss.
    pub logits: u64,
    /// Master copies of parameters that are stored in fewer bytes; others are their own masters.
    pub masters: u64,
    /// Both moments of a parameter that a rank updates.
    pub moments: u64,
    /// Masks of dropout, by elements that it may zero.
    pub masks: u64,
    /// What attention keeps of a score: a query and a key of a head.
    pub scores: u64,
    /// What its backward pass has of a score meanwhile.
    pub scores_meanwhile: u64,
    /// What a norm keeps beside its operands, by elements of its result.
    pub norms: u64,
    /// What a gated activation function keeps beside its operands, by elements of its result.
    pub gates: u64,
    /// Copy of the input of a block's product that is kept for the weight gradient, where ranks have the input itself and did not
    /// gather it; 0: the input is kept.
    pub kept_operands: u64,
}

impl Formats {
    /// As this program's engine stores numbers whose values are of type `dtype` and whose gradients of weights are of type
    /// `gradients`. What is computed in stores the sums over rows, all vectors, masters and moments. Nothing is kept that can
    /// be drawn or computed again.
    pub fn of(dtype: ElementType, gradients: ElementType) -> Self {
        let values = dtype.bytes();
        let real = dtype.real().bytes();
        let gradients = gradients.bytes();
        Self {
            values,
            operands: values,
            operand_gradients: values,
            weights: values,
            vectors: real,
            gathered: values,
            gradients,
            sent: gradients,
            vector_gradients: real,
            sent_vectors: real,
            sums: real,
            logits: values,
            masters: if dtype.is_narrow() { real } else { 0 },
            moments: 2 * real,
            masks: 0,
            scores: 0,
            scores_meanwhile: 0,
            norms: 0,
            gates: 0,
            kept_operands: 0,
        }
    }

    /// Whether an engine that stores numbers as `own` can run programs with these: they differ in what is kept alone, and
    /// that is of values.
    pub fn run_as(&self, own: &Self) -> bool {
        let keeps = [self.masks, self.scores, self.scores_meanwhile, self.norms, self.gates];
        let Self { masks, scores, scores_meanwhile, norms, gates, .. } = *self;
        keeps.iter().all(|bytes| [0, own.values].contains(bytes))
            && *self == Self { masks, scores, scores_meanwhile, norms, gates, ..*own }
    }

    /// Bytes of an element that is for this.
    pub fn bytes(&self, format: Format) -> u64 {
        match format {
            Format::Values | Format::Operands | Format::OperandGradients => self.values,
            Format::Weights => self.weights,
            Format::Vectors => self.vectors,
            Format::Gathered => self.gathered,
            Format::Gradients => self.gradients,
            Format::Sent => self.sent,
            Format::VectorGradients => self.vector_gradients,
            Format::SentVectors => self.sent_vectors,
            Format::Sums => self.sums,
            Format::Logits => self.logits,
            Format::Masks => self.masks,
            Format::Scores => self.scores,
            Format::ScoresMeanwhile => self.scores_meanwhile,
            Format::Norms => self.norms,
            Format::Gates => self.gates,
            Format::KeptOperands => self.kept_operands,
        }
    }
}

impl Practice {
    /// This program's engine.
    pub fn of(layout: &Layout) -> Self {
        Self {
            formats: Formats::of(layout.dtype, layout.gradients),
            gathers_inputs_again: false,
            makes_scores_again: false,
            gates_apart: false,
            repeats_whole_segments: false,
            pads_shards: false,
            gathers_blocks: false,
            scatters_in_turn: false,
            reduces_under_backward: false,
            gathers_in_turn: true,
            gathers_under_forward: true,
            sums_whole: None,
            sparsity: None,
            imbalance: 1.0,
            reserves_expert_rows: true,
            counts_tokens: true,
            weighs_activations: false,
        }
    }
}
