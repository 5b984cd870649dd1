//! The rules of layouts, asked about candidates: without words, and so for millions of them.

use quadrille_cost::native::Candidate;
use quadrille_spec::{Layout, Model, Recompute, Rule, Scope, SpecError};

/// A model with a batch: what candidates are held against.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// The model.
    pub model: &'a Model,
    /// Sequences in a step, at least 1.
    pub global_batch: usize,
    /// Tokens in a sequence, at most as many as the model has positions.
    pub seq_len: usize,
}

impl Rules<'_> {
    /// Every rule.
    ///
    /// # Errors
    /// A rule that is broken; those of the grid first.
    pub fn check(&self, candidate: &Candidate) -> Result<(), Rule> {
        Scope::ALL.into_iter().try_for_each(|scope| self.check_scope(candidate, scope))
    }

    /// What depends on the sizes of the axes, on those over which experts are spread, and on the vocabulary's padding alone.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check_grid(&self, candidate: &Candidate) -> Result<(), Rule> {
        self.check_scope(candidate, Scope::Grid)
    }

    /// What depends on one scope, where those before it are kept.
    ///
    /// # Errors
    /// The first rule that is broken.
    fn check_scope(&self, candidate: &Candidate, scope: Scope) -> Result<(), Rule> {
        // No search has more devices than a grid.
        let Ok(layout) = self.layout(candidate) else { return Err(Rule::Pieces) };
        layout.broken_rule(self.model, scope).map_or(Ok(()), Err)
    }

    /// What depends on recomputation.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check_recompute(&self, recompute: Recompute, keep_communicated: bool) -> Result<(), Rule> {
        self.check_scope(&Candidate { recompute, keep_communicated, ..Candidate::PLAIN }, Scope::Recompute)
    }

    /// The candidate as rules see it: without a list of pieces.
    pub(super) fn layout(&self, c: &Candidate) -> Result<Layout, SpecError> {
        c.without_pieces(self.global_batch, self.seq_len)
    }
}
