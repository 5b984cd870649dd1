//! The passes of a piece of layers as short lists.

use std::sync::Arc;

use super::told::Computed;

/// Something that a rank does in a pass. Searches hold many millions of them: numbers are short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// Computes: the number of a run of operations.
    Run(u32),
    /// Puts a collective, by its number, at the end of its communication stream.
    Issue { collective: u32, flight: u32 },
    /// Waits for it.
    Wait { flight: u32 },
    /// Comes to another layer: the host is not ahead of it.
    Layer,
}

/// What a rank does in a pass or in the update, after a step's first microbatch.
pub(super) type Tape = Vec<Task>;

/// Seconds of computations that follow each other, on the device and for the host.
pub(super) type Run = [f64; 2];

/// Of runs of computations by their numbers.
pub(super) fn runs(runs: &[Vec<usize>], computed: &Computed) -> Arc<[Run]> {
    let sum = |run: &[usize], of: &[f64]| run.iter().map(|work| of[*work]).sum();
    runs.iter().map(|run| [sum(run, &computed.works), sum(run, &computed.hosts)]).collect()
}

/// Seconds of what tapes are made of.
#[derive(Debug)]
pub(super) struct Seconds {
    runs: Arc<[Run]>,
    /// Of each collective, and its communication stream.
    collectives: Vec<(f64, usize)>,
    /// For which the host is busy with a collective.
    host: f64,
    /// When each collective under way is done.
    ends: Vec<f64>,
    /// When each communication stream is free.
    streams: Vec<f64>,
}

impl Seconds {
    /// Of tapes with so many collectives that are told apart.
    pub fn new(runs: &Arc<[Run]>, collectives: Vec<(f64, usize)>, host: f64, flights: usize) -> Self {
        let streams = collectives.iter().map(|(_, stream)| stream + 1).max().unwrap_or(0);
        Self { runs: Arc::clone(runs), collectives, host, ends: vec![0.0; flights], streams: vec![0.0; streams] }
    }

    /// Seconds of a tape that begins with free communication streams; `hosted`: the host is not there at once. What it does
    /// not wait for takes nothing.
    pub fn of(&mut self, tape: &Tape, hosted: bool) -> f64 {
        self.ends.fill(0.0);
        self.streams.fill(0.0);
        let mut now = 0.0_f64;
        let mut host = 0.0_f64;
        for task in tape {
            match *task {
                Task::Run(run) => {
                    let [seconds, busy] = self.runs[run as usize];
                    now += seconds;
                    if hosted {
                        host += busy;
                        now = now.max(host);
                    }
                }
                Task::Issue { collective, flight } => {
                    host += if hosted { self.host } else { 0.0 };
                    let (seconds, stream) = self.collectives[collective as usize];
                    let free = &mut self.streams[stream];
                    *free = free.max(now) + seconds;
                    self.ends[flight as usize] = *free;
                }
                Task::Wait { flight } => now = now.max(self.ends[flight as usize]),
                Task::Layer => host = host.max(now),
            }
        }
        now
    }
}
