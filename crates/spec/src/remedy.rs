//! What would keep a rule that a layout breaks: changes of what was asked for, found by trying them against the rules.

use std::fmt;

use crate::error::{common_divisor, first_indivisible};
use crate::{Activations, Axis, LayoutRequest, Linear, Recompute, Schedule, SpecError};

/// Sizes that are tried on either side of the one that was refused.
const TRIED: usize = 40;

/// A size of a layout's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// The size of an axis.
    Axis(Axis),
    /// Ranks that share a node.
    PerNode,
    /// Tokens in a sequence.
    SeqLen,
    /// Sequences in a step.
    GlobalBatch,
    /// Sequences of one data rank in one pass.
    Microbatch,
    /// Panels of a SUMMA product.
    SummaPanels,
    /// Pieces of layers on each stage.
    Chunks,
    /// Parts of a microbatch.
    OverlapChunks,
    /// Microbatches that pass a chunk together.
    MicrobatchGroup,
    /// Blocks of a segment that is computed again as a whole.
    RecomputeEvery,
}

impl Field {
    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Axis(axis) => axis.name(),
            Self::PerNode => "per-node",
            Self::SeqLen => "seq-len",
            Self::GlobalBatch => "global-batch",
            Self::Microbatch => "microbatch",
            Self::SummaPanels => "summa-panels",
            Self::Chunks => "chunks",
            Self::OverlapChunks => "overlap-chunks",
            Self::MicrobatchGroup => "microbatch-group",
            Self::RecomputeEvery => "recompute",
        }
    }
}

/// A change of a layout's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Another size.
    Size(Field, usize),
    /// How activations lie.
    Activations(Activations),
    /// How linear layers are multiplied.
    Linear(Linear),
    /// The order of passes.
    Schedule(Schedule),
    /// What is computed again.
    Recompute(Recompute),
    /// Recomputation repeats collectives.
    NoCac,
    /// As few panels as possible.
    NoSummaPanels,
    /// Groups of microbatches as long as the pipeline.
    NoMicrobatchGroup,
    /// Pieces of layers as equal as possible.
    NoStageBlocks,
}

impl Change {
    /// The request with the change.
    ///
    /// # Errors
    /// A grid that is too large.
    pub fn apply(self, request: &LayoutRequest) -> Result<LayoutRequest, SpecError> {
        let mut changed = request.clone();
        match self {
            Self::Size(Field::Axis(axis), size) => changed.grid = request.grid.with(axis, size)?,
            Self::Size(Field::PerNode, size) => changed.per_node = Some(size),
            Self::Size(Field::SeqLen, size) => changed.seq_len = Some(size),
            Self::Size(Field::GlobalBatch, size) => changed.global_batch = size,
            Self::Size(Field::Microbatch, size) => changed.microbatch = Some(size),
            Self::Size(Field::SummaPanels, size) => changed.summa_panels = Some(size),
            Self::Size(Field::Chunks, size) => changed.chunks = size,
            Self::Size(Field::OverlapChunks, size) => changed.overlap_chunks = size,
            Self::Size(Field::MicrobatchGroup, size) => changed.microbatch_group = Some(size),
            Self::Size(Field::RecomputeEvery, every) => changed.recompute = Recompute::Full { every },
            Self::Activations(activations) => changed.activations = activations,
            Self::Linear(linear) => changed.linear = linear,
            Self::Schedule(schedule) => changed.schedule = schedule,
            Self::Recompute(recompute) => changed.recompute = recompute,
            Self::NoCac => changed.keep_communicated = false,
            Self::NoSummaPanels => changed.summa_panels = None,
            Self::NoMicrobatchGroup => changed.microbatch_group = None,
            Self::NoStageBlocks => changed.stage_blocks = None,
        }
        Ok(changed)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(Field::Axis(axis), size) => write!(f, "{}={size}", axis.name()),
            Self::Size(Field::RecomputeEvery, every) => write!(f, "--recompute {}", Recompute::Full { every: *every }),
            Self::Size(field, size) => write!(f, "--{} {size}", field.name()),
            Self::Activations(activations) => write!(f, "--activations {activations}"),
            Self::Linear(linear) => write!(f, "--linear {linear}"),
            Self::Schedule(schedule) => write!(f, "--schedule {schedule}"),
            Self::Recompute(recompute) => write!(f, "--recompute {recompute}"),
            Self::NoCac => f.write_str("leaving --cac out"),
            Self::NoSummaPanels => f.write_str("leaving --summa-panels out"),
            Self::NoMicrobatchGroup => f.write_str("leaving --microbatch-group out"),
            Self::NoStageBlocks => f.write_str("leaving --stage-blocks out (pieces as equal as possible)"),
        }
    }
}

/// A change that keeps the broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy {
    /// The change.
    pub change: Change,
    /// What is refused then; `None`: nothing.
    pub then: Option<&'static str>,
}

/// A rule that a layout breaks, with changes that keep it, the nearest first on either side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What is refused, as users write it.
    pub field: &'static str,
    /// What grids are counted under that are refused for the same.
    pub kind: String,
    /// The value and the rule.
    pub broken: String,
    /// What would keep the rule. All are legal layouts, or, where no such change was found, the first is none yet.
    pub remedies: Vec<Remedy>,
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; ", self.broken)?;
        for (index, Remedy { change, then }) in self.remedies.iter().enumerate() {
            f.write_str(if index == 0 { "try " } else { " or " })?;
            // The second of two values need not repeat what they are of.
            match (change, index.checked_sub(1).map(|before| &self.remedies[before].change)) {
                (Change::Size(field, size), Some(Change::Size(before, _))) if field == before => write!(f, "{size}")?,
                _ => write!(f, "{change}")?,
            }
            if let Some(then) = then {
                write!(f, " (then {then} is in the way)")?;
            }
        }
        if self.remedies.is_empty() {
            f.write_str("nothing near it keeps the rule; use another grid or batch")?;
        }
        Ok(())
    }
}

/// Values of a size that may keep a rule.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Values {
    /// All that divide a number.
    Divisors(usize),
    /// The multiples of a number from it up to a limit.
    Multiples(usize, usize),
}

/// A way to keep a rule.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    /// Another value of a size, near the present one.
    Sizes(Field, usize, Values),
    /// Another choice.
    Choice(Change),
}

impl Way {
    /// Changes on the one side and on the other, the nearest first.
    fn sides(self) -> [Vec<Change>; 2] {
        match self {
            Self::Choice(change) => [vec![change], Vec::new()],
            Self::Sizes(field, present, values) => {
                values.around(present).map(|side| side.into_iter().map(|size| Change::Size(field, size)).collect())
            }
        }
    }
}

impl Values {
    /// Those below and above a number, the nearest first.
    fn around(self, present: usize) -> [Vec<usize>; 2] {
        match self {
            Self::Divisors(of) => {
                let small = (1..=of.isqrt()).filter(|divisor| of.is_multiple_of(*divisor));
                let mut all: Vec<usize> = small.flat_map(|divisor| [divisor, of / divisor]).collect();
                all.sort_unstable();
                all.dedup();
                let below = all.iter().rev().copied().filter(|size| *size < present);
                let above = all.iter().copied().filter(|size| *size > present);
                [below.take(TRIED).collect(), above.take(TRIED).collect()]
            }
            Self::Multiples(unit, most) => {
                let (unit, most) = (unit.max(1), most / unit.max(1));
                let below = (1..=(present.saturating_sub(1) / unit).min(most)).rev();
                let above = (present / unit).saturating_add(1)..=most;
                let size = |times: usize| times * unit;
                [below.take(TRIED).map(size).collect(), above.take(TRIED).map(size).collect()]
            }
        }
    }
}

/// A broken rule, with ways to keep it that are yet to be tried.
#[derive(Debug, Clone)]
pub(crate) struct Broken {
    field: &'static str,
    kind: String,
    broken: String,
    ways: Vec<Way>,
}

impl Broken {
    /// A value outside its rule.
    pub fn new(field: &'static str, value: impl fmt::Display, rule: impl fmt::Display, ways: Vec<Way>) -> Self {
        Self { field, kind: field.to_owned(), broken: format!("{field} = {value}: {rule}"), ways }
    }

    /// The first of several dimensions (name, value) that a size does not divide; the ways divide all of them.
    pub fn check_divides(field: Field, size: usize, dimensions: &[(&str, usize)]) -> Result<(), Self> {
        let Some((dimension, value)) = first_indivisible(size, dimensions) else { return Ok(()) };
        let field_name = field.name();
        Err(Self {
            field: field_name,
            kind: format!("{field_name} does not divide {dimension}"),
            broken: format!("{field_name}={size} does not divide {dimension} = {value}"),
            ways: vec![Way::Sizes(field, size, Values::Divisors(common_divisor(dimensions)))],
        })
    }

    /// The refusal of what is no request, so that no change of one can be tried.
    pub fn untried(self) -> SpecError {
        self.with(Vec::new())
    }

    fn with(self, remedies: Vec<Remedy>) -> SpecError {
        SpecError::Refused(Box::new(Refusal { field: self.field, kind: self.kind, broken: self.broken, remedies }))
    }

    /// The refusal of `request`, with those ways that lead to a layout which `check` does not refuse; where none does, with
    /// one that is refused for something else.
    pub fn refuse(self, request: &LayoutRequest, check: impl Fn(&LayoutRequest) -> Result<(), Self>) -> SpecError {
        let (mut legal, mut partial) = (Vec::new(), None);
        for way in &self.ways {
            for side in way.sides() {
                for change in side {
                    let Ok(changed) = change.apply(request) else { continue };
                    match check(&changed) {
                        Ok(()) => {
                            legal.push(Remedy { change, then: None });
                            break;
                        }
                        Err(other) if other.field != self.field && partial.is_none() => {
                            partial = Some(Remedy { change, then: Some(other.field) });
                        }
                        Err(_) => {}
                    }
                }
            }
            // The first way that leads somewhere is enough.
            if !legal.is_empty() {
                break;
            }
        }
        self.with(if legal.is_empty() { partial.into_iter().collect() } else { legal })
    }
}
