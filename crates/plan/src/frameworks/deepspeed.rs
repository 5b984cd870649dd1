//! DeepSpeed.

use quadrille_cost::native::{Moments, NarrowFormat};
use quadrille_spec::Schedule;

use super::Capability::{self, Pipeline, Products};
use super::{COUNT, Statement};

pub(super) const RELEASE: &str = "deepspeed 0.19.8";

const CONFIG: &str = "deepspeed/runtime/config.py";
const PRECISION: &str = "deepspeed/runtime/precision_config.py";
const ZERO: &str = "deepspeed/runtime/zero/config.py";
const OFFLOAD: &str = "deepspeed/runtime/zero/offload_config.py";
const AUTOTP: &str = "deepspeed/runtime/tensor_parallel/config.py";
const SEQUENCE: &str = "deepspeed/sequence/layer.py";
const PIPE: &str = "deepspeed/runtime/pipe/schedule.py";
const MODULE: &str = "deepspeed/runtime/pipe/module.py";
const CHECKPOINTING: &str = "deepspeed/runtime/activation_checkpointing/config.py";
const CODE: &str = "said in the model's code (deepspeed.checkpointing.checkpoint), not in the configuration";
const WEIGHTS: &str = "products are multiplied in the type of the weights; the model's code may cast their operands";
const STATES: &str = "moments are stored in f32; in bf16 only beside master weights in bf16, never in 8 bits";

pub(super) const STATEMENTS: [Statement; COUNT] = [
    Statement::partial(
        Capability::Columns,
        "weights are cut along one dimension; y counts as tensor parallelism",
        "tensor_parallel.autotp_size",
        AUTOTP,
    ),
    Statement::whole(Capability::ShardedWeights, "zero_optimization.stage = 3", ZERO),
    Statement::partial(
        Capability::Context,
        "Ulysses turns shares of sequences into shares of heads (all-to-all) where keys and values are gathered",
        "sequence_parallel_size",
        SEQUENCE,
    ),
    Statement::absent(
        Capability::Experts,
        "exports write no experts: AutoEP makes those of models that it knows, the model's code others (deepspeed.moe)",
        "expert_parallel",
        CONFIG,
    ),
    Statement::whole(Capability::LatentAttention, "the model's code", CONFIG),
    Statement::absent(
        Capability::Summa,
        "products are not cut into panels; partial sums are reduced instead",
        "tensor_parallel.autotp_size",
        AUTOTP,
    ),
    Statement::absent(
        Capability::ScatteredActivations,
        "AutoTP repeats the residual stream on every rank (replicated)",
        "tensor_parallel.autotp_size",
        AUTOTP,
    ),
    Statement::whole(Capability::ReplicatedActivations, "tensor_parallel.autotp_size", AUTOTP),
    Statement::absent(
        Capability::OverlapChunks,
        "a microbatch is not computed in parts that hide each other's communication",
        "none",
        CONFIG,
    ),
    Statement::absent(Pipeline(Schedule::Gpipe), "1f1b runs", "none", PIPE),
    Statement::whole(Pipeline(Schedule::OneForwardOneBackward), "PipelineModule(num_stages)", PIPE),
    Statement::absent(Pipeline(Schedule::Interleaved), "1f1b runs", "none", PIPE),
    Statement::absent(Pipeline(Schedule::ZeroBubble), "1f1b runs", "none", PIPE),
    Statement::absent(Pipeline(Schedule::MessageDriven), "1f1b runs", "none", PIPE),
    Statement::absent(
        Capability::UnevenStages,
        "PipelineModule's partition_method splits the layers",
        "PipelineModule(partition_method)",
        MODULE,
    ),
    Statement::absent(Capability::SelectiveRecompute, CODE, "activation_checkpointing", CHECKPOINTING),
    Statement::absent(Capability::FullRecompute, CODE, "activation_checkpointing", CHECKPOINTING),
    Statement::absent(Capability::RecomputeInterval, CODE, "activation_checkpointing", CHECKPOINTING),
    Statement::absent(
        Capability::KeptCollectives,
        "recomputation repeats the collectives, too",
        "activation_checkpointing",
        CHECKPOINTING,
    ),
    Statement::whole(Capability::ShardedStates, "zero_optimization.stage = 1", ZERO),
    Statement::whole(Capability::ShardedGradients, "zero_optimization.stage = 2", ZERO),
    Statement::whole(Capability::StepWeights, "zero_optimization.stage = 2", ZERO),
    Statement::partial(
        Capability::Offload,
        "the host's processors update the states there; no buckets of them come to the device",
        "zero_optimization.offload_optimizer",
        OFFLOAD,
    ),
    Statement::absent(Capability::HiddenAllToAlls, "all-to-alls to and from experts are waited for", "none", CONFIG),
    Statement::absent(Capability::PaddedVocabulary, "the vocabulary is taken as it is", "the model's code", CONFIG),
    Statement::absent(
        Capability::ExpertRows,
        "buffers are as long as the rows that come, and no step ends for want of room",
        "none",
        CONFIG,
    ),
    Statement::absent(Products(NarrowFormat::Fp8), WEIGHTS, "bf16.enabled", CONFIG),
    Statement::absent(Products(NarrowFormat::Fp8Block), WEIGHTS, "bf16.enabled", CONFIG),
    Statement::absent(Products(NarrowFormat::Mxfp8), WEIGHTS, "bf16.enabled", CONFIG),
    Statement::absent(Products(NarrowFormat::Nvfp4), WEIGHTS, "bf16.enabled", CONFIG),
    Statement::whole(Capability::NarrowGradients, "data_types.grad_accum_dtype = \"bf16\"", CONFIG),
    Statement::absent(Capability::Moments(Moments::Bf16), STATES, "bf16.bf16_optimizer_states", PRECISION),
    Statement::absent(Capability::Moments(Moments::Fp8), STATES, "bf16.bf16_optimizer_states", PRECISION),
    Statement::absent(Capability::StoredScores, "attention is the model's code", "the model's code", CONFIG),
];
