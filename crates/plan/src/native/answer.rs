//! The answer to a question: the best layouts of one number of devices, or of several, and why.

use std::cmp::Reverse;
use std::time::Instant;

use quadrille_cost::native::PriceError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::explain::{Sensitivity, sensitivities};
use super::explanation::Explanation;
use super::front::{front, grain};
use super::nothing::Nothing;
use super::question::Question;
use super::ranking::{Ranked, family};
use super::search::{Found, Search};

/// What is to be found.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// How many of the fastest.
    pub top: usize,
    /// True if variants of a layout are wanted, which differ in neither sizes of axes nor the spreading of experts; else the best of
    /// them alone.
    pub variants: bool,
    /// The numbers of devices over which the front of devices, time and memory is wanted, beside the question's; `None`: no
    /// front.
    pub front_over: Option<Vec<usize>>,
    /// The simplest is advised of the layouts that are slower than the fastest by at most this fraction of its time, usually
    /// [`TOLERANCE`](super::TOLERANCE); `None`: the fastest is.
    pub tolerance: Option<f64>,
    /// Whether the advised layout is to be explained.
    pub explain: bool,
    /// True if a first look is wanted at once: of a search that is cut few layouts, and nothing of what numbers of the hardware
    /// give the advised one before it is explained.
    pub brief: bool,
}

/// What was found.
#[derive(Debug, Clone)]
pub struct Answer<'a> {
    /// What was asked.
    pub question: &'a Question,
    /// The search on the question's number of devices.
    pub search: Search<'a>,
    /// What it found; [`Found::stopped`] and [`Found::too_long`] are those of all searches.
    pub found: Found,
    /// The fastest layout.
    pub best: Ranked,
    /// The layout to run: the simplest of those that are hardly slower than the fastest, if that was asked for. Where memory is
    /// reserved as usual it is of those that [`Reserve::SAFE_RUNS`](super::Reserve::SAFE_RUNS) of runs fit into, if there are any.
    pub advised: Ranked,
    /// Those than which none has fewer devices, less time and fewer grains of memory; empty unless it was asked for.
    pub front: Vec<Ranked>,
    /// Numbers of devices that were not searched completely.
    pub incomplete: Vec<usize>,
    /// Seconds that it took.
    pub seconds: f64,
    /// What a tenth more of each number of the hardware gives the advised layout. Unless that is explained nothing of a brief answer, nor
    /// where looks are limited of a layout whose prices take long.
    pub sensitivities: Vec<Sensitivity>,
    /// Number of variants of each of the fastest layouts that were found, with itself, where the best of them alone is shown.
    pub variants: Option<Vec<u64>>,
    /// Of the advised layout, where it was asked for, or after [`Self::explain`].
    pub explanation: Option<Explanation>,
}

/// What a rule refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
        let start = Instant::now();
        let search = question.search(wanted.top)?;
        let Wanted { variants, tolerance, brief, .. } = *wanted;
        let safe_capacity = question.safe_capacity();
        let search = Search { distinct: !variants, brief, tolerance, safe_capacity, ..search };
        let search = Search { front: wanted.front_over.is_some(), ..search };
        let mut others = wanted.front_over.clone().unwrap_or_default();
        others.retain(|devices| *devices != question.devices);
        let mut found = search.run()?;
        let mut layouts = found.front.clone();
        let mut incomplete: Vec<usize> = found.stopped.then_some(question.devices).into_iter().collect();
        for devices in &others {
            question.check_wanted()?;
            let other = Search { top: 0, safe_capacity: None, ..search.with_devices(*devices) };
            let other = other.run()?;
            found.stopped |= other.stopped;
            found.too_long += other.too_long;
            incomplete.extend(other.stopped.then_some(*devices));
            layouts.extend(other.front);
        }
        incomplete.sort_unstable();
        let fastest = |a: &&Ranked, b: &&Ranked| a.price.seconds.total_cmp(&b.price.seconds);
        let best =
            |ranked: &[Ranked], layouts: &[Ranked]| ranked.first().or_else(|| layouts.iter().min_by(fastest)).copied();
        let Some(quickest) = best(&found.ranked, &layouts) else {
            return Err(search.why_nothing(&found));
        };
        if let Some(deadline) = search.deadline {
            found.ranked.retain(|ranked| deadline.is_kept(ranked));
            layouts.retain(|ranked| deadline.is_kept(ranked));
        }
        question.check_wanted()?;
        let best = match (best(&found.ranked, &layouts), &search.deadline) {
            (Some(best), _) => best,
            (None, Some(deadline)) => return Err(question.too_slow(deadline, &quickest)?),
            (None, None) => quickest,
        };
        let seconds = start.elapsed().as_secs_f64();
        let is_kept = |ranked: &Ranked| search.deadline.is_none_or(|deadline| deadline.is_kept(ranked));
        let advised = found.simplest.or(found.safe.filter(is_kept)).unwrap_or(best);
        let felt = || sensitivities(&search.setting, &question.layout(&advised)?, &question.cancel);
        // Each of some thirty is a price.
        let late = question.limit.is_some() && search.is_long(&advised.candidate);
        let sensitivities = if wanted.brief || late { Vec::new() } else { felt()? };
        let front = front(&layouts, grain(search.setting.capacity));
        let explanation = None;
        let count = |ranked: &Ranked| search.variants(&ranked.candidate);
        let variants = if variants { None } else { Some(found.ranked.iter().map(count).collect::<Result<_, _>>()?) };
        let mut answer = Self {
            question,
            search,
            found,
            best,
            advised,
            front,
            incomplete,
            seconds,
            sensitivities,
            variants,
            explanation,
        };
        if wanted.explain {
            answer.explain()?;
        }
        Ok(answer)
    }

    /// Whether an explanation takes long, for each of its prices does.
    pub fn is_long(&self) -> bool {
        self.search.is_long(&self.advised.candidate)
    }

    /// Explains the advised layout.
    ///
    /// # Errors
    /// None for what a search has found, but where nobody waits for it any more.
    pub fn explain(&mut self) -> Result<(), PriceError> {
        let layout = self.question.layout(&self.advised)?;
        if self.sensitivities.is_empty() {
            self.sensitivities = sensitivities(&self.search.setting, &layout, &self.question.cancel)?;
        }
        let Self { question, search, found, best, advised, sensitivities, .. } = &*self;
        // Beside what is not the fastest the fastest is of most interest.
        let other = if advised == best { found.ranked.get(1).copied() } else { Some(*best) };
        let sensitivities = sensitivities.clone();
        let cancel = &question.cancel;
        let explanation = Explanation::new(&search.setting, &layout, *advised, sensitivities, other, cancel)?;
        self.explanation = Some(explanation);
        Ok(())
    }

    /// Number of variants of a layout one of which is among the fastest, where the best of them alone is shown.
    pub fn variants_of(&self, ranked: &Ranked) -> Option<u64> {
        let is_of_family = |other: &Ranked| family(&other.candidate) == family(&ranked.candidate);
        let at = self.found.ranked.iter().position(is_of_family)?;
        self.variants.as_ref().map(|variants| variants[at])
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
