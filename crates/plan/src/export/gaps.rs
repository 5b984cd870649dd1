//! What of a layout a framework has no word for.

use quadrille_spec::{
    Axis, AxisOrder, AxisSet, Classic, Field, Layout, Linear, Offload, Recompute, Schedule, SpecError, Zero,
};

use super::{Framework, Sizes};
use crate::frameworks::{Capability, Support};

/// The parts of a layout that a framework cannot express, as they are found.
pub(super) struct Gaps<'a> {
    framework: Framework,
    layout: &'a Layout,
    sizes: Sizes,
    pub lines: Vec<String>,
}

impl<'a> Gaps<'a> {
    /// Begins with what none of the frameworks has.
    pub fn new(framework: Framework, layout: &'a Layout) -> Self {
        let mut gaps = Self { framework, layout, sizes: Sizes::of(layout), lines: Vec::new() };
        let Sizes { x, y, data, .. } = gaps.sizes;
        let expert = layout.grid.size(Axis::Expert);
        if expert > 1 && gaps.sizes.spread_data == 1 {
            let instead = format!("no experts are spread over it, so that it counts as data: data={data}");
            gaps.add(format!("expert={expert}"), instead);
        }
        if layout.linear == Linear::Summa && x * y > 1 {
            gaps.state(Capability::Summa, Field::Linear);
        }
        if layout.overlap_chunks > 1 {
            gaps.state(Capability::OverlapChunks, Field::OverlapChunks);
        }
        if let (true, Some(instead)) =
            (layout.keep_communicated && layout.recompute != Recompute::None, gaps.instead(Capability::KeptCollectives))
        {
            gaps.add(Field::Cac.name(), instead);
        }
        if layout.offload != Offload::None {
            gaps.offload();
        }
        gaps
    }

    /// The text of what happens instead, where the framework has a capability in part or not at all.
    pub fn instead(&self, capability: Capability) -> Option<&'static str> {
        match self.framework.support(capability) {
            Support::Whole => None,
            Support::Partial(instead) | Support::Absent(instead) => Some(instead),
        }
    }

    /// Names the layout's value of a field where the framework has no such capability, or has it in part.
    pub fn state(&mut self, capability: Capability, field: Field) {
        if let Some(instead) = self.instead(capability) {
            self.lacks(field, instead);
        }
    }

    /// States in the host's memory, with their buckets.
    fn offload(&mut self) {
        if let Some(instead) = self.instead(Capability::Offload) {
            self.lacks(Field::Offload, format!("{instead} (bucket = {})", self.layout.bucket));
        }
        if self.layout.optimizer_overlap {
            self.lacks(Field::OptimizerOverlap, "states are updated when all gradients are reduced");
        }
    }

    pub fn add(&mut self, part: impl Into<String>, instead: impl AsRef<str>) {
        self.lines.push(format!("{}: {}", part.into(), instead.as_ref()));
    }

    /// Says so where there is no word for what the layout has in a field.
    pub fn lacks(&mut self, field: Field, instead: impl AsRef<str>) {
        self.add(format!("{} = {}", field.name(), field.of(self.layout)), instead);
    }

    /// Says so where the vocabulary is padded, of a framework that takes the model's as it is.
    pub fn unpadded(&mut self, vocab: usize) {
        let parts = self.sizes.x * self.sizes.y;
        let padded = vocab.next_multiple_of(parts * self.layout.vocab_multiple);
        if padded > vocab.next_multiple_of(parts) && !self.framework.has(Capability::PaddedVocabulary) {
            let instead = format!("the vocabulary of {vocab} is taken as it is: give the model one of {padded}");
            self.lacks(Field::VocabMultiple, instead);
        }
    }

    /// x and y as one axis of tensor parallelism, which is all that most frameworks have.
    pub fn tensor_parallel(&mut self, model: &Classic) -> Result<usize, SpecError> {
        let Sizes { x, y, .. } = self.sizes;
        if y > 1 {
            let cut = [("heads", model.heads), ("the perceptron's width", model.ffn)];
            SpecError::check_divides_all("x*y", x * y, &cut)?;
            if let Some(instead) = self.instead(Capability::Columns) {
                self.add(format!("y={y}"), format!("{instead} of x*y={}", x * y));
            }
        }
        Ok(x * y)
    }

    /// Whether ranks are numbered in the framework's usual order, in which experts lie inside z, as far as axes above 1 go.
    fn is_usual_order(&self) -> bool {
        let above_one = |axis: &Axis| self.layout.grid.size(*axis) > 1;
        let several = |order: AxisOrder| order.axes().into_iter().filter(above_one);
        // Without experts over it, expert is data, which lies outside z.
        let spreads = self.layout.grid.size(Axis::Expert) == 1 || self.layout.experts_over.contains(Axis::Expert);
        spreads && several(self.layout.grid.order()).eq(several(AxisOrder::usual_of(self.framework.title())))
    }

    /// True if ranks are numbered in `order`, as far as axes above 1 go, or as the framework does where nothing is said. Data and
    /// expert side by side are data.
    pub fn is_order(&self, order: &[Axis]) -> bool {
        if self.is_usual_order() {
            return true;
        }
        let above_one = |axis: &Axis| self.layout.grid.size(*axis) > 1;
        let given = self.layout.grid.order().axes().into_iter().filter(above_one);
        let mut given: Vec<Axis> =
            given.map(|axis| if Axis::BATCH.contains(&axis) { Axis::Data } else { axis }).collect();
        given.dedup();
        let wanted = |axis: &Axis| if *axis == Axis::Data { self.sizes.data > 1 } else { above_one(axis) };
        given.into_iter().eq(order.iter().copied().filter(wanted))
    }

    /// Says so where ranks are numbered in another order than `order`.
    pub fn check_order(&mut self, order: &[Axis]) {
        if !self.is_order(order) {
            let names = order.iter().map(|axis| axis.name()).collect::<Vec<_>>().join(",");
            let instead = format!("{} numbers ranks by {names}, so other ranks share a node", self.framework.title());
            self.add(format!("order = {}", self.order_in_use()), instead);
        }
    }

    /// Says so where experts are spread over other ranks than the innermost in `order`, those of tensor parallelism left out
    /// that cut every expert.
    pub fn check_experts_over(&mut self, order: &[Axis]) {
        if !self.spreads_first(order) {
            let over = self.layout.experts_over;
            let names = order.iter().map(|axis| axis.name()).collect::<Vec<_>>().join(",");
            let spread = self.layout.grid.size_of(over);
            let instead = format!(
                "{} spreads experts over the {spread} ranks that come first in its order {names}, so other ranks have them",
                self.framework.title()
            );
            self.lacks(Field::ExpertsOver, instead);
        }
    }

    /// True if experts are spread over the innermost ranks in `order`, those of tensor parallelism left out that cut every expert.
    pub fn spreads_first(&self, order: &[Axis]) -> bool {
        let over = self.layout.experts_over;
        let cuts_experts = |axis: &Axis| !over.contains(Axis::X) && [Axis::X, Axis::Y].contains(axis);
        // Expert and data are one axis of frameworks, in which they stand as in the grid.
        let batch = self.layout.grid.order().axes().into_iter().filter(|axis| Axis::BATCH.contains(axis));
        let batch: Vec<Axis> = batch.collect();
        let flat = order.iter().flat_map(|axis| if *axis == Axis::Data { batch.clone() } else { vec![*axis] });
        let flat: Vec<Axis> = if self.is_usual_order() {
            self.layout.grid.order().axes().into_iter().filter(|axis| *axis != Axis::Pipe).collect()
        } else {
            flat.collect()
        };
        let ranks = flat.into_iter().filter(|axis| self.layout.grid.size(*axis) > 1 && !cuts_experts(axis));
        let innermost: AxisSet = ranks.take(over.iter().count()).collect();
        innermost == over
    }

    /// The axes above 1, innermost first.
    fn order_in_use(&self) -> String {
        let order: AxisOrder = self.layout.grid.order();
        let axes = order.axes().into_iter().filter(|axis| self.layout.grid.size(*axis) > 1);
        axes.map(Axis::name).collect::<Vec<_>>().join(",")
    }

    /// Names unequal stages where the framework lacks them.
    pub fn check_stages(&mut self) {
        let instead =
            self.instead(Capability::UnevenStages).filter(|_| self.sizes.pipe > 1 && !even_pieces(self.layout));
        if let Some(instead) = instead {
            self.add(Field::StageBlocks.name(), instead);
        }
    }

    /// Names recomputation where the framework has it in part or not at all.
    pub fn check_recompute(&mut self) {
        if let Some(capability) = Capability::of_recompute(self.layout.recompute) {
            self.state(capability, Field::Recompute);
        }
    }

    /// Names the pipeline's schedule where the framework runs another.
    pub fn check_schedule(&mut self) {
        let schedule = self.layout.schedule;
        // One chunk in groups is 1F1B.
        let plain = schedule == Schedule::Interleaved && self.layout.chunks == 1;
        let runs = if plain { Schedule::OneForwardOneBackward } else { schedule };
        let instead = self.instead(Capability::Pipeline(runs)).filter(|_| self.sizes.pipe > 1);
        if let Some(instead) = instead {
            self.lacks(Field::Schedule, format!("{}: {instead}", self.framework.title()));
            if self.layout.chunks > 1 {
                self.lacks(Field::Chunks, "stages are not interleaved");
            }
            if self.layout.microbatch_group != self.sizes.pipe {
                self.lacks(Field::MicrobatchGroup, "microbatches have no groups");
            }
        }
    }
}

/// The capability of a stage of ZeRO.
pub(crate) fn zero_capability(zero: Zero) -> Capability {
    if zero == Zero::Gradients { Capability::ShardedGradients } else { Capability::ShardedStates }
}

/// Whether every piece of layers has as many blocks.
pub(crate) fn even_pieces(layout: &Layout) -> bool {
    layout.stage_blocks.windows(2).all(|pair| pair[0] == pair[1])
}
