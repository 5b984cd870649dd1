//! Element-wise work, embedding, norm, attention, loss and the local movements of data.

use quadrille_spec::{Axis, Dropout};
use quadrille_step::{Operation, ValueId};
use quadrille_tensor as kernels;
use quadrille_tensor::AttentionShape;

use super::Done;
use crate::{RankEngine, Real};

impl<T: Real> RankEngine<'_, T> {
    pub(super) fn forward(&mut self, operation: &Operation) -> Done {
        match *operation {
            Operation::Embed { table, output } => self.write(output, |rank, y| {
                let ((rows, cols), start) = (rank.dims(output), rank.vocabulary_start(table));
                kernels::embed_forward(&rank.pool, rows, cols, &rank.tokens, rank.read(table)?, start, y);
                rank.count_elements(operation, rows * cols);
                Ok(())
            }),
            Operation::AddPositions { positions, input, output } => self.write(output, |rank, x| {
                let ((rows, cols), first) = (rank.dims(input), rank.first_row(input));
                let seq_len = rank.program.layout.seq_len;
                kernels::add_positions(&rank.pool, rows, cols, x, rank.read(positions)?, first, seq_len);
                rank.count_elements(operation, rows * cols);
                Ok(())
            }),
            Operation::Dropout { ref purpose, input, output } => self.dropout(operation, purpose, input, output),
            Operation::RowSums { input, output } => self.write(output, |rank, sums| {
                let (rows, cols) = rank.dims(input);
                kernels::norm_row_sums(&rank.pool, rows, cols, rank.read(input)?, sums);
                rank.count_elements(operation, rows * cols);
                Ok(())
            }),
            Operation::CenteredSquares { input, sums, output } => self.write(output, |rank, squares| {
                let ((rows, cols), width) = (rank.dims(input), rank.value(input).cols);
                let (x, sums) = (rank.read(input)?, rank.read(sums)?);
                kernels::norm_centered_squares(&rank.pool, rows, cols, width, x, sums, squares);
                rank.count_elements(operation, rows * cols);
                Ok(())
            }),
            Operation::Norm { input, sums, squares, gamma, beta, output } => self.write(output, |rank, y| {
                let ((rows, cols), width) = (rank.dims(input), rank.value(input).cols);
                let (x, gamma, beta) = (rank.read(input)?, rank.read(gamma)?, rank.read(beta)?);
                let (sums, squares) = (rank.read(sums)?, rank.read(squares)?);
                let eps = rank.program.model.norm_epsilon;
                kernels::norm_forward(&rank.pool, rows, cols, width, eps, x, sums, squares, gamma, beta, y);
                rank.count_elements(operation, rows * cols);
                Ok(())
            }),
            Operation::Bias { bias, input, output } => self.write(output, |rank, x| {
                let (rows, cols) = rank.dims(input);
                kernels::bias_forward(&rank.pool, rows, cols, x, rank.read(bias)?);
                rank.count_elements(operation, rows * cols);
                Ok(())
            }),
            Operation::BiasGelu { bias, input, output, activated } => self.write(activated, |rank, y| {
                rank.write(output, |rank, pre| {
                    let (rows, cols) = rank.dims(input);
                    let bias = bias.map(|bias| rank.read(bias)).transpose()?;
                    kernels::bias_gelu_forward(&rank.pool, rows, cols, pre, bias.map(|bias| &**bias), y);
                    rank.count_elements(operation, rows * cols);
                    Ok(())
                })
            }),
            Operation::Attention { qkv, output, statistics, ref dropout } => self.write(output, |rank, out| {
                rank.write(statistics, |rank, statistics| {
                    let (shape, qkv) = (rank.attention_shape(output), rank.read(qkv)?);
                    let keep = dropout.as_ref().map(|purpose| rank.attention_mask(purpose, output, shape));
                    let dropout = keep.as_ref().map(|(scale, keep)| (*scale, keep as _));
                    kernels::attention_forward(&rank.pool, shape, qkv, out, statistics, dropout);
                    rank.flops.attention_forward += attention_flops(shape);
                    Ok(())
                })
            }),
            Operation::Residual { bias, input, residual, output, ref dropout } => self.write(output, |rank, x| {
                let ((rows, cols), bias) = (rank.dims(input), bias.map(|bias| rank.read(bias)).transpose()?);
                let mask = dropout.as_ref().map(|purpose| rank.mask(purpose, output));
                let dropout = mask.as_ref().map(|(scale, keep)| (*scale, keep as _));
                let residual = rank.read(residual)?;
                kernels::residual_forward(&rank.pool, rows, cols, x, bias.map(|bias| &**bias), residual, dropout);
                rank.count_elements(operation, rows * cols);
                Ok(())
            }),
            Operation::CrossEntropyMax { logits, output } => self.write(output, |rank, maxima| {
                let ((rows, cols), (_, valid)) = (rank.dims(logits), rank.vocabulary(logits));
                kernels::cross_entropy_max(&rank.pool, rows, cols, valid, rank.read(logits)?, maxima);
                rank.count_elements(operation, rows * cols);
                Ok(())
            }),
            Operation::CrossEntropySums { logits, maxima, output } => self.write(output, |rank, sums| {
                let ((rows, cols), (start, valid)) = (rank.dims(logits), rank.vocabulary(logits));
                let (l, maxima) = (rank.read(logits)?, rank.read(maxima)?);
                kernels::cross_entropy_sums(&rank.pool, rows, cols, valid, start, l, maxima, &rank.targets, sums);
                rank.count_elements(operation, rows * cols);
                Ok(())
            }),
            Operation::CrossEntropyGradient { logits, maxima, sums, output } => self.write(output, |rank, l| {
                let ((rows, cols), (start, valid)) = (rank.dims(logits), rank.vocabulary(logits));
                let (maxima, sums) = (rank.read(maxima)?, rank.read(sums)?);
                // The only division in a step: by the global number of target tokens.
                let scale = T::from_f64(1.0 / rank.program.layout.tokens_per_step() as f64);
                let targets = &rank.targets;
                let loss = kernels::cross_entropy_gradient(
                    &rank.pool, rows, cols, valid, start, l, maxima, sums, targets, scale,
                );
                rank.loss_sum += loss;
                rank.count_elements(operation, rows * cols);
                Ok(())
            }),
            Operation::Pack { axis, input, output } => self.write(output, |rank, y| {
                let ((rows, cols), parts) = (rank.dims(input), rank.program.layout.grid.size(axis));
                kernels::pack_columns(&rank.pool, rows, cols, parts, rank.read(input)?, y);
                rank.count_elements(operation, rows * cols);
                Ok(())
            }),
            Operation::Unpack { axis, input, output } => self.write(output, |rank, y| {
                let ((rows, cols), parts) = (rank.dims(output), rank.program.layout.grid.size(axis));
                kernels::unpack_columns(&rank.pool, rows, cols, parts, rank.read(input)?, y);
                rank.count_elements(operation, rows * cols);
                Ok(())
            }),
            Operation::SliceRows { axis, input, output } => self.write(output, |rank, y| {
                let (len, part) = (y.len(), rank.place.on(axis));
                kernels::copy(&rank.pool, y, &rank.read(input)?[part * len..(part + 1) * len]);
                rank.count_elements(operation, len);
                Ok(())
            }),
            Operation::SliceColumns { axis, input, output } => self.write(output, |rank, y| {
                let ((rows, cols), parts) = (rank.dims(input), rank.program.layout.grid.size(axis));
                kernels::slice_columns(&rank.pool, rows, cols, rank.place.on(axis), parts, rank.read(input)?, y);
                rank.count_elements(operation, y.len());
                Ok(())
            }),
            _ => unreachable!("execute() sends only these operations here"),
        }
    }

    fn dropout(&mut self, operation: &Operation, purpose: &str, input: ValueId, output: ValueId) -> Done {
        let in_place = self.storage(input) == self.storage(output);
        self.write(output, |rank, x| {
            if !in_place {
                kernels::copy(&rank.pool, x, rank.read(input)?);
            }
            let ((rows, cols), (scale, keep)) = (rank.dims(input), rank.mask(purpose, output));
            kernels::dropout_forward(&rank.pool, rows, cols, x, scale, keep);
            rank.count_elements(operation, rows * cols);
            Ok(())
        })
    }

    /// Scale and mask of a dropout over the elements of `value`, by local row and column.
    pub(super) fn mask(&self, purpose: &str, value: ValueId) -> (T, impl Fn(usize, usize) -> bool + Sync + use<T>) {
        let mask = Dropout::new(self.seed, purpose, self.step, self.program.model.dropout);
        let (first_row, first_col) = (self.first_row(value), self.first_col(value));
        let cols = self.value(value).cols;
        let keep = move |row: usize, col: usize| mask.keeps(((first_row + row) * cols + first_col + col) as u64);
        (T::from_f64(mask.scale), keep)
    }

    /// Scale and mask of a dropout over attention probabilities, by local sequence and head, query and key.
    pub(super) fn attention_mask(
        &self,
        purpose: &str,
        output: ValueId,
        shape: AttentionShape,
    ) -> (T, impl Fn(usize, usize, usize, usize) -> bool + Sync + use<T>) {
        let mask = Dropout::new(self.seed, purpose, self.step, self.program.model.dropout);
        let seq_len = shape.seq_len;
        let first_sequence = self.first_row(output) / seq_len;
        let first_head = self.first_col(output) / shape.head_dim;
        let heads = self.program.model.heads;
        let keep = move |sequence: usize, head: usize, query: usize, key: usize| {
            let row = ((first_sequence + sequence) * heads + first_head + head) * seq_len + query;
            mask.keeps((row * seq_len + key) as u64)
        };
        (T::from_f64(mask.scale), keep)
    }

    /// The shape of the attention whose local result is `output`.
    pub(super) fn attention_shape(&self, output: ValueId) -> AttentionShape {
        let (rows, cols) = self.dims(output);
        let (seq_len, head_dim) = (self.program.layout.seq_len, self.program.model.head_dim());
        AttentionShape { sequences: rows / seq_len, seq_len, heads: cols / head_dim, head_dim, causal: true }
    }

    /// The first token id of this rank's rows of a vocabulary table.
    pub(super) fn vocabulary_start(&self, table: ValueId) -> usize {
        let table = self.value(table);
        self.program.layout.grid.shard_index(self.place, &[Axis::Y, Axis::X]) * table.local_rows
    }

    /// The first token id of this rank's columns of the logits, and how many of them are no padding.
    fn vocabulary(&self, logits: ValueId) -> (usize, usize) {
        let (start, cols) = (self.first_col(logits), self.value(logits).local_cols);
        (start, self.program.model.vocab.saturating_sub(start).min(cols))
    }
}

/// Scores and weighted values, without causal discount.
pub(super) fn attention_flops(shape: AttentionShape) -> u64 {
    let AttentionShape { sequences, seq_len, heads, head_dim, .. } = shape;
    (4 * sequences * heads * seq_len * seq_len * head_dim) as u64
}
