//! What is known of each public source beyond its rows: the framework, what it overlapped, and what its texts and
//! scripts say where a table's columns are silent. Nothing here is chosen by how well a row is met.

use quadrille_cost::native::{AttentionKernel, Eager, Framework, Hiding, StateBytes};
use quadrille_spec::{Axis, AxisSet, Overlap};

use crate::row::{Metric, Recomputed, Row};
use crate::unmapped::Unmapped;

mod experts;

pub use experts::Mixture;

/// A public source, or several of one project.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    /// What it is called in tables.
    pub name: &'static str,
    /// How the column `source` begins.
    prefix: &'static str,
    /// How the tables begin on whose step times parameters of devices or networks were fitted; `""`: all.
    fitted: &'static [&'static str],
    /// How the tables begin by whose bytes constants of frameworks were chosen.
    fitted_memory: &'static [&'static str],
    facts: fn(&Row) -> Result<Facts, Unmapped>,
}

/// What a source says of a row beyond its columns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Facts {
    /// How numbers were stored and computed.
    pub framework: Framework,
    /// What ran under what.
    pub overlap: Overlap,
    /// Neighbouring data ranks that share states, where a part of them does.
    pub inner: Option<usize>,
    /// Sequences of a pass, where the column is empty.
    pub microbatch: Option<usize>,
    /// Chunks of a stage, where the column is empty.
    pub chunks: usize,
    /// Dropout rate of training.
    pub dropout: f64,
    /// Whether parameters are sharded over the data ranks (ZeRO 3, FSDP).
    pub sharded: bool,
    /// How bytes were read.
    pub memory: Reading,
    /// Bytes of libraries' workspaces that count among the allocated.
    pub workspace: u64,
    /// Network adapters of a node that one collective uses, if not all.
    pub adapters: Option<usize>,
    /// Token ids, where the column is empty.
    pub vocab: Option<usize>,
    /// What is computed again, where the column is empty.
    pub recompute: Option<Recomputed>,
    /// The same where the column cannot be right.
    pub recompute_instead: Option<Recomputed>,
    /// The experts of its blocks, if they have some.
    pub experts: Option<Mixture>,
    /// Blocks whose activations wait in the host's memory between the passes.
    pub offloaded: usize,
}

/// How a source reads the memory of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Bytes in tensors, in 10^9 (PyTorch's `max_memory_allocated`), on the last rank.
    Allocated,
    /// Bytes that the allocator holds, in 2^30 (PyTorch's `max_memory_reserved`).
    Reserved,
    /// All that is taken of the device, in 2^30 (`nvidia-smi`).
    Device,
}

impl Reading {
    /// Bytes of a printed value.
    pub fn bytes(self, value: f64) -> f64 {
        match self {
            Self::Allocated => value * 1e9,
            Self::Reserved | Self::Device => value * (1u64 << 30) as f64,
        }
    }
}

impl Facts {
    /// A framework that overlaps nothing, keeps one chunk a stage and drops nothing out.
    const fn of(framework: Framework) -> Self {
        Self {
            framework,
            overlap: Overlap::NONE,
            inner: None,
            microbatch: None,
            chunks: 1,
            dropout: 0.0,
            sharded: framework.gathers_blocks,
            memory: Reading::Allocated,
            workspace: 0,
            adapters: None,
            vocab: None,
            recompute: None,
            recompute_instead: None,
            experts: None,
            offloaded: 0,
        }
    }
}

/// Every source whose framework is described.
pub const SOURCES: [Source; 17] = [
    Source { name: "PTD-P", prefix: "Narayanan et al. 2021", fitted: &[""], fitted_memory: &[], facts: ptd_p },
    Source {
        name: "Korthikanti",
        prefix: "Korthikanti et al. 2022",
        fitted: &[""],
        fitted_memory: &[],
        facts: korthikanti,
    },
    Source {
        name: "vTrain multi-node",
        prefix: "VIA-Research/vTrain data/ground_truth_multi",
        fitted: &[""],
        fitted_memory: &[],
        facts: vtrain,
    },
    Source {
        name: "vTrain single-node",
        prefix: "VIA-Research/vTrain data/ground_truth_single",
        fitted: &[""],
        fitted_memory: &[],
        facts: vtrain,
    },
    Source {
        name: "BigScience",
        prefix: "BigScience tr11-176B-ml",
        fitted: &[""],
        fitted_memory: &["48 node contenders"],
        facts: bigscience,
    },
    Source { name: "Hagemann", prefix: "Hagemann et al. 2023", fitted: &[""], fitted_memory: &[], facts: hagemann },
    Source { name: "InternEvo", prefix: "InternLM/InternEvo", fitted: &[""], fitted_memory: &[], facts: internevo },
    Source {
        name: "llm-foundry",
        prefix: "mosaicml/llm-foundry",
        fitted: &[""],
        fitted_memory: &[],
        facts: llm_foundry,
    },
    Source { name: "torchtitan", prefix: "pytorch/torchtitan", fitted: &[""], fitted_memory: &[], facts: torchtitan },
    Source {
        name: "fms-fsdp",
        prefix: "foundation-model-stack/fms-fsdp",
        fitted: &[""],
        fitted_memory: &[],
        facts: fms_fsdp,
    },
    Source {
        name: "Grok-1",
        prefix: "NVIDIA/dgxc-benchmarking tag v25.02 grok1",
        fitted: &[""],
        fitted_memory: &[],
        facts: experts::grok,
    },
    Source {
        name: "DGX Cloud",
        prefix: "NVIDIA/dgxc-benchmarking",
        fitted: &[""],
        fitted_memory: &[],
        facts: dgx_cloud,
    },
    Source {
        name: "Megatron-Bridge",
        prefix: "NVIDIA-NeMo/Megatron-Bridge",
        fitted: &[""],
        fitted_memory: &[],
        facts: bridge,
    },
    Source { name: "NeMo", prefix: "NVIDIA/NeMo", fitted: &[""], fitted_memory: &[], facts: nemo },
    Source { name: "TED", prefix: "S. Singh dissertation", fitted: &[], fitted_memory: &[], facts: experts::ted },
    Source { name: "MT-NLG", prefix: "MT-NLG", fitted: &[], fitted_memory: &[], facts: mt_nlg },
    Source {
        name: "Megatron CI",
        prefix: "NVIDIA/Megatron-LM tests/functional_tests",
        fitted: &[],
        fitted_memory: &["between steps"],
        facts: megatron_tests,
    },
];

impl Source {
    /// The source of a row.
    ///
    /// # Errors
    /// None that is described.
    pub fn of(row: &Row) -> Result<&'static Self, Unmapped> {
        SOURCES.iter().find(|source| row.source.starts_with(source.prefix)).ok_or(Unmapped::Source)
    }

    /// Whether parameters of devices or networks were fitted on the step times of a table.
    pub fn is_fitted(&self, table: &str) -> bool {
        self.fitted.iter().any(|beginning| table.starts_with(beginning))
    }

    /// Whether constants of frameworks were chosen by the bytes of a table.
    pub fn is_fitted_on_memory(&self, table: &str) -> bool {
        self.fitted_memory.iter().any(|beginning| table.starts_with(beginning))
    }

    /// What the source says of a row.
    ///
    /// # Errors
    /// A row that the source describes too little.
    pub fn facts(&self, row: &Row) -> Result<Facts, Unmapped> {
        (self.facts)(row)
    }
}

/// Sixteen-bit gradients, summed and sent as such: fp16 training of Megatron-LM and DeepSpeed without the switch that
/// accumulates in f32.
const HALF_GRADIENTS: StateBytes =
    StateBytes { weight: 2, gradient: 2, optimizer: 12, gathered_weight: 2, sent_gradient: 2 };

/// Bytes of a logit in Transformer Engine's fused loss, which Megatron-Bridge's recipes have (`cross_entropy_fusion_impl = "te"`): 16
/// bits, whose place the gradient takes.
const FUSED_LOSS: u64 = 2;

/// The same in that of flash attention's library, which llm-foundry has unless it is told otherwise (`loss_fn: fused_crossentropy`): 16
/// bits, and as many of the gradient.
const FLASH_LOSS: u64 = 4;

/// What flash attention of version 2 reaches on H100 of the rate of kernels made for it: 35 % of the peak against 75 %
/// (Shah et al. 2024).
const FLASH_2_ON_H100: f64 = 0.47;
/// The rate of products of 2023's libraries on H100, of what later ones reach: fitted, see `validate published --cross`.
const FIRST_ON_HOPPER: f64 = 0.896;

/// What flash attention of version 1 reaches of version 2's rate (Dao 2023: version 2 is about twice as fast).
const FLASH_1: f64 = 0.5;

/// What the kernel in Triton reaches of it (Dao 2023: version 2 is 1.3 to 2.5 times as fast).
const TRITON: f64 = 0.6;

/// Megatron-LM of early 2021: fp16, dropout of GPT-2, attention scores stored, fused softmax and activation, recompute
/// of whole layers, nothing of tensor parallelism overlapped. Table 1's microbatches and chunks are those of the
/// authors' script for it (Megatron-LM, examples/sc21/run_table_1.sh); with `DDP=torch` there (up to 18.4 B) gradients
/// are reduced under the backward pass, with `DDP=local` after it. Table 2 prints the microbatches and says nothing of
/// chunks: one. Its ZeRO-3 is DeepSpeed's: gathers run
/// ahead, reductions do not; that its collectives used one adapter of a node is assumed, from the rows' own volumes:
/// 1.05 TB of each device took 67 s whatever the number of devices.
fn ptd_p(row: &Row) -> Result<Facts, Unmapped> {
    let framework = Framework { states: HALF_GRADIENTS, ..Framework::MEGATRON_STORED };
    let facts = Facts { dropout: 0.1, ..Facts::of(framework) };
    if row.sizes.zero_stage == Some(3) {
        let overlap = Overlap { all_gather: true, ..Overlap::NONE };
        return Ok(Facts { overlap, sharded: true, adapters: Some(1), ..facts });
    }
    if row.table != "Table 1" {
        return Ok(facts);
    }
    let under_backward = Overlap { reduce_scatter: true, ..Overlap::NONE };
    // Layers: microbatch, layers of a chunk, DDP.
    let (microbatch, chunk, overlap) = match row.sizes.layers {
        Some(24 | 30 | 36) => (16, None, under_backward),
        Some(40) => (8, None, under_backward),
        Some(48) => (4, None, Overlap::NONE),
        Some(60 | 80) => (2, Some(5), Overlap::NONE),
        Some(96) => (1, Some(3), Overlap::NONE),
        Some(105) => (1, Some(1), Overlap::NONE),
        Some(128) => (1, None, Overlap::NONE),
        _ => return Err(Unmapped::Missing("microbatch")),
    };
    let layers = row.sizes.layers.unwrap_or(1) / row.sizes.pp.unwrap_or(1).max(1);
    let chunks = chunk.map_or(1, |chunk| layers / chunk);
    Ok(Facts { microbatch: Some(microbatch), chunks, overlap, ..facts })
}

/// Megatron-LM of 2022: 18 bytes a parameter (section 4), the input gradient's all-reduce under the weight gradient
/// (section 6.1). The data-parallel size is 1 in table 5.
fn korthikanti(_: &Row) -> Result<Facts, Unmapped> {
    let overlap = Overlap { all_reduce: true, ..Overlap::NONE };
    Ok(Facts { dropout: 0.1, overlap, ..Facts::of(Framework::MEGATRON_STORED) })
}

/// Megatron-DeepSpeed in fp16; its readme and configurations: recompute, 1F1B, gradients in one bucket after the
/// backward pass, GPT-2's vocabulary. On one node nothing can have been computed again, though configurations say it: of blocks of 2,048
/// columns 8,192 tokens take 16.2 ms, where four passes of products take 11.5 ms at the device's peak, and what scores and
/// activations move 5.5 ms at that of its memory.
fn vtrain(row: &Row) -> Result<Facts, Unmapped> {
    let one_node = row.table == "single-node";
    let vocab_multiple = if one_node { 1 } else { Framework::MEGATRON_STORED.vocab_multiple };
    let framework = Framework { states: HALF_GRADIENTS, vocab_multiple, ..Framework::MEGATRON_STORED };
    let recompute_instead = one_node.then_some(Recomputed::None);
    Ok(Facts { dropout: 0.1, recompute_instead, ..Facts::of(framework) })
}

/// What `nvidia-smi` shows of Megatron-DeepSpeed beyond its tensors: the driver's context (1.5 GB, as its log says),
/// buckets of gradients and weights, NCCL's buffers, what the allocator holds unused; fitted on '48 node contenders'.
const DEEPSPEED_RESERVED: u64 = 15_000_000_000;

/// Seconds that an operation takes beside its launch where the host waits for each (`CUDA_LAUNCH_BLOCKING=1`); fitted. An
/// operation of the model stands for several kernels.
const BLOCKING: f64 = 283e-6;

/// Megatron-DeepSpeed with ZeRO 1 on Jean Zay. The log of the trials says: gradients in fp16 until 'Rebalancing
/// layers', from there on bf16 with gradients summed in f32; `CUDA_LAUNCH_BLOCKING=1`, so that nothing overlaps.
fn bigscience(row: &Row) -> Result<Facts, Unmapped> {
    let wide = row.dtype.starts_with("bf16");
    // The gradient in 16 bits beside that in which microbatches are summed.
    let states = StateBytes { gradient: 6, sent_gradient: 2, ..Framework::MEGATRON.states };
    let states = if wide { states } else { HALF_GRADIENTS };
    let framework = Framework {
        states,
        reserved_bytes: DEEPSPEED_RESERVED,
        gathers_under_forward: Hiding::Never,
        dispatch_seconds: BLOCKING,
        ..Framework::MEGATRON_STORED
    };
    Ok(Facts { dropout: 0.1, memory: Reading::Device, ..Facts::of(framework) })
}

/// Bytes that a run of Aleph Alpha's framework takes beyond its tensors, and what its allocator holds per byte in use:
/// fitted on which of its runs ran out of memory.
const ALEPH_RESERVED: u64 = 8_300_000_000;
const ALEPH_ALLOCATOR: f64 = 1.1;

/// Aleph Alpha's framework after Megatron-LM: bf16, ZeRO 1, no dropout in Llama. The kernel of a row is in its note:
/// flash attention of two versions, Megatron's fused softmax or plain PyTorch; norms are one kernel only with 'RMS
/// kernel'. What else fits the runs that ran out of memory and those that did not: gradients in 16 bits (30 B parameters
/// over two stages ran without more), gathered inputs kept, PyTorch's cross-entropy with as many
/// bytes as on gathered logits (four sequences of 8192 tokens ran out of memory in every layout). After the backward pass its
/// optimizer (its successor's published code, Aleph-Alpha/scaling, `core/optimizer`) sums gradients in f32 over all data ranks, in
/// buckets of 500 million numbers; each rank updates its part, and the weights are gathered.
fn hagemann(row: &Row) -> Result<Facts, Unmapped> {
    let flash = row.notes.contains("kernel flash_attention");
    let fused_norms = row.notes.contains("RMS kernel");
    let framework = Framework {
        states: StateBytes { sent_gradient: 4, ..HALF_GRADIENTS },
        sums_whole: Some(AxisSet::WORLD),
        gradient_bucket: Some(2_000_000_000),
        gathers_inputs_again: false,
        gates_apart: true,
        reserved_bytes: ALEPH_RESERVED,
        allocator_factor: ALEPH_ALLOCATOR,
        loss_bytes: Framework::FSDP.loss_bytes * row.sizes.tp.unwrap_or(1) as u64,
        attention: if flash { AttentionKernel::Flash } else { AttentionKernel::Stored },
        attention_rate: if row.notes.contains("attentionv1") { FLASH_1 } else { 1.0 },
        fused_norms,
        eager: Eager { norms: !fused_norms, pointwise: true, scores: row.notes.contains("kernel torch"), loss: true },
        ..Framework::MEGATRON
    };
    Ok(Facts::of(framework))
}

/// InternEvo: flash attention 1.0.5 (its installation guide of 2023), bf16. Its ZeRO 1 (`HybridZeroOptimizer`) sums gradients over
/// all data ranks, under the backward pass (`overlap_sync_grad`); `zero1` ranks share states, neighbours of the same node, or all
/// data ranks (-1): they own whole parameters, and each sends its updated ones to the others of its group, one after the other,
/// before the next step (`overlap_sync_param` is off).
fn internevo(row: &Row) -> Result<Facts, Unmapped> {
    let sharded = row.notes.split("zero1=").nth(1).and_then(|text| text.split([' ', ';']).next());
    let dp = row.sizes.dp.ok_or(Unmapped::Missing("dp"))?;
    let ranks = match sharded {
        Some("-1") => dp,
        Some(count) => {
            count.parse().ok().filter(|ranks| *ranks > 0 && dp.is_multiple_of(*ranks)).ok_or(Unmapped::Layout)?
        }
        None => return Err(Unmapped::Layout),
    };
    let inner = (ranks < dp).then_some(ranks);
    let over = if inner.is_some() { Axis::Expert.only() } else { AxisSet::WORLD };
    let framework = Framework {
        states: HALF_GRADIENTS,
        attention_rate: FLASH_1,
        gates_apart: true,
        sums_whole: Some(over),
        broadcasts_updates: true,
        ..Framework::MEGATRON
    };
    let overlap = Overlap { all_gather: false, ..Overlap::ALL };
    Ok(Facts { overlap, inner, ..Facts::of(framework) })
}

/// PyTorch's FSDP: f32 shards; 'DEFAULT' reduces gradients in f32, 'PURE' in bf16 (Composer's mixed precision). Of A100s
/// attention is taken to be Triton's: what `submit_benchmarks.py` of the time had as its default. Its scripts for H100s name images
/// of PyTorch 2.0.1 with CUDA 11.8, the first that knew them, and of 2.1 with 12.1.
fn llm_foundry(row: &Row) -> Result<Facts, Unmapped> {
    let sent_gradient = if row.dtype.contains("PURE") { 2 } else { 4 };
    let states = StateBytes { sent_gradient, ..Framework::FSDP.states };
    let framework = Framework { states, loss_bytes: FLASH_LOSS, ..Framework::FSDP };
    let framework = if row.gpu.starts_with("A100") {
        Framework { attention_rate: TRITON, ..framework }
    } else {
        Framework { attention_rate: flash_2(row), product_rate: FIRST_ON_HOPPER, ..framework }
    };
    Ok(Facts { overlap: Overlap::ALL, ..Facts::of(framework) })
}

/// The rate of flash attention of version 2: the measure on A100.
fn flash_2(row: &Row) -> f64 {
    if row.gpu.starts_with("H100") || row.gpu.starts_with("H200") { FLASH_2_ON_H100 } else { 1.0 }
}

/// FSDP2, compiled. It also shards parameters over context, and recomputes selectively by a rule of its own, which layouts
/// here do not.
fn torchtitan(row: &Row) -> Result<Facts, Unmapped> {
    if row.sizes.cp.is_some_and(|context| context > 1) || row.recompute == Some(Recomputed::Selective) {
        return Err(Unmapped::Layout);
    }
    // PyTorch's own flash attention is version 2.
    let framework = Framework { attention_rate: flash_2(row), ..Framework::FSDP };
    Ok(Facts { overlap: Overlap::ALL, memory: Reading::Reserved, ..Facts::of(framework) })
}

/// FSDP, compiled, flash attention. 'Selective' recomputes every n-th block, n unsaid.
fn fms_fsdp(row: &Row) -> Result<Facts, Unmapped> {
    if row.recompute == Some(Recomputed::Selective) {
        return Err(Unmapped::Missing("recompute"));
    }
    let framework = Framework { attention_rate: flash_2(row), ..Framework::FSDP };
    Ok(Facts { overlap: Overlap::ALL, ..Facts::of(framework) })
}

/// NeMo on Megatron-Core: distributed optimizer, reductions and gathers of weights overlapped, tensor-parallel
/// communication overlapped.
fn dgx_cloud(_: &Row) -> Result<Facts, Unmapped> {
    Ok(Facts { overlap: Overlap::ALL, ..Facts::of(Framework::MEGATRON) })
}

/// NeMo's page of results: recipes of its time on Megatron-Core, nothing computed again.
fn nemo(_: &Row) -> Result<Facts, Unmapped> {
    Ok(Facts { overlap: Overlap::ALL, recompute: Some(Recomputed::None), ..Facts::of(Framework::MEGATRON) })
}

/// Megatron-Bridge's recipes (`scripts/performance`): all communication overlapped, nothing computed again, gradients summed and
/// sent in bf16. Of dense models those with ZeRO 3 are Megatron-FSDP's, with products by Transformer Engine and, on GB200 and GB300,
/// activations of some blocks in the host's memory (`cpu_offloading_num_layers`). Mixtures: [`experts::bridge`].
fn bridge(row: &Row) -> Result<Facts, Unmapped> {
    if row.notes.contains("LoRA") {
        return Err(Unmapped::Architecture("adapters alone are trained"));
    }
    if row.sizes.ep.is_some_and(|experts| experts > 1) {
        return experts::bridge(row);
    }
    if !row.model_name.starts_with("Llama") {
        return Err(Unmapped::Source);
    }
    let framework = match row.sizes.zero_stage {
        Some(3) => Framework { loss_bytes: FUSED_LOSS, keeps_cast_operands: true, ..Framework::FSDP },
        _ => Framework { states: HALF_GRADIENTS, loss_bytes: FUSED_LOSS, ..Framework::MEGATRON },
    };
    let is_sharded = row.sizes.zero_stage == Some(3);
    let offloaded = OFFLOADED.iter().find(|(model, gpu, _)| row.model_name == *model && row.gpu.starts_with(gpu));
    let offloaded = offloaded.filter(|_| is_sharded).map_or(0, |(.., blocks)| *blocks);
    Ok(Facts { overlap: Overlap::ALL, recompute: Some(Recomputed::None), offloaded, ..Facts::of(framework) })
}

/// Model, beginning of the column `gpu`, and blocks whose activations Megatron-Bridge's recipes of Megatron-FSDP in 8 bits keep in the
/// host's memory (`configs/llama`, `cpu_offloading_num_layers`).
const OFFLOADED: [(&str, &str, usize); 3] =
    [("Llama-3-70B", "GB300", 20), ("Llama-3-70B", "GB200", 40), ("Llama-3.1-405B", "GB200", 92)];

/// Megatron-DeepSpeed: the microbatch is nowhere said.
fn mt_nlg(_: &Row) -> Result<Facts, Unmapped> {
    Err(Unmapped::Missing("microbatch"))
}

/// Megatron-Core's functional tests, with GPT-2's vocabulary. Deterministic ones and those without Transformer Engine
/// store scores (`--attention-backend: unfused`); of deterministic ones that resume, some do, which the rows do not say.
/// Those of 7 B and 15 B have no room for scores. Defaults of dropout are Megatron's, 0.1. Bytes of workspaces: what is
/// allocated between steps beyond the states, fitted on these rows.
fn megatron_tests(row: &Row) -> Result<Facts, Unmapped> {
    let refused = [
        ("bert", "an encoder"),
        ("t5", "an encoder and a decoder"),
        ("mla", "latent attention"),
        ("deepseek", "latent attention"),
        ("modelopt", "two models"),
        ("fp8", "products in 8 bits"),
        ("mamba", "a state-space model"),
        ("hybrid", "a state-space model"),
        ("multimodal", "images"),
        ("reruns", "no steady state"),
        ("fsdp", "another sharding"),
        ("zp_z3", "another sharding"),
        ("multi_dist_optimizer_instances", "another sharding"),
        ("defer_embedding", "the embedding's gradient is put off"),
        ("uneven_pipeline", "stages of other sizes"),
        ("account_for_embedding", "stages of other sizes"),
    ];
    if let Some((_, why)) = refused.iter().find(|(word, _)| row.table.contains(word) || row.notes.contains(word)) {
        return Err(Unmapped::Architecture(why));
    }
    let [local, deterministic] = ["transformer-impl=local", "deterministic mode"].map(|word| row.notes.contains(word));
    let large = row.table.contains("memory_speed") || row.table.contains("15b");
    if row.metric == Metric::IterationSeconds && deterministic {
        return Err(Unmapped::Deterministic);
    }
    if row.metric == Metric::PeakMemory && row.table.contains("resume") && deterministic && !local && !large {
        return Err(Unmapped::Kernels);
    }
    let flash = large || !(local || deterministic);
    let framework = if flash { Framework::MEGATRON } else { Framework::MEGATRON_STORED };
    let overlap = if row.notes.contains("overlap-grad-reduce=True") { Overlap::ALL } else { Overlap::NONE };
    let loss_bytes = if row.table.contains("loss_fusion") { 4 } else { framework.loss_bytes };
    let framework = Framework { loss_bytes, ..framework };
    let workspace = match (local, deterministic, row.gpu.starts_with("A100")) {
        (true, ..) => 140_000_000,
        (false, true, true) => 80_000_000,
        (false, true, false) => 130_000_000,
        (false, false, true) => 20_000_000,
        (false, false, false) => 110_000_000,
    };
    let experts = experts::megatron_tests(row)?;
    Ok(Facts { dropout: 0.1, overlap, workspace, vocab: Some(50_257), experts, ..Facts::of(framework) })
}
