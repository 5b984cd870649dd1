//! An emulated device that leaves out some of what orders its streams, or some of its work: a negative control.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

use quadrille_cuda::{
    Address, Driver, Emulator, Event, Facts, Fault, Graph, Graphs, Launch, Node, Place, Product, Stream, emulate_by,
    keep_apart,
};

/// The variable that says what is left out, in the tests of a process.
pub const LEAVES_OUT: &str = "QUADRILLE_TEST_LEAVES_OUT";

/// The variable that keeps ranks of a process apart, as if they were processes.
const APART: &str = "QUADRILLE_TEST_APART";

/// What there is to be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Nothing.
    Nothing,
    /// Streams do not wait for events.
    Waits,
    /// Events record nothing.
    Records,
    /// The host does not wait for what collectives move.
    Fences,
    /// The host does not wait for kernels where no memory of its own is under way.
    Kernels,
    /// New buffers are not made zero.
    Clears,
    /// Norms that one kernel does do nothing.
    WholeNorms,
    /// Updates of all parameters by one kernel do nothing.
    Updates,
    /// Products add no bias.
    Biases,
    /// Squares of several arrays by one kernel are not summed.
    Squares,
    /// The host does not wait for copies of pinned memory.
    Pinned,
    /// Kernels are taken to reach all memory, whosever it is.
    Reach,
    /// Events are taken for reached before they are.
    Queries,
    /// Kernels of a graph do not get other words.
    Words,
    /// Graphs do nothing.
    Graphs,
}

/// What orders streams.
pub const PARTS: [Part; 6] = [Part::Nothing, Part::Waits, Part::Records, Part::Fences, Part::Kernels, Part::Clears];
/// What is done at once, where layouts let it be.
pub const AT_ONCE: [Part; 5] = [Part::WholeNorms, Part::Updates, Part::Biases, Part::Squares, Part::Pinned];

/// What is known of a stream: whether kernels run in it, and whether it copies to or from the host's memory.
#[derive(Debug, Clone, Copy)]
struct Known {
    urgent: bool,
    copies: bool,
}

struct Careless {
    device: Emulator,
    leaves_out: Part,
    streams: Mutex<BTreeMap<u64, Known>>,
    sizes: Mutex<BTreeMap<Address, usize>>,
}

impl Careless {
    fn known(&self, stream: Stream) -> Known {
        self.streams.lock().unwrap()[&stream.0]
    }
}

impl Driver for Careless {
    fn device(&self) -> &dyn Facts {
        self.device.device()
    }

    fn allocate(&self, bytes: usize) -> Result<Address, Fault> {
        let at = self.device.allocate(bytes)?;
        self.sizes.lock().unwrap().insert(at, bytes);
        Ok(at)
    }

    unsafe fn free(&self, at: Address) -> Result<(), Fault> {
        let bytes = self.sizes.lock().unwrap().remove(&at).unwrap_or(0);
        // What was not waited for may still use it: the memory stays, and is no number any more.
        // SAFETY: there are so many bytes of the host's memory, which the device never frees.
        unsafe { (at.0 as *mut u8).write_bytes(0xff, bytes) };
        Ok(())
    }

    fn guard(&self, at: Address, bytes: usize) {
        self.device.guard(at, bytes);
    }

    fn reaches(&self, at: Address) -> Result<bool, Fault> {
        if self.leaves_out == Part::Reach { Ok(true) } else { self.device.reaches(at) }
    }

    fn stream(&self, urgent: bool) -> Result<Stream, Fault> {
        let stream = self.device.stream(urgent)?;
        self.streams.lock().unwrap().insert(stream.0, Known { urgent, copies: false });
        Ok(stream)
    }

    fn close(&self, stream: Stream) {
        self.device.close(stream);
    }

    fn event(&self) -> Result<Event, Fault> {
        self.device.event()
    }

    fn forget(&self, event: Event) {
        self.device.forget(event);
    }

    fn record(&self, event: Event, on: Stream) -> Result<(), Fault> {
        if self.leaves_out == Part::Records { Ok(()) } else { self.device.record(event, on) }
    }

    fn wait(&self, on: Stream, event: Event) -> Result<(), Fault> {
        if self.leaves_out == Part::Waits { Ok(()) } else { self.device.wait(on, event) }
    }

    fn query(&self, event: Event) -> Result<bool, Fault> {
        if self.leaves_out == Part::Queries { Ok(true) } else { self.device.query(event) }
    }

    fn await_event(&self, event: Event) -> Result<(), Fault> {
        if self.leaves_out == Part::Pinned { Ok(()) } else { self.device.await_event(event) }
    }

    fn pin(&self, bytes: usize) -> Result<*mut u8, Fault> {
        self.device.pin(bytes)
    }

    unsafe fn unpin(&self, at: *mut u8) -> Result<(), Fault> {
        // What was not waited for may still use it.
        if self.leaves_out == Part::Pinned {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.device.unpin(at) }
    }

    fn synchronize(&self, stream: Stream) -> Result<(), Fault> {
        let Known { urgent, copies } = self.known(stream);
        // The host's own memory is always waited for: it is gone when whoever owns it goes on.
        if !copies && self.leaves_out == if urgent { Part::Fences } else { Part::Kernels } {
            return Ok(());
        }
        self.streams.lock().unwrap().insert(stream.0, Known { urgent, copies: false });
        self.device.synchronize(stream)
    }

    unsafe fn copy(&self, on: Stream, from: Place, to: Place, bytes: usize) -> Result<(), Fault> {
        if !matches!((from, to), (Place::Device(_), Place::Device(_))) {
            self.streams.lock().unwrap().entry(on.0).and_modify(|known| known.copies = true);
        }
        // SAFETY: the caller's promise.
        unsafe { self.device.copy(on, from, to, bytes) }
    }

    unsafe fn clear(&self, on: Stream, at: Address, bytes: usize) -> Result<(), Fault> {
        if self.leaves_out == Part::Clears {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.device.clear(on, at, bytes) }
    }

    unsafe fn launch(&self, on: Stream, launch: &Launch<'_>) -> Result<(), Fault> {
        let left_out = match self.leaves_out {
            Part::WholeNorms => launch.kernel.starts_with("whole_"),
            Part::Updates => launch.kernel == "adamw_of_all",
            Part::Squares => launch.kernel == "add_sums",
            _ => false,
        };
        if left_out {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.device.launch(on, launch) }
    }

    unsafe fn product(&self, on: Stream, product: &Product) -> Result<(), Fault> {
        let bias = if self.leaves_out == Part::Biases { None } else { product.bias };
        // SAFETY: the caller's promise.
        unsafe { self.device.product(on, &Product { bias, ..*product }) }
    }
}

impl Graphs for Careless {
    fn check_graphs(&self) -> Result<(), Fault> {
        self.device.check_graphs()
    }

    fn begin_graph(&self, on: Stream) -> Result<(), Fault> {
        self.device.begin_graph(on)
    }

    fn last_node(&self, on: Stream) -> Result<Node, Fault> {
        self.device.last_node(on)
    }

    fn end_graph(&self, on: Stream) -> Result<Graph, Fault> {
        self.device.end_graph(on)
    }

    fn update_node(&self, graph: Graph, node: Node, launch: &Launch<'_>) -> Result<(), Fault> {
        if self.leaves_out == Part::Words { Ok(()) } else { self.device.update_node(graph, node, launch) }
    }

    unsafe fn run_graph(&self, graph: Graph, on: Stream) -> Result<(), Fault> {
        if self.leaves_out == Part::Graphs {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.device.run_graph(graph, on) }
    }

    fn forget_graph(&self, graph: Graph) {
        self.device.forget_graph(graph);
    }
}

/// A device, and what ranks know it as.
type Installed = (Arc<Careless>, Arc<dyn Driver>);

static DEVICES: OnceLock<Vec<Installed>> = OnceLock::new();

/// How many graphs the careless devices of this process refused.
pub fn refused() -> u64 {
    DEVICES.get().into_iter().flatten().map(|(device, _)| device.device.graphs().refused).sum()
}

/// Ranks of this process get a careless device if the variable says so.
pub fn install() {
    DEVICES.get_or_init(|| {
        if std::env::var_os(APART).is_some() {
            keep_apart();
        }
        let Ok(told) = std::env::var(LEAVES_OUT) else { return Vec::new() };
        let leaves_out = *PARTS
            .iter()
            .chain(&AT_ONCE)
            .chain([&Part::Reach, &Part::Queries, &Part::Words, &Part::Graphs])
            .find(|part| format!("{part:?}") == told)
            .expect("a part");
        let device = |number| -> Installed {
            let device = Emulator::in_machine(1, number);
            let device = Arc::new(Careless { device, leaves_out, streams: Mutex::default(), sizes: Mutex::default() });
            (device.clone(), device)
        };
        let devices: Vec<_> = (0..Emulator::count().unwrap()).map(device).collect();
        devices.iter().enumerate().for_each(|(number, (_, device))| emulate_by(number, device));
        devices
    });
}

/// As many ranks as a layout has at most.
const MOST_RANKS: usize = 16;

/// Seconds after which a process is taken for one that fails.
const MOST_SECONDS: u64 = 120;

/// Whether the test of a name passes in a process with so many devices, which leave a part out.
pub fn passes(test: &str, leaves_out: Part, devices: usize) -> bool {
    passes_by(test, leaves_out, devices, "bias=on", Command::new(std::env::current_exe().unwrap()))
}

/// The same where kernels are sent in graphs.
pub fn passes_in_graphs(test: &str, leaves_out: Part, devices: usize) -> bool {
    passes_by(test, leaves_out, devices, "bias=on,graphs=on", Command::new(std::env::current_exe().unwrap()))
}

/// The same where ranks are kept apart, each on a device of its own.
pub fn passes_apart(test: &str, leaves_out: Part, switches: &str) -> bool {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(APART, "1");
    passes_by(test, leaves_out, MOST_RANKS, switches, command)
}

fn passes_by(test: &str, leaves_out: Part, devices: usize, switches: &str, mut command: Command) -> bool {
    command.args(["--exact", test]).env("QUADRILLE_SEED", "3").env("QUADRILLE_CASES", "2");
    // What fails is not looked into.
    command.env("QUADRILLE_EMULATED_DEVICES", devices.to_string()).env("QUADRILLE_DEVICE_SWITCHES", switches);
    command.env("PROPTEST_MAX_SHRINK_ITERS", "0").env(LEAVES_OUT, format!("{leaves_out:?}"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed().as_secs() > MOST_SECONDS {
            child.kill().unwrap();
        }
        sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("running 1 test"), "{test}: {told}");
    output.status.success()
}
