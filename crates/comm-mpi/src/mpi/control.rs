//! Control packets under way, and signs of life: every rank tells its neighbours in the ring of ranks twice a second that it
//! is there, and misses them after five seconds.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use quadrille_comm::transport::Job;
use quadrille_comm::{Cause, JobFailure};

use crate::mpi::inquiry::answer;
use crate::mpi::library::{Lane, Library, MpiError, Request};
use crate::mpi::messages::Messages;
use crate::mpi::packet::{PACKET_BYTES, Packet, no_answer};
use crate::mpi::port::Port;

/// How often a rank says that it is there.
const BEAT: Duration = Duration::from_millis(500);

/// A rank that is not heard of for so long is lost.
const SILENCE: Duration = Duration::from_secs(5);

/// A rank that did not look itself for so long cannot tell who was silent meanwhile.
const ASLEEP: Duration = Duration::from_secs(1);

pub(super) struct Control {
    incoming: Option<Request>,
    /// Where the next packet arrives. Never moved nor freed while a receive is under way.
    buffer: Box<[u8]>,
    outgoing: VecDeque<(Request, Vec<u8>)>,
    neighbours: Vec<Neighbour>,
    beat: Instant,
    looked: Instant,
}

struct Neighbour {
    rank: usize,
    heard: Instant,
}

impl Control {
    pub(super) fn open(library: &mut Library) -> Result<Self, MpiError> {
        let now = Instant::now();
        let rank = library.rank;
        let size = library.size;
        let mut ranks = vec![(rank + 1) % size, (rank + size - 1) % size];
        ranks.dedup();
        ranks.retain(|neighbour| *neighbour != rank);
        let neighbours = ranks.into_iter().map(|rank| Neighbour { rank, heard: now }).collect();
        let buffer = vec![0; PACKET_BYTES].into_boxed_slice();
        let mut control =
            Self { incoming: None, buffer, outgoing: VecDeque::new(), neighbours, beat: now, looked: now };
        control.listen(library)?;
        Ok(control)
    }

    fn listen(&mut self, library: &mut Library) -> Result<(), MpiError> {
        let buffer = self.buffer.as_mut_ptr();
        let bytes = self.buffer.len();
        // SAFETY: the buffer is read only after the request is done, and lives as long as the process: `Control` is dropped
        // after `close` only.
        self.incoming = Some(unsafe { library.receive(Lane::Control, buffer, bytes, None, 0)? });
        Ok(())
    }

    /// Takes what has come, and says and watches what is due.
    pub(super) fn serve(&mut self, port: &Port, library: &mut Library, messages: &Messages) {
        if let Err(error) = self.take(port, library, messages) {
            let text = format!("a packet from another rank could not be received: {error}");
            port.fail(JobFailure::of_process(port.rank, Cause::Told(format!("rank {}: {text}", port.rank))));
        }
        let now = Instant::now();
        if now - self.looked > ASLEEP {
            self.neighbours.iter_mut().for_each(|neighbour| neighbour.heard = now);
        }
        self.looked = now;
        if now >= self.beat {
            self.beat = now + BEAT;
            let beats = self.neighbours.iter().map(|neighbour| (neighbour.rank, Packet::Alive)).collect();
            self.send(library, beats);
        }
        let lost = self.neighbours.iter().find(|neighbour| now - neighbour.heard > SILENCE);
        if let Some(Neighbour { rank, heard }) = lost {
            let cause = Cause::Lost { host: port.hosts[*rank].clone(), silent: now - *heard };
            port.fail(JobFailure { rank: *rank, activity: no_answer(), cause });
        }
    }

    /// Receives and handles packets until there are no more.
    fn take(&mut self, port: &Port, library: &mut Library, messages: &Messages) -> Result<(), MpiError> {
        while let Some(incoming) = &mut self.incoming {
            let Some(arrived) = library.test(incoming)? else { break };
            self.heard(arrived.from);
            let packet = Packet::decoded(&self.buffer[..arrived.bytes]);
            self.listen(library)?;
            match packet {
                Some(Packet::Alive) => {}
                Some(Packet::Failed(text)) => port.told(arrived.from, text.read(&port.names)),
                Some(Packet::Ask(question)) => {
                    let reply = answer(port, messages, &question);
                    self.send(library, vec![(arrived.from, Packet::Answer { number: question.number, answer: reply })]);
                }
                Some(Packet::Answer { number, answer }) => port.inquiries.answered(number, arrived.from, answer),
                None => {
                    let text = format!(
                        "rank {} sent a packet that is none of ours; all ranks must run one executable",
                        arrived.from
                    );
                    port.fail(JobFailure::of_process(arrived.from, Cause::Told(text)));
                }
            }
        }
        Ok(())
    }

    fn heard(&mut self, rank: usize) {
        if let Some(neighbour) = self.neighbours.iter_mut().find(|neighbour| neighbour.rank == rank) {
            neighbour.heard = Instant::now();
        }
    }

    /// Starts to send packets, and forgets those that have left. What cannot be sent is left out: a rank that cannot be
    /// reached is missed by its neighbours.
    pub(super) fn send(&mut self, library: &mut Library, packets: Vec<(usize, Packet)>) {
        while let Some((request, _)) = self.outgoing.front_mut() {
            if matches!(library.test(request), Ok(None)) {
                break;
            }
            self.outgoing.pop_front();
        }
        for (to, packet) in packets {
            let Some(bytes) = packet.encoded() else { continue };
            // SAFETY: the bytes' heap memory stays where it is until the request is done.
            let request = unsafe { library.send(Lane::Control, bytes.as_ptr(), bytes.len(), to, 0) };
            if let Ok(request) = request {
                self.outgoing.push_back((request, bytes));
            }
        }
    }

    /// Listens no more.
    pub(super) fn close(&mut self, library: &mut Library) {
        if let Some(incoming) = self.incoming.take() {
            library.cancel(incoming);
        }
    }
}

impl Port {
    /// The job, or the world between jobs, failed as this process is the first to know.
    fn fail(&self, failure: JobFailure) {
        match self.job() {
            Some(job) => {
                job.abort(failure.rank, failure.activity, failure.cause);
            }
            None => self.announce(&quadrille_comm::Aborted(std::sync::Arc::new(failure))),
        }
    }

    /// Another process says that the job failed.
    fn told(&self, from: usize, failure: JobFailure) {
        let aborted = quadrille_comm::Aborted(std::sync::Arc::new(failure));
        self.alarm.sound(from, &aborted);
        if let Some(job) = self.job() {
            Job::abort_told(&job, aborted);
        }
    }

    /// Tells all others of the failure that this process was the first to know.
    pub(crate) fn announce(&self, aborted: &quadrille_comm::Aborted) {
        if self.alarm.sound(self.rank, aborted) {
            self.tell_all(&Packet::Failed(crate::mpi::packet::FailureText::of(&aborted.0)));
        }
    }
}
