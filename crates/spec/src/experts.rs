//! Experts: perceptrons of a block among which a router chooses some for every token.

use serde::Serialize;

use crate::{BalanceScope, DropOrder, Perceptron, RouterScores};

/// A mixture of experts in the place of a perceptron: `sum over the chosen e of w_e expert_e(x)`, and the shared perceptron's
/// result, if there is one. Neither experts nor router have biases.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Experts {
    /// How many there are, at least 2.
    pub count: usize,
    /// How many a token chooses; at most `count`.
    pub per_token: usize,
    /// Each of them.
    pub expert: Perceptron,
    /// A perceptron for every token beside the chosen ones.
    pub shared: Option<Perceptron>,
    /// What chooses.
    pub router: Router,
    /// How many tokens an expert takes at most.
    pub capacity: Capacity,
}

impl Experts {
    /// Tokens of a group of so many that an expert has place for (GShard: Lepikhin et al. 2020, section 2.2).
    pub fn slots(&self, group: usize) -> usize {
        let wanted = self.capacity.factor * self.per_token as f64 * group as f64 / self.count as f64;
        // What is whole but for rounding is whole.
        group.min((wanted * (1.0 - 1e-12)).ceil() as usize)
    }

    /// Rows that experts compute of a token of sequences of `seq_len` in the mean: as many as it chooses, or fewer places.
    pub fn rows(&self, seq_len: usize) -> f64 {
        let group = self.group(seq_len);
        (self.per_token as f64).min((self.count * self.slots(group)) as f64 / group as f64)
    }

    /// Consecutive tokens of a sequence of `seq_len` that share an expert's places.
    pub fn group(&self, seq_len: usize) -> usize {
        self.capacity.group.unwrap_or(seq_len)
    }
}

/// How experts are chosen and weighted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Router {
    /// What becomes of its logits.
    pub scores: RouterScores,
    /// Whether the weights of the chosen are divided by their sum.
    pub normalize: bool,
    /// What they are multiplied with; above 0.
    pub scale: f64,
    /// Over which tokens loads are balanced by a loss (Switch Transformer: Fedus et al. 2021, equation 4).
    pub balance: BalanceScope,
    /// What that loss is multiplied with.
    pub balance_loss: f64,
    /// What the mean square of the logarithms of the sums of exponentials is multiplied with (ST-MoE: Zoph et al. 2022,
    /// equation 5); 0: there is no such loss.
    pub z_loss: f64,
}

/// The places of an expert: tokens beyond them are dropped, that is, this expert adds nothing to them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Capacity {
    /// Places, as a multiple of what equal loads need.
    pub factor: f64,
    /// Consecutive tokens of a sequence that are counted together; `None`: the sequence.
    pub group: Option<usize>,
    /// Who comes first.
    pub drop: DropOrder,
}
