//! Capabilities that a layout and its types of numbers need, and what a framework does where it lacks them.

use quadrille_cost::native::{self, Moments, Numbers};
use quadrille_spec::{
    Activations, Axis, ElementType, Field, KeepWeights, Layout, Linear, Offload, Schedule, SpecError, Zero,
};

use super::{Capability, Support};
use crate::export::{Framework, even_pieces, zero_capability};

/// Capabilities that a layout needs, each with the part of the layout that needs it.
fn of_layout(layout: &Layout) -> Vec<(String, Capability)> {
    let size = |axis| layout.grid.size(axis);
    let tensor = size(Axis::X) * size(Axis::Y);
    let pipe = size(Axis::Pipe);
    let field = |field: Field| format!("{} = {}", field.name(), field.of(layout));
    let axis = |axis: Axis| format!("{axis} = {}", size(axis));
    let replicas = layout.grid.batch_shares() * size(Axis::Context);
    let activations = match layout.activations {
        Activations::Scattered => Capability::ScatteredActivations,
        Activations::Replicated => Capability::ReplicatedActivations,
    };
    // One chunk in groups is 1F1B.
    let plain = layout.schedule == Schedule::Interleaved && layout.chunks == 1;
    let schedule = if plain { Schedule::OneForwardOneBackward } else { layout.schedule };
    let recompute = Capability::of_recompute(layout.recompute);
    let needs = [
        (size(Axis::Y) > 1, axis(Axis::Y), Some(Capability::Columns)),
        (size(Axis::Z) > 1, axis(Axis::Z), Some(Capability::ShardedWeights)),
        (size(Axis::Context) > 1, axis(Axis::Context), Some(Capability::Context)),
        (tensor > 1 && layout.linear == Linear::Summa, field(Field::Linear), Some(Capability::Summa)),
        (tensor > 1, field(Field::Activations), Some(activations)),
        (layout.overlap_chunks > 1, field(Field::OverlapChunks), Some(Capability::OverlapChunks)),
        (pipe > 1, field(Field::Schedule), Some(Capability::Pipeline(schedule))),
        (pipe > 1 && !even_pieces(layout), field(Field::StageBlocks), Some(Capability::UnevenStages)),
        (true, field(Field::Recompute), recompute),
        (recompute.is_some() && layout.keep_communicated, field(Field::Cac), Some(Capability::KeptCollectives)),
        (replicas > 1 && layout.zero != Zero::Off, field(Field::Zero), Some(zero_capability(layout.zero))),
        (
            size(Axis::Z) > 1 && layout.keep_weights == KeepWeights::Step,
            field(Field::KeepWeights),
            Some(Capability::StepWeights),
        ),
        (layout.offload != Offload::None, field(Field::Offload), Some(Capability::Offload)),
    ];
    needs
        .into_iter()
        .filter(|(needs, ..)| *needs)
        .filter_map(|(_, part, capability)| Some((part, capability?)))
        .collect()
}

/// Capabilities that types of numbers need, each with the option that asks for it.
fn of_numbers(numbers: Numbers) -> Vec<(&'static str, String, Capability)> {
    let Numbers { products, gradients, moments } = numbers;
    let moments = moments.filter(|moments| *moments != Moments::F32);
    let gradients = gradients.filter(|gradients| *gradients == ElementType::Bf16);
    let needs = [
        products.map(|it| ("products", it.to_string(), Capability::Products(it))),
        gradients.map(|it| ("gradients", it.to_string(), Capability::NarrowGradients)),
        moments.map(|it| ("moments", it.to_string(), Capability::Moments(it))),
    ];
    needs.into_iter().flatten().collect()
}

impl Framework {
    /// Parts of a layout and of its types of numbers that the framework has in another way or lacks, each with what it does instead.
    pub fn differences(self, layout: &Layout, numbers: Numbers) -> Vec<String> {
        let of_numbers = of_numbers(numbers).into_iter();
        let needs = of_numbers.map(|(option, value, capability)| (format!("{option} = {value}"), capability));
        let told = of_layout(layout).into_iter().chain(needs);
        told.filter_map(|(part, capability)| match self.support(capability) {
            Support::Whole => None,
            Support::Partial(instead) | Support::Absent(instead) => Some(format!("{part}: {instead}")),
        })
        .collect()
    }

    /// Checks that the framework has the types of numbers of prices, beside weights of their type.
    ///
    /// # Errors
    /// A type that it lacks, with what it does instead.
    pub fn check_numbers(self, priced: &native::Framework) -> Result<(), SpecError> {
        let remedy = "leave it out, name another `search.framework`, or ask for `search.any_layout`";
        of_numbers(priced.numbers).into_iter().try_for_each(|(option, value, capability)| {
            let goes_with_bf16 = !matches!(capability, Capability::Moments(_));
            let rule = match self.support(capability) {
                Support::Absent(instead) => format!("not in {}: {instead}", self.title()),
                _ if goes_with_bf16 && priced.dtype != ElementType::Bf16 => {
                    format!("{} has them beside weights and activations in bf16, not in {}", self.title(), priced.dtype)
                }
                Support::Whole | Support::Partial(_) => return Ok(()),
            };
            Err(SpecError::invalid(option, value, rule, remedy))
        })
    }
}
