//! Operands of work that is measured, and work that is repeated on them.

use quadrille_tensor::Buffer;

use super::Prepared;
use crate::backend::{Backend, Kind};
use crate::{EngineError, Real};

type Done = Result<(), EngineError>;

/// As many numbers are made by the host; what is longer has them over and over.
const SEED: usize = 1 << 20;

/// Elements in memory of their own.
pub struct Operand<B: Backend> {
    buffer: B::Buffer,
    kind: Kind,
    elements: usize,
}

impl<B: Backend> Operand<B> {
    /// So many zeros.
    pub fn zeros(backend: &B, kind: Kind, elements: usize) -> Result<Self, EngineError> {
        let each = match kind {
            Kind::Stored => size_of::<B::Stored>(),
            Kind::Real => size_of::<B::Real>(),
        };
        Ok(Self { buffer: backend.allocate((elements * each) as u64)?, kind, elements })
    }

    /// Numbers in [-1/2, 1/2) without a pattern that a product could profit from.
    pub fn numbers(backend: &B, kind: Kind, elements: usize) -> Result<Self, EngineError> {
        Self::of(backend, kind, elements, Buffer::without_pattern(elements.min(SEED)))
    }

    /// The same number everywhere.
    pub fn all(backend: &B, kind: Kind, elements: usize, number: f64) -> Result<Self, EngineError> {
        Self::of(backend, kind, elements, Buffer::from_fn(elements.min(SEED), |_| of_real(number)))
    }

    /// These numbers over and over.
    fn of(backend: &B, kind: Kind, elements: usize, seed: Buffer<B::Real>) -> Result<Self, EngineError> {
        let mut of_seed = Self::zeros(backend, kind, seed.len())?;
        backend.upload(&mut of_seed.write(), |numbers| numbers.copy_from_slice(&seed))?;
        if seed.len() == elements {
            return Ok(of_seed);
        }
        let mut operand = Self::zeros(backend, kind, elements)?;
        let mut whole = operand.write();
        for start in (0..elements).step_by(seed.len().max(1)) {
            let end = elements.min(start + seed.len());
            let numbers = B::view(&of_seed.buffer, kind, 0..end - start);
            backend.copy(&mut B::part(&mut whole, start..end), numbers)?;
        }
        drop(whole);
        // The seed's memory is given back.
        backend.settle()?;
        Ok(operand)
    }

    /// To be read.
    pub fn read(&self) -> B::View<'_> {
        B::view(&self.buffer, self.kind, 0..self.elements)
    }

    /// To be written.
    pub fn write(&mut self) -> B::ViewMut<'_> {
        B::view_mut(&mut self.buffer, self.kind, 0..self.elements)
    }

    /// Its memory, as the payload of collectives.
    pub fn into_buffer(self) -> B::Buffer {
        self.buffer
    }

    /// Its memory.
    pub fn buffer(&self) -> &B::Buffer {
        &self.buffer
    }

    /// Its memory, to be written by the host.
    pub fn buffer_mut(&mut self) -> &mut B::Buffer {
        &mut self.buffer
    }
}

/// A number in the type that is computed in.
fn of_real<T: Real>(number: f64) -> T {
    <T as quadrille_tensor::Element>::from_f64(number)
}

/// Elements as the host sees them.
pub fn seen<B: Backend>(backend: &B, elements: B::View<'_>) -> Result<Vec<f64>, EngineError> {
    let wide = |number: &B::Real| quadrille_tensor::Element::to_f64(*number);
    backend.download(elements, |numbers| numbers.iter().map(wide).collect())
}

/// Whether values are narrower than what is computed in.
pub fn is_narrow<B: Backend>() -> bool {
    size_of::<B::Stored>() < size_of::<B::Real>()
}

/// Work on operands of its own, of which one has the result.
pub struct Repeated<'b, B: Backend, F, const N: usize> {
    pub backend: &'b B,
    pub operands: [Operand<B>; N],
    pub result: usize,
    pub once: F,
}

impl<B: Backend, F: FnMut(&B, &mut [Operand<B>; N]) -> Done, const N: usize> Prepared for Repeated<'_, B, F, N> {
    fn repeat(&mut self, times: usize) -> Done {
        for _ in 0..times {
            (self.once)(self.backend, &mut self.operands)?;
        }
        self.backend.settle()
    }

    fn result(&self) -> Result<Vec<f64>, EngineError> {
        seen(self.backend, self.operands[self.result].read())
    }
}
