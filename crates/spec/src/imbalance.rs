//! How unequally ranks get rows of experts that drop nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Serialize, Serializer};

use crate::{Experts, Model, SpecError};

/// How many times the mean the rank has whose experts are chosen most: of a layout, by how many ranks share its experts.
#[derive(Debug, Clone, PartialEq)]
pub enum Imbalance {
    /// So many times, at least 1, in every layout that spreads experts.
    Times(f64),
    /// As tokens have chosen in a run.
    Measured(MeasuredLoads),
}

/// Loads of experts that were counted.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredLoads {
    /// How many experts blocks have.
    experts: BTreeSet<usize>,
    /// By number of ranks that share the experts of a block: the load of the fullest as a multiple of the mean, and of that
    /// the mean over blocks.
    by_ranks: BTreeMap<usize, f64>,
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

    /// How many times the mean the fullest of `ranks` ranks has that share experts; 1 where so many cannot.
    pub fn times(&self, ranks: usize) -> f64 {
        match self {
            Self::Times(times) => *times,
            Self::Measured(loads) => loads.by_ranks.get(&ranks).copied().unwrap_or(1.0),
        }
    }

    /// The room for rows of experts ([`Layout::expert_rows`](crate::Layout::expert_rows)) that `ranks` ranks need which share
    /// experts; 0 where the usual room is enough.
    pub fn expert_rows(&self, ranks: usize) -> usize {
        match self.times(ranks) {
            ..=2.0 => 0,
            times => times.ceil() as usize,
        }
    }

    /// Makes sure that the room for so many times the rows of equal loads, where it is said, is enough for layouts that spread
    /// experts over the fewest ranks.
    ///
    /// # Errors
    /// Less room than these need.
    pub fn check_room(&self, expert_rows: Option<usize>) -> Result<(), SpecError> {
        let least = match self {
            Self::Times(times) => *times,
            Self::Measured(loads) => loads.by_ranks.range(2..).next().map_or(1.0, |(_, times)| *times),
        };
        match expert_rows {
            Some(rows @ 1..) if least > rows as f64 => {
                let rule = format!("the fullest rank has {least} times the rows of experts that equal loads bring");
                let remedy = format!("use `layout.expert_rows` {}, or leave it out", least.ceil());
                Err(SpecError::invalid("`layout.expert_rows`", rows, rule, remedy))
            }
            _ => Ok(()),
        }
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
        match experts().filter(dropless).find(|experts| !loads.experts.contains(&experts.count)) {
            None => Ok(()),
            Some(Experts { count, .. }) => {
                let rule = format!("{} has blocks of {count} experts, the run has none", model.name);
                Err(SpecError::invalid(KEY, self, rule, "take a run of a model that has as many, or give a number"))
            }
        }
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

impl Serialize for Imbalance {
    /// A number; of what was measured those of every number of ranks.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Times(times) => serializer.serialize_f64(*times),
            Self::Measured(loads) => loads.by_ranks.serialize(serializer),
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
        let measured = Imbalance::Measured(MeasuredLoads::new(&[&one, &other]).unwrap());
        // Of 16: the fullest expert has 8, of two 8, of four 8; blocks of equal loads beside it halve what is more than 1.
        let times = [1, 2, 4, 8, 3].map(|ranks| measured.times(ranks));
        assert_eq!(times, [1.0, 1.0, 1.5, 2.5, 1.0]);
        assert_eq!([2, 4, 8].map(|ranks| measured.expert_rows(ranks)), [0, 0, 3]);
        let swapped = [0, 8, 0, 0, 4, 2, 1, 1];
        assert_eq!(fullest_rank(&swapped, 4), fullest_rank(&one, 4), "which expert of a rank does not matter");
        assert_eq!([fullest_rank(&[0; 4], 2), fullest_rank(&[u64::MAX; 4], 2)], [0.0, 1.0]);
        assert_eq!(serde_json::to_value(&measured).unwrap()["8"], 2.5);
        assert_eq!(serde_json::to_value(Imbalance::Times(1.5)).unwrap(), 1.5);
    }

    #[test]
    fn what_says_nothing_about_a_model_is_refused() {
        let refused = |imbalance: &Imbalance, more: &str| imbalance.check(&model(more)).unwrap_err().to_string();
        let (times, dropless) = (Imbalance::Times(1.5), "experts = 8\n");
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
