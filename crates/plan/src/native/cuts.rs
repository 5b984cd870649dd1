//! Grids with their placements, grouped by what the price of a block depends on.

use std::collections::BTreeMap;

use quadrille_cost::native::{Candidate, Problem};
use quadrille_spec::{Activations, Axis, Grid};

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

/// What the cuts are grouped by: sizes, neighbours that share a node, and the ranks that share a domain of each tier.
type Key = ([usize; 5], [usize; 5], Vec<usize>);

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
        if let Err(rule) = rules.check_grid(sizes, space.experts_over()) {
            tally.refuse_grid(rule, || Candidate { experts_over: space.experts_over(), ..example(sizes) });
            continue;
        }
        tally.counts.legal_grids += 1;
        let [x, y, z, context, expert, data, pipe] = sizes;
        for inside in placements(sizes, domain) {
            let [ix, iy, iz, ic, ie, inside_data, inside_pipe] = inside;
            let key = ([x, y, z, context, expert], [ix, iy, iz, ic, ie], problem.ranks_by_tier(sizes, inside));
            grouped.entry(key).or_default().push(Outer { data, pipe, inside_data, inside_pipe });
        }
    }
    let cuts = grouped.into_iter().map(|((sizes, inside, _), outer)| Cut { sizes, inside, outer }).collect();
    Cuts { cuts, stopped }
}

/// A layout of a grid without any choice that could break a rule.
fn example(sizes: [usize; Axis::COUNT]) -> Candidate {
    Candidate { sizes, inside: sizes, activations: Activations::Replicated, summa_panels: 0, ..Candidate::PLAIN }
}
