//! Collectives of buffers on emulated devices that are kept apart, by the library of collectives that these have: beside those of
//! the host's memory, and what ends where something goes wrong.

use std::error::Error;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use half::bf16;
use quadrille_comm::{
    Element as Moved, Group, JobFailure, JobOptions, Label, Ledger, RankContext, Reduction, run_ranks,
};
use quadrille_spec::{Algorithm, Choice, Nodes, Routing};
use quadrille_tensor::{ProductShape, Transpose};

use super::arena::Arena;
use super::buffer::DeviceBuffer;
use super::devices::{DeviceKind, choose, keep_apart};
use super::{Cuda, lanes::Lanes};
use crate::array::Element as Kind;
use crate::driver::{Algorithm as Unknown, Driver, Launch, Place, Product, ProductKind};
use crate::emulator::{Emulator, Tally, Trouble};

const RANKS: usize = 4;
const ALGORITHMS: [Algorithm; 4] = [Algorithm::Native, Algorithm::Ring, Algorithm::Recursive, Algorithm::Hierarchical];

type Outcome<R> = Result<R, Box<dyn Error + Send + Sync>>;

/// What a rank has of its device.
struct Rank {
    lanes: Arc<Lanes>,
    arena: Arena,
}

impl Rank {
    fn new(device: &Arc<Emulator>) -> Self {
        let device: Arc<dyn Driver> = device.clone();
        Self { lanes: Lanes::new(device).unwrap(), arena: Arena::default() }
    }

    fn buffer<T: Moved>(&self, numbers: &[T]) -> DeviceBuffer {
        let bytes = size_of_val(numbers);
        let part = self.arena.take(self.lanes.driver(), bytes).unwrap();
        let buffer = DeviceBuffer::new(&self.lanes, part).unwrap();
        buffer.exchange(bytes, Place::Host(numbers.as_ptr().cast())).unwrap();
        buffer
    }

    fn numbers<T: Moved + Default>(&self, buffer: &DeviceBuffer) -> Vec<T> {
        let mut numbers = vec![T::default(); buffer.bytes() / size_of::<T>()];
        buffer.exchange(buffer.bytes(), Place::HostMut(numbers.as_mut_ptr().cast())).unwrap();
        numbers
    }
}

/// A device for each of so many ranks.
fn machine(devices: usize) -> Vec<Arc<Emulator>> {
    (0..devices).map(|number| Arc::new(Emulator::in_machine(7 + number as u64, number))).collect()
}

fn options(ranks: usize, algorithm: Algorithm) -> JobOptions {
    let routing = Routing { nodes: Nodes::equal(ranks, 2), choice: Choice::Always(algorithm), grid: None };
    JobOptions { routing, ..JobOptions::new(ranks) }
}

/// Runs ranks on devices, each on that of its number modulo how many there are.
fn run<R: Send>(
    options: &JobOptions,
    devices: &[Arc<Emulator>],
    body: impl Fn(&RankContext, &Rank, &Group) -> Outcome<R> + Sync,
) -> Result<Vec<R>, JobFailure> {
    static APART: OnceLock<()> = OnceLock::new();
    APART.get_or_init(keep_apart);
    run_ranks(options, |context| {
        let rank = Rank::new(&devices[context.rank() % devices.len()]);
        let world = context.group("world", &(0..context.ranks()).collect::<Vec<_>>())?;
        context.enter(Label::new("test"), "collectives")?;
        body(context, &rank, &world)
    })
}

fn tallies(devices: &[Arc<Emulator>]) -> Vec<Tally> {
    devices.iter().map(|device| device.communicators()).collect()
}

/// Numbers that no sum of which is exact.
fn drawn<T: Moved>(rank: usize, n: usize, of: impl Fn(f64) -> T) -> Vec<T> {
    (0..n).map(|i| of(((rank * 131 + i * 17) % 101) as f64 / 7.0 - 3.0)).collect()
}

/// All collectives of the host's memory and then of a device's; what they give, and their ledgers.
fn all<T: Moved + Default + PartialEq + Debug>(
    context: &RankContext,
    rank: &Rank,
    group: &Group,
    n: usize,
    of: impl Fn(f64) -> T + Copy,
) -> Outcome<[(Vec<Vec<T>>, Ledger); 2]> {
    let g = group.size();
    let own = group.index();
    let chunks = n * group.size();
    let each = drawn(context.rank(), n, of);
    let whole = drawn(context.rank(), chunks, of);
    let lengths: Vec<usize> = (0..g).map(|member| n + member % 2).collect();
    let uneven: usize = lengths.iter().sum();
    let none = |n: usize| vec![T::default(); n];
    let own_part = drawn(context.rank(), lengths[own], of);

    context.take_ledger();
    let mut host = Vec::new();
    for how in [Reduction::Sum, Reduction::Max] {
        host.push(context.all_reduce::<T, _>(group, how, each.clone()).wait()?);
    }
    host.push(context.reduce::<T, _>(group, g - 1, each.clone()).wait()?);
    host.push(context.broadcast::<T, _>(group, g - 1, each.clone()).wait()?);
    host.push(context.reduce_scatter::<T, _, _>(group, whole.clone(), none(n)).wait()?.1);
    host.push(context.all_gather::<T, _, _>(group, each.clone(), none(chunks)).wait()?.1);
    host.push(context.all_to_all::<T, _, _>(group, whole.clone(), none(chunks)).wait()?.1);
    host.push(context.all_gather_in_place::<T, _>(group, whole.clone()).wait()?);
    host.push(context.reduce_scatter_in_place::<T, _>(group, whole.clone()).wait()?);
    host.push(context.all_gather_chunks::<T, _, _>(group, &lengths, own_part.clone(), none(uneven)).wait()?.1);
    let host = (host, context.take_ledger());

    let mut device = Vec::new();
    let up = |numbers: &[T]| rank.buffer(numbers);
    for how in [Reduction::Sum, Reduction::Max] {
        device.push(context.all_reduce::<T, _>(group, how, up(&each)).wait()?);
    }
    device.push(context.reduce::<T, _>(group, g - 1, up(&each)).wait()?);
    device.push(context.broadcast::<T, _>(group, g - 1, up(&each)).wait()?);
    device.push(context.reduce_scatter::<T, _, _>(group, up(&whole), up(&none(n))).wait()?.1);
    device.push(context.all_gather::<T, _, _>(group, up(&each), up(&none(chunks))).wait()?.1);
    device.push(context.all_to_all::<T, _, _>(group, up(&whole), up(&none(chunks))).wait()?.1);
    device.push(context.all_gather_in_place::<T, _>(group, up(&whole)).wait()?);
    device.push(context.reduce_scatter_in_place::<T, _>(group, up(&whole)).wait()?);
    device.push(context.all_gather_chunks::<T, _, _>(group, &lengths, up(&own_part), up(&none(uneven))).wait()?.1);
    let device = device.iter().map(|buffer| rank.numbers(buffer)).collect();
    Ok([host, (device, context.take_ledger())])
}

/// In every type, on every route and in groups of several sizes a device's buffers get the host's bits, and count the same; all
/// communicators end in good order.
#[test]
fn collectives_of_devices_give_the_bits_and_ledgers_of_the_host() {
    for algorithm in ALGORITHMS {
        let devices = machine(RANKS);
        run(&options(RANKS, algorithm), &devices, |context, rank, world| {
            let own = context.rank() / 2 * 2;
            let pair = context.group("pair", &[own, own + 1])?;
            for group in [world, &pair] {
                for n in [13, 1] {
                    let [host, device] = all::<f64>(context, rank, group, n, |number| number)?;
                    assert_eq!(device, host, "{algorithm:?}");
                    let [host, device] = all::<f32>(context, rank, group, n, |number| number as f32)?;
                    assert_eq!(device, host, "{algorithm:?}");
                    let [host, device] = all::<bf16>(context, rank, group, n, bf16::from_f64)?;
                    assert_eq!(device, host, "{algorithm:?}");
                }
            }
            Ok(())
        })
        .unwrap();
        for tally in tallies(&devices) {
            assert_eq!((tally.begun, tally.destroyed, tally.aborted), (2, 2, 0), "{algorithm:?}");
        }
    }
}

/// Messages are matched by sender and tag in whatever order tags are asked for, also around a collective, and counted.
#[test]
fn messages_of_devices_are_matched_by_tag() {
    let devices = machine(RANKS);
    run(&options(RANKS, Algorithm::Native), &devices, |context, rank, world| {
        let own = context.rank();
        let n = 9;
        let next = (own + 1) % RANKS;
        let before = (own + RANKS - 1) % RANKS;
        let text =
            |from: usize, tag: u32, number: usize| drawn::<f64>(10 * from + tag as usize + 100 * number, n, |x| x);
        for number in 0..3 {
            let sent = [0, 1].map(|tag| context.send::<f64, _>(world, next, tag, rank.buffer(&text(own, tag, number))));
            let back = context.send::<f64, _>(world, before, 0, rank.buffer(&text(own, 2, number)));
            let sum = context.all_reduce::<f64, _>(world, Reduction::Sum, rank.buffer(&[1.0; 5]));
            for tag in [1, 0] {
                let came = context.receive::<f64, _>(world, before, tag, rank.buffer(&vec![0.0; n])).wait()?;
                assert_eq!(rank.numbers::<f64>(&came), text(before, tag, number));
            }
            let came = context.receive::<f64, _>(world, next, 0, rank.buffer(&vec![0.0; n])).wait()?;
            assert_eq!(rank.numbers::<f64>(&came), text(next, 2, number));
            assert_eq!(rank.numbers::<f64>(&sum.wait()?), [RANKS as f64; 5]);
            for sent in sent.into_iter().chain([back]) {
                sent.wait()?;
            }
        }
        Ok(())
    })
    .unwrap();
    // The world's, and one for each of three channels at both of their ends.
    for tally in tallies(&devices) {
        assert_eq!((tally.begun, tally.destroyed, tally.aborted), (7, 7, 0));
    }
}

/// Runs sums and messages, of which some go wrong, with a timeout of a second: how it fails. It ends in time, and no communicator
/// is left.
fn failure(devices: &[Arc<Emulator>], body: impl Fn(&RankContext, &Rank, &Group) -> Outcome<()> + Sync) -> String {
    failure_of(2, devices, body)
}

fn failure_of(
    ranks: usize,
    devices: &[Arc<Emulator>],
    body: impl Fn(&RankContext, &Rank, &Group) -> Outcome<()> + Sync,
) -> String {
    let start = Instant::now();
    let options = JobOptions { timeout: Duration::from_secs(1), ..options(ranks, Algorithm::Native) };
    let failed = run(&options, devices, body).expect_err("something is wrong").to_string();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}: {failed}", start.elapsed());
    let tallies = tallies(devices);
    assert!(tallies.iter().all(|tally| tally.begun == tally.aborted + tally.destroyed), "{tallies:?}: {failed}");
    let count = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
    assert!(count(|tally| tally.begun) == 0 || count(|tally| tally.aborted) > 0, "{tallies:?}: {failed}");
    failed
}

fn sums(context: &RankContext, rank: &Rank, world: &Group) -> Outcome<()> {
    for _ in 0..5 {
        context.all_reduce::<f64, _>(world, Reduction::Sum, rank.buffer(&[1.0; 5])).wait()?;
    }
    Ok(())
}

fn troubled(trouble: Trouble) -> Vec<Arc<Emulator>> {
    vec![machine(1).remove(0), Arc::new(Emulator::in_machine(3, 1).with_trouble(trouble))]
}

/// What the library says later, of what another rank does perhaps, ends the job with its words.
#[test]
fn asynchronous_errors_end_the_job() {
    let failed = failure(&troubled(Trouble::Fails(3)), sums);
    assert!(failed.contains("all-reduce") && failed.contains("#3"), "{failed}");
    assert!(failed.contains("NCCL: remote process exited"), "{failed}");
}

/// A collective that never ends is aborted when the job's timeout is over.
#[test]
fn a_stuck_collective_is_aborted_in_time() {
    let failed = failure(&troubled(Trouble::Sticks(3)), sums);
    assert!(failed.contains("all-reduce") && failed.contains("#3"), "{failed}");
}

/// So is a message, and so is one that nobody receives.
#[test]
fn stuck_messages_are_aborted_in_time() {
    let pass = |context: &RankContext, rank: &Rank, world: &Group| {
        for _ in 0..5 {
            match context.rank() {
                0 => drop(context.send::<f64, _>(world, 1, 0, rank.buffer(&[1.0; 5])).wait()?),
                _ => drop(context.receive::<f64, _>(world, 0, 0, rank.buffer(&[0.0; 5])).wait()?),
            }
        }
        Ok(())
    };
    let failed = failure(&troubled(Trouble::Sticks(3)), pass);
    assert!(failed.contains("with tag 0") && failed.contains("#3"), "{failed}");
    let failed = failure(&machine(2), |context, rank, world| {
        let sent = (context.rank() == 0).then(|| context.send::<f64, _>(world, 1, 4, rank.buffer(&[1.0; 5])));
        sums(context, rank, world)?;
        sent.map(|sent| sent.wait()).transpose()?;
        Ok(())
    });
    assert!(failed.contains("rank 1 returned while ranks [0] wait for it"), "{failed}");
}

/// A rank that does not come is named, before its communicator is there and afterwards.
#[test]
fn a_late_rank_is_named() {
    for before in [false, true] {
        let failed = failure(&machine(2), |context, rank, world| {
            if !before {
                sums(context, rank, world)?;
            }
            if context.rank() == 1 {
                context.enter(Label::new("far away"), "sleeps")?;
                std::thread::sleep(Duration::from_secs(2));
            }
            sums(context, rank, world)
        });
        assert!(failed.contains("rank 1") && failed.contains("sleeps"), "{failed}");
    }
}

/// So it is among several, whoever of those that wait tells of it: all wait in the collective, though for each other's letters.
#[test]
fn the_last_of_three_ranks_is_named_before_their_communicator_is_there() {
    let failed = failure_of(3, &machine(3), |context, rank, world| {
        if context.rank() == 2 {
            context.enter(Label::new("far away"), "sleeps")?;
            std::thread::sleep(Duration::from_secs(2));
        }
        sums(context, rank, world)
    });
    assert!(failed.contains("rank 2") && failed.contains("sleeps") && failed.contains("all-reduce"), "{failed}");
    assert!(failed.contains("ranks [0, 1]") && !failed.contains("tag"), "{failed}");
}

/// A rank that fails by itself ends the job with its own words, and the communicators of all.
#[test]
fn a_rank_that_fails_ends_the_collectives_of_others() {
    let failed = failure(&machine(2), |context, rank, world| {
        sums(context, rank, world)?;
        if context.rank() == 1 {
            return Err("its own words".into());
        }
        sums(context, rank, world)
    });
    assert!(failed.contains("its own words"), "{failed}");
}

/// Two ranks on one device are refused by name, with what to do.
#[test]
fn ranks_that_share_a_device_are_refused() {
    let failed = failure(&machine(1), sums);
    for part in ["ranks 0 and 1 compute on one device", "at most as many processes as it has devices"] {
        assert!(failed.contains(part), "{part} is not in: {failed}");
    }
}

/// A product adds its bias at once or apart, as the library has an algorithm for its sizes: the sums are the same.
#[test]
fn a_bias_is_added_apart_where_the_library_has_no_algorithm() {
    choose(DeviceKind::Emulated);
    let mut cuda = Cuda::<f64>::new(0, 1).unwrap();
    cuda.switches.bias = true;
    for (n, at_once) in [(4, true), (5, false)] {
        let shape = ProductShape { stored: Transpose::Nn, m: 2, n, k: 1 };
        let kind = ProductKind { shape, operands: Kind::F64, result: Kind::F64, bias: true };
        assert_eq!(cuda.lanes.driver().device().adds_bias(kind).unwrap(), at_once);
        let row = || (0..n).map(|col| col as f64);
        let numbers = [vec![1.0, 2.0], row().collect(), row().map(|x| 10.0 + x * x).collect(), vec![0.0; 2 * n]];
        let memory = numbers.map(|numbers: Vec<f64>| {
            let memory = cuda.lanes.take(8 * numbers.len()).unwrap();
            cuda.lanes.up(&numbers, memory.array(Kind::F64).part(0..numbers.len())).unwrap();
            (memory, numbers.len())
        });
        let [a, b, bias, c] = memory.each_ref().map(|(memory, len)| memory.array(Kind::F64).part(0..*len));
        cuda.biased_product(shape, a, b, bias, c).unwrap();
        let mut sums = vec![0.0; 2 * n];
        cuda.lanes.down(c, &mut sums).unwrap();
        let expected: Vec<f64> = [1.0, 2.0].iter().flat_map(|a| row().map(move |x| a * x + 10.0 + x * x)).collect();
        assert_eq!(sums, expected);
    }
}

/// What a device refuses while algorithms are tried ends nothing where kernels are sent in graphs: it is asked past what is collected.
#[test]
fn an_algorithm_that_is_refused_ends_nothing_in_graphs() {
    let device: Arc<dyn Driver> = Arc::new(Emulator::new(3));
    let lanes = Lanes::with_graphs(device).unwrap();
    let memory = lanes.take(3 * 8).unwrap();
    let [a, b, c] = [0, 1, 2].map(|at| memory.array(Kind::F64).part(at..at + 1));
    let shape = ProductShape { stored: Transpose::Nn, m: 1, n: 1, k: 1 };
    let product = |algorithm| Product { shape, a, b, c, accumulate: false, bias: None, algorithm };
    lanes.up(&[3.0], a).unwrap();
    lanes.up(&[5.0], b).unwrap();
    for factor in [2.0_f64, 0.5, 2.0] {
        let words = [a.at.0, factor.to_bits(), 1];
        let launch = Launch { kernel: "scale", format: Kind::F64.format(), blocks: 1, shared: 0, words: &words };
        // SAFETY: the numbers are there until the stream is done, below; what is refused is not done.
        unsafe {
            lanes.driver().launch(lanes.compute(), &launch).unwrap();
            let tried = lanes.at_once().unwrap().product(lanes.compute(), &product(Some(Unknown([9; 16]))));
            assert!(tried.is_err());
            lanes.driver().product(lanes.compute(), &product(None)).unwrap();
        }
    }
    let mut found = [0.0];
    lanes.down(c, &mut found).unwrap();
    assert_eq!(found, [30.0]);
}
