//! AxoNN.

use quadrille_cost::native::{Moments, NarrowFormat};

use super::Capability::{self, Products};
use super::Statement;

pub(super) const RELEASE: &str = "axonn 0.2.0";

const LINEAR: &str = "axonn/intra_layer/fully_connected.py";

const WEIGHTS: &str = "products are multiplied in the type of torch.autocast";
const GRADIENTS: &str = "gradients are summed in the type of the parameters";
const STATES: &str = "the optimizer is the model's code, which decides what moments are stored in";

pub(super) const STATEMENTS: [Statement; Capability::ALL.len()] = [
    Statement::absent(Products(NarrowFormat::Fp8), WEIGHTS, "torch.autocast", LINEAR),
    Statement::absent(Products(NarrowFormat::Fp8Block), WEIGHTS, "torch.autocast", LINEAR),
    Statement::absent(Products(NarrowFormat::Mxfp8), WEIGHTS, "torch.autocast", LINEAR),
    Statement::absent(Products(NarrowFormat::Nvfp4), WEIGHTS, "torch.autocast", LINEAR),
    Statement::absent(Capability::NarrowGradients, GRADIENTS, "none", LINEAR),
    Statement::absent(Capability::Moments(Moments::Bf16), STATES, "none", LINEAR),
    Statement::absent(Capability::Moments(Moments::Fp8), STATES, "none", LINEAR),
    Statement::absent(Capability::StoredScores, "attention is the model's code", "none", LINEAR),
];
