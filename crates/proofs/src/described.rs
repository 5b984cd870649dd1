//! Random cases whose blocks are described, and may differ.

use proptest::prelude::*;
use quadrille_draws::descriptions;
use quadrille_spec::{Axis, LayoutFile};

use crate::case::{Case, combined_cases};

/// [`combined_cases`] whose blocks are as [`descriptions`] say.
pub fn described_cases() -> impl Strategy<Value = Case> {
    (combined_cases(), descriptions()).prop_filter_map("sizes that fit each other", |(case, description)| {
        let model = description.of(&case.model, case.layout.grid.size(Axis::X));
        let file = LayoutFile::of(&case.layout);
        let layout = file.validate(&model).ok()?;
        Some(Case { model, layout, ..case })
    })
}
