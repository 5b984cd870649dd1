//! Which values an operation reads and which it writes.

use crate::{Operation, ValueId};

impl Operation {
    /// The values that it reads and those that it writes. A value that is added to counts as written; an issued
    /// collective holds both its values until its wait.
    pub fn operands(&self) -> (Vec<ValueId>, Vec<ValueId>) {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        // The visitor may change what it sees; here it does not.
        self.clone().visit(|value, written| if written { writes.push(*value) } else { reads.push(*value) });
        (reads, writes)
    }

    /// The same operation on other values.
    #[must_use]
    pub fn with_values(&self, map: impl Fn(ValueId) -> ValueId) -> Self {
        let mut operation = self.clone();
        operation.visit(|value, _| *value = map(*value));
        operation
    }

    /// Shows every operand, reads before writes, and whether it is written.
    fn visit(&mut self, mut see: impl FnMut(&mut ValueId, bool)) {
        let mut all = |reads: &mut [&mut ValueId], writes: &mut [&mut ValueId]| {
            reads.iter_mut().for_each(|value| see(value, false));
            writes.iter_mut().for_each(|value| see(value, true));
        };
        match self {
            Self::Embed { table, output } => all(&mut [table], &mut [output]),
            Self::Patches { output } => all(&mut [], &mut [output]),
            Self::SquaredError { predictions, output } => all(&mut [predictions], &mut [output]),
            Self::AddPositions { positions, input, output } => all(&mut [positions, input], &mut [output]),
            Self::RowSums { input, output }
            | Self::Dropout { input, output, .. }
            | Self::RowSquares { input, output }
            | Self::Rotate { input, output, .. }
            | Self::Activation { input, output, .. }
            | Self::PackKeysValues { input, output }
            | Self::UnpackKeysValues { input, output }
            | Self::CopyPanel { input, output, .. }
            | Self::StorePanel { input, output, .. }
            | Self::Pack { input, output, .. }
            | Self::Unpack { input, output, .. }
            | Self::SliceRows { input, output, .. }
            | Self::StoreKeysValues { input, output }
            | Self::CollectRows { input, output, .. }
            | Self::SliceColumns { input, output, .. }
            | Self::Accumulate { input, output, .. } => all(&mut [input], &mut [output]),
            Self::CenteredSquares { input, sums, output } => all(&mut [input, sums], &mut [output]),
            Self::Norm { input, sums, squares, gamma, beta, output } => {
                let mut reads: Vec<_> = [input].into_iter().chain(sums).chain([squares, gamma]).chain(beta).collect();
                all(&mut reads, &mut [output]);
            }
            Self::Gemm { left, right, output, .. } => all(&mut [left, right], &mut [output]),
            Self::Bias { bias, input, output } => all(&mut [bias, input], &mut [output]),
            Self::BiasActivation { bias, input, output, activated, .. } => {
                let mut reads: Vec<_> = bias.iter_mut().chain([input]).collect();
                all(&mut reads, &mut [output, activated]);
            }
            Self::Attention { qkv, keys_values, output, statistics, .. } => {
                let mut reads: Vec<_> = [qkv].into_iter().chain(keys_values).collect();
                all(&mut reads, &mut [output, statistics]);
            }
            Self::CachedAttention { qkv, cache, output } => all(&mut [qkv, cache], &mut [output]),
            Self::CrossEntropyLoss { sums } => all(&mut [sums], &mut []),
            Self::SquaredErrorLoss { predictions } => all(&mut [predictions], &mut []),
            Self::Residual { bias, input, residual, output, .. } => {
                let mut reads: Vec<_> = bias.iter_mut().chain([input, residual]).collect();
                all(&mut reads, &mut [output]);
            }
            Self::CrossEntropyMax { logits, output } => all(&mut [logits], &mut [output]),
            Self::CrossEntropySums { logits, maxima, output } => all(&mut [logits, maxima], &mut [output]),
            Self::CrossEntropyGradient { logits, maxima, sums, output } => {
                all(&mut [logits, maxima, sums], &mut [output]);
            }
            Self::EmbedBackward { gradient, output, .. }
            | Self::PositionsBackward { gradient, output, .. }
            | Self::BiasBackward { gradient, output, .. } => all(&mut [gradient], &mut [output]),
            Self::NormBackwardSums {
                input,
                sums,
                squares,
                gamma,
                gradient,
                output,
                gamma_gradient,
                beta_gradient,
                ..
            } => {
                let mut reads: Vec<_> = [input].into_iter().chain(sums).chain([squares, gamma, gradient]).collect();
                let mut writes: Vec<_> = [output, gamma_gradient].into_iter().chain(beta_gradient).collect();
                all(&mut reads, &mut writes);
            }
            Self::NormBackward { input, sums, squares, gamma, gradient, reduced, output, .. } => {
                let mut reads: Vec<_> = [input].into_iter().chain(sums).chain([squares, gamma, gradient]).collect();
                reads.push(reduced);
                all(&mut reads, &mut [output]);
            }
            Self::ActivationBackward { input, gradient, output, bias_gradient, .. } => {
                let mut writes: Vec<_> = [output].into_iter().chain(bias_gradient).collect();
                all(&mut [input, gradient], &mut writes);
            }
            Self::AttentionBackward {
                qkv,
                keys_values,
                keys_values_gradient,
                result,
                statistics,
                gradient,
                output,
                ..
            } => {
                let mut reads: Vec<_> = [qkv].into_iter().chain(keys_values).collect();
                reads.extend([result, statistics, gradient]);
                let mut writes: Vec<_> = [output].into_iter().chain(keys_values_gradient).collect();
                all(&mut reads, &mut writes);
            }
            Self::Issue(collective) | Self::Wait(collective) | Self::WaitCarried(collective) => {
                all(&mut [&mut collective.input], &mut [&mut collective.output]);
            }
            Self::SumSquares { gradient, .. } => all(&mut [gradient], &mut []),
            Self::ReduceScalar { .. } => {}
            Self::AdamW { value, gradient, .. } => all(&mut [gradient], &mut [value]),
        }
    }
}
