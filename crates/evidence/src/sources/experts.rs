//! What sources of mixtures of experts say beyond their rows.

use quadrille_cost::native::Framework;
use quadrille_spec::Overlap;

use super::{FUSED_LOSS, Facts, HALF_GRADIENTS};
use crate::row::{Metric, Recomputed, Row};
use crate::unmapped::Unmapped;

/// Experts of every block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mixture {
    /// How many a block has.
    pub count: usize,
    /// How many a token chooses.
    pub per_token: usize,
    /// Places of an expert, as a multiple of what equal loads need, for the tokens of a device as Megatron-LM counts them;
    /// `None`: it takes all tokens.
    pub capacity: Option<f64>,
    /// Whether tensor parallelism cuts experts as it cuts other weights; else its ranks have whole ones.
    pub cut: bool,
}

/// NeMo on Megatron-Core, by the recipe beside the table (`grok1/grok1_314b.yaml`, `configure.sh`): two of eight experts with
/// as many places as equal loads need, an all-to-all; gradients summed and sent in bf16; flash attention without cuDNN's; all
/// communication of tensor parallelism and of the optimizer overlapped. Of experts nothing is said but EP and TP: their tensor
/// parallelism is Megatron-Core's default, that of other weights.
pub fn grok(_: &Row) -> Result<Facts, Unmapped> {
    let experts = Mixture { count: 8, per_token: 2, capacity: Some(1.0), cut: true };
    let framework = Framework { states: HALF_GRADIENTS, attention_rate: super::FLASH_2_ON_H100, ..Framework::MEGATRON };
    Ok(Facts { overlap: Overlap::ALL, experts: Some(experts), ..Facts::of(framework) })
}

/// Megatron-Bridge's recipes (`scripts/performance`). Qwen3 (`set_qwen3_common_configs`): eight of 128 experts, loads forced to be
/// equal, nothing computed again, gradients summed and sent in bf16 (`grad_reduce_in_fp32` off); on Blackwell attention and routers in CUDA graphs, so that the host is never late. What other models of experts have,
/// rows do not tell, or blocks here do not have.
pub fn bridge(row: &Row) -> Result<Facts, Unmapped> {
    match row.model_name.as_str() {
        name if name.starts_with("Qwen3") => {
            let experts = Mixture { count: 128, per_token: 8, capacity: None, cut: false };
            let graphs = !row.gpu.starts_with("H100");
            let host_seconds = if graphs { 0.0 } else { Framework::MEGATRON.host_seconds };
            let framework =
                Framework { states: HALF_GRADIENTS, loss_bytes: FUSED_LOSS, host_seconds, ..Framework::MEGATRON };
            let recompute = Some(Recomputed::None);
            Ok(Facts { overlap: Overlap::ALL, recompute, experts: Some(experts), ..Facts::of(framework) })
        }
        // Their layouts end in a layer for it (`pp_layout`, the letter m).
        name if name.starts_with("DeepSeek") => Err(Unmapped::Architecture("a second token is predicted")),
        // Muon, and up-projections of latent attention computed again.
        name if name.starts_with("Kimi") => Err(Unmapped::Optimizer),
        name if name.starts_with("GPT-OSS") => Err(Unmapped::Architecture("sinks of attention")),
        _ => Err(Unmapped::Source),
    }
}

/// DeepSpeed-TED: the microbatch is nowhere said. Of the dissertation's other tables the framework is not described.
pub fn ted(row: &Row) -> Result<Facts, Unmapped> {
    if row.table == "Table 7.1" { Err(Unmapped::Missing("microbatch")) } else { Err(Unmapped::Source) }
}

/// Megatron-Core's functional tests: how many experts there are is in their notes, whether tensor parallelism cuts them in their
/// names; a token chooses two, Megatron's default. Experts of tests whose names do not say so (`8experts2parallel`) have widths
/// of their own, which nothing tells. How tokens come to experts, which no name says, decides about activations: peaks are not
/// compared.
pub fn megatron_tests(row: &Row) -> Result<Option<Mixture>, Unmapped> {
    let said = row.notes.split("num-experts=").nth(1).and_then(|rest| rest.split([' ', ';']).next());
    let Some(count) = said.and_then(|count| count.parse().ok()) else { return Ok(None) };
    if row.metric == Metric::PeakMemory || !row.table.contains("experts2parallel") {
        return Err(Unmapped::Experts);
    }
    Ok(Some(Mixture { count, per_token: 2, capacity: None, cut: !row.table.contains("etp1") }))
}
