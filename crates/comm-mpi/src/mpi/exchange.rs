//! One step of a collective's algorithm: data to one rank and from another, both under way at once.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::thread::park;

use quadrille_comm::transport::{Exchange, Job, Occasion, Receive};
use quadrille_comm::{Aborted, Memory};

use crate::mpi::inquiry::Wait;
use crate::mpi::pace::Pace;
use crate::mpi::packet::ChannelKey;
use crate::mpi::port::{Desk, Port};
use crate::mpi::segments::{Incoming, Outgoing, Segments};

/// What a look at the library found.
pub(super) enum Look {
    /// All is done.
    Done,
    /// Something has come or left.
    Progress,
    /// Nothing has changed.
    Nothing,
}

/// What must agree between the two sides of an exchange, as a number, the rules by which algorithms are chosen among it.
/// Programs that do not fit together do not match, but for one in as many as the library has tags, two thousand million in
/// Open MPI.
pub(super) fn hash(job: &Job, at: &Occasion<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let call = at.call;
    let reduction = call.reduction.map(|reduction| reduction as u8);
    (job.number(), job.rules(), at.group.key(), at.sequence).hash(&mut hasher);
    (call.operation, reduction, call.peer, call.element, call.common_lengths(), call.chunks).hash(&mut hasher);
    hasher.finish()
}

impl Port {
    /// See [`Transport::exchange`](quadrille_comm::transport::Transport::exchange). After an abort it does not return while the
    /// library may still touch what was lent; waits for the collective end by the abort all the same.
    pub(crate) fn exchange(&self, job: &Job, at: Occasion<'_>, exchange: Exchange<'_>) -> Result<(), Aborted> {
        self.exchange_as(hash(job, &at), job, at, exchange)
    }

    /// As `exchange`, matched by this number.
    pub(super) fn exchange_as(
        &self,
        hash: u64,
        job: &Job,
        at: Occasion<'_>,
        exchange: Exchange<'_>,
    ) -> Result<(), Aborted> {
        job.check()?;
        let (mut outgoing, mut incoming, mut handle) = prepare(&mut self.enter(), hash, &at, exchange);
        self.finish_call(job, &at, || {
            let progressed = {
                let library = &mut self.enter().library;
                // First what comes: then there is a place for it when it does.
                // SAFETY: the slices are borrowed until this function returns, which it does only when both are done.
                let received = incoming.as_mut().map_or(Ok(false), |incoming| unsafe { incoming.advance(library) })?;
                // SAFETY: as above.
                received | outgoing.as_mut().map_or(Ok(false), |outgoing| unsafe { outgoing.advance(library) })?
            };
            if let (Some(incoming), Some(handle)) = (&mut incoming, &mut handle) {
                incoming.hand_over(handle);
            }
            let done =
                incoming.as_ref().is_none_or(Incoming::is_done) && outgoing.as_ref().is_none_or(Outgoing::is_done);
            Ok(if done {
                Look::Done
            } else if progressed {
                Look::Progress
            } else {
                Look::Nothing
            })
        });
        if let Some(outgoing) = outgoing {
            job.traffic(self.rank).moved(outgoing.handed);
        }
        if let Some(incoming) = incoming {
            self.enter().give_blocks(incoming);
        }
        job.check()
    }

    /// Looks until all of a collective's part is done. Never returns if the job is aborted before: the library may still read
    /// and write what the caller has lent, and the process ends soon.
    pub(super) fn finish_call(&self, job: &Job, at: &Occasion<'_>, look: impl FnMut() -> Result<Look, String>) {
        if self.look_until_done(job, at, None, look).is_err() {
            strand()
        }
    }

    /// See [`Transport::watch`](quadrille_comm::transport::Transport::watch).
    pub(crate) fn watch(
        &self,
        job: &Job,
        at: &Occasion<'_>,
        look: &mut dyn FnMut() -> Result<bool, String>,
    ) -> Result<(), Aborted> {
        let channel = ChannelKey::of(job, at.group, at.call);
        if let Some(channel) = channel {
            self.enter().messages.watched(channel, at.sequence);
        }
        let look = || Ok(if look()? { Look::Done } else { Look::Nothing });
        self.look_until_done(job, at, channel, look)
    }

    /// Looks until all of a call's part is done, or the job is aborted: also by this, where others are late.
    fn look_until_done(
        &self,
        job: &Job,
        at: &Occasion<'_>,
        channel: Option<ChannelKey>,
        mut look: impl FnMut() -> Result<Look, String>,
    ) -> Result<(), Aborted> {
        let mut wait = Wait::new(at.group, at.call, at.sequence, channel);
        let mut pace = Pace::start(self.crowded);
        loop {
            let looked = job.catch(self.rank, || look().map_err(|error| job.abort_carried(at, error)));
            match looked {
                Ok(Look::Done) => {
                    wait.end(self);
                    return Ok(());
                }
                Ok(Look::Progress) => {
                    pace.progressed();
                    wait.progressed();
                }
                Ok(Look::Nothing) => {
                    if let Some((rank, activity, error)) = wait.look(self, job) {
                        job.abort_collective(rank, activity, error);
                    }
                    pace.pause();
                }
                Err(_) => {}
            }
            job.check()?;
        }
    }
}

/// Never returns: see [`Port::finish_call`].
pub(super) fn strand() -> ! {
    loop {
        park();
    }
}

/// What handles elements that arrive: how many came before them, and they.
type Pieces<'a> = &'a mut dyn FnMut(usize, Memory<'_>);

/// The two directions of an exchange, and who takes what arrives in pieces.
fn prepare<'a>(
    desk: &mut Desk,
    hash: u64,
    at: &Occasion<'_>,
    exchange: Exchange<'a>,
) -> (Option<Outgoing>, Option<Incoming>, Option<Pieces<'a>>) {
    let tag = desk.library.tag(hash);
    let rank = |member: usize| at.group.members()[member];
    // Of chunks of different lengths the two sides may mean other ones, though their calls fit.
    let segments = |bytes| if at.call.chunks.is_some() { Segments::with_end(bytes) } else { Segments::of(bytes) };
    let outgoing = exchange
        .send
        .map(|(to, data)| Outgoing::new(data.address().cast_const(), segments(data.bytes()), rank(to), tag));
    let Some((from, receive)) = exchange.receive else { return (outgoing, None, None) };
    let Some(kind) = at.call.kind else { unreachable!("calls of this process have a kind") };
    let segments = segments(receive.elements() * kind.bytes());
    let (to, handle) = match receive {
        Receive::Into(output) => (Some(output.address()), None),
        Receive::Pieces(_, pieces) => (None, Some(pieces)),
    };
    (outgoing, Some(Incoming::new(desk, to, segments, kind, rank(from), tag)), handle)
}
