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
use crate::{Layer, Parameter, ParameterId, SharedKeys, StepError, ValueId, kind};

/// The sum of copied columns over their block: out of the gradient, over the ranks, and back.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CopiesSum {
    pub pack: Operation,
    pub sum: Collective,
    pub unpack: Operation,
}

impl Builder<'_> {
    /// Tells a parameter of a block's queries, keys and values which of its columns are copies, if any are.
    ///
    /// # Errors
    /// A pruned parameter: its copies would lie at different places among what their ranks keep, so that collectives may sum
    /// them in different orders, and they would part.
    pub fn share_keys(&mut self, parameter: ParameterId, block: usize) -> Result<(), StepError> {
        let attention = &self.model.blocks[block].attention;
        let copies = self.layout.kv_copies(attention);
        if copies > 1 {
            let (head_dim, heads) = (attention.head_dim, self.layout.group_heads(attention));
            let parameter = &mut self.parameters[parameter.0];
            if parameter.compressed.is_some() {
                return Err(StepError::SharedPruned { tensor: parameter.name.clone() });
            }
            parameter.shared = Some(SharedKeys { head_dim, heads, copies });
        }
        Ok(())
    }

    /// What sums the copied columns of `gradient`, a gradient of the parameter; `None` if it has none.
    pub fn copies_sum(&mut self, parameter: ParameterId, gradient: ValueId) -> Result<Option<CopiesSum>, StepError> {
        let Parameter { shared, layer, .. } = self.parameters[parameter.0];
        let (Some(SharedKeys { copies, .. }), Layer::Block(index)) = (shared, layer) else { return Ok(None) };
        let (name, sharding) = (self.values[gradient.0].name.clone(), *self.sharding(gradient));
        let (shape, block) = ([self.shape(gradient)[0], self.keys_values_extent(index, false)], self.block_kind(index));
        let format = match self.home(gradient).format {
            Format::VectorGradients => Format::SentVectors,
            _ => Format::Sent,
        };
        let packed = self.weight_value(format!("{name} of keys and values"), shape, sharding, Home::buffer(format))?;
        let sum = Collective {
            kind: CollectiveKind::AllReduce,
            axes: Axis::X.only(),
            members: Members::Blocks(copies),
            reduction: Reduction::Sum,
            input: packed,
            output: packed,
        };
        Ok(Some(CopiesSum {
            pack: Operation::PackKeysValues(kind::PackKeysValues { block, input: gradient, output: packed }),
            sum,
            unpack: Operation::UnpackKeysValues(kind::UnpackKeysValues { block, input: packed, output: gradient }),
        }))
    }

    /// Sums the copied columns of `gradient` at once.
    pub fn sum_copies(&mut self, parameter: ParameterId, gradient: ValueId) -> Result<(), StepError> {
        if let Some(CopiesSum { pack, sum, unpack }) = self.copies_sum(parameter, gradient)? {
            [pack, Operation::Issue(sum), Operation::Wait(sum), unpack].into_iter().for_each(|each| self.push(each));
        }
        Ok(())
    }
}
