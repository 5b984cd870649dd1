//! Grids with their placements, grouped by what the price of a block depends on.

use std::collections::BTreeMap;

use quadrille_cost::native::{Candidate, Problem};
use quadrille_spec::{Activations, Axis, AxisSet, Grid};

use super::count::Tally;
use super::legal::Rules;
use super::placement::placements_in;
use super::space::Space;

/// Sizes of x, y, z, context and expert, and how experts are spread, with every legal way to place them and to use the other
/// devices.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cut {
    /// Sizes of x, y, z, context and expert.
    pub sizes: [usize; 5],
    /// The axes over which experts are spread.
    pub experts_over: AxisSet,
    /// At least one.
    pub places: Vec<Place>,
}

/// Where the ranks of a cut lie.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Place {
    /// Neighbours along x, y, z, context and expert that share a node.
    pub inside: [usize; 5],
    /// By which as many ranks share the links of every domain; at least one.
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
    /// Sizes of all axes.
    pub fn sizes_with(&self, data: usize, pipe: usize) -> [usize; Axis::COUNT] {
        let [x, y, z, context, expert] = self.sizes;
        [x, y, z, context, expert, data, pipe]
    }

    /// What is the same in all its layouts.
    pub fn plain(&self) -> Candidate {
        Candidate { sizes: self.sizes_with(1, 1), experts_over: self.experts_over, ..Candidate::PLAIN }
    }

    /// The cut with those places and sizes of data and pipe only that `keeps` names; perhaps none.
    pub fn retaining(&self, keeps: impl Fn(&Place, &Outer) -> bool) -> Self {
        let place = |place: &Place| {
            let outer: Vec<Outer> = place.outer.iter().filter(|outer| keeps(place, outer)).copied().collect();
            (!outer.is_empty()).then_some(Place { inside: place.inside, outer })
        };
        Self { places: self.places.iter().filter_map(place).collect(), ..*self }
    }

    /// The cut with one of its places only.
    pub fn at(&self, place: &Place) -> Self {
        Self { places: vec![place.clone()], ..*self }
    }
}

impl Place {
    /// Placement of all axes.
    pub fn inside_with(&self, outer: &Outer) -> [usize; Axis::COUNT] {
        let [x, y, z, context, expert] = self.inside;
        [x, y, z, context, expert, outer.inside_data, outer.inside_pipe]
    }
}

/// The cuts of a number of devices.
pub(super) struct Cuts {
    /// In a fixed order.
    pub cuts: Vec<Cut>,
    /// True if a limit left some out.
    pub stopped: bool,
}

/// What cuts differ by: sizes, and how experts are spread.
type OfCut = ([usize; 5], AxisSet);

/// What their places differ by: neighbours that share a node, and the ranks that share a domain of each tier.
type OfPlace = ([usize; 5], Vec<usize>);

/// Every cut of `devices` devices in nodes of `domain`; grids that break a rule are tallied. Of more than
/// `most` grids, each so many-th is looked at.
pub(super) fn cuts(
    problem: &Problem,
    rules: &Rules,
    space: &Space,
    devices: usize,
    domain: usize,
    tally: &mut Tally,
    most: Option<u64>,
) -> Cuts {
    let mut grouped: BTreeMap<OfCut, BTreeMap<OfPlace, Vec<Outer>>> = BTreeMap::new();
    let grids =
        Grid::all_over(devices, space.open_axes()).into_iter().map(|grid| Axis::ALL.map(|axis| grid.size(axis)));
    let grids: Vec<_> = grids.filter(|sizes| space.has_sizes(sizes)).collect();
    let stride = most.map_or(1, |most| grids.len().div_ceil(most.max(1) as usize)).max(1);
    for sizes in grids.into_iter().step_by(stride) {
        tally.counts.grids += 1;
        let spreadings = legal_spreadings(rules, space, sizes, tally);
        if spreadings.is_empty() {
            continue;
        }
        tally.counts.legal_grids += 1;
        let [x, y, z, context, expert, data, pipe] = sizes;
        for experts_over in spreadings {
            let placed =
                |inside: &[usize; Axis::COUNT]| Candidate { sizes, inside: *inside, experts_over, ..Candidate::PLAIN };
            for inside in placements_in(sizes, domain, |inside| space.has_order(rules, &placed(inside))) {
                let [ix, iy, iz, ic, ie, inside_data, inside_pipe] = inside;
                let of_block = [x, y, z, context, expert];
                let near = [ix, iy, iz, ic, ie];
                let places = grouped.entry((of_block, experts_over)).or_default();
                let place = places.entry((near, problem.ranks_by_tier(sizes, inside))).or_default();
                place.push(Outer { data, pipe, inside_data, inside_pipe });
            }
        }
    }
    let place = |((inside, _), outer)| Place { inside, outer };
    let cuts = grouped.into_iter().map(|((sizes, experts_over), places)| {
        let places = places.into_iter().map(place).collect();
        Cut { sizes, experts_over, places }
    });
    Cuts { cuts: cuts.collect(), stopped: stride > 1 }
}

/// The ways to spread experts that a grid may have; a grid that has none is tallied.
fn legal_spreadings(rules: &Rules, space: &Space, sizes: [usize; Axis::COUNT], tally: &mut Tally) -> Vec<AxisSet> {
    let mut legal = Vec::new();
    let mut first = None;
    let vocab_multiple = space.vocab_multiple();
    for experts_over in space.spreadings(&sizes) {
        let candidate = Candidate { sizes, experts_over, vocab_multiple, ..Candidate::PLAIN };
        match rules.check_grid(&candidate).and_then(|()| space.check_grid(rules, &candidate)) {
            Ok(()) => legal.push(experts_over),
            Err(rule) => {
                first.get_or_insert((rule, experts_over));
            }
        }
    }
    if let Some((rule, experts_over)) = first.filter(|_| legal.is_empty()) {
        tally.refuse_grid(rule, || Candidate { experts_over, vocab_multiple, ..example(sizes) });
    }
    legal
}

/// A layout of a grid without any choice that could break a rule.
fn example(sizes: [usize; Axis::COUNT]) -> Candidate {
    Candidate { sizes, inside: sizes, activations: Activations::Replicated, summa_panels: 0, ..Candidate::PLAIN }
}
