//! The processor's memory: buffers of bytes, and elements of either kind in them.

use std::any::TypeId;
use std::ops::Range;

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use quadrille_comm::{Element, Host, Memory, Payload};
use quadrille_tensor::{Buffer, Stored};

use super::{Kind, View, ViewMut};
use crate::Values;

/// What buffers are allocated in: aligned for every element.
type Word = f64;

/// Owned bytes, zeros at first.
pub struct Bytes {
    words: Buffer<Word>,
    bytes: usize,
}

impl Bytes {
    /// So many.
    pub(super) fn new(bytes: usize) -> Self {
        Self { words: Buffer::new(bytes.div_ceil(size_of::<Word>())), bytes }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// As elements; what is left over behind the last is none.
    pub(super) fn elements<T: Pod>(&self) -> &[T] {
        &cast_slice(&self.words)[..self.bytes / size_of::<T>()]
    }

    pub(super) fn elements_mut<T: Pod>(&mut self) -> &mut [T] {
        &mut cast_slice_mut(&mut self.words)[..self.bytes / size_of::<T>()]
    }
}

impl<T: Element + Pod> Payload<T> for Bytes {
    type Mover = Host;

    fn mover(&self) -> Host {
        Host
    }

    fn memory(&mut self) -> Memory<'_> {
        Memory::of(self.elements_mut::<T>())
    }
}

/// Elements to be read. Where values are stored in the type that they are computed in, both kinds are one.
#[derive(Debug)]
pub enum Numbers<'v, S: Values> {
    /// Weights and values.
    Stored(&'v [S]),
    /// Sums, vectors, masters and moments.
    Real(&'v [S::Real]),
}

impl<S: Values> Clone for Numbers<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Values> Copy for Numbers<'_, S> {}

/// The slice as it is, if both types are one.
fn same<A: Pod, B: Pod>(x: &[A]) -> Option<&[B]> {
    (TypeId::of::<A>() == TypeId::of::<B>()).then(|| cast_slice(x))
}

/// The same of a slice to be written.
fn same_mut<A: Pod, B: Pod>(x: &mut [A]) -> Option<&mut [B]> {
    (TypeId::of::<A>() == TypeId::of::<B>()).then(|| cast_slice_mut(x))
}

/// Programs say of every value what it is stored in: a kernel that gets another is a fault of its caller.
const OTHER_KIND: &str = "a kernel gets elements of the kind that it works on";

impl<'v, S: Values> Numbers<'v, S> {
    pub(super) fn of(bytes: &'v Bytes, kind: Kind, range: Range<usize>) -> Self {
        match kind {
            Kind::Stored => Self::Stored(&bytes.elements()[range]),
            Kind::Real => Self::Real(&bytes.elements()[range]),
        }
    }

    /// Weights or values.
    pub(super) fn stored(self) -> &'v [S] {
        match self {
            Self::Stored(stored) => stored,
            Self::Real(real) => same(real).expect(OTHER_KIND),
        }
    }

    /// Numbers of the type that is computed in.
    pub(super) fn real(self) -> &'v [S::Real] {
        match self {
            Self::Stored(stored) => same(stored).expect(OTHER_KIND),
            Self::Real(real) => real,
        }
    }

    /// Lets the host see them.
    pub(super) fn seen<R>(self, read: impl FnOnce(&[S::Real]) -> R) -> R {
        match self {
            Self::Real(real) => read(real),
            Self::Stored(stored) => match same(stored) {
                Some(real) => read(real),
                None => read(&stored.iter().map(|number| number.widen()).collect::<Vec<_>>()),
            },
        }
    }
}

impl<S: Values> View for Numbers<'_, S> {
    fn elements(self) -> usize {
        match self {
            Self::Stored(stored) => stored.len(),
            Self::Real(real) => real.len(),
        }
    }

    fn part(self, range: Range<usize>) -> Self {
        match self {
            Self::Stored(stored) => Self::Stored(&stored[range]),
            Self::Real(real) => Self::Real(&real[range]),
        }
    }
}

/// Elements to be written.
#[derive(Debug)]
pub enum NumbersMut<'v, S: Values> {
    /// Weights and values.
    Stored(&'v mut [S]),
    /// Sums, vectors, masters and moments.
    Real(&'v mut [S::Real]),
}

impl<'v, S: Values> NumbersMut<'v, S> {
    pub(super) fn of(bytes: &'v mut Bytes, kind: Kind, range: Range<usize>) -> Self {
        match kind {
            Kind::Stored => Self::Stored(&mut bytes.elements_mut()[range]),
            Kind::Real => Self::Real(&mut bytes.elements_mut()[range]),
        }
    }

    pub(super) fn part(&mut self, range: Range<usize>) -> NumbersMut<'_, S> {
        match self {
            Self::Stored(stored) => NumbersMut::Stored(&mut stored[range]),
            Self::Real(real) => NumbersMut::Real(&mut real[range]),
        }
    }

    /// Weights or values.
    pub(super) fn stored(&mut self) -> &mut [S] {
        match self {
            Self::Stored(stored) => stored,
            Self::Real(real) => same_mut(real).expect(OTHER_KIND),
        }
    }

    /// Numbers of the type that is computed in.
    pub(super) fn real(&mut self) -> &mut [S::Real] {
        match self {
            Self::Stored(stored) => same_mut(stored).expect(OTHER_KIND),
            Self::Real(real) => real,
        }
    }

    /// Lets the host change them; what it has written is rounded.
    pub(super) fn changed<R>(&mut self, write: impl FnOnce(&mut [S::Real]) -> R) -> R {
        let stored = match self {
            Self::Real(real) => return write(real),
            Self::Stored(stored) => stored,
        };
        if let Some(real) = same_mut(stored) {
            return write(real);
        }
        let mut real: Vec<S::Real> = stored.iter().map(|number| number.widen()).collect();
        let result = write(&mut real);
        stored.iter_mut().zip(real).for_each(|(stored, real)| *stored = Stored::rounded(real));
        result
    }
}

impl<S: Values> ViewMut for NumbersMut<'_, S> {
    fn elements(&self) -> usize {
        match self {
            Self::Stored(stored) => stored.len(),
            Self::Real(real) => real.len(),
        }
    }
}
