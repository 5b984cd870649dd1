//! How unequally ranks get rows of experts that drop nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Experts, Model, SpecError};

/// How many times the mean the rank has whose experts are chosen most: of a layout, by how many ranks share its experts.
#[derive(Debug, Clone, PartialEq)]
pub enum Imbalance {
    /// So many times, at least 1, in every layout that spreads experts; where tokens cannot choose so much of one rank, all that
    /// they can.
    Times(f64),
    /// As tokens have chosen in a run.
    Measured(MeasuredLoads),
}

/// Loads of experts that were counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredLoads {
    /// How many experts blocks have.
    experts: BTreeSet<usize>,
    /// By number of ranks that share the experts of a block: the load of the fullest as a multiple of the mean, and of that
    /// the mean over blocks.
    by_ranks: BTreeMap<usize, f64>,
}

/// How many times as many rows as equal loads bring one of `ranks` ranks can have that share `experts` experts, of which each
/// token chooses `per_token`: as many as it can of this rank's.
pub fn most_crowded(experts: usize, per_token: usize, ranks: usize) -> f64 {
    (ranks * per_token.min(experts / ranks)) as f64 / per_token as f64
}

/// How many times the rows of equal loads a rank usually has room for where `most` times as many can come: for all of them if they
/// are up to four times as many, else for twice as many.
pub fn usual_room(most: f64) -> f64 {
    if most <= 4.0 { most } else { 2.0 }
}

/// How many times the mean the fullest of `ranks` ranks has, which share experts with these loads, neighbours on one rank; 0
/// where there are none.
pub fn fullest_rank(loads: &[u64], ranks: usize) -> f64 {
    let of_rank = (loads.len() / ranks).max(1);
    let sum = |loads: &[u64]| loads.iter().map(|load| u128::from(*load)).sum::<u128>();
    let fullest = loads.chunks(of_rank).map(sum).max().unwrap_or(0);
    let all = sum(loads).max(1);
    fullest as f64 * ranks as f64 / all as f64
}

impl MeasuredLoads {
    /// Load of the fullest as a multiple of the mean, by number of ranks that share the experts of a block.
    pub fn by_ranks(&self) -> impl Iterator<Item = (usize, f64)> {
        self.by_ranks.iter().map(|(ranks, times)| (*ranks, *times))
    }

    /// Of blocks that have experts, how often each of them was chosen.
    ///
    /// # Errors
    /// No block, or one whose experts nothing has chosen.
    pub fn new(blocks: &[&[u64]]) -> Result<Self, SpecError> {
        if blocks.is_empty() || blocks.iter().any(|loads| loads.iter().all(|load| *load == 0)) {
            let rule = "loads of experts are those of a run whose tokens have chosen some in every block that has them";
            return Err(SpecError::invalid(KEY, "measured", rule, "take another run, or give a number, e.g. 1.3"));
        }
        let experts: BTreeSet<usize> = blocks.iter().map(|loads| loads.len()).collect();
        let most = experts.last().copied().unwrap_or(1);
        let shared = |ranks: &usize| experts.iter().all(|experts| experts.is_multiple_of(*ranks));
        let mean = |ranks: usize| blocks.iter().map(|loads| fullest_rank(loads, ranks)).sum::<f64>();
        let by_ranks = (1..=most).filter(shared).map(|ranks| (ranks, (mean(ranks) / blocks.len() as f64).max(1.0)));
        Ok(Self { by_ranks: by_ranks.collect(), experts })
    }
}

/// What messages call it.
const KEY: &str = "`search.imbalance`";

impl Imbalance {
    /// As many rows for every rank.
    pub const EQUAL: Self = Self::Times(1.0);

    /// How many times the mean the fullest of `ranks` ranks has that share experts, if tokens can choose so much; 1 where so many
    /// ranks cannot share them.
    pub fn times(&self, ranks: usize) -> f64 {
        match self {
            Self::Times(_) if ranks <= 1 => 1.0,
            Self::Times(times) => *times,
            Self::Measured(loads) => loads.by_ranks.get(&ranks).copied().unwrap_or(1.0),
        }
    }

    /// The same of the experts of a model: no more than can come to a rank.
    pub fn times_in(&self, model: &Model, ranks: usize) -> f64 {
        self.crowds(model, ranks).map(|(times, _)| times).fold(1.0, f64::max)
    }

    /// The room for rows of experts ([`Layout::expert_rows`](crate::Layout::expert_rows)) that `ranks` ranks need which share the
    /// experts of a model; 0 where the usual room is enough.
    pub fn expert_rows(&self, model: &Model, ranks: usize) -> usize {
        if self.has_room(model, ranks, 0) { 0 } else { self.times_in(model, ranks).ceil() as usize }
    }

    /// Whether `ranks` ranks that share the experts of a model have room for the rows of the fullest, with so much room
    /// ([`Layout::expert_rows`](crate::Layout::expert_rows)).
    pub fn has_room(&self, model: &Model, ranks: usize, expert_rows: usize) -> bool {
        let room = |most: f64| if expert_rows == 0 { usual_room(most) } else { expert_rows as f64 };
        self.crowds(model, ranks).all(|(times, most)| times <= room(most))
    }

    /// By kind of block with experts that drop nothing: how many times the mean the fullest rank has, and can have.
    fn crowds<'a>(&'a self, model: &'a Model, ranks: usize) -> impl Iterator<Item = (f64, f64)> + 'a {
        let experts = model.blocks.kinds().iter().filter_map(|block| block.feed_forward.experts());
        experts.filter(|experts| experts.capacity.is_none()).map(move |experts| {
            let most = most_crowded(experts.count, experts.per_token, ranks);
            (self.times(ranks).min(most), most)
        })
    }

    /// Whether it says something about a model: what is not equal is of experts that drop nothing, and loads are of as many.
    ///
    /// # Errors
    /// What is in the way.
    pub fn check(&self, model: &Model) -> Result<(), SpecError> {
        let leave = "leave it out";
        if let Self::Times(times) = self
            && !(1.0..=MOST).contains(times)
        {
            let rule = format!(
                "the fullest rank has at least as many rows of experts as the mean, and at most {MOST:e} times"
            );
            return Err(SpecError::invalid(KEY, times, rule, "give a number from 1 on, e.g. 1.3"));
        }
        if *self == Self::EQUAL {
            return Ok(());
        }
        let experts = || model.blocks.kinds().iter().filter_map(|block| block.feed_forward.experts());
        if experts().next().is_none() {
            return Err(SpecError::invalid(KEY, self, format!("{} has no experts", model.name), leave));
        }
        let dropless = |experts: &&Experts| experts.capacity.is_none();
        if !experts().any(|experts| dropless(&experts)) {
            let rule = "experts of `model.capacity` have as many places, whatever tokens choose";
            return Err(SpecError::invalid(KEY, self, rule, leave));
        }
        let Self::Measured(loads) = self else { return Ok(()) };
        let counts: BTreeSet<usize> = experts().filter(dropless).map(|experts| experts.count).collect();
        if counts == loads.experts {
            return Ok(());
        }
        let told = |counts: &BTreeSet<usize>| counts.iter().map(usize::to_string).collect::<Vec<_>>().join(" and ");
        let [ours, theirs] = [&counts, &loads.experts].map(told);
        let rule = format!("{} has blocks of {ours} experts, the run of {theirs}", model.name);
        Err(SpecError::invalid(KEY, self, rule, "take a run of a model that has as many, or give a number"))
    }
}

/// The most that it can be: there is no grid of more ranks.
const MOST: f64 = (1 << 24) as f64;

impl fmt::Display for Imbalance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Times(times) => write!(f, "{times}"),
            Self::Measured(_) => f.write_str("measured"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(more: &str) -> Model {
        let text = "name = 'loads'\nlayers = 2\nhidden = 8\nheads = 4\nvocab = 13\nseq_len = 8\n";
        Model::from_toml(&format!("{text}{more}"), &[]).unwrap()
    }

    #[test]
    fn ranks_have_neighbours_and_the_fullest_counts() {
        let [one, other] = [[8, 0, 0, 0, 4, 2, 1, 1], [2; 8]];
        let loads = MeasuredLoads::new(&[&one, &other]).unwrap();
        assert_eq!(loads.by_ranks().find(|(ranks, _)| *ranks == 8), Some((8, 2.5)));
        let measured = Imbalance::Measured(loads);
        // Of 16: the fullest expert has 8, of two 8, of four 8; blocks of equal loads beside it halve what is more than 1.
        let times = [1, 2, 4, 8, 3].map(|ranks| measured.times(ranks));
        assert_eq!(times, [1.0, 1.0, 1.5, 2.5, 1.0]);
        let eight = model("experts = 8\nexperts_per_token = 1\n");
        assert_eq!([2, 4, 8].map(|ranks| measured.expert_rows(&eight, ranks)), [0, 0, 3]);
        let swapped = [0, 8, 0, 0, 4, 2, 1, 1];
        assert_eq!(fullest_rank(&swapped, 4), fullest_rank(&one, 4), "which expert of a rank does not matter");
        assert_eq!([fullest_rank(&[0; 4], 2), fullest_rank(&[u64::MAX; 4], 2)], [0.0, 1.0]);
    }

    /// There is never less room than usual, and never less for loads that are more unequal.
    #[test]
    fn room_grows_with_what_comes_and_ends_with_what_can() {
        let two_of_eight = model("experts = 8\nexperts_per_token = 2\n");
        let rows = |times: f64, ranks| Imbalance::Times(times).expert_rows(&two_of_eight, ranks);
        // All that can come is twice as much on two ranks and four times as much on others: there is room for it.
        assert_eq!([1, 2, 4, 8].map(|ranks| rows(9.0, ranks)), [0; 4]);
        let one_of_eight = model("experts = 8\nexperts_per_token = 1\n");
        let rows = |times: f64| Imbalance::Times(times).expert_rows(&one_of_eight, 8);
        assert_eq!([1.0, 2.0, 2.5, 3.0, 7.5, 9.0].map(rows), [0, 0, 3, 3, 8, 8]);
        let has_room = |rows| Imbalance::Times(3.0).has_room(&one_of_eight, 8, rows);
        assert_eq!([0, 1, 2, 3, 4].map(has_room), [false, false, false, true, true]);
        let times = |ranks| Imbalance::Times(3.0).times_in(&one_of_eight, ranks);
        assert_eq!([1, 2, 4, 8].map(times), [1.0, 2.0, 3.0, 3.0]);
        let places = model("experts = 8\ncapacity = 1.0\n");
        assert_eq!(
            (Imbalance::Times(3.0).expert_rows(&places, 8), Imbalance::Times(3.0).times_in(&places, 8)),
            (0, 1.0)
        );
    }

    #[test]
    fn what_says_nothing_about_a_model_is_refused() {
        let refused = |imbalance: &Imbalance, more: &str| imbalance.check(&model(more)).unwrap_err().to_string();
        let times = Imbalance::Times(1.5);
        let dropless = "experts = 8\n";
        assert_eq!(times.check(&model(dropless)), Ok(()));
        assert_eq!(Imbalance::EQUAL.check(&model("")), Ok(()));
        for wrong in [0.5, -1.0, f64::NAN, f64::INFINITY] {
            let message = refused(&Imbalance::Times(wrong), dropless);
            assert!(message.contains("search.imbalance") && message.contains("e.g. 1.3"), "{message}");
        }
        let message = refused(&times, "");
        assert!(
            message.contains("1.5") && message.contains("no experts") && message.contains("leave it out"),
            "{message}"
        );
        let message = refused(&times, "experts = 8\ncapacity = 1.0\n");
        assert!(message.contains("model.capacity") && message.contains("leave it out"), "{message}");
        let measured = Imbalance::Measured(MeasuredLoads::new(&[&[1, 2, 3, 4]]).unwrap());
        let message = refused(&measured, dropless);
        assert!(message.contains("8 experts") && message.contains("give a number"), "{message}");
        for none in [vec![], vec![&[0_u64, 0][..]]] {
            assert!(MeasuredLoads::new(&none).unwrap_err().to_string().contains("another run"));
        }
    }
}
