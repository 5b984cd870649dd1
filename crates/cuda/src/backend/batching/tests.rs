//! What is collected, when it is sent, and what of it is run as graphs.

use std::time::Duration;

use super::*;
use crate::array::{Array, Element};
use crate::emulator::{Emulator, GraphTally, GraphTrouble};
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
    ones: Array,
    twos: Array,
}

impl Bench {
    fn new(seed: u64) -> Self {
        Self::on(Emulator::new(seed))
    }

    fn on(emulator: Emulator) -> Self {
        let emulator = Arc::new(emulator);
        let [compute, traffic] = [false, true].map(|urgent| emulator.stream(urgent).unwrap());
        let driver = Batching::new(emulator.clone(), compute);
        let array = |()| Array { at: driver.allocate(8 * LEN).unwrap(), len: LEN, element: Element::F64 };
        let [x, y, ones, twos] = [(); 4].map(array);
        let bench = Self { emulator, driver, compute, traffic, x, y, ones, twos };
        [(x, 1.0), (ones, 1.0), (twos, 2.0)].into_iter().for_each(|(to, number)| bench.up(to, &[number; LEN]));
        bench
    }

    fn up(&self, to: Array, numbers: &[f64; LEN]) {
        let from = Place::Host(numbers.as_ptr().cast());
        let to = Place::Device(to.at);
        // SAFETY: the numbers are there until the stream is done, below.
        unsafe { self.driver.copy(self.compute, from, to, 8 * LEN) }.unwrap();
        self.driver.synchronize(self.compute).unwrap();
    }

    fn down(&self, from: Array) -> [f64; LEN] {
        let mut numbers = [0.0; LEN];
        let from = Place::Device(from.at);
        let to = Place::HostMut(numbers.as_mut_ptr().cast());
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

    /// x times each factor and then with each addend, in their order; then y = x. The number that x has then, if it had `x`.
    fn mixed(&self, x: f64, pairs: &[(f64, Addend)]) -> f64 {
        for (factor, addend) in pairs {
            self.queue().scale(self.x, *factor).unwrap();
            self.queue().add_assign(self.x, if *addend == One { self.ones } else { self.twos }).unwrap();
        }
        self.queue().copy(self.y, self.x).unwrap();
        pairs.iter().fold(x, |x, (factor, addend)| x * factor + if *addend == One { 1.0 } else { 2.0 })
    }

    /// Graphs made, run and forgotten, launches that got other words, and rows that were refused.
    fn tally(&self) -> [u64; 5] {
        let GraphTally { made, runs, updates, forgotten, refused } = self.emulator.graphs();
        [made, runs, forgotten, updates, refused]
    }
}

/// What is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Addend {
    One,
    Two,
}
use Addend::{One, Two};

/// In graphs or not, rows give what their commands give one by one, whatever words their kernels have and wherever these stand.
#[test]
fn rows_that_come_again_run_as_graphs_with_the_words_that_they_have_then() {
    let bench = Bench::new(1);
    let usual = [(2.0, One), (0.5, Two), (2.0, Two), (0.5, One)];
    let second = [(2.0, One), (0.25, Two), (2.0, Two), (0.5, One)];
    let two = [(2.0, One), (0.5, One), (4.0, Two), (0.5, One)];
    let five = [(4.0, Two), (0.25, One), (4.0, Two), (0.5, One)];
    // The first row is sent as it is. Of nine commands four may have other words than the graph, and five not.
    let rows = [
        (usual, [0, 0, 0]),
        (usual, [1, 1, 0]),
        (second, [1, 2, 1]),
        (second, [1, 3, 1]),
        (usual, [1, 4, 2]),
        (two, [1, 5, 4]),
        (usual, [1, 6, 6]),
        (five, [1, 6, 6]),
        (second, [1, 7, 7]),
    ];
    let mut x = 1.0;
    for (at, (pairs, tally)) in rows.into_iter().enumerate() {
        x = bench.mixed(x, &pairs);
        assert_eq!(bench.down(bench.y), [x; LEN], "row {at}");
        let told = bench.driver.told();
        assert_eq!([told.made, told.runs, told.updates], tally, "row {at}");
        assert_eq!(
            bench.tally(),
            [told.made, told.runs, 0, told.updates, 0],
            "row {at}: what is told is what was done"
        );
    }
    let emulator = bench.emulator.clone();
    drop(bench.driver);
    assert_eq!(emulator.graphs().forgotten, 1);
}

/// A row becomes a graph when at most half of its commands have other words than the last time, and is none any more when more have so
/// eight times in a row.
#[test]
fn rows_whose_words_are_others_each_time_are_no_graphs() {
    let bench = Bench::new(7);
    let [ones, twos] = [(2.0, One), (0.5, Two)].map(|pair| [pair; 4]);
    let mut x = 1.0;
    let mut send = |pairs: &[(f64, Addend)], tally| {
        x = bench.mixed(x, pairs);
        assert_eq!(bench.down(bench.y), [x; LEN]);
        assert_eq!(bench.tally(), tally);
    };
    send(&ones, [0; 5]);
    send(&twos, [0; 5]);
    send(&twos, [1, 1, 0, 0, 0]);
    (0..7).for_each(|_| send(&ones, [1, 1, 0, 0, 0]));
    send(&twos, [1, 2, 0, 0, 0]); // not in a row
    (0..7).for_each(|_| send(&ones, [1, 2, 0, 0, 0]));
    send(&ones, [1, 2, 1, 0, 0]);
    (0..3).for_each(|_| send(&twos, [1, 2, 1, 0, 0]));
}

/// A row of which the device makes no graph, or whose graph it does not change, is sent command by command from then on: to the same
/// numbers, and it is counted.
#[test]
fn graphs_that_a_device_refuses_end_no_run() {
    use GraphTrouble::{Begins, Captures, Ends, Updates};
    for (trouble, tally) in
        [(Begins, [0, 0, 0, 0, 1]), (Captures, [0, 0, 0, 0, 1]), (Ends, [0, 0, 0, 0, 1]), (Updates, [1, 1, 1, 0, 1])]
    {
        let bench = Bench::on(Emulator::new(8).with_graph_trouble(trouble));
        let mut x = 1.0;
        for factor in [2.0, 2.0, 0.5, 4.0, 2.0] {
            x = bench.mixed(x, &[(factor, One), (0.5, Two), (2.0, Two)]);
            assert_eq!(bench.down(bench.y), [x; LEN], "{trouble:?}");
        }
        assert_eq!(bench.tally(), tally, "{trouble:?}");
        assert_eq!(bench.driver.told().refused, 1, "{trouble:?}");
    }
}

/// Of a graph that could not be run nobody knows what was done.
#[test]
fn a_graph_that_is_not_run_ends_the_run() {
    let bench = Bench::on(Emulator::new(9).with_graph_trouble(GraphTrouble::Runs));
    bench.row(&[2.0; 4]);
    bench.down(bench.y);
    bench.row(&[2.0; 4]);
    for _ in 0..2 {
        let fault = bench.driver.synchronize(bench.compute).unwrap_err().to_string();
        assert!(fault.contains("trouble with graphs: Runs, at or before here: 5 commands"), "{fault}");
    }
}

/// Where more rows come than are known, the one that was sent the longest time ago goes, with its graph.
#[test]
fn rows_that_were_not_sent_for_long_go() {
    let bench = Bench::new(10);
    bench.driver.collected().rows = KnownRows::at_most(2);
    let send = |count, tally| {
        bench.row(&vec![1.0; count]);
        bench.down(bench.y);
        assert_eq!(bench.tally()[..3], tally, "{count} factors");
    };
    let first = [(3, [0, 0, 0]), (4, [0, 0, 0]), (3, [1, 1, 0]), (4, [2, 2, 0]), (3, [2, 3, 0])];
    first.into_iter().for_each(|(count, tally)| send(count, tally));
    send(5, [2, 3, 1]); // in the place of the row of 4
    send(3, [2, 4, 1]);
    send(4, [2, 4, 1]); // in that of 5
    send(3, [2, 5, 1]);
    send(4, [3, 6, 1]);
}

/// A thread that waits for the stream, as one that frees a buffer, and one that makes graphs of it do not come between each other.
#[test]
fn streams_are_waited_for_beside_graphs_that_are_made() {
    let bench = Bench::new(11);
    std::thread::scope(|scope| {
        let makes = scope.spawn(|| {
            for count in 4..40 {
                for _ in 0..2 {
                    bench.row(&vec![1.0; count]);
                    bench.driver.start().unwrap();
                }
            }
        });
        while !makes.is_finished() {
            bench.driver.synchronize(bench.compute).unwrap();
            std::thread::sleep(Duration::from_micros(50));
        }
        makes.join().unwrap();
    });
    // Who waits while a row is collected has the first part of it sent, which is another row: how many are made is chance.
    let [made, run, .., refused] = bench.tally();
    assert!(made > 0 && run >= made && refused == 0, "{:?}", bench.tally());
    assert_eq!(bench.down(bench.y), [1.0; LEN]);
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
    let from = Place::Device(bench.x.at);
    let to = Place::HostMut(seen.as_mut_ptr().cast());
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
    (0..MOST_COMMANDS + 1).for_each(|_| bench.queue().scale(bench.x, 1.0).unwrap());
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
