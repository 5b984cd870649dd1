//! The layout of a row.

use quadrille_cost::native::Candidate;
use quadrille_plan::native::Rules;
use quadrille_spec::{Activations, Axis, AxisSet, Cluster, Grid, KeepWeights, Model, Recompute, Rule, Schedule, Zero};

use crate::machine;
use crate::row::{Recomputed, Row};
use crate::sources::Facts;
use crate::unmapped::Unmapped;

/// The layout of a row: `tp` is x, `cp` context, `dp` data or, where parameters are sharded (ZeRO 3 and FSDP), z; `pp`
/// is pipe. Ranks are ordered as in Megatron-LM and DeepSpeed: tensor, context, data, pipeline from the inside out.
///
/// | column | choice |
/// |---|---|
/// | `sequence_parallel` | scattered activations, else replicated |
/// | `vpp` above 1 | the interleaved schedule with so many chunks, else 1F1B |
/// | `recompute` full | every block; selective: what the framework's attention makes of it |
/// | `zero_stage` 1, 2 with data | optimizer, gradients |
/// | `zero_stage` 2, 3 of FSDP | z, weights kept for the step (2) or for a use (3) |
/// | `ep` | ranks that share experts, from the inside out: those of tensor parallelism unless it cuts experts, of context, of data as expert (Megatron-Core's folding) |
///
/// # Errors
/// A size that is not said, sizes that do not fit to each other, a layout that breaks a rule.
pub fn candidate(row: &Row, facts: &Facts, model: &Model, cluster: &Cluster) -> Result<Candidate, Unmapped> {
    let sizes = &row.sizes;
    let size = |column, size: Option<usize>| size.ok_or(Unmapped::Missing(column));
    let [tp, pp, dp] = [size("tp", sizes.tp)?, size("pp", sizes.pp)?, size("dp", sizes.dp)?];
    let cp = sizes.cp.unwrap_or(1);
    let microbatch = size("microbatch", sizes.microbatch.or(facts.microbatch))?;
    let global_batch = size("global_batch", sizes.global_batch)?;
    let recompute =
        facts.recompute_instead.or(row.recompute).or(facts.recompute).ok_or(Unmapped::Missing("recompute"))?;
    let fully_sharded = facts.sharded;
    let hybrid = row.notes.starts_with("HSDP");
    let node = size("gpus_per_node", sizes.gpus_per_node)?;
    let (z, data) = match (fully_sharded, hybrid) {
        (false, _) => (1, dp),
        (true, false) => (dp, 1),
        (true, true) => (node, dp / node),
    };
    let product = |sizes: &[usize]| sizes.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
    let (experts_over, expert) = spread(facts, [tp, cp, data], sizes.ep.unwrap_or(1)).ok_or(Unmapped::Layout)?;
    let expert = match facts.inner {
        None => expert,
        // Of a model without experts the axis is a part of data like another.
        Some(inner) if !model.has_experts() => inner,
        Some(_) => return Err(Unmapped::Layout),
    };
    let data = data / expert;
    let axes = [tp, 1, z, cp, expert, data, pp];
    if [product(&[tp, pp, dp, cp]), product(&axes)].iter().any(|devices| *devices != sizes.n_gpus)
        || !global_batch.is_multiple_of(dp * microbatch)
        || pp > model.layers()
    {
        return Err(Unmapped::Layout);
    }
    let order = "x,y,context,z,expert,data,pipe".parse().map_err(|_| Unmapped::Layout)?;
    let grid = Grid::of_sizes(axes).map_err(|_| Unmapped::Layout)?.with_order(order);
    let domain = cluster.fast_domain().unwrap_or(node);
    // Of a rack that is one domain, runs use a power of two.
    let domain = if machine::is_rack(row) { 1 << domain.ilog2() } else { domain.min(node) };
    let chunks = sizes.vpp.unwrap_or(facts.chunks);
    let stage = sizes.zero_stage.unwrap_or(0);
    let candidate = Candidate {
        sizes: axes,
        inside: quadrille_cost::native::inside(&grid, domain),
        microbatch: microbatch * z,
        activations: if row.sequence_parallel == Some(true) && tp > 1 {
            Activations::Scattered
        } else {
            Activations::Replicated
        },
        overlap: facts.overlap,
        schedule: if chunks > 1 && pp > 1 { Schedule::Interleaved } else { Schedule::OneForwardOneBackward },
        chunks: if pp > 1 { chunks } else { 1 },
        recompute: match recompute {
            Recomputed::None => Recompute::None,
            Recomputed::Selective => Recompute::Selective,
            Recomputed::Full => Recompute::Full { every: 1 },
        },
        zero: match stage {
            1 if !fully_sharded => Zero::Optimizer,
            2 if !fully_sharded => Zero::Gradients,
            _ => Zero::Off,
        },
        experts_over,
        keep_weights: if fully_sharded && stage == 2 { KeepWeights::Step } else { KeepWeights::Use },
        ..Candidate::PLAIN
    };
    // What shards parameters shards them flat, whatever their sizes: z has no rules but those of the batch.
    let unsharded = Candidate { sizes: [tp, 1, 1, cp, expert, data, pp], microbatch, ..candidate };
    let rules = Rules { model, global_batch: global_batch / z, seq_len: model.seq_len };
    match rules.check(&unsharded) {
        // Groups of microbatches are not in the rows; Megatron-LM also takes others than those as long as the pipeline.
        Ok(()) | Err(Rule::Interleaved) => Ok(candidate),
        Err(_) => Err(Unmapped::Layout),
    }
}

/// Over which axes `ep` ranks share experts, and how many of the data ranks they are; `None` if a part of an axis does.
fn spread(facts: &Facts, [tp, cp, data]: [usize; 3], ep: usize) -> Option<(AxisSet, usize)> {
    let tensor = if facts.experts.is_some_and(|experts| experts.cut) { 1 } else { tp };
    let mut over = AxisSet::EMPTY;
    let mut left = ep;
    for (axis, size) in [(Axis::X, tensor), (Axis::Context, cp)] {
        if left > 1 && size > 1 {
            left = left.is_multiple_of(size).then(|| left / size)?;
            over = over.union(axis.only());
        }
    }
    let over = if left > 1 { over.union(Axis::Expert.only()) } else { over };
    data.is_multiple_of(left.max(1)).then_some((over, left.max(1)))
}
