//! Flags of layouts that a published planner takes, chooses itself, or does not know.

use crate::failure::Failure;
use crate::layout_arguments::LayoutArguments;
use crate::plan::arguments::PlanArguments;
use crate::quantities::Counts;

/// What to say of a flag that a search chooses.
pub const SEARCHED: &str = "the search tries all of them; leave it out";

/// What a cost model makes of the flags of layouts.
pub struct LayoutFlags {
    /// The model in words.
    pub model: &'static str,
    /// Flags that it takes, besides `--cluster`.
    pub taken: &'static [&'static str],
    /// Flags that it does not take, with what to do instead; others it does not know.
    pub instead: &'static [(&'static str, &'static str)],
}

impl LayoutFlags {
    /// Refuses flags that the model does not take.
    pub fn check(&self, arguments: &LayoutArguments) -> Result<(), Failure> {
        let mut typed = arguments.typed().into_iter().filter(|flag| !self.taken.contains(&flag.as_str()));
        let Some(flag) = typed.next() else { return Ok(()) };
        let known = self.instead.iter().find(|(known, _)| *known == flag);
        Err(Failure::usage(match known {
            Some((_, remedy)) => format!("{flag}: {remedy}"),
            None => format!("{flag}: {} does not know it; leave it out", self.model),
        }))
    }
}

/// The number of devices, by either of its flags.
pub fn devices(arguments: &PlanArguments) -> Result<Option<usize>, Failure> {
    let gpus = match arguments.gpus.as_ref().map(Counts::values) {
        None => None,
        Some([gpus]) => Some(*gpus),
        Some(_) => return Err(Failure::usage("--gpus: only --cost native compares several numbers; give one")),
    };
    match (gpus, arguments.layout.ranks) {
        (Some(gpus), Some(ranks)) if gpus != ranks => {
            Err(Failure::usage(format!("--gpus {gpus} and --ranks {ranks} are the same number; leave one of them out")))
        }
        (gpus, ranks) => Ok(gpus.or(ranks)),
    }
}
