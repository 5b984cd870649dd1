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
    fn mover(&self) -> &dyn Mover;

    /// Both.
    fn lent(&mut self) -> (Memory<'_>, &dyn Mover);

    /// The side is done; of a delayed message, at `arrival`.
    fn complete(self: Box<Self>, arrival: Option<Instant>);
}

/// A side with its buffer of elements `T`. Dropped, it reports the abort.
pub(crate) struct Side<T, P, M> {
    payload: P,
    mover: M,
    completion: Completion<P>,
    span: Option<OpenSpan>,
    elements: PhantomData<fn() -> T>,
}

impl<T: Element, P: Payload<T>> Side<T, P, P::Mover> {
    /// On the thread of the rank that issues it.
    pub(crate) fn boxed(payload: P, completion: Completion<P>, span: Option<OpenSpan>) -> Box<dyn Parcel> {
        Box::new(Self { mover: payload.mover(), payload, completion, span, elements: PhantomData })
    }
}

impl<T: Element, P: Payload<T>> Parcel for Side<T, P, P::Mover> {
    fn memory(&mut self) -> Memory<'_> {
        self.payload.memory()
    }

    fn mover(&self) -> &dyn Mover {
        &self.mover
    }

    fn lent(&mut self) -> (Memory<'_>, &dyn Mover) {
        (self.payload.memory(), &self.mover)
    }

    fn complete(self: Box<Self>, arrival: Option<Instant>) {
        let Self { payload, mover, completion, span, .. } = *self;
        if let Some(span) = span {
            span.end(arrival);
        }
        drop(mover); // whoever gets the payload may be the last who has what it moves
        completion.complete_at(Ok(payload), arrival);
    }
}
