//! The fastest layouts alone.

use quadrille_cost::native::Learned;
use quadrille_spec::{Layout, LayoutFile, Planned, SpecError};

use super::count::Counts;
use super::nothing::Nothing;
use super::question::Cancel;
use super::request::{PlanRequest, Resolved};
use super::search::{Found, Search};

impl PlanRequest {
    /// Searches every legal layout; seconds are those of the discrete events of the program that the framework runs.
    ///
    /// # Errors
    /// A field that breaks its rule; a layout that cannot be priced; no layout that is legal and fits, with reasons and remedies.
    pub fn plan(&self) -> Result<Plan, Nothing> {
        let Resolved { question, wanted } = self.resolve(&Cancel::default(), &Learned::default())?;
        let search = Search { distinct: !wanted.variants, ..question.search(wanted.top)? };
        let found = search.run()?;
        if found.ranked.is_empty() && wanted.top > 0 {
            return Err(search.why_nothing(&found));
        }
        let priced = found.ranked.iter().map(|ranked| {
            let layout = question.layout(ranked)?;
            let seconds = ranked.price.seconds;
            let bytes = ranked.price.memory.total();
            Ok(PlannedLayout { layout, planned: question.framework.planned(), seconds, bytes })
        });
        let layouts = priced.collect::<Result<_, SpecError>>()?;
        let Found { counts, stopped, too_long, .. } = found;
        Ok(Plan { layouts, counts, stopped, too_long })
    }
}

/// Layouts that a search has found.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The fastest that fit, fastest first: as many as were wanted, if there are so many; at least one, unless none was wanted.
    pub layouts: Vec<PlannedLayout>,
    /// Numbers of layouts: enumerated, legal, priced, fitting.
    pub counts: Counts,
    /// True if the limit was reached before every layout was looked at.
    pub stopped: bool,
    /// As [`Found::too_long`].
    pub too_long: usize,
}

/// A layout with its price.
#[derive(Debug, Clone)]
pub struct PlannedLayout {
    /// The layout.
    pub layout: Layout,
    /// Framework and types that it was planned for.
    pub planned: Planned,
    /// Seconds of a step.
    pub seconds: f64,
    /// Bytes of memory on the device that needs most, with all that the framework reserves.
    pub bytes: u64,
}

impl PlannedLayout {
    /// The layout as a file that `quadrille train --layout` reads.
    ///
    /// # Errors
    /// None for what was planned.
    pub fn to_toml(&self) -> Result<String, SpecError> {
        LayoutFile::of(&self.layout).planned_for(self.planned.clone()).to_toml()
    }
}
