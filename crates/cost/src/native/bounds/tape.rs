//! The passes of a piece of layers as short lists.

use super::told::Priced;

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

/// Seconds of what tapes are made of.
#[derive(Debug)]
pub(super) struct Seconds {
    /// Of runs, on the device and for the host.
    runs: Vec<[f64; 2]>,
    priced: Priced,
    /// When each collective under way is done.
    ends: Vec<f64>,
    /// When each communication stream is free.
    streams: Vec<f64>,
}

impl Seconds {
    /// Of tapes with so many collectives that are told apart; `runs`: the numbers of computations that follow each other.
    pub fn new(runs: &[Vec<usize>], priced: Priced, flights: usize) -> Self {
        let sum = |run: &[usize], of: &[f64]| run.iter().map(|work| of[*work]).sum();
        let runs = runs.iter().map(|run| [sum(run, &priced.works), sum(run, &priced.hosts)]).collect();
        let streams = priced.streams.iter().max().map_or(0, |last| last + 1);
        Self { runs, priced, ends: vec![0.0; flights], streams: vec![0.0; streams] }
    }

    /// Seconds of a tape that begins with free communication streams; `hosted`: the host is not there at once. What it does
    /// not wait for takes nothing.
    pub fn of(&mut self, tape: &Tape, hosted: bool) -> f64 {
        self.ends.fill(0.0);
        self.streams.fill(0.0);
        let (mut now, mut host) = (0.0_f64, 0.0_f64);
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
                    host += if hosted { self.priced.host } else { 0.0 };
                    let collective = collective as usize;
                    let free = &mut self.streams[self.priced.streams[collective]];
                    *free = free.max(now) + self.priced.collectives[collective];
                    self.ends[flight as usize] = *free;
                }
                Task::Wait { flight } => now = now.max(self.ends[flight as usize]),
                Task::Layer => host = host.max(now),
            }
        }
        now
    }
}
