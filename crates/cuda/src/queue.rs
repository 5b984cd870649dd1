//! Kernels in the order of a stream: one method for each function of `quadrille_tensor`, in `ops/` by its module.
//!
//! Methods return before the work is done; later ones of the same queue see its results. They panic as the processor's
//! kernels do if a length does not match the shape. The number of blocks changes no bit.

use crate::array::{Array, Element, Format};
use crate::driver::{Driver, Fault, Launch, Stream, THREADS};

/// Whether a command was accepted.
pub type Done = Result<(), Fault>;

/// The most blocks of a kernel: what is left is done by the same threads.
const MOST_BLOCKS: usize = 1 << 16;

/// A stream of a device, with memory for what kernels need between two stages.
///
/// # Safety
///
/// Whoever makes a queue promises that arrays which its methods get are there, in their lengths, until the work is done,
/// and that what a method writes overlaps nothing else that it gets.
pub struct Queue<'d> {
    driver: &'d dyn Driver,
    stream: Stream,
    scratch: Array,
    wgmma: bool,
}

impl<'d> Queue<'d> {
    /// Kernels on a stream; `scratch` is used by this queue alone, and large enough for its kernels: see
    /// [`column_scratch`](crate::column_scratch) and the functions beside it.
    ///
    /// # Safety
    /// As said of the type.
    pub unsafe fn new(driver: &'d dyn Driver, stream: Stream, scratch: Array) -> Self {
        Self { driver, stream, scratch, wgmma: false }
    }

    /// The same, where attention in 16 bits is computed by tensor cores of warpgroups if `on`: on devices that have them
    /// ([`has_wgmma`](crate::Facts::has_wgmma)).
    pub fn with_wgmma(self, on: bool) -> Self {
        Self { wgmma: on, ..self }
    }

    /// Whether it is.
    pub(crate) fn wgmma(&self) -> bool {
        self.wgmma
    }

    /// The device.
    pub fn driver(&self) -> &'d dyn Driver {
        self.driver
    }

    /// The stream.
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// The first so many elements of the scratch, as this kind.
    pub(crate) fn scratch(&self, len: usize, element: Element) -> Array {
        let needed = len * element.bytes();
        let has = self.scratch.bytes();
        assert!(needed <= has, "a kernel needs {needed} bytes of scratch, the queue has {has}: give it more");
        Array { at: self.scratch.at, len, element }
    }

    /// Runs a kernel with so many threads of work; of none it does nothing.
    pub(crate) fn each(&self, kernel: &'static str, format: Format, threads: usize, words: &[u64]) -> Done {
        if threads == 0 {
            return Ok(());
        }
        let blocks = threads.div_ceil(THREADS as usize).min(MOST_BLOCKS) as u32;
        self.launch(&Launch { kernel, format, blocks, shared: 0, words })
    }

    /// Runs a kernel with a block, which shares so many bytes, for each of so many pieces of work.
    pub(crate) fn each_by_block(
        &self,
        kernel: &'static str,
        format: Format,
        pieces: usize,
        shared: usize,
        words: &[u64],
    ) -> Done {
        if pieces == 0 {
            return Ok(());
        }
        self.launch(&Launch { kernel, format, blocks: pieces.min(MOST_BLOCKS) as u32, shared: shared as u32, words })
    }

    fn launch(&self, launch: &Launch<'_>) -> Done {
        // SAFETY: the queue's promise; the words are made beside the name of the kernel that takes them.
        unsafe { self.driver.launch(self.stream, launch) }
    }

    /// Runs a kernel with a warp for each of so many pieces of work.
    pub(crate) fn each_by_warp(&self, kernel: &'static str, format: Format, pieces: usize, words: &[u64]) -> Done {
        self.each(kernel, format, pieces * 32, words)
    }
}
