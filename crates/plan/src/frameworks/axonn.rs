//! AxoNN.

use quadrille_cost::native::{Moments, NarrowFormat};
use quadrille_spec::Schedule;

use super::Capability::{self, Pipeline, Products};
use super::{COUNT, Statement};

pub(super) const RELEASE: &str = "axonn 0.2.0";

const LINEAR: &str = "axonn/intra_layer/fully_connected.py";
const INIT: &str = "axonn/communication.py";
const OVERLAP: &str = "axonn/intra_layer/overlap_communication.py";
const ENGINE: &str = "axonn/axonn.py";
const CODE: &str = "said in the model's code (torch.utils.checkpoint)";
const WEIGHTS: &str = "products are multiplied in the type of torch.autocast";
const STATES: &str = "the optimizer is the model's code, which decides what moments are stored in";

pub(super) const STATEMENTS: [Statement; COUNT] = [
    Statement::whole(Capability::Columns, "G_intra_r, G_intra_c", INIT),
    Statement::whole(Capability::ShardedWeights, "G_intra_d", INIT),
    Statement::absent(Capability::Context, "no axis cuts sequences", "none", INIT),
    Statement::absent(Capability::Experts, "experts are the model's code", "the model's code", LINEAR),
    Statement::whole(Capability::LatentAttention, "the model's code", LINEAR),
    Statement::absent(
        Capability::Summa,
        "products are not cut into panels; partial sums are reduced instead",
        "Linear",
        LINEAR,
    ),
    Statement::absent(
        Capability::ScatteredActivations,
        "in expert mode activations are repeated over x and y (replicated)",
        "expert_mode",
        LINEAR,
    ),
    Statement::whole(Capability::ReplicatedActivations, "expert_mode", LINEAR),
    Statement::absent(
        Capability::OverlapChunks,
        "a microbatch is not computed in parts that hide each other's communication",
        "optimize_communication",
        OVERLAP,
    ),
    Statement::absent(Pipeline(Schedule::Gpipe), "message-driven runs", "none", ENGINE),
    Statement::absent(Pipeline(Schedule::OneForwardOneBackward), "message-driven runs", "none", ENGINE),
    Statement::absent(Pipeline(Schedule::Interleaved), "message-driven runs", "none", ENGINE),
    Statement::absent(Pipeline(Schedule::ZeroBubble), "message-driven runs", "none", ENGINE),
    Statement::whole(Pipeline(Schedule::MessageDriven), "G_inter", ENGINE),
    Statement::absent(
        Capability::UnevenStages,
        "said in the model's code: each stage builds its own layers",
        "the model's code",
        ENGINE,
    ),
    Statement::absent(Capability::SelectiveRecompute, CODE, "the model's code", LINEAR),
    Statement::absent(Capability::FullRecompute, CODE, "the model's code", LINEAR),
    Statement::absent(Capability::RecomputeInterval, CODE, "the model's code", LINEAR),
    Statement::absent(
        Capability::KeptCollectives,
        "recomputation repeats the collectives, too",
        "the model's code",
        LINEAR,
    ),
    Statement::absent(Capability::ShardedStates, "states are replicated over data", "G_data", INIT),
    Statement::absent(Capability::ShardedGradients, "states are replicated over data", "G_data", INIT),
    Statement::partial(
        Capability::StepWeights,
        "weights are kept from a forward pass to its backward pass, not for the step",
        "cache_weights_in_all_gather",
        LINEAR,
    ),
    Statement::absent(
        Capability::Offload,
        "the optimizer is the model's code; its states stay on the device",
        "the model's code",
        ENGINE,
    ),
    Statement::absent(Capability::HiddenAllToAlls, "all-to-alls to and from experts are waited for", "none", LINEAR),
    Statement::absent(Capability::PaddedVocabulary, "the vocabulary is taken as it is", "the model's code", LINEAR),
    Statement::absent(
        Capability::ExpertRows,
        "buffers are as long as the rows that come, and no step ends for want of room",
        "none",
        LINEAR,
    ),
    Statement::absent(Products(NarrowFormat::Fp8), WEIGHTS, "torch.autocast", LINEAR),
    Statement::absent(Products(NarrowFormat::Fp8Block), WEIGHTS, "torch.autocast", LINEAR),
    Statement::absent(Products(NarrowFormat::Mxfp8), WEIGHTS, "torch.autocast", LINEAR),
    Statement::absent(Products(NarrowFormat::Nvfp4), WEIGHTS, "torch.autocast", LINEAR),
    Statement::absent(
        Capability::NarrowGradients,
        "gradients are summed in the type of the parameters",
        "the model's code",
        LINEAR,
    ),
    Statement::absent(Capability::Moments(Moments::Bf16), STATES, "the model's code", LINEAR),
    Statement::absent(Capability::Moments(Moments::Fp8), STATES, "the model's code", LINEAR),
    Statement::absent(Capability::StoredScores, "attention is the model's code", "the model's code", LINEAR),
];
