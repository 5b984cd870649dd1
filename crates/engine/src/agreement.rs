//! How ranks agree between steps. What they send for it is no part of a step and of its ledger.

use quadrille_comm::Reduction;
use quadrille_spec::AxisSet;

use crate::{Backend, EngineError, RankEngine};

/// Numbers that a text is sent as, one for a character; longer ones are cut.
const TEXT: usize = 400;

impl<B: Backend> RankEngine<'_, B> {
    /// Element by element the largest that any rank gives.
    pub(crate) fn largest_of_all(&self, numbers: Vec<f64>) -> Result<Vec<f64>, EngineError> {
        let world = &self.groups[&AxisSet::WORLD];
        Ok(self.context.all_reduce(world, Reduction::Max, numbers).wait()?)
    }

    /// Of what ranks have to tell, that with the least order, below 2^53, and of those the lowest rank's; the same on all
    /// ranks. `None` if no rank has anything to tell.
    pub(crate) fn first_told(&self, told: Option<(u64, String)>) -> Result<Option<String>, EngineError> {
        let order = told.as_ref().map_or(f64::MIN, |(order, _)| -(*order as f64));
        let first = self.largest_of_all(vec![order])?[0];
        if first == f64::MIN {
            return Ok(None);
        }
        let rank = self.context.rank();
        let teller = if order == first { -(rank as f64) } else { f64::MIN };
        let teller = -self.largest_of_all(vec![teller])?[0] as usize;
        let mut text = vec![0.0; TEXT];
        if let Some((_, told)) = told.filter(|_| teller == rank) {
            text.iter_mut().zip(told.chars()).for_each(|(number, each)| *number = f64::from(u32::from(each)));
        }
        let text = self.context.broadcast::<f64, _>(&self.groups[&AxisSet::WORLD], teller, text).wait()?;
        let character = |number: f64| char::from_u32(number as u32).filter(|each| *each != '\0');
        Ok(Some(text.into_iter().map_while(character).collect()))
    }

    /// Forgets what has been sent since the last step's ledger was taken.
    pub(crate) fn forget_transfers(&mut self) {
        self.set_aside.clear();
        self.context.take_ledger();
    }
}
