//! A framework's table of costs: which operations of a step program are other kernels than this program's engine has, and
//! what those move. Counted from their definitions.

use std::ops::RangeInclusive;

use quadrille_spec::Axis;
use quadrille_step::{At, Computation, Format, GemmPass, Operation, StageProgram, ValueId, Work, Write, kind};

use super::machine::NativeMachine;
use super::rates::Taken;
use super::{AttentionKernel, Framework};

/// Elements of 16 bits that the kernels of an eager norm move per element of the stream, beyond what one kernel does. From
/// their definitions in f32: conversion 3, square 4, mean 2, less 1;
const EAGER_STATISTICS: u64 = 8;
/// scaling 4, conversion back 3, weight 2, less 2;
const EAGER_SCALING: u64 = 7;
/// backward: weight 2 and its gradient 3, conversion 3, scaling 4, the statistics' product 6 and sum 2, less 2,
const EAGER_SUMS: u64 = 18;
/// the mean's gradient 2, the square's 6, their sum 6, conversion back 3, the addition to the stream 3, less 3.
const EAGER_BACKWARD: u64 = 17;

/// How scores become probabilities, forward and backward.
#[derive(Debug, Clone, Copy)]
struct Softmax {
    kernels: [f64; 2],
    /// Elements of 16 bits that they move per score.
    moved: [f64; 2],
}

/// Forward scale 2, mask 2, softmax to f32 3, conversion back 3; backward conversion 3, softmax 6, conversion back 3, mask 2,
/// scale 2.
const EAGER_SCORES: Softmax = Softmax { kernels: [4.0, 5.0], moved: [10.0, 16.0] };
/// Scores are read and probabilities written, and backward two read and one written.
const FUSED_SCORES: Softmax = Softmax { kernels: [1.0, 1.0], moved: [2.0, 3.0] };
/// Of a causal mask what lies above the diagonal is written, as zeros, but not read.
const FUSED_CAUSAL_SCORES: Softmax = Softmax { kernels: [1.0, 1.0], moved: [1.5, 2.0] };

/// Tokens of the sequences that Megatron-LM's fused softmax can take, a warp to each row.
const FUSED_TOKENS: RangeInclusive<usize> = 17..=4096;
/// Its blocks take so many rows, each of another sequence's head where masks are causal, and of sequences up to 128 tokens twice as
/// many: they have to come out even (`FusedScaleMaskSoftmax.is_kernel_available`; earlier versions took 2,048 tokens at most). Else
/// scores are computed as by [`Eager::scores`](super::Eager), but what is kept of them is counted as of the fused kernel in every
/// layout.
const FUSED_HEADS: usize = 4;
/// Bytes at multiples of which rows of logits begin that lose little.
const ROW_ALIGNMENT: u64 = 8;
/// Arithmetic operations for a score: 5 for its softmax (Subramanian et al. 2024, public code), 1 for scale and mask.
const SCORE_ARITHMETIC: f64 = 6.0;
/// For an element that dropout may zero.
const DROPOUT_ARITHMETIC: f64 = 1.0;

/// How often the kernels of the loss move each logit, for the maximum, the sums and the gradient: fused they read it once, and
/// at last write it;
const FUSED_LOSS: [u64; 3] = [1, 1, 2];
/// eager, in halves of a logit: conversion 3 and maximum 2; difference 4, exponential 4, sum 2 and quotient 4; scaling 4 and
/// conversion back 3.
const EAGER_LOSS_HALVES: [u64; 3] = [5, 14, 7];

/// Logits that the kernels of an eager cap read and write: quotient, hyperbolic tangent and product 2 each; back 2, 3 and 2.
const EAGER_CAP: [u64; 2] = [6, 7];

impl NativeMachine<'_> {
    /// What an operation takes on the compute stream of a rank of the stage, and in how many kernels.
    pub(super) fn cost(&self, stage: &StageProgram, operation: &Operation) -> (Taken, f64) {
        let work = operation.work(At::first(stage));
        let framework = &self.problem.framework;
        match operation {
            Operation::Gemm(op) => self.product(stage, op, &work),
            _ if framework.is_own() => (self.taken(&work), 1.0),
            Operation::Attention(_) | Operation::AttentionBackward(_)
                if framework.attention == AttentionKernel::Stored =>
            {
                self.stored_attention(stage, &work)
            }
            Operation::RowSums(_)
            | Operation::CenteredSquares(_)
            | Operation::RowSquares(_)
            | Operation::NormBackwardSums(_)
                if self.norm_is_fused(stage, operation) =>
            {
                (Taken::default(), 0.0)
            }
            _ => (self.taken(&Work { moved: moved(framework, stage, operation, &work), ..work }), 1.0),
        }
    }

    /// A product, with the cast of its left operand where operands are narrow. What it adds to it reads and writes: weight gradients
    /// add to the sums of microbatches.
    fn product(&self, stage: &StageProgram, op: &kind::Gemm, work: &Work) -> (Taken, f64) {
        let Computation::Product { pass, product, groups } = work.computation else { return (self.taken(work), 1.0) };
        let rates = &self.problem.rates;
        let framework = &self.problem.framework;
        let shape = product.each(groups);
        let count = groups as f64;
        let adds = op.write != Write::Overwrite && !self.adds_nothing;
        let output = match (adds, pass) {
            (false, _) => framework.activation_bytes,
            (true, GemmPass::WeightGradient) => 2 * framework.summed_gradient_bytes(),
            (true, GemmPass::Forward | GemmPass::InputGradient) => 2 * framework.activation_bytes,
        } as f64;
        match () {
            () if rates.casts() && !op.of_logits(stage) => {
                let kernels = if pass == GemmPass::WeightGradient { 1.0 } else { 2.0 };
                (rates.narrow_products(pass, shape, count, output), kernels)
            }
            () if self.logits_are_unaligned(stage, op) => (rates.unaligned_products(shape, count, output), 1.0),
            () => (rates.products(shape, count, output), 1.0),
        }
    }

    /// Whether a product of logits takes rows that begin anywhere, of a vocabulary that nobody has padded.
    fn logits_are_unaligned(&self, stage: &StageProgram, op: &kind::Gemm) -> bool {
        if self.problem.framework.is_own() || !op.of_logits(stage) {
            return false;
        }
        let logits = [op.left, op.right, op.output].into_iter().find(|value| stage.format(*value) == Format::Logits);
        logits.map(|logits| stage.value(logits)).is_some_and(|logits| {
            let ranks: usize = logits.sharding.cols.iter().map(|axis| stage.grid().size(*axis)).product();
            !(logits.cols as u64 / ranks as u64 * self.problem.framework.activation_bytes).is_multiple_of(ROW_ALIGNMENT)
        })
    }

    /// FLOPs of products and attention in an operation.
    pub(super) fn flops(&self, stage: &StageProgram, operation: &Operation) -> f64 {
        let work = operation.work(At::first(stage));
        match work.computation {
            // Products of stored scores make all of them, also those before a window.
            Computation::Attention { backward, seq_len, keys, .. }
                if self.problem.framework.attention == AttentionKernel::Stored =>
            {
                // The backward pass is twice as much as the forward pass, which comes again.
                let again = if backward && stage.practice.makes_scores_again { 1.5 } else { 1.0 };
                again * work.flops() as f64 * (seq_len as f64 / keys as f64)
            }
            Computation::Product { .. } | Computation::Attention { .. } => work.flops() as f64,
            Computation::None | Computation::Sweep { .. } => 0.0,
        }
    }

    /// Whether the kernel of a norm does along what needs its rows whole: they lie on one rank.
    fn norm_is_fused(&self, stage: &StageProgram, operation: &Operation) -> bool {
        let input = stage.value(operation.operands().reads()[0]);
        let ranks: usize = input.sharding.cols.iter().map(|axis| stage.grid().size(*axis)).product();
        self.problem.framework.fused_norms && ranks == 1
    }

    /// Products of scores and of values, softmax and dropout between.
    fn stored_attention(&self, stage: &StageProgram, work: &Work) -> (Taken, f64) {
        let Computation::Attention { backward, causal, seq_len, head_dim, value_dim, heads, outputs, .. } =
            work.computation
        else {
            return (self.taken(work), 1.0);
        };
        let sizes = [seq_len, head_dim, value_dim, heads, outputs];
        let (mut taken, mut kernels) = self.stored_core(stage, [backward, causal], sizes);
        if backward && stage.practice.makes_scores_again {
            let again = self.stored_core(stage, [false, causal], sizes);
            taken += again.0;
            kernels += again.1;
        }
        (taken, kernels)
    }

    fn stored_core(&self, stage: &StageProgram, [backward, causal]: [bool; 2], sizes: [usize; 5]) -> (Taken, f64) {
        let rates = &self.problem.rates;
        let framework = &self.problem.framework;
        let [seq_len, head_dim, value_dim, heads, outputs] = sizes.map(|size| size as f64);
        let rows = seq_len / stage.grid().size(Axis::Context) as f64;
        let scores = outputs / value_dim * seq_len;
        let products: &[[f64; 3]] = if backward {
            &[
                [seq_len, value_dim, rows],
                [rows, seq_len, value_dim],
                [rows, head_dim, seq_len],
                [seq_len, head_dim, rows],
            ]
        } else {
            &[[rows, seq_len, head_dim], [rows, value_dim, seq_len]]
        };
        let softmax = softmax(framework, causal, sizes);
        let [mut kernels, moved] = [softmax.kernels, softmax.moved].map(|both| both[usize::from(backward)]);
        let bytes = scores * framework.activation_bytes as f64;
        let mut taken = rates.swept(scores * SCORE_ARITHMETIC, moved * bytes);
        taken.launch *= kernels;
        let element = framework.activation_bytes as f64;
        let aligned = !sizes[1..3].iter().any(|columns| framework.begins_between(*columns));
        for shape in products {
            taken += if aligned {
                rates.products(*shape, heads, element)
            } else {
                rates.vector_products(*shape, heads, element)
            };
            kernels += 1.0;
        }
        if stage.model.dropout > 0.0 {
            let masks = scores * framework.mask_bytes as f64;
            taken += rates.swept(scores * DROPOUT_ARITHMETIC, 2.0 * bytes + masks);
            kernels += 1.0;
        }
        (taken, kernels)
    }
}

/// By which kernels scores become probabilities, of sequences of `tokens` and so many `heads` of all of a rank's.
fn softmax(framework: &Framework, causal: bool, [tokens, _, _, heads, _]: [usize; 5]) -> Softmax {
    let together = if tokens > 128 { FUSED_HEADS } else { 2 * FUSED_HEADS };
    let fits = FUSED_TOKENS.contains(&tokens) && tokens.is_multiple_of(4) && heads.is_multiple_of(together);
    if framework.eager.scores || !fits {
        EAGER_SCORES
    } else if causal {
        FUSED_CAUSAL_SCORES
    } else {
        FUSED_SCORES
    }
}

/// Bytes that an operation moves.
fn moved(framework: &Framework, stage: &StageProgram, operation: &Operation, work: &Work) -> u64 {
    let bytes = |value: ValueId| stage.local_bytes(value);
    let elements = |value: ValueId| stage.value(value).local_elements as u64;
    let eager = &framework.eager;
    let loss = |step: usize, logits: ValueId| {
        let all = elements(logits) * framework.logit_bytes;
        if eager.loss { EAGER_LOSS_HALVES[step] * all / 2 } else { FUSED_LOSS[step] * all }
    };
    match operation {
        Operation::CrossEntropyMax(op) => loss(0, op.logits),
        Operation::CrossEntropySums(op) => loss(1, op.logits),
        Operation::CapLogits(op) if eager.loss => EAGER_CAP[0] * bytes(op.logits),
        Operation::CrossEntropyGradient(op) if eager.loss && stage.model.logit_cap.is_some() => {
            loss(2, op.logits) + EAGER_CAP[1] * bytes(op.logits)
        }
        Operation::CrossEntropyGradient(op) => loss(2, op.logits),
        Operation::RowSquares(op) if eager.norms => work.moved + EAGER_STATISTICS * bytes(op.input),
        Operation::Norm(op) if eager.norms => work.moved + EAGER_SCALING * bytes(op.input),
        Operation::NormBackwardSums(op) if eager.norms => work.moved + EAGER_SUMS * bytes(op.input),
        Operation::NormBackward(op) if eager.norms => work.moved + EAGER_BACKWARD * bytes(op.input),
        // A negation and concatenation 2, two products 4 and a sum 3, instead of 2.
        Operation::Rotate(_) if eager.pointwise => work.moved / 2 * 9,
        // What is between the two kernels of a gated function, and an operand again.
        Operation::Activate(op) if eager.pointwise && op.function.inputs() > 1 => work.moved + 2 * bytes(op.output),
        Operation::ActivationBackward(op) if eager.pointwise && op.function.inputs() > 1 => {
            work.moved + 5 * bytes(op.gradient)
        }
        _ => work.moved,
    }
}
