//! What a user fixes or bounds of a layout before the search.

use std::fmt::Display;

use quadrille_spec::{Axis, AxisSet, Field, SpecError};

use super::space::Space;

/// How a number or a choice is constrained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// It has this value.
    Fix,
    /// It has at most this value.
    Max,
    /// It has at least this value.
    Min,
}

impl Bound {
    /// What messages call it.
    fn name(self) -> &'static str {
        match self {
            Self::Fix => "`space.fix`",
            Self::Max => "`space.max`",
            Self::Min => "`space.min`",
        }
    }

    /// A constraint of a key in messages.
    fn of(self, key: &str) -> String {
        format!("{} {key}", self.name())
    }
}

/// Numbers from `least` to `most`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The smallest.
    pub least: usize,
    /// The largest.
    pub most: usize,
}

impl Range {
    /// Every number from 1.
    pub const ALL: Self = Self { least: 1, most: usize::MAX };

    /// 1 alone.
    pub const ONE: Self = Self { least: 1, most: 1 };

    /// Whether `number` is one of them.
    pub fn contains(self, number: usize) -> bool {
        (self.least..=self.most).contains(&number)
    }

    /// The number, if there is but one.
    pub fn only(self) -> Option<usize> {
        (self.least == self.most).then_some(self.least)
    }

    fn narrow(&mut self, key: &str, bound: Bound, number: usize) -> Result<(), SpecError> {
        let field = bound.of(key);
        if number == 0 {
            return Err(SpecError::invalid(field, 0, "it must be at least 1", "give a positive number"));
        }
        let (least, most) = match bound {
            Bound::Fix => (number, number),
            Bound::Max => (1, number),
            Bound::Min => (number, usize::MAX),
        };
        let narrowed = Self { least: self.least.max(least), most: self.most.min(most) };
        if narrowed.least > narrowed.most {
            let rule = match self.most {
                usize::MAX => format!("another constraint wants {key} of at least {}", self.least),
                most if most == self.least => format!("another constraint wants {key}={most}"),
                most => format!("another constraint wants {key} in {}..={most}", self.least),
            };
            return Err(SpecError::invalid(field, number, rule, "leave one of them out"));
        }
        *self = narrowed;
        Ok(())
    }
}

/// How a search is told what to choose for a field.
enum Choice {
    /// A size, which can be bounded.
    Size(fn(&mut Space) -> &mut Range),
    /// One of several values, which can be fixed by its key and name.
    Name(fn(&mut Space, &str, &str) -> Result<(), SpecError>),
}

impl Choice {
    /// Of a field that a search chooses.
    fn of(field: Field) -> Option<Self> {
        use Choice::{Name, Size};
        Some(match field {
            Field::Microbatch => Size(|space| &mut space.microbatch),
            Field::Chunks => Size(|space| &mut space.chunks),
            Field::OverlapChunks => Size(|space| &mut space.overlap_chunks),
            Field::SummaPanels => Size(|space| &mut space.summa_panels),
            Field::Schedule => Name(|space, key, text| fix(&mut space.schedules, key, text.parse()?)),
            Field::Recompute => Name(|space, key, text| fix(&mut space.recompute, key, text.parse()?)),
            Field::Cac => Name(|space, key, text| fix(&mut space.keep_communicated, key, truth(key, text)?)),
            Field::Zero => Name(|space, key, text| fix(&mut space.zero, key, text.parse()?)),
            Field::Activations => Name(|space, key, text| fix(&mut space.activations, key, text.parse()?)),
            Field::Linear => Name(|space, key, text| fix(&mut space.linear, key, text.parse()?)),
            Field::KeepWeights => Name(|space, key, text| fix(&mut space.keep_weights, key, text.parse()?)),
            Field::Overlap => {
                Name(|space, key, text| fix_one(&mut space.overlap, key, text.replace('+', ",").parse()?))
            }
            Field::ExpertsOver => Name(|space, key, text| {
                let axes: AxisSet = text.replace('+', ",").parse()?;
                if !axes.without(Axis::SPREADING).is_empty() {
                    let rule = "experts are spread over axes that cut the rows of tokens";
                    let remedy = "name some of x, z, context and expert, joined by +";
                    return Err(SpecError::invalid(Bound::Fix.of(key), text, rule, remedy));
                }
                fix(&mut space.experts_over, key, axes)
            }),
            Field::Dispatch => Name(|space, key, text| fix_one(&mut space.dispatch, key, text.parse()?)),
            Field::ExpertRows => {
                Name(|space, key, text| fix_one(&mut space.expert_rows, key, number(key, Bound::Fix, text)?))
            }
            Field::VocabMultiple => {
                Name(|space, key, text| fix_one(&mut space.vocab_multiple, key, number(key, Bound::Fix, text)?))
            }
            // Axes have sizes of their own, and the search finds orders, groups and pieces in its own way.
            _ => return None,
        })
    }
}

impl Space {
    /// The fields that a search chooses: those with sizes, which can be bounded, and those that are chosen by name.
    pub fn fields() -> [Vec<Field>; 2] {
        let chosen = Field::ALL.into_iter().filter_map(|field| Some((field, Choice::of(field)?)));
        let (sizes, names): (Vec<_>, Vec<_>) = chosen.partition(|(_, choice)| matches!(choice, Choice::Size(_)));
        [sizes, names].map(|fields| fields.into_iter().map(|(field, _)| field).collect())
    }

    /// Their names, as text.
    pub fn keys() -> String {
        listed(&Self::fields().concat(), "or")
    }

    /// Applies a constraint as a user writes it, `x=8` or `schedule=1f1b`.
    ///
    /// # Errors
    /// Text that is not `key=value`, an unknown key or value, a bound of what has no size, a contradiction.
    pub fn constrain(&mut self, bound: Bound, text: &str) -> Result<(), SpecError> {
        let Some((key, value)) = text.split_once('=').map(|(key, value)| (key.trim(), value.trim())) else {
            let example = if bound == Bound::Fix { "x=8 or schedule=1f1b" } else { "pipe=16" };
            let reason = format!("write it as key=value, e.g. {} {example}", bound.name());
            // Commas separate constraints.
            let is_pass = ["oar", "ors", "oag", "oaa"].contains(&text.trim());
            let reason =
                if is_pass { "join passes with +, e.g. `space.fix` overlap=oar+ors".to_owned() } else { reason };
            return Err(SpecError::Syntax { what: "a constraint", text: text.to_owned(), reason });
        };
        if let Ok(axis) = key.parse::<Axis>() {
            return self.axes[axis as usize].narrow(key, bound, number(key, bound, value)?);
        }
        // As Megatron-LM calls them.
        let key = if key.eq_ignore_ascii_case("vpp") { Field::Chunks.name() } else { key };
        let field = Field::ALL.into_iter().find(|field| field.name() == key);
        match field.and_then(Choice::of) {
            Some(Choice::Size(range)) => range(self).narrow(key, bound, number(key, bound, value)?),
            Some(Choice::Name(fix)) if bound == Bound::Fix => fix(self, key, value),
            Some(Choice::Name(_)) => {
                let sizes = listed(&Self::fields()[0], "and");
                let rule = format!("only the sizes of axes, {sizes} have an order");
                Err(SpecError::invalid(bound.of(key), value, rule, format!("use `space.fix` {key}={value}")))
            }
            None => {
                let known =
                    Axis::ALL.into_iter().map(Axis::name).chain(Self::fields().concat().into_iter().map(Field::name));
                let known = known.map(str::to_owned).collect();
                Err(SpecError::Unknown { what: "choice of a layout", name: key.to_owned(), known })
            }
        }
    }
}

/// Names of fields as text: `a, b and c`.
fn listed(fields: &[Field], last: &str) -> String {
    let names: Vec<_> = fields.iter().map(|field| field.name()).collect();
    match names.split_last() {
        Some((end, [])) => (*end).to_owned(),
        Some((end, names)) => format!("{} {last} {end}", names.join(", ")),
        None => String::new(),
    }
}

/// Leaves one value of a choice: any that nothing else has ruled out.
fn fix<T: PartialEq + Display>(allowed: &mut Vec<T>, key: &str, value: T) -> Result<(), SpecError> {
    match allowed.as_slice() {
        [only] if *only != value => {
            let rule = format!("another constraint wants {key}={only}");
            Err(SpecError::invalid(Bound::Fix.of(key), value, rule, "leave one of them out"))
        }
        _ => {
            *allowed = vec![value];
            Ok(())
        }
    }
}

/// The same of a choice that has one value, or is left open.
fn fix_one<T: Copy + PartialEq + Display>(chosen: &mut Option<T>, key: &str, value: T) -> Result<(), SpecError> {
    let mut allowed = chosen.iter().copied().collect();
    fix(&mut allowed, key, value)?;
    *chosen = Some(value);
    Ok(())
}

fn number(key: &str, bound: Bound, text: &str) -> Result<usize, SpecError> {
    let remedy = || format!("write e.g. {}=4", bound.of(key));
    text.parse().map_err(|_| SpecError::invalid(bound.of(key), text, "it is a whole number", remedy()))
}

fn truth(key: &str, text: &str) -> Result<bool, SpecError> {
    let invalid = |_| SpecError::invalid(Bound::Fix.of(key), text, "it is true or false", "use one of them");
    text.parse().map_err(invalid)
}

#[cfg(test)]
mod tests {
    use quadrille_spec::{Recompute, Zero};

    use super::*;

    fn refusal(constraints: &[(Bound, &str)]) -> String {
        let mut space = Space::default();
        let results: Vec<_> = constraints.iter().map(|(bound, text)| space.constrain(*bound, text)).collect();
        let (last, others) = results.split_last().unwrap();
        assert!(others.iter().all(Result::is_ok), "{others:?}");
        last.as_ref().unwrap_err().to_string()
    }

    #[test]
    fn constraints_narrow_the_space() {
        let mut space = Space::default();
        for (bound, text) in [
            (Bound::Fix, "x=8"),
            (Bound::Max, "pipe = 16"),
            (Bound::Min, "pipe=2"),
            (Bound::Fix, "recompute=full:3"),
            (Bound::Fix, "zero=1"),
            (Bound::Fix, "zero=1"),
            (Bound::Fix, "cac=false"),
            (Bound::Fix, "DP=3"),
            (Bound::Max, "vpp=2"),
            (Bound::Max, "microbatch=4"),
            (Bound::Fix, "overlap=oar+ors"),
            (Bound::Fix, "overlap=oar,ors"),
        ] {
            space.constrain(bound, text).unwrap();
        }
        assert_eq!(space.axes[Axis::X as usize].only(), Some(8));
        assert_eq!(space.axes[Axis::Pipe as usize], Range { least: 2, most: 16 });
        assert_eq!((space.recompute, space.zero), (vec![Recompute::Full { every: 3 }], vec![Zero::Optimizer]));
        assert_eq!((space.axes[Axis::Data as usize].only(), space.chunks.most), (Some(3), 2));
        assert_eq!((space.keep_communicated, space.microbatch.most), (vec![false], 4));
        let overlap = space.overlap.unwrap();
        assert!(overlap.all_reduce && overlap.reduce_scatter && !overlap.all_gather);
    }

    #[test]
    fn bad_constraints_name_value_rule_and_remedy() {
        use Bound::{Fix, Max, Min};
        for (constraints, words) in [
            (&[(Fix, "x")][..], &["'x'", "key=value", "`space.fix` x=8"][..]),
            (&[(Fix, "ors")], &["'ors'", "`space.fix` overlap=oar+ors"]),
            (&[(Max, "pipe")], &["'pipe'", "`space.max` pipe=16"]),
            (&[(Fix, "w=2")], &["unknown choice of a layout 'w'", "x, y, z", "overlap-chunks", "schedule"]),
            (&[(Fix, "x=0")], &["`space.fix` x = 0", "at least 1"]),
            (&[(Max, "pipe=many")], &["`space.max` pipe = many", "whole number", "`space.max` pipe=4"]),
            (&[(Max, "zero=1")], &["`space.max` zero = 1", "have an order", "`space.fix` zero=1"]),
            (&[(Fix, "schedule=zigzag")], &["unknown schedule 'zigzag'", "1f1b"]),
            (&[(Fix, "recompute=full:0")], &["full:0", "full:2"]),
            (&[(Fix, "cac=maybe")], &["`space.fix` cac = maybe", "true or false"]),
            (&[(Fix, "x=4"), (Fix, "x=8")], &["`space.fix` x = 8", "wants x=4", "leave one"]),
            (&[(Min, "data=4"), (Max, "data=2")], &["`space.max` data = 2", "data of at least 4"]),
            (&[(Min, "data=4"), (Max, "data=8"), (Fix, "data=16")], &["`space.fix` data = 16", "data in 4..=8"]),
            (&[(Fix, "overlap=none"), (Fix, "overlap=oar")], &["`space.fix` overlap = oar", "wants overlap=none"]),
            (&[(Fix, "zero=1"), (Fix, "zero=2")], &["`space.fix` zero = 2", "wants zero=1"]),
        ] {
            let message = refusal(constraints);
            assert!(words.iter().all(|word| message.contains(word)), "{words:?} in {message}");
        }
    }
}
