//! Ranks that are killed, and ranks that stop.

use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use quadrille_spec::RandomStream;

use crate::mpirun::Case;
use crate::run::{QUICK, Run, TRAINING};

/// The variable that repeats the random moments.
const SEED: &str = "QUADRILLE_SEED";

/// Steps of about a second on two cores, spent for the most part in products and attention ...
const COMPUTING: &str = "train --model gpt-demo --steps 100000 --threads 1 --grid pipe=2,data=2 --global-batch 32";

/// ... nearly all in collectives of thin layers ...
const COMMUNICATING: &str = "train --model gpt-demo --steps 100000 --threads 1 --grid x=2,y=2 --global-batch 8 \
     --set layers=24 --set hidden=32";

/// ... and, with one token for each sequence, to a third of what is computed in the update.
const UPDATING: &str = "train --model gpt-demo --steps 100000 --threads 1 --grid pipe=2,data=2 --global-batch 2 --seq-len 1 \
     --set layers=4 --set hidden=512";

pub const CASES: &[Case] = &[
    ("killed_while_preparing", || {
        // Not before all have joined: of a process that dies inside `MPI_Init` only the launcher can know.
        let mut run = Run::train(TRAINING);
        run.until("a summary", |run| run.tells("floor"));
        killed(run, "rank 2 killed while preparing", 2);
    }),
    ("killed_while_computing", || killed_at_random("computing", 3, COMPUTING)),
    ("killed_while_communicating", || killed_at_random("communicating", 3, COMMUNICATING)),
    ("killed_in_the_update", || killed_at_random("updating", 5, UPDATING)),
    ("stopped_rank", || stopped(2)),
    ("stopped_rank_that_logs", || stopped(0)),
    ("paused_rank", || {
        let mut run = Run::train(QUICK);
        run.until("steps", |run| run.steps() > 10);
        run.signal(1, "STOP");
        sleep(Duration::from_secs(2));
        let before = run.steps();
        run.signal(1, "CONT");
        run.until("more steps", |run| run.steps() > before + 10);
    }),
];

/// So many runs; in each a rank is killed at a moment of the first steps.
fn killed_at_random(phase: &str, kills: u64, line: &str) {
    let given = std::env::var(SEED).ok().and_then(|text| text.parse().ok());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed: u64 = given.unwrap_or_else(|| now.map_or(0, |now| now.as_nanos() as u64));
    println!("  {SEED}={seed}");
    let random = RandomStream::new(seed, phase);
    for kill in 0..kills {
        let mut run = Run::train(line);
        run.until("a step", |run| run.steps() > 0);
        sleep(Duration::from_millis(random.below(2 * kill, 2000)));
        let rank = random.below(2 * kill + 1, 4) as usize;
        killed(run, &format!("rank {rank} killed while {phase}"), rank);
    }
}

/// The launcher sees that a process was killed, and names its rank.
fn killed(run: Run, case: &str, rank: usize) {
    let fault = Instant::now();
    run.signal(rank, "KILL");
    run.ends(case, fault).says(&[&format!("rank {rank}"), "signal 9"]);
}

/// The others miss a stopped rank, and one of them tells.
fn stopped(rank: usize) {
    let mut run = Run::train(TRAINING);
    run.until("a step", |run| run.steps() > 0);
    let fault = Instant::now();
    run.signal(rank, "STOP");
    let end = run.ends(&format!("rank {rank} stopped"), fault);
    end.says(&[&format!("error: rank {rank} on "), ": no sign of life for 5."]);
    assert_eq!(end.errors.matches("error: ").count(), 1, "one rank tells:\n{}", end.errors);
}
