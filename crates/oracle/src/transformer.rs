//! The whole model: embedding, blocks, final norm, head and loss; then the same backwards.

use std::collections::BTreeMap;

use quadrille_spec::{Attention, Experts, IGNORED, Model, PADDING};

use crate::dropout::DropoutSeed;
use crate::pass::Pass;
use crate::router::{NO_EXPERT, Routed};
use crate::{Batch, Decisions, Margin, Samples, Tensors, assert_parameters, block, embedding, experts, head, zeros};

/// What a step minimises, with its gradient: the mean loss, and the losses of routers.
#[derive(Debug, Clone, PartialEq)]
pub struct Objective {
    /// The mean loss over the batch. That of tokens is the cross-entropy in nats, its mean over all targets that are not
    /// ignored; that of patches is the squared error, its mean over all numbers of all patches.
    pub loss: f64,
    /// The losses that balance the loads of experts, summed over the blocks that have some.
    pub balance: f64,
    /// The losses of large router logits, summed over these blocks.
    pub router_z: f64,
    /// `loss + balance + router_z`: both are means over all tokens, whose targets may be ignored; padding is no token.
    pub value: f64,
    /// Of `value`, for every parameter.
    pub gradients: Tensors,
    /// Which experts were chosen.
    pub decisions: Decisions,
    /// How many choices that was.
    pub choices: u64,
    /// For how many of them the expert had no place.
    pub dropped: u64,
}

/// What a step minimises, and its gradient for every parameter. With `decisions` experts are chosen as these say, else as
/// the routers do.
///
/// The model is described at [`Model`]; a head of tokens has no bias. Dropout acts only where `dropout` is given and
/// the model's rate is above 0; its masks are those of [`crate::Mask`] for the purposes `embedding`, `block I
/// attention`, `block I projection` and `block I down` (of experts, too), with the indices stated at
/// [`quadrille_spec::Dropout::keeps`] (their `seq_len` is the batch's).
///
/// # Panics
///
/// If the model's keys do not divide its heads, `parameters` are not exactly the model's, the batch or the decisions do not
/// fit the model, or groups of tokens that share an expert's places do not fill sequences.
pub fn objective(
    model: &Model,
    parameters: &Tensors,
    batch: &Batch,
    dropout: Option<DropoutSeed>,
    decisions: Option<&Decisions>,
) -> Objective {
    let pass = Pass { dropout, decisions, ..pass(model, parameters, batch) };
    assert_decisions(&pass);
    let (loss, saved) = forward(&pass);
    let routed = || saved.routed(model);
    let balance = routed().map(|(_, experts, routed)| routed.balance(experts, experts::rows(&pass))).sum();
    let router_z = routed().map(|(_, experts, routed)| routed.z_loss(experts)).sum();
    let kept = || {
        let choices = routed().flat_map(|(.., routed)| routed.ids.iter().zip(&routed.kept));
        choices.filter(|(id, _)| **id != NO_EXPERT).map(|(_, kept)| kept)
    };
    Objective {
        loss,
        balance,
        router_z,
        value: loss + balance + router_z,
        gradients: backward(&pass, &saved),
        decisions: Decisions { blocks: routed().map(|(i, _, routed)| (i, routed.ids.clone())).collect() },
        choices: kept().count() as u64,
        dropped: kept().filter(|kept| !**kept).count() as u64,
    }
}

/// [`Objective::loss`] and [`Objective::gradients`], experts chosen as the routers say.
///
/// # Panics
///
/// As [`objective`].
pub fn loss_and_gradients(
    model: &Model,
    parameters: &Tensors,
    batch: &Batch,
    dropout: Option<DropoutSeed>,
) -> (f64, Tensors) {
    let Objective { loss, gradients, .. } = objective(model, parameters, batch, dropout, None);
    (loss, gradients)
}

/// How clear decisions are, by block, where each block reads what those before it gave by the same decisions.
///
/// # Panics
///
/// As [`objective`].
pub fn margins(
    model: &Model,
    parameters: &Tensors,
    batch: &Batch,
    dropout: Option<DropoutSeed>,
    decisions: &Decisions,
) -> BTreeMap<usize, Margin> {
    let pass = Pass { dropout, decisions: Some(decisions), ..pass(model, parameters, batch) };
    assert_decisions(&pass);
    let (_, saved) = forward(&pass);
    saved.routed(model).map(|(i, experts, routed)| (i, routed.margin(experts, experts::rows(&pass)))).collect()
}

/// The mean loss alone, without dropout.
pub(crate) fn loss(model: &Model, parameters: &Tensors, batch: &Batch, decisions: Option<&Decisions>) -> f64 {
    let pass = Pass { decisions, ..pass(model, parameters, batch) };
    assert_decisions(&pass);
    forward(&pass).0
}

/// The logits `[n, v]` of a batch of tokens as they are generated: without dropout, and experts have places for all of them.
/// The batch's targets do not matter.
///
/// # Panics
///
/// As [`loss_and_gradients`], and if the model has no vocabulary.
pub fn logits(model: &Model, parameters: &Tensors, batch: &Batch) -> Vec<f64> {
    let pass = Pass { drops: false, ..pass(model, parameters, batch) };
    head::logits(&pass, &forward(&pass).1.normed)
}

/// A pass over a batch that fits the model, without dropout, in which routers choose.
fn pass<'a>(model: &'a Model, parameters: &'a Tensors, batch: &'a Batch<'a>) -> Pass<'a> {
    assert_heads(model);
    assert_parameters(model, parameters, "parameters");
    assert_batch(model, batch);
    Pass { model, parameters, batch, dropout: None, decisions: None, drops: true }
}

/// What the backward pass needs again.
struct Saved {
    blocks: Vec<block::Saved>,
    /// The last block's output, `[n, h]`.
    last: Vec<f64>,
    /// The final norm's output, `[n, h]`.
    normed: Vec<f64>,
}

impl Saved {
    /// Every block that has experts, with what its router said.
    fn routed<'a>(&'a self, model: &'a Model) -> impl Iterator<Item = (usize, &'a Experts, &'a Routed)> {
        self.blocks.iter().enumerate().filter_map(|(i, saved)| {
            let experts = model.blocks[i].feed_forward.experts()?;
            Some((i, experts, &saved.experts()?.routed))
        })
    }
}

fn forward(pass: &Pass) -> (f64, Saved) {
    let mut x = embedding::forward(pass);
    pass.mask("embedding").apply(&mut x);

    let mut blocks = Vec::new();
    for i in 0..pass.model.layers() {
        let (y, saved) = block::forward(pass, i, x);
        blocks.push(saved);
        x = y;
    }

    let normed = pass.norm("final_norm", pass.model.final_norm, &x);
    (head::forward(pass, &normed), Saved { blocks, last: x, normed })
}

fn backward(pass: &Pass, saved: &Saved) -> Tensors {
    let mut gradients = zeros(pass.model);
    let dnormed = head::backward(pass, &saved.normed, &mut gradients);

    let mut dx = pass.norm_backward("final_norm", pass.model.final_norm, &dnormed, &saved.last, &mut gradients);
    for (i, block) in saved.blocks.iter().enumerate().rev() {
        dx = block::backward(pass, i, &dx, block, &mut gradients);
    }

    pass.mask("embedding").apply(&mut dx);
    embedding::backward(pass, &dx, &mut gradients);
    gradients
}

fn assert_decisions(pass: &Pass) {
    if let Some(decisions) = pass.decisions {
        decisions.assert_fit(pass.model, pass.batch);
    }
}

fn assert_heads(model: &Model) {
    for block in model.blocks.kinds() {
        let Attention { heads, kv_heads, head_dim, rotary, .. } = block.attention;
        assert!(heads.is_multiple_of(kv_heads), "{heads} heads, {kv_heads} keys");
        let pairs = rotary.is_none_or(|rotary| rotary.columns.is_multiple_of(2) && rotary.columns <= head_dim);
        assert!(pairs, "heads of {head_dim} numbers are not pairs to turn");
    }
}

fn assert_batch(model: &Model, batch: &Batch) {
    let n = batch.rows();
    assert!(n > 0, "the batch is empty: {} sequences of {}", batch.sequences, batch.seq_len);
    assert!(
        batch.seq_len <= model.seq_len,
        "sequences of {}, the model's longest are {}",
        batch.seq_len,
        model.seq_len
    );
    match (batch.samples, model.patch_values) {
        (Samples::Tokens { inputs, targets }, None) => {
            assert_eq!((inputs.len(), targets.len()), (n, n), "tokens and targets of the batch");
            let counted = targets.iter().filter(|target| **target != IGNORED);
            let tokens = inputs.iter().filter(|token| **token != PADDING);
            let largest = tokens.chain(counted).max().copied();
            assert!(largest < Some(model.vocab as u32), "token {largest:?} of a vocabulary of {}", model.vocab);
        }
        (Samples::Patches { inputs, targets }, Some(values)) => {
            assert_eq!((inputs.len(), targets.len()), (n * values, n * values), "numbers and targets of the batch");
        }
        (Samples::Tokens { .. }, Some(values)) => panic!("a batch of tokens for a model of patches of {values}"),
        (Samples::Patches { .. }, None) => {
            panic!("a batch of patches for a model with a vocabulary of {}", model.vocab)
        }
    }
}
