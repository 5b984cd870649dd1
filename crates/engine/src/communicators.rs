//! A rank's communicators, and agreements between steps. Agreements are in no step's ledger.

use std::collections::BTreeMap;

use quadrille_comm::{Group, Label, Payload, RankContext, Reduction};
use quadrille_spec::{Axis, AxisSet};
use quadrille_step::{Collective, Layer, Members, StageProgram, StepProgram, declared_axes};

use crate::EngineError;

/// Characters of a text that ranks send each other; longer ones are cut.
const TEXT: usize = 400;

/// The groups of a rank.
pub(crate) struct Communicators<'a> {
    pub context: &'a RankContext,
    groups: BTreeMap<AxisSet, Group>,
    /// The first and the last stage, on their ranks.
    pipe_ends: Option<Group>,
    /// Ranks that hold the same keys and values, by their number, where there are several.
    key_copies: BTreeMap<usize, Group>,
}

impl<'a> Communicators<'a> {
    /// Creates the groups that a rank's program declares.
    ///
    /// # Errors
    /// The job was stopped.
    pub fn new(program: &StepProgram, context: &'a RankContext) -> Result<Self, EngineError> {
        let grid = &program.layout.grid;
        let rank = context.rank();
        let stage = program.of_rank(rank);
        let mut groups = BTreeMap::new();
        for axes in declared_axes(stage) {
            groups.insert(axes, context.group(&axes.key(), &grid.group(rank, axes))?);
        }
        let stages = grid.group(rank, Axis::Pipe.only());
        let first = stages[0];
        let last = stages[stages.len() - 1];
        let pipe_ends = if first != last && (rank == first || rank == last) {
            Some(context.group(&Axis::Pipe.only().key(), &[first, last])?)
        } else {
            None
        };
        Ok(Self { context, groups, pipe_ends, key_copies: key_copies(stage, context)? })
    }

    /// The group along `axes`.
    pub fn group(&self, axes: AxisSet) -> &Group {
        &self.groups[&axes]
    }

    /// The group of a collective; `None` on a rank that is not a member.
    pub fn members(&self, collective: &Collective) -> Option<&Group> {
        match collective.members {
            Members::Ends => self.pipe_ends.as_ref(),
            Members::Blocks(size) => self.key_copies.get(&size),
            Members::All | Members::Root(_) => Some(self.group(collective.axes)),
        }
    }

    /// Records what the rank does next, for failure reports; returns an error if the job was stopped.
    pub fn enter(&self, layer: Layer, operation: &'static str) -> Result<(), EngineError> {
        Ok(self.context.enter(label(layer), operation)?)
    }

    /// Sums numbers over the ranks along `axes`.
    pub fn sum<P: Payload<f64>>(&self, axes: AxisSet, numbers: P) -> Result<P, EngineError> {
        Ok(self.context.all_reduce::<f64, _>(self.group(axes), Reduction::Sum, numbers).wait()?)
    }

    /// Element by element the largest that any rank gives.
    pub fn largest_of_all(&self, numbers: Vec<f64>) -> Result<Vec<f64>, EngineError> {
        Ok(self.context.all_reduce(self.group(AxisSet::WORLD), Reduction::Max, numbers).wait()?)
    }

    /// The text with the least order (below 2^53), and among equals that of the lowest rank; the result is equal on all
    /// ranks. `None` if no rank has a text.
    pub fn first_text(&self, text: Option<(u64, String)>) -> Result<Option<String>, EngineError> {
        let order = text.as_ref().map_or(f64::MIN, |(order, _)| -(*order as f64));
        let first = self.largest_of_all(vec![order])?[0];
        if first == f64::MIN {
            return Ok(None);
        }
        let rank = self.context.rank();
        let root = if order == first { -(rank as f64) } else { f64::MIN };
        let root = -self.largest_of_all(vec![root])?[0] as usize;
        let mut numbers = vec![0.0; TEXT];
        if let Some((_, text)) = text.filter(|_| root == rank) {
            numbers.iter_mut().zip(text.chars()).for_each(|(number, each)| *number = f64::from(u32::from(each)));
        }
        let numbers = self.context.broadcast::<f64, _>(self.group(AxisSet::WORLD), root, numbers).wait()?;
        let character = |number: f64| char::from_u32(number as u32).filter(|each| *each != '\0');
        Ok(Some(numbers.into_iter().map_while(character).collect()))
    }
}

/// Groups of the ranks that hold the same keys and values, by their number.
fn key_copies(program: &StageProgram, context: &RankContext) -> Result<BTreeMap<usize, Group>, EngineError> {
    let grid = program.grid();
    let rank = context.rank();
    let along_x = grid.group(rank, Axis::X.only());
    let mut groups = BTreeMap::new();
    for block in program.model.blocks.kinds() {
        let copies = program.layout.kv_copies(&block.attention);
        if copies > 1 && !groups.contains_key(&copies) {
            let index = grid.coordinate(rank).on(Axis::X) / copies;
            let ranks = along_x.chunks_exact(copies).nth(index).unwrap_or_default();
            groups.insert(copies, context.group(&Axis::X.only().key(), ranks)?);
        }
    }
    Ok(groups)
}

/// A layer's name for the communicator's reports.
pub(crate) fn label(layer: Layer) -> Label {
    match layer {
        Layer::Embedding => Label::new("embedding"),
        Layer::Block(index) => Label::indexed("block", index as u32),
        Layer::Head => Label::new("head"),
        Layer::Step => Label::new("step"),
    }
}
