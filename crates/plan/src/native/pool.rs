//! What those who search side by side share: bounds, since what one has learned of a structure serves whoever takes it next,
//! and what is known of layouts that were priced.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use quadrille_cost::native::{Bounds, Candidate, Learned, PriceError, Problem};

use super::ranking::Ranked;

/// Bounds that nobody uses now, and known layouts.
pub(super) struct Pool<'a> {
    /// What they are of.
    pub problem: &'a Problem,
    first: Bounds<'a>,
    idle: Mutex<Vec<Bounds<'a>>>,
    /// `None` of those that do not fit.
    known: Mutex<HashMap<Candidate, Option<Ranked>>>,
}

impl<'a> Pool<'a> {
    /// With what was learned of such problems, if anything was kept.
    pub fn new(problem: &'a Problem, learned: Option<&Learned>) -> Self {
        let first = learned.map_or_else(|| Bounds::new(problem), |learned| Bounds::knowing(problem, learned));
        Self { problem, first, idle: Mutex::default(), known: Mutex::default() }
    }

    /// Does something with bounds of its own.
    pub fn with<T>(&self, act: impl FnOnce(&mut Bounds<'a>) -> T) -> T {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bounds = idle().pop().unwrap_or_else(|| self.first.beside());
        let result = act(&mut bounds);
        idle().push(bounds);
        result
    }

    /// All that were priced and fit, in no order.
    pub fn fitting(&self) -> Vec<Ranked> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).values().flatten().copied().collect()
    }

    /// What is known of a layout, or what `price` says of it.
    pub fn known(
        &self,
        candidate: Candidate,
        price: impl FnOnce() -> Result<Option<Ranked>, PriceError>,
    ) -> Result<Option<Ranked>, PriceError> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(priced) = known().get(&candidate) {
            return Ok(*priced);
        }
        let priced = price()?;
        known().insert(candidate, priced);
        Ok(priced)
    }
}
