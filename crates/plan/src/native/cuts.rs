//! Grids with their placements, grouped by what the price of a block depends on.

use std::collections::BTreeMap;

use quadrille_cost::native::{Candidate, Problem};
use quadrille_spec::{Activations, Axis, AxisSet, Grid};

use super::count::Tally;
use super::legal::Rules;
use super::placement::placements;
use super::space::Space;

/// Sizes and placement of x, y, z, context and expert, with every legal way to use the other devices by which as many ranks share
/// the links of every domain.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cut {
    /// Sizes of x, y, z, context and expert.
    pub sizes: [usize; 5],
    /// Neighbours along them that share a node.
    pub inside: [usize; 5],
    /// The axes over which experts are spread.
    pub experts_over: AxisSet,
    /// At least one.
    pub outer: Vec<Outer>,
}

/// Sizes and placement of data and pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outer {
    pub data: usize,
    pub pipe: usize,
    pub inside_data: usize,
    pub inside_pipe: usize,
}

impl Cut {
    /// Sizes and placement of all axes.
    pub fn placed(&self, outer: &Outer) -> ([usize; Axis::COUNT], [usize; Axis::COUNT]) {
        let with = |[x, y, z, context, expert]: [usize; 5], data, pipe| [x, y, z, context, expert, data, pipe];
        (with(self.sizes, outer.data, outer.pipe), with(self.inside, outer.inside_data, outer.inside_pipe))
    }
}

/// The cuts of a number of devices.
pub(super) struct Cuts {
    /// In a fixed order.
    pub cuts: Vec<Cut>,
    /// Whether some were left out since the time was up.
    pub stopped: bool,
}

/// Grids between two questions whether to stop; from then on, one of so many is looked at.
const STRIDE: usize = 64;

/// What the cuts are grouped by: sizes, neighbours that share a node, the ranks that share a domain of each tier, and how
/// experts are spread.
type Key = ([usize; 5], [usize; 5], Vec<usize>, AxisSet);

/// Every cut of `devices` devices in nodes of `domain`; grids that break a rule are tallied. If `stop` says so, those of a
/// sample of the grids that are left.
pub(super) fn cuts(
    problem: &Problem,
    rules: &Rules,
    space: &Space,
    devices: usize,
    domain: usize,
    tally: &mut Tally,
    stop: &dyn Fn() -> bool,
) -> Cuts {
    let mut grouped: BTreeMap<Key, Vec<Outer>> = BTreeMap::new();
    let mut stopped = false;
    for (index, grid) in Grid::all_over(devices, space.open_axes()).into_iter().enumerate() {
        let asks = index % STRIDE == STRIDE - 1;
        stopped |= asks && stop();
        if stopped && !asks {
            continue;
        }
        let sizes = Axis::ALL.map(|axis| grid.size(axis));
        if !space.has_sizes(&sizes) {
            continue;
        }
        tally.counts.grids += 1;
        let spreadings = legal_spreadings(rules, space, sizes, tally);
        if spreadings.is_empty() {
            continue;
        }
        tally.counts.legal_grids += 1;
        let [x, y, z, context, expert, data, pipe] = sizes;
        for inside in placements(sizes, domain) {
            let [ix, iy, iz, ic, ie, inside_data, inside_pipe] = inside;
            let (of_block, near) = ([x, y, z, context, expert], [ix, iy, iz, ic, ie]);
            for spread in &spreadings {
                let key = (of_block, near, problem.ranks_by_tier(sizes, inside), *spread);
                grouped.entry(key).or_default().push(Outer { data, pipe, inside_data, inside_pipe });
            }
        }
    }
    let cut = |((sizes, inside, _, experts_over), outer)| Cut { sizes, inside, experts_over, outer };
    Cuts { cuts: grouped.into_iter().map(cut).collect(), stopped }
}

/// The ways to spread experts that a grid may have; a grid that has none is tallied.
fn legal_spreadings(rules: &Rules, space: &Space, sizes: [usize; Axis::COUNT], tally: &mut Tally) -> Vec<AxisSet> {
    let (mut legal, mut first) = (Vec::new(), None);
    for experts_over in space.spreadings(&sizes) {
        match rules.check_grid(sizes, experts_over) {
            Ok(()) => legal.push(experts_over),
            Err(rule) => {
                first.get_or_insert((rule, experts_over));
            }
        }
    }
    if let Some((rule, experts_over)) = first.filter(|_| legal.is_empty()) {
        tally.refuse_grid(rule, || Candidate { experts_over, ..example(sizes) });
    }
    legal
}

/// A layout of a grid without any choice that could break a rule.
fn example(sizes: [usize; Axis::COUNT]) -> Candidate {
    Candidate { sizes, inside: sizes, activations: Activations::Replicated, summa_panels: 0, ..Candidate::PLAIN }
}
