//! Megatron Bridge, whose sections are classes of Megatron Core.

use quadrille_cost::native::{Moments, NarrowFormat};
use quadrille_spec::Schedule;

use super::Capability::{self, Pipeline, Products};
use super::{COUNT, Statement};

pub(super) const RELEASE: &str = "megatron-bridge 0.3.1";

const CONFIG: &str = "megatron/core/transformer/transformer_config.py";
const PARALLEL: &str = "megatron/core/model_parallel_config.py";
const SCHEDULES: &str = "megatron/core/pipeline_parallel/schedules.py";
const LAYOUT: &str = "megatron/core/transformer/pipeline_parallel_layer_layout.py";
const OPTIMIZER: &str = "megatron/core/optimizer/optimizer_config.py";
const DDP: &str = "megatron/core/distributed/distributed_data_parallel_config.py";
const PROVIDER: &str = "megatron/bridge/models/gpt_provider.py";
const RECIPES: &str = "megatron/bridge/training/mixed_precision.py";
const OVERRIDES: &str = "megatron/bridge/training/utils/omegaconf_utils.py";

pub(super) const STATEMENTS: [Statement; COUNT] = [
    Statement::partial(
        Capability::Columns,
        "weights are cut along one dimension; y counts as tensor parallelism",
        "model.tensor_model_parallel_size",
        PARALLEL,
    ),
    Statement::whole(Capability::ShardedWeights, "ddp.use_megatron_fsdp", DDP),
    Statement::whole(Capability::Context, "model.context_parallel_size, model.cp_comm_type", CONFIG),
    Statement::whole(Capability::Experts, "model.num_moe_experts, model.expert_model_parallel_size", CONFIG),
    Statement::whole(Capability::LatentAttention, "model.multi_latent_attention", CONFIG),
    Statement::absent(
        Capability::Summa,
        "products are not cut into panels; partial sums are reduced instead",
        "model.tensor_model_parallel_size",
        PARALLEL,
    ),
    Statement::whole(Capability::ScatteredActivations, "model.sequence_parallel", PARALLEL),
    Statement::whole(Capability::ReplicatedActivations, "model.sequence_parallel", PARALLEL),
    Statement::absent(
        Capability::OverlapChunks,
        "a microbatch is not computed in parts that hide each other's communication",
        "model.overlap_moe_expert_parallel_comm",
        PARALLEL,
    ),
    Statement::absent(Pipeline(Schedule::Gpipe), "1f1b runs", "model.pipeline_model_parallel_size", SCHEDULES),
    Statement::whole(Pipeline(Schedule::OneForwardOneBackward), "model.pipeline_model_parallel_size", SCHEDULES),
    Statement::whole(Pipeline(Schedule::Interleaved), "model.virtual_pipeline_model_parallel_size", SCHEDULES),
    Statement::absent(Pipeline(Schedule::ZeroBubble), "1f1b runs", "model.delay_wgrad_compute", PARALLEL),
    Statement::absent(Pipeline(Schedule::MessageDriven), "1f1b runs", "model.pipeline_model_parallel_size", SCHEDULES),
    Statement::whole(Capability::UnevenStages, "model.pipeline_model_parallel_layout", LAYOUT),
    Statement::partial(
        Capability::SelectiveRecompute,
        "norms and the activation function of experts are computed again, that of dense perceptrons is not",
        "model.recompute_modules",
        CONFIG,
    ),
    Statement::whole(Capability::FullRecompute, "model.recompute_granularity", CONFIG),
    Statement::whole(Capability::RecomputeInterval, "model.recompute_num_layers", CONFIG),
    Statement::absent(
        Capability::KeptCollectives,
        "recomputation repeats the collectives, too",
        "model.recompute_granularity",
        CONFIG,
    ),
    Statement::whole(Capability::ShardedStates, "ddp.use_distributed_optimizer", DDP),
    Statement::whole(Capability::ShardedGradients, "ddp.data_parallel_sharding_strategy: optim_grads", DDP),
    Statement::whole(Capability::StepWeights, "ddp.data_parallel_sharding_strategy: optim_grads", DDP),
    Statement::partial(
        Capability::Offload,
        "the host's processors update the states there; no buckets of them come to the device",
        "optimizer.optimizer_cpu_offload",
        OPTIMIZER,
    ),
    Statement::partial(
        Capability::HiddenAllToAlls,
        "shared experts hide them; without those another microbatch's passes may, which takes its memory and is not exported",
        "model.moe_shared_expert_overlap, model.overlap_moe_expert_parallel_comm",
        CONFIG,
    ),
    Statement::whole(Capability::PaddedVocabulary, "model.make_vocab_size_divisible_by", PROVIDER),
    Statement::absent(
        Capability::ExpertRows,
        "buffers are as long as the rows that come, and no step ends for want of room",
        "model.moe_expert_rank_capacity_factor",
        CONFIG,
    ),
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
        OVERRIDES,
    ),
];
