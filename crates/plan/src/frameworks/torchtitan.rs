//! torchtitan.

use quadrille_cost::native::{Moments, NarrowFormat};

use super::Capability::{self, Products};
use super::Statement;

pub(super) const RELEASE: &str = "torchtitan 0.2.2";

const JOB: &str = "torchtitan/config/job_config.py";
const OPTIMIZER: &str = "torchtitan/components/optimizer.py";

const SCALES: &str = "torchtitan casts to 8 bits with a scale for a tensor (fp8), or for 32 elements (mxfp8)";
const STATES: &str = "the optimizer's moments have the type of the parameters (training.dtype)";

pub(super) const STATEMENTS: [Statement; Capability::ALL.len()] = [
    Statement::whole(Products(NarrowFormat::Fp8), "quantize.linear.float8.recipe_name = \"tensorwise\"", JOB),
    Statement::absent(Products(NarrowFormat::Fp8Block), SCALES, "quantize.linear.float8.recipe_name", JOB),
    Statement::whole(Products(NarrowFormat::Mxfp8), "quantize.linear.mx.recipe_name = \"mxfp8_cublas\"", JOB),
    Statement::absent(Products(NarrowFormat::Nvfp4), SCALES, "quantize.linear.mx.recipe_name", JOB),
    Statement::absent(
        Capability::NarrowGradients,
        "gradients are reduced and summed in f32, the only value of mixed_precision_reduce",
        "training.mixed_precision_reduce",
        JOB,
    ),
    Statement::absent(Capability::Moments(Moments::Bf16), STATES, "training.dtype", OPTIMIZER),
    Statement::absent(Capability::Moments(Moments::Fp8), STATES, "training.dtype", OPTIMIZER),
    Statement::absent(
        Capability::StoredScores,
        "attention is fused (scaled_dot_product_attention, or flex attention of the flavor)",
        "attn_type of the flavor",
        "torchtitan/models/attention.py",
    ),
];
