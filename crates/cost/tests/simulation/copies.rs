//! Copies of optimizer states between devices and the memory of their hosts, beside the update.

use quadrille_cost::simulation::{Communication, Lane, Machine, Simulation, SimulationError, simulate};
use quadrille_spec::Offload;
use quadrille_step::{At, Op, Operation, StageProgram, StepProgram};

use crate::common::{BlocksOnly, close, program};

/// Buckets of the program.
const BUCKETS: f64 = 4.0;

/// An update of a bucket takes so many seconds, a copy of its states so many; all else is free.
struct Updates {
    bucket_elements: f64,
    bucket_bytes: f64,
    update_s: f64,
    copy_s: f64,
}

impl Machine for Updates {
    fn operation_seconds(&self, stage: &StageProgram, op: &Op) -> f64 {
        match op.operation {
            Operation::AdamW(_) => {
                let elements = op.operation.work(At::first(stage)).swept().unwrap_or(0);
                elements as f64 / self.bucket_elements * self.update_s
            }
            _ => 0.0,
        }
    }

    fn collective_seconds(&self, _: &Communication) -> f64 {
        0.0
    }

    fn message_seconds(&self, _: u64) -> f64 {
        0.0
    }

    fn host_copy_seconds(&self, bytes: u64) -> f64 {
        bytes as f64 / self.bucket_bytes * self.copy_s
    }
}

/// One rank with four buckets.
fn offloaded() -> StepProgram {
    let plain = program(1, "x=1", 1, |_| {});
    let stage = &plain.stages[0];
    let elements: usize = stage.parameters.iter().map(|it| stage.value(it.updated).local_elements).sum();
    assert!(elements.is_multiple_of(4));
    program(1, "x=1", 1, |request| (request.offload, request.bucket) = (Offload::Host, Some(elements / 4)))
}

fn simulated(update_s: f64, copy_s: f64) -> Simulation {
    let program = offloaded();
    let stage = &program.stages[0];
    assert_eq!(stage.buckets.len() as f64, BUCKETS);
    let bucket_bytes = stage.host_bytes() as f64 / BUCKETS;
    let bucket_elements = stage.bucket(quadrille_step::BucketId(0)).elements() as f64;
    simulate(&program, &Updates { bucket_elements, bucket_bytes, update_s, copy_s }).unwrap()
}

#[test]
fn copies_and_updates_hide_each_other() {
    // Copies that are no faster than updates never stop: a fetch and a store of every bucket.
    for update_s in [0.0, 0.5, 1.0] {
        assert!(close(simulated(update_s, 1.0).step_seconds, 2.0 * BUCKETS));
    }
    // Updates that take as long as both copies wait for the first bucket alone, and the last one goes back after them.
    for update_s in [2.0, 3.0] {
        let simulation = simulated(update_s, 1.0);
        assert!(close(simulation.step_seconds, 2.0 + BUCKETS * update_s));
        assert!(close(simulation.stages[0].waiting_on_host_s, 2.0));
        assert!(close(simulation.stages[0].busy_s, BUCKETS * update_s));
        assert!(close(simulation.stages[0].total_s(), simulation.step_seconds));
        let copies = simulation.events.iter().filter(|event| event.lane == Lane::Host);
        assert_eq!(copies.count() as f64, 2.0 * BUCKETS);
    }
}

/// Nobody guesses how fast copies are.
#[test]
fn machines_that_do_not_know_copies_are_not_asked_in_vain() {
    let error = simulate(&offloaded(), &BlocksOnly::default()).unwrap_err();
    assert!(matches!(error, SimulationError::Price { what: "fetch", .. }), "{error}");
}
