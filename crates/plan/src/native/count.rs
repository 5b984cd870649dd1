//! How many layouts there are, how many of them were looked at, and why others were not.

use std::collections::BTreeMap;

use quadrille_cost::native::Candidate;
use quadrille_spec::Rule;

/// Numbers of grids and configurations; `legal = priced + too_large + too_slow`, unless the search stopped early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Grids of the wanted numbers of devices that the constraints allow.
    pub grids: u64,
    /// Grids among them that keep the rules that depend on nothing else.
    pub legal_grids: u64,
    /// Configurations of the legal grids; those that cannot differ in price count once.
    pub enumerated: u64,
    /// Configurations among them that keep every rule.
    pub legal: u64,
    /// Legal configurations that were priced, not only bounded.
    pub priced: u64,
    /// Priced configurations that fit into a device's memory.
    pub fitting: u64,
    /// Legal configurations that were left out because a lower bound of their memory does not fit.
    pub too_large: u64,
    /// Legal configurations that were left out because a lower bound of their time is above what was found.
    pub too_slow: u64,
}

impl Counts {
    /// Adds what another part of the search counted.
    pub(super) fn add(&mut self, other: &Self) {
        self.grids += other.grids;
        self.legal_grids += other.legal_grids;
        self.enumerated += other.enumerated;
        self.legal += other.legal;
        self.priced += other.priced;
        self.fitting += other.fitting;
        self.too_large += other.too_large;
        self.too_slow += other.too_slow;
    }
}

/// What a rule refused.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Refused {
    /// Grids, none of whose configurations was looked at.
    pub grids: u64,
    /// Configurations of other grids.
    pub configurations: u64,
    /// One of them.
    pub example: Candidate,
}

/// Counts and refusals of a part of the search.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Tally {
    pub counts: Counts,
    pub refused: BTreeMap<Rule, Refused>,
}

impl Tally {
    /// Counts a grid that breaks a rule.
    pub fn refuse_grid(&mut self, rule: Rule, example: impl FnOnce() -> Candidate) {
        self.entry(rule, example).grids += 1;
    }

    /// Counts configurations that break a rule.
    pub fn refuse(&mut self, rule: Rule, configurations: u64, example: impl FnOnce() -> Candidate) {
        self.counts.enumerated += configurations;
        self.entry(rule, example).configurations += configurations;
    }

    fn entry(&mut self, rule: Rule, example: impl FnOnce() -> Candidate) -> &mut Refused {
        self.refused.entry(rule).or_insert_with(|| Refused { grids: 0, configurations: 0, example: example() })
    }

    /// Adds what a later part of the search counted.
    pub fn add(&mut self, later: &Self) {
        self.counts.add(&later.counts);
        for (rule, refused) in &later.refused {
            let entry = self.entry(*rule, || refused.example);
            entry.grids += refused.grids;
            entry.configurations += refused.configurations;
        }
    }
}
