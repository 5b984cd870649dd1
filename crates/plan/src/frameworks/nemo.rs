//! Megatron Bridge.

use quadrille_cost::native::{Moments, NarrowFormat};

use super::Capability::{self, Products};
use super::Statement;

pub(super) const RELEASE: &str = "megatron-bridge 0.3.1";

const RECIPES: &str = "megatron/bridge/training/mixed_precision.py";
const OPTIMIZER: &str = "megatron/core/optimizer/optimizer_config.py";

pub(super) const STATEMENTS: [Statement; Capability::ALL.len()] = [
    Statement::partial(
        Products(NarrowFormat::Fp8),
        "the first and the last block multiply in 16 bits, and weights are stored and gathered in 8",
        "mixed_precision: bf16_with_fp8_current_scaling_mixed",
        RECIPES,
    ),
    Statement::whole(
        Products(NarrowFormat::Fp8Block),
        "mixed_precision: bf16_with_fp8_subchannel_scaling_mixed",
        RECIPES,
    ),
    Statement::partial(
        Products(NarrowFormat::Mxfp8),
        "weights are stored and gathered in 8 bits",
        "mixed_precision: bf16_with_mxfp8_mixed",
        RECIPES,
    ),
    Statement::whole(Products(NarrowFormat::Nvfp4), "mixed_precision: bf16_with_nvfp4_mixed", RECIPES),
    Statement::whole(Capability::NarrowGradients, "ddp.grad_reduce_in_fp32: false", RECIPES),
    Statement::whole(Capability::Moments(Moments::Bf16), "optimizer.exp_avg_dtype: torch.bfloat16", OPTIMIZER),
    Statement::whole(Capability::Moments(Moments::Fp8), "optimizer.exp_avg_dtype: torch.uint8", OPTIMIZER),
    Statement::absent(
        Capability::StoredScores,
        "the recipe's attention backend runs, an enumeration that YAML overrides cannot name",
        "model.attention_backend",
        "megatron/bridge/training/utils/omegaconf_utils.py",
    ),
];
