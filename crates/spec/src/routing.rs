//! Which algorithm carries out a collective, by where the members of its group lie.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{CollectiveKind, Formation, Grid, Layout, Nodes, SpecError, Tier, TwoLevel};

/// How a collective is carried out. `G` members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// `G - 1` steps from neighbour to neighbour; broadcasts and reductions are pipelined chains. All-to-alls are pairwise
    /// exchanges, by [`Recursive`](Self::Recursive) as well.
    Ring,
    /// `ceil(log2 G)` steps, for any number of members: recursive doubling (all-gather), halving (reduce-scatter), both
    /// (all-reduce), binomial trees (broadcast, reduce).
    Recursive,
    /// Two levels, as PCCL (dissertation around AxoNN, section 6.2): [`Recursive`](Self::Recursive) over the members of
    /// equal local index on all nodes, [`Ring`](Self::Ring) inside each node. An all-to-all is pairwise inside each node, then
    /// between those of equal local index, so that a member sends each other node one message.
    Hierarchical,
    /// What the transport brings: shared memory between threads, the library's own collectives in MPI. What these send
    /// is counted as a ring's.
    Native,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Ring, Self::Recursive, Self::Hierarchical, Self::Native];

    /// The name on the command line and in files: `ring`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Recursive => "recursive",
            Self::Hierarchical => "hierarchical",
            Self::Native => "native",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = SpecError;

    fn from_str(name: &str) -> Result<Self, SpecError> {
        let known = || Self::ALL.map(|algorithm| algorithm.name().to_owned()).to_vec();
        let unknown = || SpecError::Unknown { what: "algorithm", name: name.to_owned(), known: known() };
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name).ok_or_else(unknown)
    }
}

/// What was asked for: an algorithm, or the choice among them. Written by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub enum Collectives {
    /// The fastest known for each collective.
    Auto,
    /// This one for all.
    Always(Algorithm),
}

impl fmt::Display for Collectives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Always(algorithm) => algorithm.fmt(f),
        }
    }
}

impl From<Collectives> for String {
    fn from(asked: Collectives) -> Self {
        asked.to_string()
    }
}

impl TryFrom<String> for Collectives {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl FromStr for Collectives {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let names = Algorithm::ALL.map(|algorithm| algorithm.name().to_owned());
        text.parse().map(Self::Always).map_err(|_: SpecError| SpecError::Unknown {
            what: "algorithm of collectives",
            name: text.to_owned(),
            known: std::iter::once("auto".to_owned()).chain(names).collect(),
        })
    }
}

/// How the collectives of a job find their algorithms.
#[derive(Debug, Clone, PartialEq)]
pub enum Choice {
    /// Always this one.
    Always(Algorithm),
    /// The fastest of ring, recursive and hierarchical over these tiers (innermost first: inside a node, between nodes),
    /// as [`Formation::seconds`] prices them.
    Fastest(Vec<Tier>),
}

/// Where the ranks of a job lie, and how their collectives find their algorithms. What predicts a step and what executes
/// it ask the same routing, so that both mean the same bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Routing {
    /// The node of every rank.
    pub nodes: Nodes,
    /// How algorithms are chosen.
    pub choice: Choice,
    /// The ranks' grid. All groups along the same axes then take the same route: replicas of a sum on ranks of different
    /// groups are equal in every bit.
    pub grid: Option<Grid>,
}

/// How one collective of one group is carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// See [`Algorithm::Ring`].
    Ring,
    /// See [`Algorithm::Recursive`].
    Recursive,
    /// See [`Algorithm::Hierarchical`].
    Hierarchical(TwoLevel),
    /// See [`Algorithm::Native`].
    Native,
}

impl Route {
    /// Its algorithm.
    pub fn algorithm(&self) -> Algorithm {
        match self {
            Self::Ring => Algorithm::Ring,
            Self::Recursive => Algorithm::Recursive,
            Self::Hierarchical(_) => Algorithm::Hierarchical,
            Self::Native => Algorithm::Native,
        }
    }
}

impl Routing {
    /// What thread ranks do unless told otherwise: shared memory.
    pub fn native(ranks: usize) -> Self {
        Self { nodes: Nodes::equal(ranks, ranks), choice: Choice::Always(Algorithm::Native), grid: None }
    }

    /// Of a layout's ranks on its nodes.
    pub fn of(layout: &Layout, choice: &Choice) -> Self {
        let nodes = Nodes::equal(layout.grid.ranks(), layout.per_node);
        Self { nodes, choice: choice.clone(), grid: Some(layout.grid) }
    }

    /// How collectives of several members run, if that is the same wherever these lie: no group has to be looked at.
    pub fn fixed(&self) -> Option<Route> {
        match &self.choice {
            Choice::Always(Algorithm::Ring) => Some(Route::Ring),
            Choice::Always(Algorithm::Recursive) => Some(Route::Recursive),
            Choice::Always(Algorithm::Native) => Some(Route::Native),
            Choice::Always(Algorithm::Hierarchical) | Choice::Fastest(_) => None,
        }
    }

    /// How a collective with a full buffer of `bytes` runs in a group of this formation.
    ///
    /// Two levels need several nodes with equally many members, several on each. Where a group has not, `hierarchical`
    /// means a ring on one node, the recursive algorithms with one member on each node, and a ring elsewhere.
    pub fn route(&self, kind: CollectiveKind, bytes: u64, formation: &Formation) -> Route {
        let algorithm = match &self.choice {
            Choice::Always(algorithm) => *algorithm,
            Choice::Fastest(tiers) => {
                let two_levels =
                    formation.levels.as_ref().is_some_and(|levels| levels.nodes > 1 && levels.per_node > 1);
                let candidates = [Algorithm::Ring, Algorithm::Recursive]
                    .into_iter()
                    .chain(two_levels.then_some(Algorithm::Hierarchical));
                let seconds = |algorithm: &Algorithm| formation.seconds(tiers, *algorithm, kind, bytes as f64);
                let fastest = candidates.min_by(|a, b| seconds(a).total_cmp(&seconds(b)));
                fastest.unwrap_or(Algorithm::Ring)
            }
        };
        match (algorithm, &formation.levels) {
            (Algorithm::Recursive, _) => Route::Recursive,
            (Algorithm::Native, _) => Route::Native,
            (Algorithm::Hierarchical, Some(levels)) if levels.nodes > 1 && levels.per_node > 1 => {
                Route::Hierarchical(levels.clone())
            }
            (Algorithm::Hierarchical, Some(levels)) if levels.nodes > 1 => Route::Recursive,
            (Algorithm::Ring | Algorithm::Hierarchical, _) => Route::Ring,
        }
    }
}
