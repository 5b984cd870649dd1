//! Issue and wait: buffers move out of their slots into a collective and come back.

use quadrille_comm::{Pending, Reduction as Combine};
use quadrille_spec::{AxisSet, CollectiveKind};
use quadrille_step::{Collective, Reduction, Scalar};

use super::Done;
use crate::slots::Block;
use crate::{EngineError, RankEngine, Real};

/// A collective under way, with the buffers that it holds.
pub(crate) enum Flight<T> {
    /// One buffer, reduced in place.
    InPlace(Pending<Block<T>>),
    /// Input and output.
    Apart(Pending<(Block<T>, Block<T>)>),
}

impl<T: Real> RankEngine<'_, T> {
    pub(super) fn issue(&mut self, collective: Collective) -> Done {
        let (input, output) = (self.storage(collective.input), self.storage(collective.output));
        let sent = self.slots.take(input)?;
        let group = &self.groups[&collective.axes];
        let flight = match collective.kind {
            CollectiveKind::ReduceScatter => {
                Flight::Apart(self.context.reduce_scatter::<T, _, _>(group, sent, self.slots.take(output)?))
            }
            CollectiveKind::AllGather => {
                Flight::Apart(self.context.all_gather::<T, _, _>(group, sent, self.slots.take(output)?))
            }
            CollectiveKind::AllReduce => {
                let how = match collective.reduction {
                    Reduction::Sum => Combine::Sum,
                    Reduction::Max => Combine::Max,
                };
                Flight::InPlace(self.context.all_reduce::<T, _>(group, how, sent))
            }
            kind => return Err(EngineError::NoSuchCollective { kind: kind.name() }),
        };
        self.flights.insert(output, flight);
        Ok(())
    }

    pub(super) fn wait(&mut self, collective: Collective) -> Done {
        let (input, output) = (self.storage(collective.input), self.storage(collective.output));
        match self.flights.remove(&output) {
            Some(Flight::InPlace(pending)) => {
                let buffer = pending.wait()?;
                self.slots.put(output, buffer);
            }
            Some(Flight::Apart(pending)) => {
                let (sent, received) = pending.wait()?;
                self.slots.put(input, sent);
                self.slots.put(output, received);
            }
            None => return Err(self.slots.not_live(output)),
        }
        Ok(())
    }

    pub(super) fn reduce_scalar(&mut self, scalar: Scalar, axes: AxisSet) -> Done {
        let local = match scalar {
            Scalar::Loss => self.loss_sum,
            Scalar::GradientNormSquared => self.norm_squared,
        };
        let sum = self.context.all_reduce(&self.groups[&axes], Combine::Sum, vec![local]).wait()?[0];
        match scalar {
            Scalar::Loss => self.loss_sum = sum,
            Scalar::GradientNormSquared => self.norm_squared = sum,
        }
        Ok(())
    }
}
