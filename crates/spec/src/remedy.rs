//! What would keep a rule that a layout breaks: changes of what was asked for, found by trying them against the rules.

use std::fmt;

use crate::error::{common_divisor, first_indivisible};
use crate::{Axis, Field, FieldValue, LayoutRequest, SpecError};

/// Sizes that are tried on either side of the one that was refused.
const TRIED: usize = 40;

/// A change of a layout's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Another size of an axis.
    Axis(Axis, usize),
    /// Another value of a field.
    Set(Field, FieldValue),
    /// A field is not said, and has its usual value.
    Leave(Field),
}

impl Change {
    /// Another choice.
    pub(crate) fn to(field: Field, choice: impl fmt::Display) -> Self {
        Self::Set(field, FieldValue::Name(choice.to_string()))
    }

    /// The request with the change.
    ///
    /// # Errors
    /// A grid that is too large, a value that the field does not have.
    pub fn apply(&self, request: &LayoutRequest) -> Result<LayoutRequest, SpecError> {
        let mut changed = request.clone();
        match self {
            Self::Axis(axis, size) => changed.grid = request.grid.with(*axis, *size)?,
            Self::Set(field, value) => field.set(&mut changed, value)?,
            Self::Leave(field) => field.leave(&mut changed),
        }
        Ok(changed)
    }

    /// The value alone, where `before` is of the same and need not be said again.
    fn value_after(&self, before: &Self) -> Option<String> {
        match (self, before) {
            (Self::Axis(axis, size), Self::Axis(same, _)) if axis == same => Some(size.to_string()),
            (Self::Set(field, value), Self::Set(same, _)) if field == same => Some(value.to_string()),
            _ => None,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Axis(axis, size) => write!(f, "{}={size}", axis.name()),
            Self::Set(field, value) => write!(f, "`layout.{}` {value}", field.key()),
            Self::Leave(Field::StageBlocks) => {
                f.write_str("leaving `layout.stage_blocks` out (pieces as equal as possible)")
            }
            Self::Leave(field) => write!(f, "leaving `layout.{}` out", field.key()),
        }
    }
}

/// What a rule is about: the size of an axis, or a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    Axis(Axis),
    Field(Field),
}

impl Subject {
    /// As users write it.
    fn name(self) -> &'static str {
        match self {
            Self::Axis(axis) => axis.name(),
            Self::Field(field) => field.name(),
        }
    }

    /// Another size of it.
    fn resized(self, size: usize) -> Change {
        match self {
            Self::Axis(axis) => Change::Axis(axis, size),
            Self::Field(field) => Change::Set(field, size.into()),
        }
    }
}

impl From<Axis> for Subject {
    fn from(axis: Axis) -> Self {
        Self::Axis(axis)
    }
}

impl From<Field> for Subject {
    fn from(field: Field) -> Self {
        Self::Field(field)
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
            let before = index.checked_sub(1).map(|before| &self.remedies[before].change);
            match before.and_then(|before| change.value_after(before)) {
                Some(value) => f.write_str(&value)?,
                None => write!(f, "{change}")?,
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
#[derive(Debug, Clone)]
pub(crate) enum Way {
    /// Another size near the present one.
    Sizes(Subject, usize, Values),
    /// Another choice.
    Choice(Change),
}

impl Way {
    /// Other sizes of an axis or a field, near the present one.
    pub fn sizes(of: impl Into<Subject>, present: usize, values: Values) -> Self {
        Self::Sizes(of.into(), present, values)
    }

    /// Changes on the one side and on the other, the nearest first.
    fn sides(&self) -> [Vec<Change>; 2] {
        match self {
            Self::Choice(change) => [vec![change.clone()], Vec::new()],
            Self::Sizes(of, present, values) => {
                values.around(*present).map(|side| side.into_iter().map(|size| of.resized(size)).collect())
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
                let unit = unit.max(1);
                let most = most / unit;
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
    pub fn new(of: impl Into<Subject>, value: impl fmt::Display, rule: impl fmt::Display, ways: Vec<Way>) -> Self {
        let field = of.into().name();
        Self { field, kind: field.to_owned(), broken: format!("{field} = {value}: {rule}"), ways }
    }

    /// Of several dimensions (name, value) a size does not divide the first that is told; the ways divide all of them.
    pub fn indivisible(of: impl Into<Subject>, size: usize, dimensions: &[(&str, usize)]) -> Self {
        let of = of.into();
        let (dimension, value) = first_indivisible(size, dimensions).unwrap_or(("", 0));
        let field = of.name();
        Self {
            field,
            kind: format!("{field} does not divide {dimension}"),
            broken: format!("{field}={size} does not divide {dimension} = {value}"),
            ways: vec![Way::Sizes(of, size, Values::Divisors(common_divisor(dimensions)))],
        }
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
        let mut legal = Vec::new();
        let mut partial = None;
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
