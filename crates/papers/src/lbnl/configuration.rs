//! Ways to cut a model over devices, and which of them have a price.

use std::str::FromStr;

use quadrille_spec::SpecError;

use super::shape::Shape;
use super::sizes::{check_most, check_size};
use super::system::{Group, System};

/// How a block is cut over devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Heads and hidden widths over one group, tokens over the same group between the products (Megatron-LM).
    OneD,
    /// The same over one group, and tokens over another (sequence or context parallelism).
    TwoD,
    /// Both operands of every linear layer over both groups, multiplied in panels; attention as in [`Self::TwoD`].
    Summa,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::OneD, Self::TwoD, Self::Summa];

    /// `1d`, `2d` or `summa`, as in published outputs.
    pub fn name(self) -> &'static str {
        match self {
            Self::OneD => "1d",
            Self::TwoD => "2d",
            Self::Summa => "summa",
        }
    }
}

impl FromStr for Strategy {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        Self::ALL.into_iter().find(|strategy| strategy.name() == text).ok_or_else(|| SpecError::Unknown {
            what: "strategy",
            name: text.to_owned(),
            known: Self::ALL.map(|strategy| strategy.name().to_owned()).to_vec(),
        })
    }
}

/// What the price of a block depends on, besides model and system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cut {
    /// Which layers are cut how.
    pub strategy: Strategy,
    /// Tensor-parallel group over heads and hidden widths: `m` or `m1`, `tp1` in published outputs.
    pub hidden: Group,
    /// Tensor-parallel group over the sequence: `m2`, `tp2` in published outputs; alone in [`Strategy::OneD`].
    pub sequence: Group,
    /// Sequences of a microbatch, `b`.
    pub microbatch: u64,
    /// Panels of SUMMA's products, `nb`; 0 in the other strategies.
    pub panels: u64,
}

/// A way to train on a number of devices: what the search ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Configuration {
    /// How a block is cut.
    pub cut: Cut,
    /// Data parallelism: `d`, `dp` in published outputs.
    pub data: Group,
    /// Pipeline parallelism: `p`, `pp` in published outputs.
    pub pipe: Group,
}

impl Configuration {
    /// The numbers `(d, m1, m2, p, b, nb, g1, g2, gd, gp)`, in the order of the published outputs; equal prices are
    /// ranked by them.
    pub fn numbers(&self) -> [u64; 10] {
        let Self { cut: Cut { hidden, sequence, microbatch, panels, .. }, data, pipe } = *self;
        let [sizes, fast] = [|group: Group| group.size, |group: Group| group.fast];
        let groups = [hidden, sequence, data, pipe];
        let [m1, m2, d, p] = groups.map(sizes);
        let [g1, g2, gd, gp] = groups.map(fast);
        [d, m1, m2, p, microbatch, panels, g1, g2, gd, gp]
    }

    /// The group that reduces gradients, which in [`Strategy::TwoD`] also spans the devices that cut the sequence.
    pub(super) fn reducing(&self) -> Group {
        let Self { cut: Cut { strategy, sequence, .. }, data, .. } = *self;
        match strategy {
            Strategy::TwoD => Group { size: data.size * sequence.size, fast: data.fast * sequence.fast },
            Strategy::OneD | Strategy::Summa => data,
        }
    }

    /// Microbatches of a step on one pipeline, `M`.
    pub(super) fn microbatches(&self, global_batch: u64) -> u64 {
        global_batch / self.data.size / self.cut.microbatch
    }

    /// Refuses what has no price. Sizes need not divide what they cut: shares round down. Fields carry the names of the
    /// published outputs.
    ///
    /// # Errors
    /// A size of 0, or one that leaves a device without a head, a layer, a microbatch or a share of the sequence; more
    /// members in a fast domain than the group or the domain has; panels, or a second group, of a strategy that has none.
    pub fn check(&self, shape: &Shape, system: &System, global_batch: u64) -> Result<(), SpecError> {
        let Self { cut: Cut { strategy, hidden, sequence, microbatch, panels }, data, pipe } = *self;
        let groups = [("dp", data), ("tp1", hidden), ("tp2", sequence), ("pp", pipe)];
        for (name, group) in groups {
            check_size(name, group.size)?;
            check_most(&format!("nvs_{name}"), group.fast, group.size, &format!("{name}, the size of the group"))?;
            check_most(&format!("nvs_{name}"), group.fast, system.fast_domain, "nvs, the size of the fast domain")?;
        }
        check_size("global_batch", global_batch)?;
        check_size("microbatch", microbatch)?;
        match strategy {
            Strategy::OneD => check_most("tp2", sequence.size, 1, "1: strategy 1d has one tensor-parallel group")?,
            Strategy::TwoD => {
                let fast = self.reducing().fast;
                check_most("nvs_dp*nvs_tp2", fast, system.fast_domain, "nvs: in 2d both reduce gradients together")?;
            }
            Strategy::Summa => {
                check_size("summa_nb", panels)?;
                check_most("tp1", hidden.size, shape.seq, "the tokens of a sequence, which summa's norm divides")?;
            }
        }
        if strategy != Strategy::Summa && panels != 0 {
            let rule = format!("strategy {} has no panels", strategy.name());
            return Err(SpecError::invalid("summa_nb", panels, rule, "use 0, or strategy summa"));
        }
        check_most("tp1", hidden.size, shape.heads, "the heads of the model")?;
        check_most("tp2", sequence.size, shape.seq, "the tokens of a sequence")?;
        check_most("pp", pipe.size, shape.depth, "the layers of the model")?;
        check_most("dp*microbatch", data.size * microbatch, global_batch, "the global batch")
    }
}
