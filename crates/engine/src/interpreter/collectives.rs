//! Issue and wait: buffers move out of their storages into a collective and come back.

use quadrille_comm::{Element, Payload, Pending, Reduction as Combine};
use quadrille_spec::{AxisSet, CollectiveKind};
use quadrille_step::{Collective, Members, Parts, Reduction, Scalar, StorageId, kind, payload_elements};

use super::{Done, Interpreter};
use crate::backend::Kind;
use crate::state::samples::BatchCounts;
use crate::state::storages::Block;
use crate::{Backend, EngineError};

/// A collective under way, with the buffers that it holds.
pub(crate) enum Flight<B: Backend> {
    /// One buffer, reduced in place.
    InPlace(Pending<Block<B>>),
    /// Input and output.
    Apart(Pending<(Block<B>, Block<B>)>),
}

impl<B: Backend> Interpreter<'_, B> {
    pub(super) fn issue(&mut self, collective: Collective) -> Done {
        let sent = self.storages.take(self.rank.storage(collective.input))?;
        match sent.kind() {
            Kind::Stored => self.issue_of::<B::Stored>(collective, sent),
            Kind::Real => self.issue_of::<B::Real>(collective, sent),
        }
    }

    /// Of elements of this type.
    fn issue_of<T: Element>(&mut self, collective: Collective, sent: Block<B>) -> Done
    where
        B::Buffer: Payload<T>,
    {
        let input = self.rank.storage(collective.input);
        let output = self.rank.storage(collective.output);
        let given = self.step.local_elements(collective.input);
        let got = self.step.local_elements(collective.output);
        let parts = self.step.queue_parts(&collective);
        let payload = payload_elements(self.rank.program, &collective);
        let group = self.communicators.members(&collective).ok_or_else(|| self.storages.not_live(input))?;
        let context = self.communicators.context;
        let in_place = input == output;
        if let Some(parts) = parts {
            let sent = sent.first(given);
            let received = self.storages.take(output)?.first(got);
            let flight = match (&parts, collective.kind) {
                (Parts::Exchanged { sent: to, received: from }, _) => {
                    context.all_to_all_chunks::<T, _, _>(group, to, from, sent, received)
                }
                (Parts::OfWhole(parts), CollectiveKind::AllGather) => {
                    context.all_gather_chunks::<T, _, _>(group, parts, sent, received)
                }
                (Parts::OfWhole(parts), _) => context.reduce_scatter_chunks::<T, _, _>(group, parts, sent, received),
            };
            self.flights.insert(output, Flight::Apart(flight));
            return Ok(());
        }
        let flight = match (collective.kind, collective.members) {
            (CollectiveKind::ReduceScatter, _) if in_place => {
                Flight::InPlace(context.reduce_scatter_in_place::<T, _>(group, sent))
            }
            (CollectiveKind::AllGather, _) if in_place => {
                Flight::InPlace(context.all_gather_in_place::<T, _>(group, sent))
            }
            (CollectiveKind::ReduceScatter, _) => {
                let sent = sent.first(payload);
                let received = self.storages.take(output)?.first(got);
                Flight::Apart(context.reduce_scatter::<T, _, _>(group, sent, received))
            }
            (CollectiveKind::AllGather, _) => {
                let sent = sent.first(given);
                let received = self.storages.take(output)?.first(payload);
                Flight::Apart(context.all_gather::<T, _, _>(group, sent, received))
            }
            (CollectiveKind::AllToAll, _) => {
                let sent = sent.first(given);
                let received = self.storages.take(output)?.first(got);
                Flight::Apart(context.all_to_all::<T, _, _>(group, sent, received))
            }
            (CollectiveKind::AllReduce, _) => {
                let how = match collective.reduction {
                    Reduction::Sum => Combine::Sum,
                    Reduction::Max => Combine::Max,
                };
                Flight::InPlace(context.all_reduce::<T, _>(group, how, sent.first(given)))
            }
            (CollectiveKind::Broadcast, Members::Root(root)) => {
                Flight::InPlace(context.broadcast::<T, _>(group, root, sent))
            }
            (CollectiveKind::Reduce, Members::Root(root)) => Flight::InPlace(context.reduce::<T, _>(group, root, sent)),
            (kind, _) => return Err(EngineError::NoSuchCollective { kind: kind.name() }),
        };
        self.flights.insert(output, flight);
        Ok(())
    }

    pub(super) fn wait(&mut self, collective: Collective) -> Done {
        match self.flights.remove(&self.rank.storage(collective.output)) {
            Some(flight) => {
                self.land(self.rank.storage(collective.input), self.rank.storage(collective.output), flight)
            }
            None => Err(self.storages.not_live(self.rank.storage(collective.output))),
        }
    }

    /// What the last step's update has issued; nothing in the first step, or after [`Interpreter::settle`].
    pub(super) fn wait_carried(&mut self, collective: Collective) -> Done {
        let storage = self.rank.storage(collective.output);
        self.flights.remove(&storage).map_or(Ok(()), |flight| self.land(storage, storage, flight))
    }

    pub(super) fn land(&mut self, input: StorageId, output: StorageId, flight: Flight<B>) -> Done {
        self.backend.start()?; // what hides the flight
        match flight {
            Flight::InPlace(pending) => {
                let buffer = pending.wait()?;
                self.storages.put(output, buffer);
            }
            Flight::Apart(pending) => {
                let (sent, received) = pending.wait()?;
                self.storages.put(input, sent);
                self.storages.put(output, received);
            }
        }
        Ok(())
    }

    /// Sums the counts of the step's batch, which were taken when the samples of its first pass were loaded.
    fn reduce_counts(&mut self, axes: AxisSet) -> Done {
        let BatchCounts { tokens, targets } = self.step.counts.expect("a pass that sums counts has taken them");
        let own = vec![tokens, targets];
        let sums = self.communicators.sum(axes, own)?;
        self.step.counts = Some(BatchCounts { tokens: sums[0], targets: sums[1] });
        Ok(())
    }

    pub(super) fn reduce_scalar(&mut self, op: &kind::ReduceScalar) -> Done {
        let kind::ReduceScalar { scalar, axes } = *op;
        if scalar == Scalar::Batch {
            return self.reduce_counts(axes);
        }
        let local = self.backend.take_scalar(scalar)?;
        let sums = self.communicators.sum(axes, local)?;
        self.backend.put_scalar(scalar, sums)?;
        match scalar {
            // An evaluation may go on to batches that have targets.
            Scalar::Loss if self.rank.program.trains() && self.backend.totals()?.targets == 0 => {
                Err(EngineError::NoTargets { step: self.step.number })
            }
            Scalar::Loss if self.rank.program.attempts() => self.backend.prepare_attempt(&self.optimizer.update_rule()),
            Scalar::Loss | Scalar::Routers { .. } | Scalar::Batch => Ok(()),
            // The last of a step's totals.
            Scalar::GradientNormSquared => {
                if self.rank.program.attempts() {
                    self.step.verdict = self.optimizer.update_rule().verdict(self.backend.totals()?);
                }
                self.backend.prepare_update(&self.optimizer.update_rule())
            }
        }
    }
}
