//! What a device is for everything above it: memory, streams of commands, events between them, kernels and products.
//!
//! Commands are done later, those of a stream one after another, those of different streams in any order that events
//! allow: [`Driver::wait`] holds a stream back until what was recorded is reached. The host knows that a command is done
//! when [`Driver::synchronize`] has returned or [`Driver::query`] has said so.

use quadrille_tensor::ProductShape;

use crate::array::{Array, Element, Format};
use crate::graph::Graphs;
use crate::nccl::Functions;

/// What a library of the device says went wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{library}: {text}{}", told(*code))]
pub struct Fault {
    /// The library.
    pub library: &'static str,
    /// Its number for the fault.
    pub code: i64,
    /// Its words, and what was asked of it.
    pub text: String,
}

/// A library's number, where it has given one.
fn told(code: i64) -> String {
    if code < 0 { String::new() } else { format!(" (code {code})") }
}

/// A place in a device's memory; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Address(pub u64);

impl Address {
    /// Nowhere.
    pub const NONE: Self = Address(0);

    /// So many bytes further.
    pub fn offset(self, bytes: usize) -> Self {
        Address(self.0 + bytes as u64)
    }
}

/// A queue of commands, which are done one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stream(pub u64);

/// A mark between commands of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Event(pub u64);

/// Where bytes lie that are copied.
#[derive(Debug, Clone, Copy)]
pub enum Place {
    /// In the host's memory, to be read.
    Host(*const u8),
    /// In the host's memory, to be written.
    HostMut(*mut u8),
    /// In the device's.
    Device(Address),
}

/// A kernel to be run.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// The function's name.
    pub kernel: &'static str,
    /// What its values are stored in.
    pub format: Format,
    /// How many blocks of [`THREADS`] threads; results do not depend on it.
    pub blocks: u32,
    /// Bytes that a block shares beside those that the kernel declares.
    pub shared: u32,
    /// The arguments, packed.
    pub words: &'a [u64],
}

/// Threads of a block, the same in all kernels (`THREADS` of `prelude.cuh`).
pub const THREADS: u32 = 256;

/// An algorithm of a product, in the words of the device's library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Algorithm(pub [u32; 16]);

/// An algorithm that the library offers for a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// The library's words for it.
    pub algorithm: Algorithm,
    /// Bytes of workspace that it needs.
    pub workspace: usize,
}

/// What an algorithm is for: products of matrices that begin at multiples of [`ALIGNED`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProductKind {
    /// How A and B are stored, and the sizes.
    pub shape: ProductShape,
    /// What A and B have.
    pub operands: Element,
    /// What C has.
    pub result: Element,
    /// Whether a bias is added.
    pub bias: bool,
}

/// Allocations begin at multiples of so many bytes.
pub const ALIGNED: usize = 256;

/// C = op(A) op(B), or with `accumulate` C += op(A) op(B), row-major. Operands are of one element, `f64`, `f32` or
/// `bf16`; C is of the same, or `f32` of `bf16` operands. Sums are in `f64`, or else in `f32`, never in less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Product {
    /// How A and B are stored, and the sizes.
    pub shape: ProductShape,
    /// A.
    pub a: Array,
    /// B.
    pub b: Array,
    /// C.
    pub c: Array,
    /// Whether the product is added to C.
    pub accumulate: bool,
    /// What is added to each row before it is rounded, in what C has; only where nothing else is added.
    pub bias: Option<Array>,
    /// How; `None`: as the library takes it.
    pub algorithm: Option<Algorithm>,
}

impl Product {
    /// # Panics
    /// If operands have other lengths or elements than a product has.
    pub fn check(&self) {
        let ProductShape { m, n, k, .. } = self.shape;
        assert_eq!((self.a.len, self.b.len, self.c.len), (m * k, k * n, m * n), "{:?}", self.shape);
        let of_a = self.a.element;
        let of_c = self.c.element;
        assert_eq!(of_a, self.b.element, "operands of {:?}", self.shape);
        assert!(of_c == of_a || of_c == of_a.real(), "a product of {of_a:?} is no {of_c:?}");
        if let Some(bias) = self.bias {
            assert_eq!((bias.len, bias.element, self.accumulate), (n, of_c, false), "the bias of {:?}", self.shape);
        }
    }
}

/// How many bytes of memory a device has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// In use, by anybody.
    pub used: usize,
    /// In all.
    pub total: usize,
}

/// What a device is and has: the same whoever sends it commands.
pub trait Facts {
    /// What it is called.
    fn name(&self) -> Result<String, Fault>;
    /// Whether the device has tensor cores by warpgroups, as those of compute capability 9.0 do.
    fn has_wgmma(&self) -> bool;
    /// What tells the device from all others, also those of other machines.
    fn identity(&self) -> Result<[u64; 2], Fault>;
    /// Lets the calling thread use the device by the library of collectives.
    fn enter(&self) -> Result<(), Fault>;
    /// The library of collectives.
    fn collectives(&self) -> Result<&'static Functions, Fault>;
    /// What algorithms of products are for: the device, its driver and its library, with their versions.
    fn library(&self) -> Result<String, Fault>;
    /// Algorithms that the library offers for a product, those first of which it expects most.
    fn candidates(&self, of: ProductKind) -> Result<Vec<Candidate>, Fault>;
    /// Bytes of workspace that an algorithm needs, which somebody has written down; a fault if there is no such algorithm for
    /// the product.
    fn workspace_of(&self, algorithm: Algorithm, of: ProductKind) -> Result<usize, Fault>;
    /// Whether the library has an algorithm for products of a kind that add a bias; always the same for a kind.
    fn adds_bias(&self, of: ProductKind) -> Result<bool, Fault>;
    /// The device's memory.
    fn memory(&self) -> Result<Memory, Fault>;
    /// Bytes of a piece by which numbers come to the host.
    fn piece(&self) -> usize;
    /// Bytes that products take beside their operands, in every stream that has some.
    fn workspace(&self) -> usize {
        0
    }
}

/// A device that does commands.
pub trait Driver: Graphs + Send + Sync + 'static {
    /// What is known of the device.
    fn device(&self) -> &dyn Facts;

    /// So many bytes, aligned to [`ALIGNED`], of any contents.
    fn allocate(&self, bytes: usize) -> Result<Address, Fault>;
    /// Gives memory back.
    ///
    /// # Safety
    /// It was allocated here, and no command that is not done uses it.
    unsafe fn free(&self, at: Address) -> Result<(), Fault>;
    /// These bytes, which nobody has written, are to be nobody's until the memory that they are in is freed: a device that can
    /// tell finds whoever writes them.
    fn guard(&self, _at: Address, _bytes: usize) {}
    /// Whether the device's kernels may use the memory at an address, which is another device's perhaps. Copies may anyway.
    fn reaches(&self, _at: Address) -> Result<bool, Fault> {
        Ok(true)
    }

    /// A new stream; an `urgent` one's commands go before others' where they can.
    fn stream(&self, urgent: bool) -> Result<Stream, Fault>;
    /// A stream is used no more.
    fn close(&self, stream: Stream);
    /// A new event, which counts as reached until it is recorded.
    fn event(&self) -> Result<Event, Fault>;
    /// An event is used no more.
    fn forget(&self, event: Event);
    /// The event is reached when all commands so far of the stream are done; it forgets what it was before.
    fn record(&self, event: Event, on: Stream) -> Result<(), Fault>;
    /// Further commands of the stream come after what the event has last recorded.
    fn wait(&self, on: Stream, event: Event) -> Result<(), Fault>;
    /// Whether the event is reached.
    fn query(&self, event: Event) -> Result<bool, Fault>;
    /// Waits until the event is reached.
    fn await_event(&self, event: Event) -> Result<(), Fault>;
    /// Waits until all commands of the stream are done.
    fn synchronize(&self, stream: Stream) -> Result<(), Fault>;

    /// So many bytes of the host's memory that copies read and write by themselves while the host goes on: others may be copied
    /// by the host, piece by piece. At least one byte, of any contents.
    fn pin(&self, bytes: usize) -> Result<*mut u8, Fault>;
    /// Gives such memory back.
    ///
    /// # Safety
    /// It was taken here, and no command that is not done uses it.
    unsafe fn unpin(&self, at: *mut u8) -> Result<(), Fault>;

    /// Copies bytes.
    ///
    /// # Safety
    /// Both places have so many bytes until the command is done; memory of the host is used by nobody else meanwhile.
    unsafe fn copy(&self, on: Stream, from: Place, to: Place, bytes: usize) -> Result<(), Fault>;
    /// Sets bytes to zero.
    ///
    /// # Safety
    /// There are so many until the command is done.
    unsafe fn clear(&self, on: Stream, at: Address, bytes: usize) -> Result<(), Fault>;
    /// Runs a kernel.
    ///
    /// # Safety
    /// The words are the kernel's arguments; what they point to is there, in the lengths that they say, until it is done.
    unsafe fn launch(&self, on: Stream, launch: &Launch<'_>) -> Result<(), Fault>;
    /// Computes a product.
    ///
    /// # Safety
    /// The operands are there until it is done; C overlaps neither A nor B.
    unsafe fn product(&self, on: Stream, product: &Product) -> Result<(), Fault>;
}
