//! Bounds for those who search side by side: what one has learned of a structure serves whoever takes it next.

use std::sync::{Mutex, PoisonError};

use quadrille_cost::native::{Bounds, Problem};

/// Bounds that nobody uses now.
pub(super) struct Pool<'a> {
    /// What they are of.
    pub problem: &'a Problem,
    first: Bounds<'a>,
    idle: Mutex<Vec<Bounds<'a>>>,
}

impl<'a> Pool<'a> {
    pub fn new(problem: &'a Problem) -> Self {
        Self { problem, first: Bounds::new(problem), idle: Mutex::new(Vec::new()) }
    }

    /// Does something with bounds of its own.
    pub fn with<T>(&self, act: impl FnOnce(&mut Bounds<'a>) -> T) -> T {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bounds = idle().pop().unwrap_or_else(|| self.first.beside());
        let result = act(&mut bounds);
        idle().push(bounds);
        result
    }
}
