//! A transformer block: `middle = x + a projection(attention(qkv(norm1(x))))`, where `qkv` may be made by way of narrow rows,
//! then `y = middle + a down(activation(up(norm2(middle))))`, or experts in the place of that perceptron, dropout on the
//! attention's weights and on both branches. Where the two are parallel the second reads `x`. A norm may stand before a branch,
//! after it, or both. Queries and keys may be normed, then rotary positions turn them, before the attention.

use quadrille_spec::{FeedForward, NormPlace, ResidualOrder};

use crate::pass::{Pass, sum};
use crate::{Tensors, experts, functions, latent, qk_norm, rotary};

/// The inputs of the block's layers, kept for the backward pass.
pub(crate) struct Saved {
    x: Vec<f64>,
    normed1: Vec<f64>,
    /// What latent attention keeps.
    latent: Option<latent::Saved>,
    /// Queries, keys and values before the norms of queries and keys.
    raw: Vec<f64>,
    /// Normed where they are, and turned where positions are rotary.
    qkv: Vec<f64>,
    attended: Vec<f64>,
    /// Before the norm after it.
    projected: Vec<f64>,
    /// What the second branch reads.
    read: Vec<f64>,
    normed2: Vec<f64>,
    fed: Fed,
    /// Before the norm after it.
    down: Vec<f64>,
}

/// What the second branch keeps of its layers.
enum Fed {
    Dense { up: Vec<f64>, activated: Vec<f64> },
    Experts(experts::Saved),
}

impl Saved {
    /// What the experts keep, if the block has some.
    pub(crate) fn experts(&self) -> Option<&experts::Saved> {
        match &self.fed {
            Fed::Dense { .. } => None,
            Fed::Experts(saved) => Some(saved),
        }
    }
}

/// `y[n, h]` of block `i` from `x[n, h]`.
pub(crate) fn forward(pass: &Pass, i: usize, x: Vec<f64>) -> (Vec<f64>, Saved) {
    let described = pass.block(i);
    let normed1 = before(pass, i, "norm1", &x);
    let (mut qkv, latent) = match described.attention.latent {
        None => (pass.linear(&format!("block.{i}.qkv"), &normed1), None),
        Some(described) => {
            let (qkv, saved) = latent::forward(pass, i, described, &normed1);
            (qkv, Some(saved))
        }
    };
    let raw = qkv.clone();
    if let Some(rule) = described.attention.qk_norm {
        qk_norm::forward(pass, i, rule, &mut qkv);
    }
    if let Some(rotary) = described.attention.rotary {
        rotary::forward(&pass.attention(i), rotary, &mut qkv);
    }
    let attended = pass.attention(i).forward(&qkv, &pass.mask(&format!("block {i} attention")));
    let projected = pass.linear(&format!("block.{i}.projection"), &attended);
    let middle = sum(&x, &branch(pass, i, "norm1_after", "projection", &projected));

    let read = match described.residual.order {
        ResidualOrder::Sequential => middle.clone(),
        ResidualOrder::Parallel => x.clone(),
    };
    let normed2 = before(pass, i, "norm2", &read);
    let (down, fed) = feed_forward(pass, i, &normed2);
    let y = sum(&middle, &branch(pass, i, "norm2_after", "down", &down));

    (y, Saved { x, normed1, latent, raw, qkv, attended, projected, read, normed2, fed, down })
}

/// `dx[n, h]` of block `i` from `dy[n, h]`; its parameters' gradients are added to `gradients`.
pub(crate) fn backward(pass: &Pass, i: usize, dy: &[f64], saved: &Saved, gradients: &mut Tensors) -> Vec<f64> {
    let described = pass.block(i);
    let ddown = branch_backward(pass, i, "norm2_after", "down", dy, &saved.down, gradients);
    let dnormed2 = feed_forward_backward(pass, i, &ddown, saved, gradients);
    let dread = before_backward(pass, i, "norm2", dnormed2, &saved.read, gradients);
    let (dmiddle, dbeside) = match described.residual.order {
        ResidualOrder::Sequential => (sum(dy, &dread), vec![0.0; dy.len()]),
        ResidualOrder::Parallel => (dy.to_vec(), dread),
    };

    let dprojected = branch_backward(pass, i, "norm1_after", "projection", &dmiddle, &saved.projected, gradients);
    let dattended = pass.linear_backward(&format!("block.{i}.projection"), &dprojected, &saved.attended, gradients);
    let mut dqkv = pass.attention(i).backward(&dattended, &saved.qkv, &pass.mask(&format!("block {i} attention")));
    if let Some(rotary) = described.attention.rotary {
        rotary::backward(&pass.attention(i), rotary, &mut dqkv);
    }
    if let Some(rule) = described.attention.qk_norm {
        qk_norm::backward(pass, i, rule, &mut dqkv, &saved.raw, gradients);
    }
    let dnormed1 = match described.attention.latent.zip(saved.latent.as_ref()) {
        None => pass.linear_backward(&format!("block.{i}.qkv"), &dqkv, &saved.normed1, gradients),
        Some((described, kept)) => latent::backward(pass, i, described, &dqkv, &saved.normed1, kept, gradients),
    };
    let dbranch = before_backward(pass, i, "norm1", dnormed1, &saved.x, gradients);
    sum(&sum(&dmiddle, &dbeside), &dbranch)
}

/// What the second branch gives from what it reads, `x[n, h]`.
fn feed_forward(pass: &Pass, i: usize, x: &[f64]) -> (Vec<f64>, Fed) {
    match &pass.block(i).feed_forward {
        FeedForward::Dense(perceptron) => {
            let up = pass.linear(&format!("block.{i}.up"), x);
            let activated = functions::activate(perceptron.activation, &up);
            (pass.linear(&format!("block.{i}.down"), &activated), Fed::Dense { up, activated })
        }
        FeedForward::Experts(described) => {
            let (y, saved) = experts::forward(pass, i, described, x);
            (y, Fed::Experts(saved))
        }
    }
}

fn feed_forward_backward(pass: &Pass, i: usize, dy: &[f64], saved: &Saved, gradients: &mut Tensors) -> Vec<f64> {
    match (&pass.block(i).feed_forward, &saved.fed) {
        (FeedForward::Dense(perceptron), Fed::Dense { up, activated }) => {
            let dactivated = pass.linear_backward(&format!("block.{i}.down"), dy, activated, gradients);
            let dup = functions::activate_backward(perceptron.activation, &dactivated, up);
            pass.linear_backward(&format!("block.{i}.up"), &dup, &saved.normed2, gradients)
        }
        (FeedForward::Experts(described), Fed::Experts(kept)) => {
            experts::backward(pass, i, described, dy, &saved.normed2, kept, gradients)
        }
        _ => unreachable!("what was kept is of the same block"),
    }
}

/// What a branch reads: `x`, normed if norms stand before.
fn before(pass: &Pass, i: usize, name: &str, x: &[f64]) -> Vec<f64> {
    match pass.block(i).norm_place {
        NormPlace::After => x.to_vec(),
        NormPlace::Before | NormPlace::Both => pass.norm(&format!("block.{i}.{name}"), pass.block(i).norm, x),
    }
}

fn before_backward(
    pass: &Pass,
    i: usize,
    name: &str,
    dnormed: Vec<f64>,
    x: &[f64],
    gradients: &mut Tensors,
) -> Vec<f64> {
    match pass.block(i).norm_place {
        NormPlace::After => dnormed,
        NormPlace::Before | NormPlace::Both => {
            pass.norm_backward(&format!("block.{i}.{name}"), pass.block(i).norm, &dnormed, x, gradients)
        }
    }
}

/// What a branch adds to the stream, from its last layer's result: normed if norms stand after, scaled, masked.
fn branch(pass: &Pass, i: usize, name: &str, site: &str, given: &[f64]) -> Vec<f64> {
    let described = pass.block(i);
    let mut added = match described.norm_place {
        NormPlace::Before => given.to_vec(),
        NormPlace::After | NormPlace::Both => pass.norm(&format!("block.{i}.{name}"), described.norm, given),
    };
    pass.mask(&format!("block {i} {site}")).apply(&mut added);
    added.iter().map(|number| number * described.residual.scale).collect()
}

fn branch_backward(
    pass: &Pass,
    i: usize,
    name: &str,
    site: &str,
    dadded: &[f64],
    given: &[f64],
    gradients: &mut Tensors,
) -> Vec<f64> {
    let described = pass.block(i);
    let mut d: Vec<f64> = dadded.iter().map(|number| number * described.residual.scale).collect();
    pass.mask(&format!("block {i} {site}")).apply(&mut d);
    match described.norm_place {
        NormPlace::Before => d,
        NormPlace::After | NormPlace::Both => {
            pass.norm_backward(&format!("block.{i}.{name}"), described.norm, &d, given, gradients)
        }
    }
}
