//! The backward kernels.

use quadrille_step::{Operation, Write};
use quadrille_tensor as kernels;

use super::Done;
use super::forward::attention_flops;
use crate::{RankEngine, Real};

impl<T: Real> RankEngine<'_, T> {
    pub(super) fn backward(&mut self, operation: &Operation) -> Done {
        let microbatches = self.accumulates(Write::AccumulateMicrobatches);
        match *operation {
            Operation::EmbedBackward { gradient, output, write } => self.write(output, |rank, dtable| {
                let ((rows, cols), start) = (rank.dims(gradient), rank.vocabulary_start(output));
                let (add, dy) = (rank.accumulates(write), rank.read(gradient)?);
                kernels::embed_backward(&rank.pool, rows, cols, &rank.tokens, dy, dtable, start, add);
                rank.count_elements(operation, rows * cols);
                Ok(())
            }),
            Operation::PositionsBackward { gradient, output } => self.write(output, |rank, dpositions| {
                let ((rows, cols), first) = (rank.dims(gradient), rank.first_row(gradient));
                let (dy, seq_len) = (rank.read(gradient)?, rank.program.layout.seq_len);
                kernels::positions_backward(&rank.pool, rows, cols, dy, dpositions, first, seq_len, microbatches);
                rank.count_elements(operation, rows * cols);
                Ok(())
            }),
            Operation::NormBackwardSums { .. } => self.norm_backward_sums(operation, microbatches),
            Operation::NormBackward { input, sums, squares, gamma, gradient, reduced, output, write } => {
                self.write(output, |rank, dx| {
                    let ((rows, cols), width) = (rank.dims(input), rank.value(input).cols);
                    let (x, dy, gamma) = (rank.read(input)?, rank.read(gradient)?, rank.read(gamma)?);
                    let (sums, squares, reduced) = (rank.read(sums)?, rank.read(squares)?, rank.read(reduced)?);
                    let (eps, add) = (rank.program.model.norm_epsilon, rank.accumulates(write));
                    kernels::norm_backward(
                        &rank.pool, rows, cols, width, eps, x, sums, squares, gamma, dy, reduced, dx, add,
                    );
                    rank.count_elements(operation, rows * cols);
                    Ok(())
                })
            }
            Operation::BiasBackward { gradient, output } => self.write(output, |rank, dbias| {
                let (rows, cols) = rank.dims(gradient);
                kernels::bias_backward(&rank.pool, rows, cols, rank.read(gradient)?, dbias, microbatches);
                rank.count_elements(operation, rows * cols);
                Ok(())
            }),
            Operation::GeluBackward { input, output, bias_gradient, .. } => self.write(output, |rank, dy| {
                let (rows, cols) = rank.dims(input);
                match bias_gradient {
                    Some(bias) => rank.write(bias, |rank, dbias| {
                        let pre = rank.read(input)?;
                        kernels::bias_gelu_backward(&rank.pool, rows, cols, pre, dy, Some(dbias), microbatches);
                        Ok(())
                    })?,
                    None => {
                        kernels::bias_gelu_backward(&rank.pool, rows, cols, rank.read(input)?, dy, None, microbatches)
                    }
                }
                rank.count_elements(operation, rows * cols);
                Ok(())
            }),
            Operation::AttentionBackward { qkv, result, statistics, gradient, output, ref dropout } => {
                self.write(output, |rank, dqkv| {
                    let shape = rank.attention_shape(result);
                    let (qkv, out, dout) = (rank.read(qkv)?, rank.read(result)?, rank.read(gradient)?);
                    let keep = dropout.as_ref().map(|purpose| rank.attention_mask(purpose, result, shape));
                    let dropout = keep.as_ref().map(|(scale, keep)| (*scale, keep as _));
                    let statistics = rank.read(statistics)?;
                    kernels::attention_backward(&rank.pool, shape, qkv, out, statistics, dout, dqkv, dropout);
                    rank.flops.attention_backward += 2 * attention_flops(shape);
                    Ok(())
                })
            }
            _ => unreachable!("execute() sends only these operations here"),
        }
    }

    fn norm_backward_sums(&mut self, operation: &Operation, microbatches: bool) -> Done {
        let Operation::NormBackwardSums {
            input,
            sums,
            squares,
            gamma,
            gradient,
            output,
            gamma_gradient,
            beta_gradient,
        } = *operation
        else {
            return Ok(());
        };
        self.write(output, |rank, out| {
            rank.write(gamma_gradient, |rank, dgamma| {
                rank.write(beta_gradient, |rank, dbeta| {
                    let ((rows, cols), width) = (rank.dims(input), rank.value(input).cols);
                    let (x, dy, gamma) = (rank.read(input)?, rank.read(gradient)?, rank.read(gamma)?);
                    let (sums, squares) = (rank.read(sums)?, rank.read(squares)?);
                    let eps = rank.program.model.norm_epsilon;
                    kernels::norm_backward_sums(
                        &rank.pool,
                        rows,
                        cols,
                        width,
                        eps,
                        x,
                        sums,
                        squares,
                        gamma,
                        dy,
                        out,
                        dgamma,
                        dbeta,
                        microbatches,
                    );
                    rank.count_elements(operation, rows * cols);
                    Ok(())
                })
            })
        })
    }
}
