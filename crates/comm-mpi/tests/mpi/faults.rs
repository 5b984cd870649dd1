//! How faults end the processes: message and time.

use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use quadrille_comm::{JobOptions, Label, MessageDelay, RankContext, Reduction, World};
use quadrille_spec::{Algorithm, Choice, CollectiveKind, Nodes, Routing};

use crate::Case;
use crate::work::{Done, everyone, job};

unsafe extern "C" {
    fn raise(signal: i32) -> i32;
}

const SIGKILL: i32 = 9;
const SIGSTOP: i32 = 19;

fn signal(number: i32) {
    // SAFETY: sends this process a signal that it does not handle.
    unsafe { raise(number) };
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "an_error_reaches_all",
            ranks: 4,
            body: || fault(NEVER, |_| Err("no checkpoint".into())),
            check: |outcome| {
                outcome.fails_saying(&["error: rank 2 failed at block 2, forward: no checkpoint\n"]);
                outcome.within(5);
            },
        },
        Case {
            name: "a_plan_carried_out_twice_is_found",
            ranks: 4,
            body: || twice(Algorithm::Ring),
            // A ring sends three of the four parts on.
            check: |outcome| found(outcome, 2 * 3 * PART_BYTES, 3 * PART_BYTES),
        },
        Case {
            name: "a_collective_of_the_library_carried_out_twice_is_found",
            ranks: 4,
            body: || twice(Algorithm::Native),
            check: |outcome| found(outcome, 2 * PART_BYTES, PART_BYTES),
        },
        Case {
            name: "a_panic_names_its_place",
            ranks: 4,
            body: || fault(NEVER, |_| panic!("number {}", 17)),
            check: |outcome| {
                outcome.fails_saying(&[
                    "error: rank 2 failed at block 2, forward: panicked at ",
                    "faults.rs",
                    "number 17",
                ]);
                outcome.within(5);
            },
        },
        Case {
            name: "an_error_ends_ranks_that_compute",
            ranks: 3,
            body: || {
                job(options(NEVER, Algorithm::Ring), |context| {
                    if context.rank() == 0 {
                        sleep(Duration::from_millis(200));
                        return Err("no data".into());
                    }
                    loop {
                        sleep(Duration::from_secs(3600));
                    }
                })
            },
            check: |outcome| {
                outcome.fails_saying(&["error: rank 0 failed at job, start: no data\n"]);
                outcome.within(8);
            },
        },
        Case {
            name: "a_killed_rank_ends_all",
            ranks: 4,
            body: || {
                fault(NEVER, |_| {
                    signal(SIGKILL);
                    Ok(())
                })
            },
            check: |outcome| {
                assert!(!outcome.success);
                outcome.says("rank 2"); // by mpirun, which sees the process end
                outcome.within(10);
            },
        },
        Case {
            name: "a_stopped_rank_is_missed",
            ranks: 4,
            body: || {
                fault(NEVER, |_| {
                    signal(SIGSTOP);
                    Ok(())
                })
            },
            check: |outcome| {
                outcome.fails_saying(&["error: rank 2 on ", ": no sign of life for 5."]);
                outcome.within(12);
            },
        },
        Case {
            name: "a_lost_rank_is_reported_by_ranks_that_compute",
            ranks: 3,
            body: || {
                job(options(NEVER, Algorithm::Ring), |context| {
                    if context.rank() == 2 {
                        signal(SIGSTOP);
                    }
                    loop {
                        sleep(Duration::from_secs(3600));
                    }
                })
            },
            check: |outcome| {
                outcome.fails_saying(&["error: rank 2 on ", ": no sign of life for 5."]);
                outcome.within(15);
            },
        },
        Case {
            name: "a_rank_that_sleeps_is_late",
            ranks: 4,
            body: || {
                fault(Duration::from_secs(1), |context| {
                    context.enter(Label::new("data"), "read")?;
                    sleep(Duration::from_secs(3600));
                    Ok(())
                })
            },
            check: late,
        },
        Case {
            name: "a_rank_that_sleeps_is_late_in_the_librarys_own_collectives",
            ranks: 4,
            body: || {
                fault_in(Duration::from_secs(1), Algorithm::Native, |context| {
                    context.enter(Label::new("data"), "read")?;
                    sleep(Duration::from_secs(3600));
                    Ok(())
                })
            },
            check: late,
        },
        Case {
            name: "a_rank_that_returns_early_is_missed",
            ranks: 4,
            body: || fault(NEVER, |_| Ok(())),
            check: |outcome| {
                outcome.fails_saying(&["error: rank 2 failed at block 2, forward: rank 2 returned while ranks ["]);
                outcome.within(8);
            },
        },
        Case {
            name: "a_message_that_nobody_sends_is_missed",
            ranks: 3,
            body: || {
                job(options(Duration::from_secs(1), Algorithm::Ring), |context| {
                    let group = everyone(context)?;
                    context.enter(Label::new("step"), "messages")?;
                    if context.rank() == 0 {
                        context.receive(&group, 1, 4, vec![0f32; 8]).wait()?;
                    }
                    sleep(Duration::from_secs(3600));
                    Ok(())
                })
            },
            check: |outcome| {
                outcome.fails_saying(&["receive from member 1 with tag 4 of 8 f32", "late: rank 1 at step, messages"]);
                outcome.within(10);
            },
        },
        Case {
            name: "a_message_of_another_length_is_an_error",
            ranks: 2,
            body: || {
                job(options(NEVER, Algorithm::Ring), |context| {
                    let group = everyone(context)?;
                    if context.rank() == 0 {
                        context.send(&group, 1, 0, vec![0f32; 3]).wait()?;
                    } else {
                        context.receive(&group, 0, 0, vec![0f32; 4]).wait()?;
                    }
                    Ok(())
                })
            },
            check: |outcome| {
                outcome.fails_saying(&["12 bytes came from rank 0 where 16 were expected"]);
                outcome.within(5);
            },
        },
        Case {
            name: "calls_that_do_not_fit_are_both_named",
            ranks: 3,
            body: || unequal(Algorithm::Ring),
            check: |outcome| {
                outcome.fails_saying(&[
                    "all-reduce (sum) of 5 f32",
                    "all-reduce (sum) of 6 f32",
                    "#2 on group \"world\"",
                ]);
                outcome.within(10);
            },
        },
        Case {
            name: "calls_that_do_not_fit_end_the_librarys_own_collectives",
            ranks: 3,
            body: || unequal(Algorithm::Native),
            check: |outcome| {
                outcome.fails_saying(&["#2 on group \"world\""]);
                outcome.within(10);
            },
        },
        Case {
            name: "a_wrong_number_of_ranks_is_refused",
            ranks: 2,
            body: || job(|_| JobOptions::new(5), |_| Ok(())),
            check: |outcome| {
                outcome.fails_saying(&["the job has 5 ranks, but 2 processes were started"]);
                outcome.within(5);
            },
        },
        Case {
            name: "delays_of_messages_are_refused",
            ranks: 2,
            body: || {
                let delay = || Some(MessageDelay::new(|_| Duration::ZERO));
                job(|world| JobOptions { message_delay: delay(), ..JobOptions::new(world.size()) }, |_| Ok(()))
            },
            check: |outcome| {
                outcome.fails_saying(&["leave `message_delay` out"]);
                outcome.within(5);
            },
        },
        Case {
            name: "an_error_outside_of_jobs_reaches_all",
            ranks: 3,
            body: || {
                let world = quadrille_comm_mpi::initialize().expect("the library works");
                if world.rank() == 1 {
                    let error = "no configuration";
                    if world.reports(&error) {
                        eprintln!("error: {error}");
                    }
                    world.abandon(1);
                }
                sleep(Duration::from_secs(3600));
                ExitCode::SUCCESS
            },
            check: |outcome| {
                outcome.fails_saying(&["error: no configuration"]);
                outcome.within(8);
            },
        },
    ]
}

fn late(outcome: &crate::Outcome) {
    outcome.fails_saying(&[
        "error: rank 2 failed at data, read: all-reduce (sum) of 7 f32 [block ",
        " s: ranks [0, 1, 3] arrived; late: rank 2 at data, read (reached #1)",
    ]);
    outcome.within(10);
}

/// More than one segment, and a rest.
const PART: usize = 40_001;
const PART_BYTES: usize = 4 * PART;

/// Ranks that carry an all-gather out twice, which gives the right numbers.
fn twice(algorithm: Algorithm) -> ExitCode {
    let options = options(NEVER, algorithm);
    job(
        |world| JobOptions { twice: Some(CollectiveKind::AllGather), ..options(world) },
        |context| {
            let group = everyone(context)?;
            let whole = vec![0f32; PART * group.size()];
            context.all_gather(&group, vec![1f32; PART], whole).wait()?;
            Ok(())
        },
    )
}

fn found(outcome: &crate::Outcome, moved: usize, planned: usize) {
    outcome.fails_saying(&[
        &format!(": {moved} bytes were moved for all-gather of {PART} into "),
        &format!("#1 on group \"world\" where {planned} were to be"),
    ]);
    outcome.within(10);
}

pub(crate) const NEVER: Duration = Duration::from_secs(300);

pub(crate) fn options(timeout: Duration, algorithm: Algorithm) -> impl Fn(&World) -> JobOptions {
    move |world| JobOptions {
        timeout,
        routing: Routing { nodes: Nodes::equal(world.size(), 4), choice: Choice::Always(algorithm), grid: None },
        ..JobOptions::new(world.size())
    }
}

/// A job in which rank 2 comes to grief between two sums.
fn fault(timeout: Duration, grief: fn(&RankContext) -> Done) -> ExitCode {
    fault_in(timeout, Algorithm::Ring, grief)
}

fn fault_in(timeout: Duration, algorithm: Algorithm, grief: fn(&RankContext) -> Done) -> ExitCode {
    job(options(timeout, algorithm), |context| {
        let group = everyone(context)?;
        context.enter(Label::indexed("block", context.rank() as u32), "forward")?;
        context.all_reduce(&group, Reduction::Sum, vec![1f32; 7]).wait()?;
        if context.rank() == 2 {
            return grief(context);
        }
        context.all_reduce(&group, Reduction::Sum, vec![1f32; 7]).wait()?;
        Ok(())
    })
}

/// Ranks that add different numbers of elements.
fn unequal(algorithm: Algorithm) -> ExitCode {
    job(options(Duration::from_secs(3), algorithm), |context| {
        let group = everyone(context)?;
        context.all_reduce(&group, Reduction::Sum, vec![1f32; 5]).wait()?;
        let elements = if context.rank() == 1 { 6 } else { 5 };
        context.all_reduce(&group, Reduction::Sum, vec![1f32; elements]).wait()?;
        Ok(())
    })
}
