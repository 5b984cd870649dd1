//! One side of a message: its buffer, and whom to tell.

use std::marker::PhantomData;
use std::time::Instant;

use crate::element::Element;
use crate::mover::{Memory, Mover, Payload};
use crate::pending::Completion;
use crate::span::OpenSpan;

/// A side, whatever its buffer is.
pub trait Parcel: Send {
    /// What is sent or received.
    fn memory(&mut self) -> Memory<'_>;

    /// Who may read and write it.
    fn mover(&self) -> Box<dyn Mover>;

    /// The side is done; of a delayed message, at `arrival`.
    fn complete(self: Box<Self>, arrival: Option<Instant>);
}

/// A side with its buffer of elements `T`. Dropped, it reports the abort.
pub(crate) struct Side<T, P> {
    payload: P,
    completion: Completion<P>,
    span: Option<OpenSpan>,
    elements: PhantomData<fn() -> T>,
}

impl<T: Element, P: Payload<T>> Side<T, P> {
    pub(crate) fn boxed(payload: P, completion: Completion<P>, span: Option<OpenSpan>) -> Box<dyn Parcel> {
        Box::new(Self { payload, completion, span, elements: PhantomData })
    }
}

impl<T: Element, P: Payload<T>> Parcel for Side<T, P> {
    fn memory(&mut self) -> Memory<'_> {
        self.payload.memory()
    }

    fn mover(&self) -> Box<dyn Mover> {
        Box::new(self.payload.mover())
    }

    fn complete(self: Box<Self>, arrival: Option<Instant>) {
        if let Some(span) = self.span {
            span.end(arrival);
        }
        self.completion.complete_at(Ok(self.payload), arrival);
    }
}
