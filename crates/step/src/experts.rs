//! Experts in the place of a perceptron: a router chooses some for each token, rows travel to the ranks that have these experts,
//! through their products, and back (TED: Singh et al. 2023, with scattered activations in the place of duplicate token
//! dropping).
//!
//! Axes over which experts are spread cut blocks of rows, one for each expert; where they cut the rows of tokens, an all-to-all
//! changes the one into the other. All other axes act on experts as on any weight.

use quadrille_spec::{Axis, BalanceScope, CollectiveKind, Experts};

use crate::backward::{Node, RouteNode};
use crate::blocks::{self, NORMAL, TRANSPOSED};
use crate::builder::{Builder, PARTIAL};
use crate::operation::{BlockKind, GemmPass, Reduction, Write};
use crate::queues::counted_axes;
use crate::value::Home;
use crate::{AxisList, Extent, Initial, ParameterId, Purpose, Sharding, StepError, ValueId, kind};

type Built<T> = Result<T, StepError>;

/// What the experts of a block give for `normed`, and the shared perceptron's result added to it.
pub(crate) fn experts(b: &mut Builder, index: usize, experts: &Experts, normed: ValueId) -> Built<ValueId> {
    let name = |what: &str| format!("block.{index}.{what}");
    let routes = route(b, index, experts, normed)?;
    let block = b.block_kind(index);
    let tokens = *b.sharding(normed);

    let places = places(b, experts);
    if matches!(places, Extent::Queues { .. }) {
        let counts = count_queues(b, block, experts.count, routes)?;
        b.queues.insert(b.layer, counts);
    }
    let shape = [places, b.model.hidden.into()];
    let dispatched = b.value("dispatched", shape, tokens, Home::ACTIVATIONS)?;
    b.push(kind::Dispatch { block, input: normed, routes, output: dispatched });
    b.record(Node::Dispatch { block, input: normed, routes, output: dispatched });
    let mut placed = tokens;
    if b.layout.scatters_places() && !placed.rows.contains(&Axis::X) {
        placed.rows.push(Axis::X);
    }
    let dispatched = hop(b, dispatched, &placed)?;
    let dispatched = send(b, dispatched)?;
    // While rows are under way.
    let shared =
        experts.shared.map(|shared| blocks::perceptron(b, index, ["shared.up", "shared.down"], shared, normed));
    let shared = shared.transpose()?.map(|(given, _)| given);

    let h = b.model.hidden;
    let f = experts.expert.width;
    let of_each = |each: usize| Extent::Experts { count: experts.count, each };
    let shape = [of_each(h), experts.expert.up_width().into()];
    let weight = weight(b, &name("experts.up"), shape, NORMAL, blocks::INIT_STD)?;
    let up = blocks::linear(b, "experts up", dispatched, weight)?;
    let activated = blocks::activation(b, experts.expert, None, up)?;
    let std = blocks::added_std(b);
    let weight = self::weight(b, &name("experts.down"), [of_each(f), h.into()], TRANSPOSED, std)?;
    let down = blocks::linear(b, "experts down", activated, weight)?;
    let results = b.reshard(down, &placed)?;
    let results = hop(b, results, &tokens)?;

    let output = b.value("combined", b.shape(normed), tokens, Home::ACTIVATIONS)?;
    b.push(kind::Combine { block, input: results, routes, output });
    b.record(Node::Combine { block, input: results, routes, output });
    match shared {
        None => Ok(output),
        Some(given) => {
            let sum = b.in_place("experts", output);
            b.push(kind::Accumulate { input: given, output: sum, write: Write::Accumulate });
            b.record(Node::Sum { inputs: [output, given], output: sum });
            Ok(sum)
        }
    }
}

/// Rows at the ranks that have their experts.
fn send(b: &mut Builder, input: ValueId) -> Built<ValueId> {
    let over = b.layout.experts_over;
    let at_tokens = *b.sharding(input);
    let rows = at_tokens.rows.into_iter().filter(|axis| !over.contains(*axis)).collect();
    b.reshard(input, &Sharding { rows, ..at_tokens }.blocks(&spreading(b)))
}

/// The axes over which experts are spread, outermost first: in the order in which groups number their members, to whom an
/// all-to-all sends the parts of a buffer.
fn spreading(b: &Builder) -> Vec<Axis> {
    b.layout.experts_over.iter().rev().collect()
}

/// A value in another sharding, through which its gradient passes as well.
fn hop(b: &mut Builder, input: ValueId, to: &Sharding) -> Built<ValueId> {
    if b.sharding(input) == to {
        return Ok(input);
    }
    let output = b.transition(input, to)?;
    b.record(Node::Stream { input, output });
    Ok(output)
}

/// Logits of all experts, the choice of some, and what is lost by unequal loads.
fn route(b: &mut Builder, index: usize, experts: &Experts, normed: ValueId) -> Built<ValueId> {
    let block = b.block_kind(index);
    let tokens = *b.sharding(normed);
    let weight = router_weight(b, index, experts.count, tokens.cols)?;
    let complete = Sharding::new(&tokens.rows, &[]);
    let partial = complete.partial(tokens.cols.into_iter().collect());
    let name =
        if b.layout.grid.size_of(partial.partial) > 1 { format!("router{PARTIAL}") } else { "router".to_owned() };
    let rows = b.shape(normed)[0];
    let logits = b.value(name, [rows, experts.count.into()], partial, Home::STATISTICS)?;
    let right = b.parameter_value(weight);
    let pass = GemmPass::Forward;
    let write = Write::Overwrite;
    b.push(kind::Router { pass, left: normed, right, output: logits, write });
    let logits = b.transition(logits, &complete)?;
    b.record(Node::Router { weight, input: normed, output: logits });

    let bias = experts.router.has_bias().then(|| router_bias(b, index, experts.count)).transpose()?;
    let added = bias.map(|bias| b.parameter_value(bias));
    let routes = b.value("routes", [rows, (3 * experts.per_token).into()], complete, Home::STATISTICS)?;
    b.push(kind::Route { block, logits, bias: added, output: routes });
    let counts = match b.purpose {
        Purpose::Generation(_) => None,
        Purpose::Training | Purpose::Evaluation => losses(b, block, experts, logits, routes)?,
    };
    b.record(Node::Route(RouteNode { block, logits, routes, counts, bias }));
    Ok(routes)
}

/// The router's weight: it is stored, as its products are computed, in the type that is computed in.
fn router_weight(b: &mut Builder, index: usize, experts: usize, cut: AxisList) -> Built<ParameterId> {
    let shape = [b.model.hidden.into(), experts.into()];
    let homes = [Home::VECTORS, Home::VECTOR_GRADIENTS];
    let initial = Initial::Normal(blocks::INIT_STD);
    b.parameter_at(format!("block.{index}.router.weight"), shape, Sharding::new(&cut, &[]), initial, true, homes)
}

/// What is added to the scores by which experts are chosen; it follows the loads of all ranks.
fn router_bias(b: &mut Builder, index: usize, experts: usize) -> Built<ParameterId> {
    let name = format!("block.{index}.router.bias");
    let bias = b.parameter(name, [1.into(), experts.into()], Sharding::default(), Initial::Constant(0.0), false)?;
    b.parameters[bias.0].follows = Some(b.block_kind(index));
    Ok(bias)
}

/// Counts choices if loads are balanced by a loss, and adds the router's losses to those of the rank.
fn losses(
    b: &mut Builder,
    block: BlockKind,
    experts: &Experts,
    logits: ValueId,
    routes: ValueId,
) -> Built<Option<ValueId>> {
    let router = &experts.router;
    let rows = b.sharding(routes).rows;
    let within = |axis: &Axis| [Axis::Context, Axis::X].contains(axis);
    let (scopes, cut): (Extent, Vec<Axis>) = match router.balance {
        BalanceScope::None => {
            b.push(kind::RouterLoss { block, logits, routes, counts: None });
            return Ok(None);
        }
        BalanceScope::Sequence => (Extent::Sequences, rows.into_iter().filter(|axis| !within(axis)).collect()),
        BalanceScope::Batch => (1.into(), Vec::new()),
    };
    let complete = Sharding::new(&cut, &[]);
    let summed = rows.into_iter().filter(|axis| !cut.contains(axis)).collect();
    let counts = b.value("choices", [scopes, experts.count.into()], complete.partial(summed), Home::STATISTICS)?;
    b.push(kind::CountChoices { block, routes, output: counts });
    let counts = b.transition(counts, &complete)?;
    b.push(kind::RouterLoss { block, logits, routes, counts: Some(counts) });
    Ok(Some(counts))
}

/// Places of all tokens of a pass at every expert.
fn places(b: &Builder, experts: &Experts) -> Extent {
    match Places::of(experts, b.purpose, b.layout.seq_len) {
        Some(Places { group, slots }) => Extent::Slots { experts: experts.count, group, slots },
        None => Extent::Queues { experts: experts.count, per_token: experts.per_token },
    }
}

/// How many rows of the ranks that exchange them come to each expert.
fn count_queues(b: &mut Builder, block: BlockKind, experts: usize, routes: ValueId) -> Built<ValueId> {
    let rows = b.sharding(routes).rows;
    let shape = [Extent::TokenRanks, experts.into()];
    let own = b.value("queue lengths", shape, Sharding::new(&rows, &[]), Home::STATISTICS)?;
    b.push(kind::CountLoads { block, routes, output: own, write: Write::Overwrite });
    let axes = counted_axes(b.layout);
    let others: AxisList = rows.into_iter().filter(|axis| !axes.contains(*axis)).collect();
    let gathered = Sharding::new(&others, &[]);
    let counts = if b.layout.grid.size_of(axes) == 1 {
        b.view("queue lengths", shape, gathered, b.values[own.0].storage)?
    } else {
        let counts = b.value("queue lengths of all", shape, gathered, Home::STATISTICS)?;
        b.collective(CollectiveKind::AllGather, axes, Reduction::Sum, own, counts);
        counts
    };
    b.push(kind::Admit { block, counts });
    Ok(counts)
}

/// How many tokens an expert has place for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    /// Consecutive tokens of a sequence that share places.
    pub group: usize,
    /// Places of an expert for them.
    pub slots: usize,
}

impl Places {
    /// Of experts in a program for this; `None`: as many as tokens choose. Where tokens are generated each has a place at every
    /// expert: nothing is dropped.
    pub fn of(experts: &Experts, purpose: Purpose, seq_len: usize) -> Option<Self> {
        match purpose {
            Purpose::Generation(_) => Some(Self { group: 1, slots: 1 }),
            Purpose::Training | Purpose::Evaluation => experts.capacity.map(|capacity| {
                let group = capacity.group(seq_len);
                Self { group, slots: capacity.slots(experts, group) }
            }),
        }
    }
}

/// A weight of every expert, `[inputs, outputs]` each: its axes cut those over which experts are not spread.
fn weight(b: &mut Builder, name: &str, shape: [Extent; 2], axes: [Axis; 2], std: f64) -> Built<ParameterId> {
    let over = b.layout.experts_over;
    let own = |axis: Axis| [axis].into_iter().filter(|axis| !over.contains(*axis)).collect::<Vec<_>>();
    let [inputs, outputs] = axes.map(own);
    let stored = Sharding::new(&inputs, &outputs).blocks(&spreading(b)).flat(&own(Axis::Z));
    b.parameter(format!("{name}.weight"), shape, stored, Initial::Normal(std), true)
}
