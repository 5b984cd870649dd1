//! The order in which each program numbers ranks where nobody says another.

use crate::{Axis, AxisOrder};

use Axis::{Context, Data, Expert, Pipe, X, Y, Z};

/// Programs, the order of their axes from the inside out, and where it is from. Shards of FSDP are z; axes that a program has not are
/// where they do least.
const ORDERS: [(&[&str], [Axis; Axis::COUNT]); 4] = [
    // This program's engine: AxoNN's performance model (SC24, section V-B), context and expert inside data, pipe outermost.
    (&["quadrille"], AxisOrder::USUAL_AXES),
    // `tp-cp-ep-dp-pp`: `order` of `initialize_model_parallel` in megatron/core/parallel_state.py, which --use-tp-pp-dp-mapping
    // changes; NeMo calls it. Experts are spread over neighbours among the data ranks.
    (
        &["megatron", "megatron-lm", "megatron-stored", "nemo", "megatron bridge"],
        [X, Y, Context, Expert, Z, Data, Pipe],
    ),
    // `pp, dp_replicate, dp_shard_mod_ep, dp_shard_in_ep, cp, tp` from the outside in: torchtitan/distributed/parallel_dims.py.
    // DeepSpeed: the topology `pipe, data, model` of deepspeed/runtime/pipe/topology.py, experts over neighbours
    // (deepspeed/utils/groups.py).
    (&["torchtitan", "fsdp", "deepspeed"], [X, Y, Context, Expert, Z, Data, Pipe]),
    // axonn/communication.py: the groups of layers, then the pipeline, then data.
    (&["axonn"], [X, Y, Z, Pipe, Context, Expert, Data]),
];

impl AxisOrder {
    /// The order of a framework where nothing is said, by its name in any case; of a name that is not known that of this program's
    /// engine.
    pub fn usual_of(framework: &str) -> Self {
        let row = ORDERS.iter().find(|(names, _)| names.iter().any(|name| name.eq_ignore_ascii_case(framework)));
        Self::of(row.map_or(Self::USUAL_AXES, |(_, axes)| *axes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_lie_inside_the_shards_of_weights_but_in_the_engine() {
        let usual = |name: &str| AxisOrder::usual_of(name);
        assert_eq!((usual("quadrille"), usual("nobody")), (AxisOrder::default(), AxisOrder::default()));
        for name in ["megatron", "megatron-stored", "nemo", "torchtitan", "fsdp", "deepspeed"] {
            assert_eq!(usual(name), "x,y,context,expert,z,data,pipe".parse().unwrap(), "{name}");
        }
        assert_eq!(usual("axonn"), "x,y,z,pipe,context,expert,data".parse().unwrap());
        for (names, axes) in ORDERS {
            assert_eq!(axes.into_iter().collect::<crate::AxisSet>(), crate::AxisSet::WORLD, "{names:?}");
        }
    }
}
