//! What is collected, when it is sent, and what of it is run as graphs.

use super::*;
use crate::array::{Array, Element};
use crate::emulator::Emulator;
use crate::queue::Queue;

const LEN: usize = 40;

/// A device of numbers that kernels change, in rows of commands.
struct Bench {
    emulator: Arc<Emulator>,
    driver: Batching,
    compute: Stream,
    traffic: Stream,
    x: Array,
    y: Array,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let emulator = Arc::new(Emulator::new(seed));
        let [compute, traffic] = [false, true].map(|urgent| emulator.stream(urgent).unwrap());
        let driver = Batching::new(emulator.clone(), compute);
        let [x, y] = [(); 2].map(|()| Array { at: driver.allocate(8 * LEN).unwrap(), len: LEN, element: Element::F64 });
        let bench = Self { emulator, driver, compute, traffic, x, y };
        bench.up(&[1.0; LEN]);
        bench
    }

    fn up(&self, numbers: &[f64; LEN]) {
        let (from, to) = (Place::Host(numbers.as_ptr().cast()), Place::Device(self.x.at));
        // SAFETY: the numbers are there until the stream is done, below.
        unsafe { self.driver.copy(self.compute, from, to, 8 * LEN) }.unwrap();
        self.driver.synchronize(self.compute).unwrap();
    }

    fn down(&self, from: Array) -> [f64; LEN] {
        let mut numbers = [0.0; LEN];
        let (from, to) = (Place::Device(from.at), Place::HostMut(numbers.as_mut_ptr().cast()));
        // SAFETY: as above.
        unsafe { self.driver.copy(self.compute, from, to, 8 * LEN) }.unwrap();
        self.driver.synchronize(self.compute).unwrap();
        numbers
    }

    fn queue(&self) -> Queue<'_> {
        // SAFETY: arrays are there as long as the bench; no kernel of these tests takes scratch.
        unsafe { Queue::new(&self.driver, self.compute, self.y.part(0..0)) }
    }

    /// x times the factors, one after another; then y = x.
    fn row(&self, factors: &[f64]) {
        factors.iter().for_each(|factor| self.queue().scale(self.x, *factor).unwrap());
        self.queue().copy(self.y, self.x).unwrap();
    }
}

/// In graphs or not, rows give what their commands give one by one, whatever words their kernels have.
#[test]
fn rows_that_come_again_run_as_graphs_with_the_words_that_they_have_then() {
    let bench = Bench::new(1);
    let mut expected = 1.0;
    // The first row is sent as it is. Of nine commands four may have other words than the graph, and five not.
    let rows = [(0, [0, 0, 0]), (0, [1, 1, 0]), (0, [1, 2, 0]), (2, [1, 3, 2]), (7, [1, 3, 2]), (1, [1, 4, 3])];
    for (halves, tally) in rows {
        let factors: [f64; 8] = std::array::from_fn(|at| if at < halves { 0.5 } else { 2.0 });
        bench.row(&factors);
        expected *= factors.iter().product::<f64>();
        assert_eq!(bench.down(bench.y), [expected; LEN], "{halves} halves");
        let graphs = bench.emulator.graphs();
        assert_eq!([graphs.made, graphs.runs, graphs.updates], tally, "{halves} halves");
    }
    drop(bench.driver);
    assert_eq!(bench.emulator.graphs().forgotten, 1);
}

/// Rows that others follow, or that are short, are none.
#[test]
fn rows_of_other_commands_are_no_graphs() {
    let bench = Bench::new(2);
    for count in [1, 2, 3, 5, 6, 7] {
        bench.row(&vec![2.0; count]);
        bench.down(bench.y);
    }
    for _ in 0..3 {
        bench.row(&[0.5; 2]); // with the copy three
        bench.down(bench.y);
    }
    assert_eq!(bench.emulator.graphs().made, 0);
    assert_eq!(bench.down(bench.y), [f64::from(1 << (24 - 6)); LEN]);
}

/// Memory that is freed is in no graph any more.
#[test]
fn graphs_go_before_memory_that_they_may_use() {
    let bench = Bench::new(3);
    let other = bench.driver.allocate(8 * LEN).unwrap();
    for time in 0..4 {
        bench.row(&[2.0; 4]);
        bench.down(bench.y);
        if time == 2 {
            // SAFETY: it was allocated above, and nothing uses it.
            unsafe { bench.driver.free(other) }.unwrap();
            assert_eq!(bench.emulator.graphs().forgotten, 1);
        }
    }
    assert_eq!([bench.emulator.graphs().made, bench.emulator.graphs().runs], [1, 2]);
}

/// What a traffic stream copies of kernels' results, after an event that `record` records.
fn copied_behind(seed: u64, record: impl Fn(&Bench, Event)) -> f64 {
    let bench = Bench::new(seed);
    bench.row(&[2.0; 3]);
    let event = bench.driver.event().unwrap();
    record(&bench, event);
    bench.driver.wait(bench.traffic, event).unwrap();
    let mut seen = [0.0; LEN];
    let (from, to) = (Place::Device(bench.x.at), Place::HostMut(seen.as_mut_ptr().cast()));
    // SAFETY: the numbers are there until the stream is done.
    unsafe { bench.driver.copy(bench.traffic, from, to, 8 * LEN) }.unwrap();
    bench.driver.synchronize(bench.traffic).unwrap();
    seen[LEN - 1]
}

/// What is collected is sent before an event that stands for it; an event that is recorded past it orders nothing.
#[test]
fn events_come_behind_what_is_collected() {
    for seed in 1..8 {
        let through = |bench: &Bench, event| bench.driver.record(event, bench.compute).unwrap();
        assert_eq!(copied_behind(seed, through), 8.0);
        let past = |bench: &Bench, event| bench.emulator.record(event, bench.compute).unwrap();
        assert_eq!(copied_behind(seed, past), 1.0);
    }
}

/// Kernels that come after a wait come behind it.
#[test]
fn waits_come_before_what_is_collected_after_them() {
    for seed in 1..8 {
        let bench = Bench::new(seed);
        let [first, event] = [(); 2].map(|()| bench.driver.event().unwrap());
        bench.row(&[7.0]);
        bench.driver.record(first, bench.compute).unwrap();
        bench.driver.wait(bench.traffic, first).unwrap();
        // SAFETY: both are the bench's memory.
        unsafe { bench.driver.clear(bench.traffic, bench.x.at, 8) }.unwrap();
        bench.driver.record(event, bench.traffic).unwrap();
        bench.driver.wait(bench.compute, event).unwrap();
        bench.queue().add_assign(bench.x, bench.y).unwrap();
        assert_eq!(bench.down(bench.x)[..2], [7.0, 14.0]);
    }
}

/// So many commands are not held back.
#[test]
fn long_rows_are_sent_before_anybody_asks() {
    let bench = Bench::new(5);
    let event = bench.emulator.event().unwrap();
    (0..MOST + 1).for_each(|_| bench.queue().scale(bench.x, 1.0).unwrap());
    assert_eq!(bench.driver.collected().batch.steps().len(), 1);
    bench.emulator.record(event, bench.compute).unwrap();
    assert!(!bench.emulator.query(event).unwrap(), "the stream has none of the commands");
}

/// A fault is told when commands are sent, and again whenever the device is asked for more, so that nobody misses it.
#[test]
fn a_fault_of_a_row_stays() {
    let bench = Bench::new(6);
    let launch = Launch { kernel: "no_such", format: Element::F64.format(), blocks: 1, shared: 0, words: &[] };
    bench.row(&[2.0]);
    // SAFETY: it is refused.
    unsafe { bench.driver.launch(bench.compute, &launch) }.unwrap();
    bench.row(&[2.0]);
    for _ in 0..2 {
        let fault = bench.driver.synchronize(bench.compute).unwrap_err().to_string();
        assert!(fault.contains("there is no kernel no_such_f64, at or before here: 5 commands"), "{fault}");
    }
    assert!(bench.queue().scale(bench.x, 2.0).is_err());
    assert!(bench.driver.record(bench.driver.event().unwrap(), bench.compute).is_err());
}
