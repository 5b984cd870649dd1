//! A transformer block: `middle = x + projection(attention(qkv(norm1(x))))`, then
//! `y = middle + down(activation(up(norm2(middle))))`, dropout on the attention's weights and on both branches. Rotary
//! positions turn queries and keys before the attention.

use crate::pass::{Pass, sum};
use crate::{Tensors, qk_norm, rotary};

/// The inputs of the block's layers, kept for the backward pass.
pub(crate) struct Saved {
    x: Vec<f64>,
    normed1: Vec<f64>,
    /// Queries, keys and values before the norms of queries and keys.
    raw: Vec<f64>,
    /// Normed where they are, and turned where positions are rotary.
    qkv: Vec<f64>,
    attended: Vec<f64>,
    middle: Vec<f64>,
    normed2: Vec<f64>,
    up: Vec<f64>,
    activated: Vec<f64>,
}

/// `y[n, h]` of block `i` from `x[n, h]`.
pub(crate) fn forward(pass: &Pass, i: usize, x: Vec<f64>) -> (Vec<f64>, Saved) {
    let normed1 = pass.norm(&format!("block.{i}.norm1"), pass.block(i).norm, &x);
    let mut qkv = pass.linear(&format!("block.{i}.qkv"), &normed1);
    let raw = qkv.clone();
    if let Some(rule) = pass.block(i).attention.qk_norm {
        qk_norm::forward(pass, i, rule, &mut qkv);
    }
    if let Some(rotary) = pass.block(i).attention.rotary {
        rotary::forward(&pass.attention(i), rotary.base, &mut qkv);
    }
    let attended = pass.attention(i).forward(&qkv, &pass.mask(&format!("block {i} attention")));
    let mut projected = pass.linear(&format!("block.{i}.projection"), &attended);
    pass.mask(&format!("block {i} projection")).apply(&mut projected);
    let middle = sum(&x, &projected);

    let normed2 = pass.norm(&format!("block.{i}.norm2"), pass.block(i).norm, &middle);
    let up = pass.linear(&format!("block.{i}.up"), &normed2);
    let activated = pass.activation(i, &up);
    let mut down = pass.linear(&format!("block.{i}.down"), &activated);
    pass.mask(&format!("block {i} down")).apply(&mut down);
    let y = sum(&middle, &down);

    (y, Saved { x, normed1, raw, qkv, attended, middle, normed2, up, activated })
}

/// `dx[n, h]` of block `i` from `dy[n, h]`; its parameters' gradients are added to `gradients`.
pub(crate) fn backward(pass: &Pass, i: usize, dy: &[f64], saved: &Saved, gradients: &mut Tensors) -> Vec<f64> {
    let mut ddown = dy.to_vec();
    pass.mask(&format!("block {i} down")).apply(&mut ddown);
    let dactivated = pass.linear_backward(&format!("block.{i}.down"), &ddown, &saved.activated, gradients);
    let dup = pass.activation_backward(i, &dactivated, &saved.up);
    let dnormed2 = pass.linear_backward(&format!("block.{i}.up"), &dup, &saved.normed2, gradients);
    let dbranch =
        pass.norm_backward(&format!("block.{i}.norm2"), pass.block(i).norm, &dnormed2, &saved.middle, gradients);
    let dmiddle = sum(dy, &dbranch);

    let mut dprojected = dmiddle.clone();
    pass.mask(&format!("block {i} projection")).apply(&mut dprojected);
    let dattended = pass.linear_backward(&format!("block.{i}.projection"), &dprojected, &saved.attended, gradients);
    let mut dqkv = pass.attention(i).backward(&dattended, &saved.qkv, &pass.mask(&format!("block {i} attention")));
    if let Some(rotary) = pass.block(i).attention.rotary {
        rotary::backward(&pass.attention(i), rotary.base, &mut dqkv);
    }
    if let Some(rule) = pass.block(i).attention.qk_norm {
        qk_norm::backward(pass, i, rule, &mut dqkv, &saved.raw, gradients);
    }
    let dnormed1 = pass.linear_backward(&format!("block.{i}.qkv"), &dqkv, &saved.normed1, gradients);
    let dbranch = pass.norm_backward(&format!("block.{i}.norm1"), pass.block(i).norm, &dnormed1, &saved.x, gradients);
    sum(&dmiddle, &dbranch)
}
