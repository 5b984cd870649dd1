//! Random experts in the place of perceptrons.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use quadrille_spec::{
    BalanceScope, Blocks, Capacity, DropOrder, ExpertGroups, Experts, FeedForward, Model, Perceptron, Router,
    RouterScores,
};

use crate::width;

/// Experts of all blocks, or of some.
#[derive(Debug, Clone)]
pub struct Mixture {
    count: usize,
    per_token: usize,
    /// Times the width of the perceptron that they replace.
    wider: usize,
    /// Whether a shared perceptron of that width works on every token.
    shared: bool,
    router: Router,
    /// Which of the groups that are possible the choice is limited to, if it is.
    limit: Option<Index>,
    /// Times the places that equal loads need; `None`: nothing is dropped.
    factor: Option<f64>,
    group: Index,
    drop: DropOrder,
    /// By place, over and over: whether a block has them.
    order: Vec<bool>,
}

impl Mixture {
    /// The model with these experts in its blocks, as many that `ranks` have equally many; groups of tokens that share places
    /// divide `rows`.
    pub fn of(&self, model: &Model, rows: usize, ranks: usize) -> Model {
        let groups: Vec<usize> = (1..=rows).filter(|group| rows.is_multiple_of(*group)).collect();
        let group = Some(*self.group.get(&groups));
        let block = |place: usize| {
            let mut block = model.blocks[place];
            if self.order[place % self.order.len()] {
                block.feed_forward = FeedForward::Experts(self.experts(&block.feed_forward, group, ranks));
            }
            block
        };
        Model { blocks: Blocks::new(block(0), (1..model.layers()).map(block)), ..model.clone() }
    }

    fn experts(&self, replaced: &FeedForward, group: Option<usize>, ranks: usize) -> Experts {
        let perceptron =
            |width| Perceptron { width, activation: replaced.activation(), up_bias: false, down_bias: false };
        let count = self.count.next_multiple_of(ranks);
        Experts {
            count,
            per_token: self.per_token,
            expert: perceptron(width(replaced) * self.wider),
            shared: self.shared.then(|| perceptron(width(replaced))),
            router: Router { groups: self.groups(count), ..self.router },
            capacity: self.factor.map(|factor| Capacity { factor, group, drop: self.drop }),
        }
    }

    /// Those of the groups of so many experts that were drawn.
    fn groups(&self, experts: usize) -> Option<ExpertGroups> {
        let of_count = |count: usize| (1..count).map(move |chosen| ExpertGroups { count, chosen });
        let has_room = |groups: &ExpertGroups| {
            self.per_token.is_multiple_of(groups.chosen) && self.per_token <= groups.chosen * (experts / groups.count)
        };
        let counts = (2..=experts).filter(|count| experts.is_multiple_of(*count));
        let possible: Vec<ExpertGroups> = counts.flat_map(of_count).filter(has_room).collect();
        self.limit.filter(|_| !possible.is_empty()).map(|limit| *limit.get(&possible))
    }
}

fn routers(per_token: usize) -> impl Strategy<Value = Router> {
    let choices = (
        select(RouterScores::ALL.map(|(_, it)| it).to_vec()),
        any::<bool>(),
        select(vec![BalanceScope::Sequence, BalanceScope::Sequence, BalanceScope::Batch, BalanceScope::None]),
    );
    let losses = (select(vec![0.01, 0.5]), select(vec![0.0, 0.1]));
    let numbers = (select(vec![1.0, 1.0, 2.5]), losses, select(vec![0.0, 0.001, 0.1]));
    (choices, numbers).prop_map(move |((scores, normalize, balance), (scale, (balance_loss, z_loss), bias_rate))| {
        Router {
            scores,
            groups: None,
            normalize: normalize && per_token > 1,
            scale,
            balance,
            balance_loss: if balance == BalanceScope::None { 0.0 } else { balance_loss },
            z_loss,
            bias_rate,
        }
    })
}

/// Two to five experts and more in every block or in some, of which tokens choose one to three, of all or of some groups: both
/// kinds of scores, both orders of dropping, with and without biases of routers and a shared perceptron, places for few, for all
/// and as many as are needed, loads balanced over sequences, over batches or not.
pub fn mixtures() -> impl Strategy<Value = Mixture> {
    let sizes = (2..=5_usize).prop_flat_map(|count| (Just(count), 1..=count.min(3), 1..=2_usize, any::<bool>()));
    let places = (
        select(vec![None, None, Some(0.5), Some(1.0), Some(1.25), Some(5.0)]),
        any::<Index>(),
        select(DropOrder::ALL.map(|(_, it)| it).to_vec()),
    );
    let orders = select(vec![vec![true], vec![true], vec![false, true], vec![true, false]]);
    sizes.prop_flat_map(move |(count, per_token, wider, shared)| {
        let router = (routers(per_token), prop::option::of(any::<Index>()));
        (router, places.clone(), orders.clone()).prop_map(move |((router, limit), (factor, group, drop), order)| {
            Mixture { count, per_token, wider, shared, router, limit, factor, group, drop, order }
        })
    })
}

#[cfg(test)]
mod tests {
    use quadrille_spec::ModelFile;

    use super::*;

    proptest! {
        #[test]
        fn drawn_experts_are_written_and_read_again(mixture in mixtures()) {
            let model = mixture.of(&Model::gpt(3, 12, 3, 7, 12), 4, 3);
            prop_assert_eq!(ModelFile::of(&model).validate().unwrap(), model);
        }
    }
}
