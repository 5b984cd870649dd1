//! What of a layout a framework has no word for.

use quadrille_spec::{
    Axis, AxisOrder, AxisSet, Classic, Field, Layout, Linear, Offload, Recompute, Schedule, SpecError,
};

use super::Sizes;

/// The parts of a layout that a framework cannot express, as they are found.
pub(super) struct Gaps<'a> {
    framework: &'static str,
    layout: &'a Layout,
    sizes: Sizes,
    pub lines: Vec<String>,
}

impl<'a> Gaps<'a> {
    /// Begins with what none of the frameworks has.
    pub fn new(framework: &'static str, layout: &'a Layout) -> Self {
        let mut gaps = Self { framework, layout, sizes: Sizes::of(layout), lines: Vec::new() };
        let Sizes { x, y, data, .. } = gaps.sizes;
        let expert = layout.grid.size(Axis::Expert);
        if expert > 1 && gaps.sizes.spread_data == 1 {
            let instead = format!("no experts are spread over it, so that it counts as data: data={data}");
            gaps.add(format!("expert={expert}"), instead);
        }
        if layout.linear == Linear::Summa && x * y > 1 {
            gaps.lacks(Field::Linear, "products are not cut into panels; partial sums are reduced instead");
        }
        if layout.overlap_chunks > 1 {
            gaps.lacks(
                Field::OverlapChunks,
                "a microbatch is not computed in parts that hide each other's communication",
            );
        }
        if layout.keep_communicated && layout.recompute != Recompute::None {
            gaps.add(Field::Cac.name(), "recomputation repeats the collectives, too");
        }
        if layout.offload != Offload::None {
            gaps.lacks(Field::Offload, "the optimizer's states stay on the device");
        }
        gaps
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
        if padded > vocab.next_multiple_of(parts) {
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
            let instead = format!(
                "{} cuts weights along one dimension; y counts as tensor parallelism of x*y={}, with other collectives",
                self.framework,
                x * y
            );
            self.add(format!("y={y}"), instead);
        }
        Ok(x * y)
    }

    /// Whether ranks are numbered in the framework's usual order, in which experts lie inside z, as far as axes above 1 go.
    fn is_usual_order(&self) -> bool {
        let above_one = |axis: &Axis| self.layout.grid.size(*axis) > 1;
        let several = |order: AxisOrder| order.axes().into_iter().filter(above_one);
        several(self.layout.grid.order()).eq(several(AxisOrder::usual_of(self.framework)))
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
            let instead = format!("{} numbers ranks by {names}, so other ranks share a node", self.framework);
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
                self.framework
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
        let flat: Vec<Axis> = match self.is_usual_order() {
            true => self.layout.grid.order().axes().into_iter().filter(|axis| *axis != Axis::Pipe).collect(),
            false => flat.collect(),
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

    /// Says so where the pipeline's schedule is not among `known`; `instead` runs then.
    pub fn check_schedule(&mut self, known: &[Schedule], instead: &str) {
        let schedule = self.layout.schedule;
        // One chunk in groups is 1F1B.
        let plain = schedule == Schedule::Interleaved && self.layout.chunks == 1;
        if self.sizes.pipe > 1 && !plain && !known.contains(&schedule) {
            let instead = format!("{} runs {instead}", self.framework);
            self.lacks(Field::Schedule, instead);
        }
    }
}

/// Whether every piece of layers has as many blocks.
pub(super) fn even_pieces(layout: &Layout) -> bool {
    layout.stage_blocks.windows(2).all(|pair| pair[0] == pair[1])
}
