//! The passes of a piece of layers as short lists that are walked instead of its program.

/// Something that a rank does in a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// Computes: the number of a run of operations.
    Run(usize),
    /// Puts a collective, by its number, at the end of the communication stream.
    Issue { collective: usize, flight: usize },
    /// Waits for it.
    Wait { flight: usize },
}

/// What a rank does in a pass or in the update, after a step's first microbatch.
pub(super) type Tape = Vec<Task>;

/// Seconds of what tapes are made of.
#[derive(Debug)]
pub(super) struct Seconds {
    runs: Vec<f64>,
    collectives: Vec<f64>,
    /// When each collective under way is done.
    ends: Vec<f64>,
}

impl Seconds {
    /// Of tapes with so many collectives that are told apart.
    pub fn new(runs: Vec<f64>, collectives: Vec<f64>, flights: usize) -> Self {
        Self { runs, collectives, ends: vec![0.0; flights] }
    }

    /// Seconds of a tape that begins with a free communication stream. What it does not wait for takes nothing.
    pub fn of(&mut self, tape: &Tape) -> f64 {
        self.ends.fill(0.0);
        let (mut now, mut free) = (0.0_f64, 0.0_f64);
        for task in tape {
            match *task {
                Task::Run(run) => now += self.runs[run],
                Task::Issue { collective, flight } => {
                    free = free.max(now) + self.collectives[collective];
                    self.ends[flight] = free;
                }
                Task::Wait { flight } => now = now.max(self.ends[flight]),
            }
        }
        now
    }
}
