//! Megatron-LM.

use quadrille_cost::native::{Moments, NarrowFormat};

use super::Capability::{self, Products};
use super::Statement;

pub(super) const RELEASE: &str = "megatron-core 0.19.2";

const ARGUMENTS: &str = "megatron/training/arguments.py";
const CONFIG: &str = "megatron/core/transformer/transformer_config.py";
const OPTIMIZER: &str = "megatron/core/optimizer/optimizer_config.py";

pub(super) const STATEMENTS: [Statement; Capability::ALL.len()] = [
    Statement::whole(Products(NarrowFormat::Fp8), "--fp8-format hybrid --fp8-recipe tensorwise", CONFIG),
    Statement::whole(Products(NarrowFormat::Fp8Block), "--fp8-format e4m3 --fp8-recipe blockwise", CONFIG),
    Statement::whole(Products(NarrowFormat::Mxfp8), "--fp8-format e4m3 --fp8-recipe mxfp8", CONFIG),
    Statement::whole(Products(NarrowFormat::Nvfp4), "--fp4-format e2m1 --fp4-recipe nvfp4", CONFIG),
    Statement::whole(Capability::NarrowGradients, "--grad-reduce-in-bf16", ARGUMENTS),
    Statement::whole(Capability::Moments(Moments::Bf16), "--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16", OPTIMIZER),
    Statement::whole(Capability::Moments(Moments::Fp8), "--exp-avg-dtype fp8 --exp-avg-sq-dtype fp8", OPTIMIZER),
    Statement::whole(Capability::StoredScores, "--attention-backend unfused", CONFIG),
];
