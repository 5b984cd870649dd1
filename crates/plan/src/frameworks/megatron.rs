//! Megatron-LM.

use quadrille_cost::native::{Moments, NarrowFormat};
use quadrille_spec::Schedule;

use super::Capability::{self, Pipeline, Products};
use super::{COUNT, Statement};

pub(super) const RELEASE: &str = "megatron-core 0.19.2";

const ARGUMENTS: &str = "megatron/training/arguments.py";
const CONFIG: &str = "megatron/core/transformer/transformer_config.py";
const PARALLEL: &str = "megatron/core/model_parallel_config.py";
const SCHEDULES: &str = "megatron/core/pipeline_parallel/schedules.py";
const LAYOUT: &str = "megatron/core/transformer/pipeline_parallel_layer_layout.py";
const OPTIMIZER: &str = "megatron/core/optimizer/optimizer_config.py";
const DDP: &str = "megatron/core/distributed/distributed_data_parallel_config.py";

pub(super) const STATEMENTS: [Statement; COUNT] = [
    Statement::partial(
        Capability::Columns,
        "weights are cut along one dimension; y counts as tensor parallelism",
        "--tensor-model-parallel-size",
        PARALLEL,
    ),
    Statement::whole(Capability::ShardedWeights, "--use-megatron-fsdp", ARGUMENTS),
    Statement::whole(Capability::Context, "--context-parallel-size, --cp-comm-type allgather", CONFIG),
    Statement::whole(Capability::Experts, "--num-experts, --expert-model-parallel-size", CONFIG),
    Statement::whole(Capability::LatentAttention, "--multi-latent-attention", CONFIG),
    Statement::absent(
        Capability::Summa,
        "products are not cut into panels; partial sums are reduced instead",
        "--tensor-model-parallel-size",
        PARALLEL,
    ),
    Statement::whole(Capability::ScatteredActivations, "--sequence-parallel", PARALLEL),
    Statement::whole(Capability::ReplicatedActivations, "--sequence-parallel", PARALLEL),
    Statement::absent(
        Capability::OverlapChunks,
        "a microbatch is not computed in parts that hide each other's communication",
        "--overlap-moe-expert-parallel-comm",
        PARALLEL,
    ),
    Statement::absent(Pipeline(Schedule::Gpipe), "1f1b runs", "--pipeline-model-parallel-size", SCHEDULES),
    Statement::whole(Pipeline(Schedule::OneForwardOneBackward), "--pipeline-model-parallel-size", SCHEDULES),
    Statement::whole(Pipeline(Schedule::Interleaved), "--num-virtual-stages-per-pipeline-rank", SCHEDULES),
    Statement::absent(Pipeline(Schedule::ZeroBubble), "1f1b runs", "--delay-wgrad-compute", PARALLEL),
    Statement::absent(Pipeline(Schedule::MessageDriven), "1f1b runs", "--pipeline-model-parallel-size", SCHEDULES),
    Statement::whole(Capability::UnevenStages, "--pipeline-model-parallel-layout", LAYOUT),
    Statement::partial(
        Capability::SelectiveRecompute,
        "norms and the activation function of experts are computed again, that of dense perceptrons is not",
        "--recompute-modules layernorm moe_act",
        CONFIG,
    ),
    Statement::whole(Capability::FullRecompute, "--recompute-granularity full", CONFIG),
    Statement::whole(Capability::RecomputeInterval, "--recompute-method uniform, --recompute-num-layers", CONFIG),
    Statement::absent(
        Capability::KeptCollectives,
        "recomputation repeats the collectives, too",
        "--recompute-granularity",
        CONFIG,
    ),
    Statement::whole(Capability::ShardedStates, "--use-distributed-optimizer", OPTIMIZER),
    Statement::whole(Capability::ShardedGradients, "--data-parallel-sharding-strategy optim_grads", DDP),
    Statement::whole(Capability::StepWeights, "--data-parallel-sharding-strategy optim_grads", DDP),
    Statement::partial(
        Capability::Offload,
        "the host's processors update the states there; no buckets of them come to the device",
        "--optimizer-cpu-offload",
        OPTIMIZER,
    ),
    Statement::partial(
        Capability::HiddenAllToAlls,
        "shared experts hide them; without those another microbatch's passes may, which takes its memory and is not exported",
        "--moe-shared-expert-overlap, --overlap-moe-expert-parallel-comm",
        CONFIG,
    ),
    Statement::whole(Capability::PaddedVocabulary, "--make-vocab-size-divisible-by", ARGUMENTS),
    Statement::absent(
        Capability::ExpertRows,
        "buffers are as long as the rows that come, and no step ends for want of room",
        "--moe-expert-rank-capacity-factor",
        CONFIG,
    ),
    Statement::whole(Products(NarrowFormat::Fp8), "--fp8-format hybrid --fp8-recipe tensorwise", CONFIG),
    Statement::whole(Products(NarrowFormat::Fp8Block), "--fp8-format e4m3 --fp8-recipe blockwise", CONFIG),
    Statement::whole(Products(NarrowFormat::Mxfp8), "--fp8-format e4m3 --fp8-recipe mxfp8", CONFIG),
    Statement::whole(Products(NarrowFormat::Nvfp4), "--fp4-format e2m1 --fp4-recipe nvfp4", CONFIG),
    Statement::whole(Capability::NarrowGradients, "--grad-reduce-in-bf16", ARGUMENTS),
    Statement::whole(Capability::Moments(Moments::Bf16), "--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16", OPTIMIZER),
    Statement::whole(Capability::Moments(Moments::Fp8), "--exp-avg-dtype fp8 --exp-avg-sq-dtype fp8", OPTIMIZER),
    Statement::whole(Capability::StoredScores, "--attention-backend unfused", CONFIG),
];
