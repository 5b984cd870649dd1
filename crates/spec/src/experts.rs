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
    /// How many tokens an expert takes at most; `None`: all that choose it.
    pub capacity: Option<Capacity>,
}

impl Experts {
    /// Rows that experts compute of a token of sequences of `seq_len` in the mean: as many as it chooses, or fewer places.
    pub fn rows(&self, seq_len: usize) -> f64 {
        let chosen = self.per_token as f64;
        self.capacity.map_or(chosen, |capacity| {
            let group = capacity.group(seq_len);
            chosen.min((self.count * capacity.slots(self, group)) as f64 / group as f64)
        })
    }
}

/// Groups of consecutive experts, equally many each, to which the choice of a token is limited: it chooses some groups first, by
/// the sums of the largest scores in each, with biases, as many as it takes of a group if it takes as many of each, then experts
/// of these groups alone (DeepSeek-V3, arXiv 2412.19437, section 2.1.2; Megatron-LM's `group_limited_topk`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ExpertGroups {
    /// How many there are; divides the number of experts.
    pub count: usize,
    /// How many a token chooses, below `count`; divides the number of its experts, which have room in them.
    pub chosen: usize,
}

/// How experts are chosen and weighted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Router {
    /// What becomes of its logits.
    pub scores: RouterScores,
    /// Groups to which the choice is limited; `None`: all experts are open to all tokens.
    pub groups: Option<ExpertGroups>,
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
    /// By how much the bias of each expert moves a step, up where its load is below the mean and down where it is above. Experts
    /// are chosen by score and bias, and weighted by the score alone (Wang et al. 2024: auxiliary-loss-free load balancing;
    /// DeepSeek-V3, section 2.1.2). 0: there are no biases.
    pub bias_rate: f64,
}

impl Router {
    /// Whether experts have biases by which they are chosen.
    pub fn has_bias(&self) -> bool {
        self.bias_rate > 0.0
    }
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

impl Capacity {
    /// Tokens of a group of so many that each of these experts has place for (GShard: Lepikhin et al. 2020, section 2.2).
    pub fn slots(&self, experts: &Experts, group: usize) -> usize {
        let wanted = self.slots_per_token(experts) * group as f64;
        // What is whole but for rounding is whole.
        group.min((wanted * (1.0 - 1e-12)).ceil() as usize)
    }

    /// Places of an expert for each token of a group, before they are rounded up.
    pub fn slots_per_token(&self, experts: &Experts) -> f64 {
        self.factor * experts.per_token as f64 / experts.count as f64
    }

    /// Consecutive tokens of a sequence of `seq_len` that share an expert's places.
    pub fn group(&self, seq_len: usize) -> usize {
        self.group.unwrap_or(seq_len)
    }
}
