//! Layouts that bounds have not ruled out, until they are priced by their programs: the most promising first, so that the
//! others need not be. Whoever's turn it is is bounded once more, along the passes of its schedule.

use quadrille_cost::native::{Candidate, Memory, Parts, Price, PriceError};
use quadrille_spec::Layout;
use rayon::prelude::*;

use super::by_bounds::is_left;
use super::count::Counts;
use super::pool::Pool;
use super::question::Cancel;
use super::ranking::{Kept, Ranked};
use super::search::Search;
use super::setting::Setting;

/// So many layouts are priced side by side.
const PART: usize = 8;

/// A price of which a search knows seconds and memory only, until it knows what it has found.
const PENDING: Price =
    Price { seconds: 0.0, parts: Parts::NONE, memory: Memory::NONE, model_flops: 0.0, executed_flops: 0.0 };

/// Whether seconds and memory are all that is known of a price.
pub(super) fn is_pending(price: &Price) -> bool {
    price.model_flops == PENDING.model_flops
}

/// A layout with lower bounds of its price.
#[derive(Debug, Clone, Copy)]
pub(super) struct Survivor {
    pub candidate: Candidate,
    pub seconds: f64,
    pub bytes: u64,
}

/// Those that are still to be priced.
#[derive(Debug, Default)]
pub(super) struct Survivors {
    pub all: Vec<Survivor>,
}

impl Survivors {
    /// Prices the most promising, until at most `left` are left that may be kept, as many looks were taken as are `allowed` or the
    /// search is cancelled; if the search does not prune, all that are too many. Returns the looks.
    ///
    /// # Errors
    /// What cannot be priced.
    pub fn settle(
        &mut self,
        left: usize,
        allowed: u64,
        search: &Search,
        pool: &Pool,
        kept: &mut Kept,
        counts: &mut Counts,
    ) -> Result<u64, PriceError> {
        let mut looks = 0;
        // The most promising last.
        self.all.sort_by(|a, b| kept.promise(b, a));
        loop {
            let before = self.all.len();
            if search.prune {
                self.all.retain(|survivor| !kept.is_worthless(&survivor.candidate, survivor.seconds, survivor.bytes));
            }
            counts.too_slow += (before - self.all.len()) as u64;
            if self.all.len() <= left || looks >= allowed || search.watch.is_cancelled() {
                return Ok(looks);
            }
            let part = self.all.drain(self.all.len().saturating_sub(PART)..).rev();
            let mut part: Vec<Survivor> = part.collect();
            looks += part.len() as u64;
            if search.prune {
                part = closely_bounded(part, pool)?;
                part.retain(|survivor| is_left(search, kept, counts, survivor));
            }
            let part: Vec<Candidate> = part.iter().map(|survivor| survivor.candidate).collect();
            looks += part.iter().map(|candidate| search.looks_of_price(candidate)).sum::<u64>();
            let fitting = fitting(&part, Detail::Compared, &search.setting, pool, &search.watch)?;
            counts.priced += part.len() as u64;
            counts.fitting += fitting.len() as u64;
            fitting.into_iter().for_each(|ranked| kept.offer(ranked));
        }
    }
}

/// The same with closer bounds.
///
/// # Errors
/// What has no program.
fn closely_bounded(survivors: Vec<Survivor>, pool: &Pool) -> Result<Vec<Survivor>, PriceError> {
    let bound = |survivor: Survivor| {
        pool.with(|bounds| {
            let pieces = bounds.pieces(&survivor.candidate)?;
            let (seconds, bytes) = bounds.by_lists(&survivor.candidate, &pieces)?;
            Ok(Survivor { seconds, bytes, ..survivor })
        })
    };
    survivors.into_par_iter().map(bound).collect()
}

/// How much of a price a search wants to know.
#[derive(Debug, Clone, Copy)]
pub(super) enum Detail {
    /// By what layouts are compared: seconds and memory.
    Compared,
    /// All of it.
    Whole,
}

/// Those of the candidates that fit, in their order, with as much of their prices; without those that were not priced when the
/// search was cancelled.
///
/// # Errors
/// What cannot be priced.
pub(super) fn fitting(
    candidates: &[Candidate],
    detail: Detail,
    setting: &Setting,
    pool: &Pool,
    cancel: &Cancel,
) -> Result<Vec<Ranked>, PriceError> {
    let fits = |memory: &Memory| setting.has_room(memory);
    let stop = || cancel.is_cancelled();
    let price = |layout: &Layout| match detail {
        Detail::Compared => {
            let outline = pool.problem.outline(layout, fits, &stop)?;
            Ok(outline.map(|(seconds, memory)| Price { seconds, memory, ..PENDING }))
        }
        Detail::Whole => pool.problem.price_fitting(layout, fits, &stop),
    };
    let ranked = |candidate| {
        let price = price(&setting.layout(&candidate)?)?;
        Ok(price.map(|price| Ranked { candidate, price }))
    };
    let known = |candidate: &Candidate| match pool.known(*candidate, || ranked(*candidate)) {
        Err(error) if PriceError::is_stop(&error) => Ok(None),
        known => known,
    };
    let priced: Vec<Option<Ranked>> = candidates.par_iter().map(known).collect::<Result<_, PriceError>>()?;
    Ok(priced.into_iter().flatten().collect())
}
