//! Memory that collectives move, and who moves it.
//!
//! A payload is a buffer that travels through a collective. It may lie where only its device can read: so transports
//! see addresses, and leave reducing and copying to the payload's [`Mover`]. [`Host`] does both with the processor.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::element::{Element, ElementKind, Reduction};
use crate::transfer::kernels;
use crate::transport::Carrier;

/// Elements of one kind, one after the other, lent for `'a`. What is at the address is for the payload's mover alone.
#[derive(Debug, Clone, Copy)]
pub struct Memory<'a> {
    address: *mut u8,
    elements: usize,
    kind: ElementKind,
    lent: PhantomData<&'a mut [u8]>,
}

impl<'a> Memory<'a> {
    /// A slice.
    pub fn of<T: Element>(slice: &'a mut [T]) -> Self {
        Self { address: slice.as_mut_ptr().cast(), elements: slice.len(), kind: T::KIND, lent: PhantomData }
    }

    /// So many elements at an address.
    ///
    /// # Safety
    /// They are there for `'a`, aligned, for the mover to read and write, and nobody else uses them meanwhile.
    pub unsafe fn new(address: *mut u8, elements: usize, kind: ElementKind) -> Self {
        Self { address, elements, kind, lent: PhantomData }
    }

    /// The first so many of them.
    pub fn first(self, elements: usize) -> Self {
        assert!(elements <= self.elements, "{elements} of {} elements", self.elements);
        Self { elements, ..self }
    }

    /// Where they begin.
    pub fn address(&self) -> *mut u8 {
        self.address
    }

    /// How many there are.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// What they are.
    pub fn kind(&self) -> ElementKind {
        self.kind
    }

    /// How many bytes they take.
    pub fn bytes(&self) -> usize {
        self.elements * self.kind.bytes()
    }
}

/// An owned buffer of elements that can travel through a collective. Every type that is a slice in the host's memory
/// (`Vec<T>`, `Box<[T]>`, a tensor's storage) is one, moved by [`Host`].
pub trait Payload<T: Element>: Send + 'static {
    /// Who reads and writes its memory.
    type Mover: Mover;

    /// The mover of this buffer.
    fn mover(&self) -> Self::Mover;

    /// All elements, which are of the kind of `T`.
    fn memory(&mut self) -> Memory<'_>;
}

impl<T: Element, B: AsRef<[T]> + AsMut<[T]> + Send + 'static> Payload<T> for B {
    type Mover = Host;

    fn mover(&self) -> Host {
        Host
    }

    fn memory(&mut self) -> Memory<'_> {
        Memory::of(self.as_mut())
    }
}

/// Who reduces and copies. It may do so later, in the order of the calls; all is done, and everybody sees it, when
/// [`fence`](Self::fence) has returned.
///
/// A rank's mover is made when it issues a call, on its own thread: so a device knows what has to be done before.
///
/// `stream` says that a collective's buffers, of all members together, outgrow caches: a mover may store past them.
pub trait Mover: Send + Sync + 'static {
    /// Returns when what the rank did with its memory before it issued the call is done: from then on the movers of other
    /// members may use it.
    fn begin(&self);

    /// Memory of at least so many bytes that this rank's collectives use between their steps, one at a time: aligned for
    /// all elements. The host's is `room`, which grows to what was asked for.
    fn scratch(&self, room: &mut Vec<u64>, bytes: usize) -> *mut u8 {
        let words = bytes.div_ceil(size_of::<u64>());
        if room.len() < words {
            room.resize(words, 0);
        }
        room.as_mut_ptr().cast()
    }

    /// Combines `n` elements of every source, in order, and stores the result to every destination; returns how many
    /// bytes it has stored.
    ///
    /// # Safety
    /// Sources and destinations are valid for `n` elements of the kind; a destination may be a source, otherwise nothing
    /// overlaps. There is at least one source.
    unsafe fn reduce(
        &self,
        how: Reduction,
        of: ElementKind,
        from: &[*const u8],
        to: &[*mut u8],
        n: usize,
        stream: bool,
    ) -> usize;

    /// Copies `n` elements; returns how many bytes it has stored.
    ///
    /// # Safety
    /// Both are valid for `n` elements of the kind. With `stream` they do not overlap.
    unsafe fn copy(&self, of: ElementKind, from: *const u8, to: *mut u8, n: usize, stream: bool) -> usize;

    /// What was reduced and copied is done, and there for whoever is told of it from now on.
    fn fence(&self);

    /// Who carries this memory between ranks that share memory, or do not; `None`: the job's transport.
    fn carrier(&self, shared: bool) -> Option<Arc<dyn Carrier>> {
        let _ = shared;
        None
    }
}

/// The processor, in the host's memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct Host;

impl Mover for Host {
    fn begin(&self) {}

    unsafe fn reduce(
        &self,
        how: Reduction,
        of: ElementKind,
        from: &[*const u8],
        to: &[*mut u8],
        n: usize,
        stream: bool,
    ) -> usize {
        // SAFETY: the caller's; the kind is that of the type.
        unsafe {
            match of {
                ElementKind::F32 => reduce::<f32>(how, from, to, n, stream),
                ElementKind::F64 => reduce::<f64>(how, from, to, n, stream),
                ElementKind::Bf16 => reduce::<half::bf16>(how, from, to, n, stream),
                ElementKind::F16 => reduce::<half::f16>(how, from, to, n, stream),
            }
        }
    }

    unsafe fn copy(&self, of: ElementKind, from: *const u8, to: *mut u8, n: usize, stream: bool) -> usize {
        let bytes = n * of.bytes();
        if stream {
            // SAFETY: the caller's.
            return unsafe { kernels::copy(from, to, bytes, stream) };
        }
        // SAFETY: the caller's.
        unsafe { std::ptr::copy(from, to, bytes) };
        bytes
    }

    fn fence(&self) {
        kernels::fence();
    }
}

/// As [`Mover::reduce`], for elements of type `T`.
///
/// # Safety
/// As there.
unsafe fn reduce<T: Element>(how: Reduction, from: &[*const u8], to: &[*mut u8], n: usize, stream: bool) -> usize {
    // SAFETY: addresses of `u8` and of `T` are of one size and form; the rest is the caller's.
    let (from, to) = unsafe {
        let from = std::slice::from_raw_parts(from.as_ptr().cast::<*const T>(), from.len());
        (from, std::slice::from_raw_parts(to.as_ptr().cast::<*mut T>(), to.len()))
    };
    // SAFETY: the caller's.
    size_of::<T>() * unsafe { kernels::reduce(how, from, to, n, stream) }
}
