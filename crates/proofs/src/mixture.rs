//! Random cases whose blocks have experts, all of them or some.

use proptest::prelude::*;
use proptest::sample::select;
use quadrille_draws::mixtures;
use quadrille_spec::{
    Activations, Axis, AxisSet, Dispatch, DropOrder, Experts, FeedForward, Field, FieldValue, LayoutFile, Model,
};

use crate::case::{Case, combined_cases};

/// Tokens may be alike: two equal ones that begin a sequence give equal rows all the way up. Which of them has a place by its
/// weight is then up to rounding. Patches are all different.
fn in_order_of_choice(mut model: Model) -> Model {
    if model.patch_values.is_none() {
        model.blocks = model.blocks.each(|block| {
            if let FeedForward::Experts(Experts { capacity: Some(capacity), .. }) = &mut block.feed_forward {
                capacity.drop = DropOrder::Choice;
            }
        });
    }
    model
}

/// [`combined_cases`] with experts as [`mixtures`] says, spread over any axes that may spread them.
pub fn expert_cases() -> impl Strategy<Value = Case> {
    let spreading = prop::collection::vec(any::<bool>(), Axis::SPREADING.iter().count());
    let dispatches = select(Dispatch::ALL.map(|(_, dispatch)| dispatch).to_vec());
    let drawn = (combined_cases(), mixtures(), spreading, dispatches);
    drawn.prop_filter_map("sizes that fit each other", |(case, mixture, spreading, dispatch)| {
        let grid = case.layout.grid;
        let axes = Axis::SPREADING.iter().zip(spreading).filter(|(axis, on)| *on && grid.size(*axis) > 1);
        let over: AxisSet = axes.map(|(axis, _)| axis).collect();
        let context = grid.size(Axis::Context);
        let pieces = if context == 1 { 1 } else { 2 * context };
        // Groups cut the longest sequences, too.
        let held = case.layout.seq_len / pieces;
        let rows =
            (1..=held).rev().find(|rows| held.is_multiple_of(*rows) && case.model.seq_len.is_multiple_of(*rows))?;
        let model = in_order_of_choice(mixture.of(&case.model, rows, grid.size_of(over)));
        let mut file = LayoutFile::of(&case.layout).with(Field::ExpertsOver, FieldValue::Name(over.to_string()));
        if case.layout.activations == Activations::Replicated {
            file = file.with(Field::Dispatch, FieldValue::Name(dispatch.to_string()));
        }
        let kinds = model.blocks.kinds().iter().filter_map(|block| block.feed_forward.experts());
        if kinds.into_iter().any(|experts| experts.capacity.is_none()) {
            // Small models choose as they please.
            file = file.with(Field::ExpertRows, FieldValue::Size(100));
        }
        let layout = file.validate(&model).ok()?;
        Some(Case { model, layout, ..case })
    })
}
