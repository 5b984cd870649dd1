//! The port as what `quadrille_comm` asks of processes and of a transport.

use std::fmt::Display;
use std::sync::Arc;

use quadrille_comm::transport::{Body, Carrier, Exchange, Job, Occasion, Parcel, Peers, Slices, Transport};
use quadrille_comm::{Aborted, Call, Cause, Group, JobFailure, JobOptions, WorldError};
use quadrille_spec::Nodes;

use crate::mpi::port::Port;

/// A handle of the process's port.
pub(super) struct Link(pub(super) Arc<Port>);

impl Peers for Link {
    fn rank(&self) -> usize {
        self.0.rank
    }

    /// As the MPI library says.
    fn nodes(&self) -> &Nodes {
        &self.0.nodes
    }

    fn hosts(&self) -> &[String] {
        &self.0.hosts
    }

    fn finish(&self) -> Result<(), WorldError> {
        self.0.close().map_err(|error| match error {
            Ok(Aborted(failure)) => WorldError::Failed((*failure).clone()),
            Err(text) => WorldError::Transport(format!("MPI: {text}")),
        })
    }

    fn reports(&self, error: &dyn Display) -> bool {
        let port = &self.0;
        let rank = self.0.rank;
        if port.alarm.failure().is_none() {
            let text = format!("rank {rank} on {}: {error}", port.hosts[rank]);
            port.announce(&Aborted(Arc::new(JobFailure::of_process(rank, Cause::Told(text)))));
        }
        port.alarm.reports()
    }

    fn abandon(&self, code: i32) -> ! {
        if self.0.alarm.failure().is_none() {
            self.reports(&format_args!("ended with code {code}"));
        }
        self.0.alarm.exit(code)
    }

    fn run(&self, options: &JobOptions, body: Body<'_>) -> Result<Vec<Vec<u8>>, JobFailure> {
        self.0.run(options, Link(self.0.clone()), body)
    }
}

impl Transport for Link {
    fn shares_memory(&self) -> bool {
        false
    }

    fn ends_calls(&self) -> bool {
        false // the library may still touch the buffers
    }

    fn drive(&self, done: &dyn Fn() -> bool) {
        self.0.drive(done);
    }

    fn announce(&self, aborted: &Aborted) {
        self.0.announce(aborted);
    }

    fn watch(
        &self,
        job: &Job,
        at: Occasion<'_>,
        look: &mut dyn FnMut() -> Result<bool, String>,
    ) -> Result<(), Aborted> {
        self.0.watch(job, &at, look)
    }
}

impl Carrier for Link {
    fn native(&self, job: &Arc<Job>, at: Occasion<'_>, slices: Slices<'_>) -> Result<(), Aborted> {
        self.0.native(job, at, slices)
    }

    fn native_bytes(&self, _group: &Group, call: &Call, _slices: &Slices<'_>) -> u64 {
        call.bytes(call.input)
    }

    fn message(&self, job: &Arc<Job>, group: &Group, call: Call, parcel: Box<dyn Parcel>) {
        self.0.post(job, group, call, parcel);
    }

    fn exchange(&self, job: &Arc<Job>, at: Occasion<'_>, exchange: Exchange<'_>) -> Result<(), Aborted> {
        self.0.exchange(job, at, exchange)
    }
}
