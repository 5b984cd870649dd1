//! torchtitan, of the last release that takes TOML.

use quadrille_cost::native::{Moments, NarrowFormat};
use quadrille_spec::Schedule;

use super::Capability::{self, Pipeline, Products};
use super::{COUNT, Statement};

pub(super) const RELEASE: &str = "torchtitan 0.2.2";

const JOB: &str = "torchtitan/config/job_config.py";
const OPTIMIZER: &str = "torchtitan/components/optimizer.py";
const ATTENTION: &str = "torchtitan/models/attention.py";
const DEEPSEEK: &str = "torchtitan/models/deepseek_v3/__init__.py";
const LLAMA: &str = "torchtitan/models/llama3/infra/parallelize.py";
const EXPERTS: &str = "torchtitan/models/moe/moe.py";
const SCHEDULES: &str = "torch/distributed/pipelining/schedules.py";
const SCALES: &str = "operands are cast to 8 bits with a scale for a tensor (fp8), or for 32 elements (mxfp8)";
const STATES: &str = "the optimizer's moments have the type of the parameters (training.dtype)";

pub(super) const STATEMENTS: [Statement; COUNT] = [
    Statement::partial(
        Capability::Columns,
        "weights are cut along one dimension; y counts as tensor parallelism",
        "parallelism.tensor_parallel_degree",
        JOB,
    ),
    Statement::whole(Capability::ShardedWeights, "parallelism.data_parallel_shard_degree", JOB),
    Statement::partial(
        Capability::Context,
        "FSDP shards weights over context, too",
        "parallelism.context_parallel_degree",
        JOB,
    ),
    Statement::whole(Capability::Experts, "parallelism.expert_parallel_degree", JOB),
    Statement::partial(
        Capability::LatentAttention,
        "flavors of deepseek_v3 alone have it (16B, 236B, 671B)",
        "model.name = \"deepseek_v3\"",
        DEEPSEEK,
    ),
    Statement::absent(
        Capability::Summa,
        "products are not cut into panels; partial sums are reduced instead",
        "parallelism.tensor_parallel_degree",
        JOB,
    ),
    Statement::whole(Capability::ScatteredActivations, "parallelism.tensor_parallel_degree", LLAMA),
    Statement::absent(
        Capability::ReplicatedActivations,
        "tensor parallelism cuts the residual stream's rows, too (scattered)",
        "parallelism.tensor_parallel_degree",
        LLAMA,
    ),
    Statement::absent(
        Capability::OverlapChunks,
        "a microbatch is not computed in parts that hide each other's communication",
        "parallelism.pipeline_parallel_expert_parallel_overlap",
        JOB,
    ),
    Statement::whole(Pipeline(Schedule::Gpipe), "parallelism.pipeline_parallel_schedule = \"GPipe\"", JOB),
    Statement::whole(
        Pipeline(Schedule::OneForwardOneBackward),
        "parallelism.pipeline_parallel_schedule = \"1F1B\"",
        JOB,
    ),
    Statement::whole(
        Pipeline(Schedule::Interleaved),
        "parallelism.pipeline_parallel_schedule = \"Interleaved1F1B\"",
        JOB,
    ),
    Statement::absent(
        Pipeline(Schedule::ZeroBubble),
        "1F1B runs; schedules with zero bubble have at least two pieces a rank",
        "parallelism.pipeline_parallel_schedule = \"InterleavedZeroBubble\"",
        SCHEDULES,
    ),
    Statement::absent(Pipeline(Schedule::MessageDriven), "1F1B runs", "parallelism.pipeline_parallel_schedule", JOB),
    Statement::whole(Capability::UnevenStages, "parallelism.module_fqns_per_model_part", JOB),
    Statement::partial(
        Capability::SelectiveRecompute,
        "the 'op' policy computes every second product again, beside norms and activation functions",
        "activation_checkpoint.selective_ac_option = \"op\"",
        JOB,
    ),
    Statement::whole(Capability::FullRecompute, "activation_checkpoint.mode = \"full\"", JOB),
    Statement::absent(
        Capability::RecomputeInterval,
        "the input of every block is kept",
        "activation_checkpoint.mode = \"full\"",
        JOB,
    ),
    Statement::absent(
        Capability::KeptCollectives,
        "recomputation repeats the collectives, too, but for reduce-scatters in the 'op' policy",
        "activation_checkpoint.selective_ac_option = \"op\"",
        LLAMA,
    ),
    Statement::absent(
        Capability::ShardedStates,
        "what FSDP does not shard over z is replicated over data",
        "parallelism.data_parallel_shard_degree",
        JOB,
    ),
    Statement::absent(
        Capability::ShardedGradients,
        "what FSDP does not shard over z is replicated over data",
        "parallelism.data_parallel_shard_degree",
        JOB,
    ),
    Statement::partial(
        Capability::StepWeights,
        "weights are kept from a forward pass to its backward pass, not for the step",
        "parallelism.fsdp_reshard_after_forward = \"never\"",
        JOB,
    ),
    Statement::partial(
        Capability::Offload,
        "parameters and gradients lie in the host's memory, too, and its processors update them",
        "training.enable_cpu_offload",
        JOB,
    ),
    Statement::absent(
        Capability::HiddenAllToAlls,
        "all-to-alls to and from experts are waited for; DualPipeV alone hides them",
        "parallelism.pipeline_parallel_expert_parallel_overlap",
        JOB,
    ),
    Statement::absent(
        Capability::PaddedVocabulary,
        "the vocabulary is taken as it is",
        "vocab_size of the flavor",
        LLAMA,
    ),
    Statement::absent(
        Capability::ExpertRows,
        "buffers are as long as the rows that come, and no step ends for want of room",
        "none",
        EXPERTS,
    ),
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
        ATTENTION,
    ),
];
