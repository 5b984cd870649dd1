//! The answer to a question: the best layouts of one number of devices, or of several, and why.

use std::cmp::Reverse;
use std::time::Instant;

use super::explanation::Explanation;
use super::front::front;
use super::nothing::Nothing;
use super::question::{Question, share_of, stop_at};
use super::ranking::Ranked;
use super::search::{Found, Search};

/// What is to be found.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// How many of the fastest.
    pub top: usize,
    /// Whether they are on different grids.
    pub one_per_grid: bool,
    /// The numbers of devices over which the front of devices, time and memory is wanted, beside the question's; `None`: no
    /// front.
    pub front_over: Option<Vec<usize>>,
    /// Whether the best is to be explained.
    pub explain: bool,
}

/// What was found.
#[derive(Debug, Clone)]
pub struct Answer<'a> {
    /// What was asked.
    pub question: &'a Question,
    /// The search on the question's number of devices.
    pub search: Search<'a>,
    /// What it found; [`Found::stopped`] is that of all searches.
    pub found: Found,
    /// The fastest layout.
    pub best: Ranked,
    /// Those than which none has fewer devices, less time and less memory; empty unless it was asked for.
    pub front: Vec<Ranked>,
    /// Numbers of devices that were not searched completely.
    pub incomplete: Vec<usize>,
    /// Seconds that it took.
    pub seconds: f64,
    /// Of the best layout, where it was asked for.
    pub explanation: Option<Explanation>,
}

/// What a rule refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedBy {
    /// The rule in words.
    pub rule: String,
    /// Grids that break it.
    pub grids: u64,
    /// Configurations of legal grids that break it.
    pub configurations: u64,
    /// The message of one of them.
    pub example: String,
}

impl<'a> Answer<'a> {
    /// Searches, on the question's number of devices and on those of the front.
    ///
    /// # Errors
    /// No layout that is legal and fits: why, and what would help.
    pub fn new(question: &'a Question, wanted: &Wanted) -> Result<Self, Nothing> {
        let (start, end) = (Instant::now(), question.end());
        let search = question.search(wanted.top)?;
        let search = Search { one_per_grid: wanted.one_per_grid, front: wanted.front_over.is_some(), ..search };
        let mut others = wanted.front_over.clone().unwrap_or_default();
        others.retain(|devices| *devices != question.devices);
        let mut found = search.run(&stop_at(share_of(end, 1 + others.len())))?;
        let mut layouts = found.front.clone();
        let mut incomplete: Vec<usize> = found.stopped.then_some(question.devices).into_iter().collect();
        for (index, devices) in others.iter().enumerate() {
            let other = Search { devices: *devices, top: 0, ..search.clone() };
            let other = other.run(&stop_at(share_of(end, others.len() - index)))?;
            found.stopped |= other.stopped;
            incomplete.extend(other.stopped.then_some(*devices));
            layouts.extend(other.front);
        }
        incomplete.sort_unstable();
        let fastest = |a: &&Ranked, b: &&Ranked| a.price.seconds.total_cmp(&b.price.seconds);
        let Some(best) = found.ranked.first().or_else(|| layouts.iter().min_by(fastest)).copied() else {
            return Err(search.why_nothing(&found, &stop_at(end)));
        };
        let seconds = start.elapsed().as_secs_f64();
        let runner_up = found.ranked.get(1).copied();
        let explain =
            || Ok::<_, Nothing>(Explanation::new(&search.setting, &question.layout(&best)?, best, runner_up)?);
        let explanation = wanted.explain.then(explain).transpose()?;
        Ok(Self { question, search, found, best, front: front(&layouts), incomplete, seconds, explanation })
    }

    /// What each rule refused, most grids first.
    pub fn refusals(&self) -> Vec<RefusedBy> {
        let refused = self.found.refused.iter().map(|(rule, refused)| RefusedBy {
            rule: rule.to_string(),
            grids: refused.grids,
            configurations: refused.configurations,
            example: self.search.refusal(refused).map_or_else(String::new, |error| error.to_string()),
        });
        let mut refusals: Vec<_> = refused.collect();
        refusals.sort_by_key(|refused| Reverse((refused.grids, refused.configurations)));
        refusals
    }
}
