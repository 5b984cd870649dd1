//! Which numbers of devices are done with a training in time.

use std::fmt;

use super::budget::Deadline;
use super::nothing::Nothing;
use super::question::Question;
use super::ranking::Ranked;

/// So many times as many devices are tried where a number of them is not done in time.
const TIMES: [usize; 3] = [2, 4, 8];

/// A grid has no more.
const MOST_DEVICES: usize = 1 << 24;

/// A number of devices with the days that a training takes on them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InDays {
    /// Devices.
    pub devices: usize,
    /// Days of the training by the fastest layout.
    pub days: f64,
}

impl fmt::Display for InDays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} devices take {}", self.devices, rounded_days(self.days))
    }
}

/// From here on days are told by their exponents.
const MANY_DAYS: f64 = 1e15;

/// Days that somebody has said: `30 days`, `1 day`, `1e300 days`.
pub fn said_days(days: f64) -> String {
    match days {
        1.0 => "1 day".to_owned(),
        1e-4..MANY_DAYS => format!("{days} days"),
        _ => format!("{days:e} days"),
    }
}

/// Days that a training takes: `12.3 days`, `1.234e300 days`, or for ever where devices fail too often for it to end.
pub(super) fn rounded_days(days: f64) -> String {
    match days {
        ..MANY_DAYS => format!("{days:.1} days"),
        f64::INFINITY => "for ever".to_owned(),
        _ => format!("{days:.3e} days"),
    }
}

/// What a look at several numbers of devices has found.
#[derive(Debug, Default)]
struct Looked {
    /// The first that is done in time.
    first: Option<InDays>,
    /// The fastest of those that are not.
    fastest: Option<InDays>,
    /// Numbers of devices that were searched completely.
    searched: Vec<usize>,
    /// Why the last without a layout has none.
    nothing: Option<Nothing>,
}

impl Question {
    /// The question about the smallest of several numbers of devices, ascending, on which the training is done in time; itself
    /// where no days are said. Numbers above it are not looked at.
    ///
    /// # Errors
    /// None of them: the fastest, or why there is no layout at all.
    pub fn smallest_in_time(&self, devices: &[usize]) -> Result<Self, Nothing> {
        let Some(deadline) = self.deadline() else { return Ok(self.clone()) };
        let Looked { first, fastest, searched, nothing } = self.first_in_time(&deadline, devices)?;
        match (first, fastest) {
            (Some(InDays { devices, .. }), _) => Ok(Self { devices, ..self.clone() }),
            (None, Some(fastest)) => {
                let tried = searched.into_iter().filter(|devices| *devices != fastest.devices).collect();
                Err(Nothing::TooSlow { days: deadline.days(), fastest, enough: None, tried })
            }
            (None, None) => Err(nothing.unwrap_or(Nothing::Cancelled { devices: self.devices })),
        }
    }

    /// Why there is no answer where even the fastest layout is done too late; larger numbers of devices are looked at for one
    /// that is done in time.
    ///
    /// # Errors
    /// What cannot be priced.
    pub(super) fn too_slow(&self, deadline: &Deadline, fastest: &Ranked) -> Result<Nothing, Nothing> {
        let fastest = InDays { devices: fastest.candidate.devices(), days: deadline.days_of(fastest) };
        let mut tried = TIMES.map(|times| times * fastest.devices).to_vec();
        // More devices than a grid may have are no remedy.
        tried.retain(|devices| *devices <= MOST_DEVICES);
        let Looked { first, searched, .. } = self.first_in_time(deadline, &tried)?;
        Ok(Nothing::TooSlow { days: deadline.days(), fastest, enough: first, tried: searched })
    }

    /// Looks at numbers of devices one after another, until the training is done in time.
    fn first_in_time(&self, deadline: &Deadline, devices: &[usize]) -> Result<Looked, Nothing> {
        let mut looked = Looked::default();
        for count in devices {
            self.check_wanted()?;
            let question = Self { devices: *count, ..self.clone() };
            let search = question.search(1)?;
            let found = search.run()?;
            looked.searched.extend((!found.stopped).then_some(*count));
            let Some(best) = found.ranked.first() else {
                looked.nothing = Some(search.why_nothing(&found));
                continue;
            };
            let in_days = InDays { devices: *count, days: deadline.days_of(best) };
            if deadline.is_kept(best) {
                looked.first = Some(in_days);
                return Ok(looked);
            }
            looked.fastest = looked.fastest.filter(|known| known.days <= in_days.days).or(Some(in_days));
        }
        Ok(looked)
    }
}
