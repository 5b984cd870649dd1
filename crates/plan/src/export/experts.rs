//! Experts in the words of Megatron Core, and what else frameworks do with experts.
//!
//! Fields are those of `TransformerConfig` (`megatron/core/transformer/transformer_config.py`), from most of which
//! Megatron-LM makes its flags. What they mean was read in `megatron/core/transformer/moe` (`moe_utils.py`, `router.py`,
//! `moe_layer.py`) and `parallel_state.py` of releases 0.17.1 and 0.19.2, whose parsers were given such exports
//! (`scripts/check-exports`).
//!
//! Routers: Megatron's softmax comes after the choice, over the chosen logits. That is the softmax over all experts divided
//! by the sum of the chosen (`router_normalize`); `moe_router_pre_softmax` takes the softmax first and does not divide.
//! Sigmoid weights are divided by their sum wherever several experts are chosen. The scaling factor goes with all of them.

use quadrille_spec::{
    Activations, Axis, BalanceScope, Capacity, Classic, Dispatch, DropOrder, Experts, Field, Layout, Router,
    RouterScores, SpecError,
};

use super::fields::{Fields, Setting};
use super::gaps::Gaps;
use super::model::Mixture;
use crate::frameworks::Capability;

/// How many ranks have which part of the experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Degrees {
    /// Ranks over which whole experts are spread.
    pub parallel: usize,
    /// Ranks that cut each of them.
    pub tensor: usize,
}

impl Degrees {
    pub fn of(layout: &Layout, tensor: usize) -> Self {
        let over = layout.experts_over;
        Self { parallel: layout.grid.size_of(over), tensor: if over.contains(Axis::X) { 1 } else { tensor } }
    }
}

/// What Megatron Core is told of experts, and what it is not.
pub(super) fn fields(
    framework: &str,
    sizes: &Classic,
    mixture: &Mixture,
    layout: &Layout,
    tensor: usize,
    gaps: &mut Gaps,
) -> Result<Fields, SpecError> {
    let Experts { count, per_token, expert, shared, router, capacity } = mixture.experts;
    let degrees = Degrees::of(layout, tensor);
    check_biases(framework, sizes, degrees, gaps)?;
    check_router(framework, &router, per_token)?;
    let mut fields = Fields::default();
    fields.say("num_moe_experts", count);
    fields.say("moe_router_topk", per_token);
    fields.say("moe_ffn_hidden_size", expert.width);
    let everywhere = !mixture.at.contains(&false);
    let blocks = if everywhere { Setting::Usual("1") } else { Setting::Blocks(mixture.at.clone()) };
    fields.0.push(("moe_layer_freq", blocks));
    let overlaps = layout.overlap.all_to_all && degrees.parallel > 1;
    fields.maybe("moe_shared_expert_intermediate_size", shared.map(|shared| shared.width));
    fields.switch("moe_shared_expert_overlap", overlaps && shared.is_some());
    router_fields(&mut fields, &router, layout);
    capacity_fields(&mut fields, capacity.as_ref());
    fields.switch("moe_grouped_gemm", true);
    fields.say("moe_token_dispatcher_type", "alltoall");
    fields.say("expert_model_parallel_size", degrees.parallel);
    fields.say("expert_tensor_parallel_size", degrees.tensor);
    choice_gaps(&router, capacity.is_some(), gaps);
    group_gap(&router, per_token, gaps);
    if let Some(capacity) = capacity {
        capacity_gaps(&capacity, per_token, layout, tensor, gaps);
    }
    layout_gaps(layout, tensor, overlaps && shared.is_none(), gaps);
    if layout.activations == Activations::Replicated && tensor > 1 {
        gaps.lacks(Field::Activations, "beside experts tensor parallelism cuts the residual stream's rows (scattered)");
        if layout.dispatch == Dispatch::Duplicated {
            gaps.lacks(Field::Dispatch, "each rank of tensor parallelism sends its part of the tokens (dropped)");
        }
    }
    Ok(fields)
}

/// What neither Megatron nor torchtitan has.
pub(super) fn layout_gaps(layout: &Layout, tensor: usize, waits: bool, gaps: &mut Gaps) {
    if let Some(instead) = gaps.instead(Capability::HiddenAllToAlls).filter(|_| waits) {
        gaps.add("overlap oaa", instead);
    }
    if layout.expert_rows > 0 {
        gaps.state(Capability::ExpertRows, Field::ExpertRows);
    }
    let y = layout.grid.size(Axis::Y);
    if y > 1 && layout.experts_over.contains(Axis::X) {
        let part = format!("y={y} beside experts-over = {}", layout.experts_over);
        gaps.add(part, format!("no expert is cut over any of x*y={tensor}"));
    }
}

/// With biases Megatron's experts and routers have some, too.
fn check_biases(framework: &str, sizes: &Classic, degrees: Degrees, gaps: &mut Gaps) -> Result<(), SpecError> {
    if !sizes.biases {
        return Ok(());
    }
    if degrees.tensor > 1 {
        let rule = format!(
            "{framework} gives experts biases, too, which it refuses over expert tensor parallelism of {}",
            degrees.tensor
        );
        return Err(SpecError::invalid("biases", true, rule, "use biases = false, or --experts-over with x"));
    }
    gaps.add("biases = true", "experts and their routers have biases, too");
    Ok(())
}

fn check_router(framework: &str, router: &Router, per_token: usize) -> Result<(), SpecError> {
    if router.scores == RouterScores::Sigmoid && !router.normalize && per_token > 1 {
        let rule = format!("{framework} divides the weights of a sigmoid router by their sum");
        return Err(SpecError::invalid("router_normalize", false, rule, "use router_normalize = true"));
    }
    if router.scores == RouterScores::Softmax && router.has_bias() {
        let rule = format!("{framework} has biases for routers with sigmoid scores only");
        let remedy = "use router_bias_rate = 0, or router = \"sigmoid\"";
        return Err(SpecError::invalid("router_bias_rate", router.bias_rate, rule, remedy));
    }
    Ok(())
}

fn router_fields(fields: &mut Fields, router: &Router, layout: &Layout) {
    let softmax = router.scores == RouterScores::Softmax;
    fields.say("moe_router_score_function", router.scores);
    fields.switch("moe_router_pre_softmax", softmax && !router.normalize);
    fields.maybe("moe_router_num_groups", router.groups.map(|groups| groups.count));
    fields.maybe("moe_router_group_topk", router.groups.map(|groups| groups.chosen));
    fields.maybe("moe_router_topk_scaling_factor", (router.scale != 1.0).then_some(router.scale));
    let balance = match router.balance {
        BalanceScope::Sequence => "seq_aux_loss",
        BalanceScope::Batch => "global_aux_loss",
        BalanceScope::None => "none",
    };
    fields.say("moe_router_load_balancing_type", balance);
    fields.say("moe_aux_loss_coeff", balance_coefficient(router, layout));
    fields.maybe("moe_z_loss_coeff", (router.z_loss > 0.0).then_some(router.z_loss));
    fields.switch("moe_router_enable_expert_bias", router.has_bias());
    let rate = if router.has_bias() { Setting::Said(router.bias_rate.to_string()) } else { Setting::Usual("0.001") };
    fields.0.push(("moe_router_bias_update_rate", rate));
    fields.say("moe_router_dtype", "fp32");
}

/// Megatron's coefficient of the same strength. Its loss is this one: the sum over experts of `f P`, with `f` divided by the choices
/// of a token, added in every block (`switch_load_balancing_loss_func`); that of a sequence is a mean over sequences and ranks. Of
/// the loss over a step each rank of data parallelism has a part of the sum, and gradients are averaged: it weighs one part in so
/// many.
fn balance_coefficient(router: &Router, layout: &Layout) -> f64 {
    match router.balance {
        BalanceScope::Batch => router.balance_loss * (layout.grid.size(Axis::Z) * layout.grid.batch_shares()) as f64,
        BalanceScope::Sequence | BalanceScope::None => router.balance_loss,
    }
}

/// Megatron's loss and its biases count other choices than those that are made.
fn choice_gaps(router: &Router, drops: bool, gaps: &mut Gaps) {
    let beside = [("groups", router.groups.is_some()), ("biases", router.has_bias())];
    let beside: Vec<&str> = beside.into_iter().filter_map(|(name, has)| has.then_some(name)).collect();
    if router.balance_loss > 0.0 && !beside.is_empty() {
        let beside = beside.join(" and ");
        let instead = format!("beside {beside} the loss counts the experts that would be chosen without them");
        gaps.add(format!("balance = {}", router.balance), instead);
    }
    if router.has_bias() && drops {
        let instead = "biases follow loads without the choices that are dropped";
        gaps.add(format!("router_bias_rate = {}", router.bias_rate), instead);
    }
}

/// Where Megatron takes the softmax of what is chosen, groups are chosen before it.
fn group_gap(router: &Router, per_token: usize, gaps: &mut Gaps) {
    let after = router.scores == RouterScores::Softmax && router.normalize;
    if let Some(groups) = router.groups.filter(|groups| after && per_token > groups.chosen) {
        gaps.add(
            format!("router_groups = {}", groups.count),
            "groups are chosen by sums of logits, not of their softmax",
        );
    }
}

fn capacity_fields(fields: &mut Fields, capacity: Option<&Capacity>) {
    fields.maybe("moe_expert_capacity_factor", capacity.map(|capacity| capacity.factor));
    fields.switch("moe_pad_expert_input_to_capacity", capacity.is_some());
    let policy = |drop| match drop {
        DropOrder::Choice => Setting::Said("position".to_owned()),
        DropOrder::Score => Setting::Said("probs".to_owned()),
    };
    fields
        .0
        .push(("moe_token_drop_policy", capacity.map_or(Setting::Usual("probs"), |capacity| policy(capacity.drop))));
}

/// Megatron counts places per rank and microbatch. With one sequence in a pass a rank has a piece of it, which may be a group.
fn capacity_gaps(capacity: &Capacity, per_token: usize, layout: &Layout, tensor: usize, gaps: &mut Gaps) {
    let group = capacity.group(layout.seq_len);
    let context = layout.grid.size(Axis::Context);
    let sequences = layout.microbatch / layout.grid.size(Axis::Z);
    let tokens = sequences * layout.seq_len / (context * tensor);
    if sequences * context > 1 || group != tokens {
        let instead = format!("places at experts are counted for the {tokens} tokens that a rank has in a pass");
        gaps.add(format!("capacity = {} in groups of {group}", capacity.factor), instead);
    }
    if capacity.drop == DropOrder::Choice && per_token > 1 {
        gaps.add("drop = choice", "earlier tokens have the places, whichever of their choices it is");
    }
}
