//! Keys and values that several ranks hold, because x has more ranks than there are keys: each rank of such a block has
//! queries of its own and the same key and value, in weights and activations alike.
//!
//! Activations need nothing for it: a product's input gradient is summed over x in any case, over all copies. A rank's
//! gradient of the copied columns is that of its own queries only; it is summed over the block, once per step or, where
//! ZeRO cuts gradients in every pass, before that.

use quadrille_spec::{Axis, CollectiveKind};

use crate::builder::Builder;
use crate::operation::{Collective, Members, Operation, Reduction};
use crate::value::{Format, Home};
use crate::{Extent, Layer, Parameter, ParameterId, SharedKeys, StepError, ValueId, kind};

/// The sum of copied columns over their block: out of the gradient, over the ranks, and back.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CopiesSum {
    /// Where there are other columns, too.
    pub pack: Option<Operation>,
    pub sum: Collective,
    pub unpack: Option<Operation>,
}

impl Builder<'_> {
    /// Which columns of a parameter of that shape are copies, if any are.
    ///
    /// # Errors
    /// A pruned parameter: its copies would lie at different places among what their ranks keep, so that collectives may sum
    /// them in different orders, and they would part.
    pub fn shared_keys(
        &self,
        name: &str,
        [_, cols]: [Extent; 2],
        is_pruned: bool,
    ) -> Result<Option<SharedKeys>, StepError> {
        let shared = cols.shared_keys(self.layout);
        match shared {
            Some(SharedKeys { copies, .. }) if is_pruned => {
                let ranks = self.layout.grid.size(Axis::X);
                Err(StepError::SharedPruned { tensor: name.to_owned(), ranks, keys: ranks / copies })
            }
            shared => Ok(shared),
        }
    }

    /// What sums the copied columns of `gradient`, a gradient of the parameter; `None` if it has none.
    pub fn copies_sum(&mut self, parameter: ParameterId, gradient: ValueId) -> Result<Option<CopiesSum>, StepError> {
        let Parameter { shared, layer, .. } = self.parameters[parameter.0];
        let (Some(SharedKeys { own, copies, .. }), Layer::Block(index)) = (shared, layer) else { return Ok(None) };
        let sum = |value| Collective {
            kind: CollectiveKind::AllReduce,
            axes: Axis::X.only(),
            members: Members::Blocks(copies),
            reduction: Reduction::Sum,
            input: value,
            output: value,
        };
        if own == 0 {
            return Ok(Some(CopiesSum { pack: None, sum: sum(gradient), unpack: None }));
        }
        let name = self.values[gradient.0].name.clone();
        let sharding = *self.sharding(gradient);
        let shape = [self.shape(gradient)[0], self.keys_values_extent(index, false)];
        let block = self.block_kind(index);
        let format = match self.home(gradient).format {
            Format::VectorGradients => Format::SentVectors,
            _ => Format::Sent,
        };
        let packed = self.weight_value(format!("{name} of keys and values"), shape, sharding, Home::buffer(format))?;
        Ok(Some(CopiesSum {
            pack: Some(kind::PackKeysValues { block, input: gradient, output: packed }.into()),
            sum: sum(packed),
            unpack: Some(kind::UnpackKeysValues { block, input: packed, output: gradient }.into()),
        }))
    }

    /// Sums the copied columns of `gradient` at once.
    pub fn sum_copies(&mut self, parameter: ParameterId, gradient: ValueId) -> Result<(), StepError> {
        if let Some(CopiesSum { pack, sum, unpack }) = self.copies_sum(parameter, gradient)? {
            let steps = [pack, Some(Operation::Issue(sum)), Some(Operation::Wait(sum)), unpack];
            steps.into_iter().flatten().for_each(|each| self.push(each));
        }
        Ok(())
    }
}
