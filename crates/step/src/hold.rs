//! What a practice keeps beside the operands of operations.

use quadrille_spec::MemoryClass;

use crate::backward::Node;
use crate::builder::Builder;
use crate::value::{Format, Home};
use crate::{Extent, Purpose, StepError, ValueId, kind};

impl Builder<'_> {
    /// Keeps numbers of a format for the backward pass, as they come with `with`, if the practice keeps such at all: of the
    /// columns `cols`, or as many as `with` has. To be said before what uses them is recorded.
    pub fn keep(&mut self, name: &str, format: Format, with: ValueId, cols: Option<Extent>) -> Result<(), StepError> {
        if let Some(kept) = self.hold(name, format, with, cols)? {
            self.record(Node::Keep { kept });
        }
        Ok(())
    }

    /// The same without a word to the backward pass.
    pub fn hold(
        &mut self,
        name: &str,
        format: Format,
        with: ValueId,
        cols: Option<Extent>,
    ) -> Result<Option<ValueId>, StepError> {
        if self.practice.formats.bytes(format) == 0 || self.purpose != Purpose::Training {
            return Ok(None);
        }
        let [rows, own] = self.shape(with);
        let sharding = self.sharding(with).of_gradient();
        let home = Home { class: MemoryClass::Activations, format };
        let held = self.value(name, [rows, cols.unwrap_or(own)], sharding, home)?;
        self.push(kind::Hold { input: with, output: Some(held) });
        Ok(Some(held))
    }

    /// The end of what [`Builder::hold`] has begun.
    pub fn release(&mut self, held: Option<ValueId>) {
        if let Some(input) = held {
            self.push(kind::Hold { input, output: None });
        }
    }
}
