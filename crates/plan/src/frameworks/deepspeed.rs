//! DeepSpeed.

use quadrille_cost::native::{Moments, NarrowFormat};

use super::Capability::{self, Products};
use super::Statement;

pub(super) const RELEASE: &str = "deepspeed 0.19.8";

const CONFIG: &str = "deepspeed/runtime/config.py";
const PRECISION: &str = "deepspeed/runtime/precision_config.py";

const WEIGHTS: &str = "products are multiplied in the type of the weights; the model's code may cast their operands";
const STATES: &str = "moments are stored in f32; in bf16 only beside master weights in bf16, never in 8 bits";

pub(super) const STATEMENTS: [Statement; Capability::ALL.len()] = [
    Statement::absent(Products(NarrowFormat::Fp8), WEIGHTS, "bf16.enabled", CONFIG),
    Statement::absent(Products(NarrowFormat::Fp8Block), WEIGHTS, "bf16.enabled", CONFIG),
    Statement::absent(Products(NarrowFormat::Mxfp8), WEIGHTS, "bf16.enabled", CONFIG),
    Statement::absent(Products(NarrowFormat::Nvfp4), WEIGHTS, "bf16.enabled", CONFIG),
    Statement::whole(Capability::NarrowGradients, "data_types.grad_accum_dtype = \"bf16\"", CONFIG),
    Statement::absent(Capability::Moments(Moments::Bf16), STATES, "bf16.bf16_optimizer_states", PRECISION),
    Statement::absent(Capability::Moments(Moments::Fp8), STATES, "bf16.bf16_optimizer_states", PRECISION),
    Statement::absent(Capability::StoredScores, "attention is the model's code", "none", CONFIG),
];
