//! A rank's device whose stream of kernels is sent in rows of commands.
//!
//! What comes to the stream of kernels is collected, and sent before anybody can tell: before an event is recorded in the stream or waited
//! for by it, before copies from and to the host, before the host waits for the stream, when the rank is about to wait for others, and
//! from a number of commands on. All else goes to the device at once. So orders are those of the commands one by one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::batch::{Batch, Step};
use super::graphs::KnownRows;
use crate::driver::{
    Address, Algorithm, Candidate, Driver, Event, Fault, Launch, Memory, Place, Product, ProductKind, Stream,
};
use crate::graph::{Graph, Graphs, Node};
use crate::nccl::Functions;

/// The most commands that are collected: enough that what it takes to start a graph is little for each, few enough that the device does
/// not wait for the host to collect them.
const MOST: usize = 128;

/// A device, and what is collected for one of its streams.
pub struct Batching {
    device: Arc<dyn Driver>,
    stream: Stream,
    collected: Mutex<Collected>,
}

#[derive(Default)]
struct Collected {
    batch: Batch,
    rows: KnownRows,
    /// What went wrong when commands were sent: those behind it never were, so that nothing may come after them.
    failed: Option<Fault>,
}

impl Collected {
    fn check(&self) -> Result<(), Fault> {
        self.failed.clone().map_or(Ok(()), Err)
    }
}

impl Batching {
    /// Of a device, for its stream of a rank's kernels.
    pub fn new(device: Arc<dyn Driver>, stream: Stream) -> Self {
        Self { device, stream, collected: Mutex::default() }
    }

    fn collected(&self) -> MutexGuard<'_, Collected> {
        self.collected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what is collected.
    pub fn start(&self) -> Result<(), Fault> {
        self.sent().map(drop)
    }

    /// What is collected, all of which is sent.
    fn sent(&self) -> Result<MutexGuard<'_, Collected>, Fault> {
        let mut collected = self.collected();
        self.send(&mut collected)?;
        Ok(collected)
    }

    fn send(&self, collected: &mut Collected) -> Result<(), Fault> {
        collected.check()?;
        let Collected { batch, rows, failed } = collected;
        let count = batch.steps().len();
        if count == 0 {
            return Ok(());
        }
        // SAFETY: of each command its caller has promised what is asked; memory is freed below, when graphs are forgotten.
        let sent = unsafe { rows.send(self.device.as_ref(), self.stream, batch) };
        batch.empty();
        sent.map_err(|fault| {
            let text = format!("{}, at or before here: {count} commands were sent together", fault.text);
            failed.insert(Fault { text, ..fault }).clone()
        })
    }

    /// Takes a command for the stream of kernels.
    fn collect(&self, with: impl FnOnce(&mut Batch)) -> Result<(), Fault> {
        let mut collected = self.collected();
        collected.check()?;
        with(&mut collected.batch);
        if collected.batch.steps().len() < MOST { Ok(()) } else { self.send(&mut collected) }
    }
}

impl Drop for Batching {
    fn drop(&mut self) {
        self.collected().rows.forget(self.device.as_ref());
    }
}

impl Driver for Batching {
    fn record(&self, event: Event, on: Stream) -> Result<(), Fault> {
        // Nothing is collected before the event is recorded.
        let _sent = (on == self.stream).then(|| self.sent()).transpose()?;
        self.device.record(event, on)
    }

    fn wait(&self, on: Stream, event: Event) -> Result<(), Fault> {
        let _sent = (on == self.stream).then(|| self.sent()).transpose()?;
        self.device.wait(on, event)
    }

    fn synchronize(&self, stream: Stream) -> Result<(), Fault> {
        let sent = if stream == self.stream { self.start() } else { Ok(()) };
        // Also after a fault: whoever waits may free what commands use that were sent before.
        let done = self.device.synchronize(stream);
        sent.and(done)
    }

    unsafe fn copy(&self, on: Stream, from: Place, to: Place, bytes: usize) -> Result<(), Fault> {
        let mut _sent = None;
        if on == self.stream {
            if let (Place::Device(from), Place::Device(to)) = (from, to) {
                return self.collect(|batch| batch.push(Step::Copy { from, to, bytes }));
            }
            _sent = Some(self.sent()?);
        }
        // SAFETY: the caller's promise.
        unsafe { self.device.copy(on, from, to, bytes) }
    }

    unsafe fn clear(&self, on: Stream, at: Address, bytes: usize) -> Result<(), Fault> {
        if on == self.stream {
            return self.collect(|batch| batch.push(Step::Clear { at, bytes }));
        }
        // SAFETY: the caller's promise.
        unsafe { self.device.clear(on, at, bytes) }
    }

    unsafe fn launch(&self, on: Stream, launch: &Launch<'_>) -> Result<(), Fault> {
        if on == self.stream {
            return self.collect(|batch| batch.launch(launch));
        }
        // SAFETY: the caller's promise.
        unsafe { self.device.launch(on, launch) }
    }

    unsafe fn product(&self, on: Stream, product: &Product) -> Result<(), Fault> {
        if on == self.stream {
            product.check();
            return self.collect(|batch| batch.push(Step::Product(*product)));
        }
        // SAFETY: the caller's promise.
        unsafe { self.device.product(on, product) }
    }

    unsafe fn free(&self, at: Address) -> Result<(), Fault> {
        // Copies and products of graphs have places for good. Memory is freed before the first steps and after the last.
        self.collected().rows.forget(self.device.as_ref());
        // SAFETY: the caller's promise.
        unsafe { self.device.free(at) }
    }

    fn close(&self, stream: Stream) {
        if stream == self.stream {
            let mut collected = self.collected();
            collected.batch.empty();
            collected.rows.forget(self.device.as_ref());
        }
        self.device.close(stream);
    }

    fn allocate(&self, bytes: usize) -> Result<Address, Fault> {
        self.device.allocate(bytes)
    }

    fn guard(&self, at: Address, bytes: usize) {
        self.device.guard(at, bytes);
    }

    fn piece(&self) -> usize {
        self.device.piece()
    }

    fn workspace(&self) -> usize {
        self.device.workspace()
    }

    fn name(&self) -> Result<String, Fault> {
        self.device.name()
    }

    fn reaches(&self, at: Address) -> Result<bool, Fault> {
        self.device.reaches(at)
    }

    fn identity(&self) -> Result<[u64; 2], Fault> {
        self.device.identity()
    }

    fn enter(&self) -> Result<(), Fault> {
        self.device.enter()
    }

    fn collectives(&self) -> Result<&'static Functions, Fault> {
        self.device.collectives()
    }

    fn library(&self) -> Result<String, Fault> {
        self.device.library()
    }

    fn candidates(&self, of: ProductKind) -> Result<Vec<Candidate>, Fault> {
        self.device.candidates(of)
    }

    fn workspace_of(&self, algorithm: Algorithm, of: ProductKind) -> Result<usize, Fault> {
        self.device.workspace_of(algorithm, of)
    }

    fn adds_bias(&self, of: ProductKind) -> Result<bool, Fault> {
        self.device.adds_bias(of)
    }

    fn memory(&self) -> Result<Memory, Fault> {
        self.device.memory()
    }

    fn stream(&self, urgent: bool) -> Result<Stream, Fault> {
        self.device.stream(urgent)
    }

    fn event(&self) -> Result<Event, Fault> {
        self.device.event()
    }

    fn forget(&self, event: Event) {
        self.device.forget(event);
    }

    fn query(&self, event: Event) -> Result<bool, Fault> {
        self.device.query(event)
    }

    fn await_event(&self, event: Event) -> Result<(), Fault> {
        self.device.await_event(event)
    }

    fn pin(&self, bytes: usize) -> Result<*mut u8, Fault> {
        self.device.pin(bytes)
    }

    unsafe fn unpin(&self, at: *mut u8) -> Result<(), Fault> {
        // SAFETY: the caller's promise.
        unsafe { self.device.unpin(at) }
    }
}

/// Nobody else makes graphs of what is collected.
impl Graphs for Batching {
    fn begin_graph(&self, _on: Stream) -> Result<(), Fault> {
        Err(refused())
    }

    fn last_node(&self, _on: Stream) -> Result<Node, Fault> {
        Err(refused())
    }

    fn end_graph(&self, _on: Stream) -> Result<Graph, Fault> {
        Err(refused())
    }

    fn update_node(&self, _graph: Graph, _node: Node, _launch: &Launch<'_>) -> Result<(), Fault> {
        Err(refused())
    }

    unsafe fn run_graph(&self, _graph: Graph, _on: Stream) -> Result<(), Fault> {
        Err(refused())
    }

    fn forget_graph(&self, _graph: Graph) {}
}

fn refused() -> Fault {
    Fault { library: "quadrille", code: -1, text: "the commands of this device are sent in graphs already".into() }
}

#[cfg(test)]
#[cfg(emulated)]
mod tests {
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
            let [x, y] =
                [(); 2].map(|()| Array { at: driver.allocate(8 * LEN).unwrap(), len: LEN, element: Element::F64 });
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
        // The first row is sent as it is. Of eight kernels two may have other words than the graph, and three not.
        let rows = [(0, [0, 0, 0]), (0, [1, 1, 0]), (0, [1, 2, 0]), (2, [1, 3, 2]), (5, [1, 3, 2]), (1, [1, 4, 3])];
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
}
