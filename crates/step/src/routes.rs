//! The routes that a rank's collectives take.

use std::collections::HashMap;

use quadrille_spec::{AxisSet, CollectiveKind, Formation, Grid, Route, Routing};

use crate::operation::Members;

/// The groups of one rank, each looked at once, and only where a route depends on where its members lie.
pub(crate) struct Routes<'a> {
    routing: &'a Routing,
    grid: &'a Grid,
    rank: usize,
    formations: HashMap<(AxisSet, Members), Formation>,
}

impl<'a> Routes<'a> {
    pub(crate) fn new(routing: &'a Routing, grid: &'a Grid, rank: usize) -> Self {
        Self { routing, grid, rank, formations: HashMap::new() }
    }

    /// Of a collective over `axes` with a payload of `bytes`.
    pub(crate) fn route(&mut self, axes: AxisSet, who: Members, kind: CollectiveKind, bytes: u64) -> Route {
        let routing = self.routing;
        let grid = self.grid;
        let rank = self.rank;
        if let Some(route) = routing.fixed() {
            return route;
        }
        let formation =
            self.formations.entry((axes, who)).or_insert_with(|| routing.formation(&members(grid, rank, axes, who)));
        routing.route(kind, bytes, formation)
    }
}

/// The members of this rank's collective over `axes`, in index order.
fn members(grid: &Grid, rank: usize, axes: AxisSet, who: Members) -> Vec<usize> {
    let along = grid.group(rank, axes);
    match who {
        Members::All | Members::Root(_) => along,
        Members::Ends => vec![along[0], along[along.len() - 1]],
        Members::Blocks(size) => {
            let place = grid.group_index(grid.coordinate(rank), axes);
            along[place / size * size..][..size].to_vec()
        }
    }
}
