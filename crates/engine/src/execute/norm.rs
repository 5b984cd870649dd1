//! Layer norm in the pieces between which ranks reduce row statistics.

use quadrille_step::Operation;
use quadrille_tensor as kernels;

use crate::{EngineError, RankEngine, Real};

type Swept = Result<usize, EngineError>;

impl<T: Real> RankEngine<'_, T> {
    pub(super) fn norm_statistics(&mut self, operation: &Operation) -> Swept {
        match *operation {
            Operation::RowSums { input, output } => self.write(output, |rank, out| {
                let ((rows, cols), x) = (rank.dims(input), rank.read(input)?);
                kernels::norm_row_sums(&rank.pool, rows, cols, x, out);
                Ok(x.len())
            }),
            Operation::CenteredSquares { input, sums, output } => self.write(output, |rank, squares| {
                let ((rows, cols), width) = (rank.dims(input), rank.value(input).cols);
                let (x, sums) = (rank.read(input)?, rank.read(sums)?);
                kernels::norm_centered_squares(&rank.pool, rows, cols, width, x, sums, squares);
                Ok(x.len())
            }),
            _ => Ok(0),
        }
    }

    pub(super) fn norm(&mut self, operation: &Operation) -> Swept {
        let Operation::Norm { input, sums, squares, gamma, beta, output } = *operation else { return Ok(0) };
        self.write(output, |rank, y| {
            let ((rows, cols), width) = (rank.dims(input), rank.value(input).cols);
            let (x, gamma, beta) = (rank.read(input)?, rank.read(gamma)?, rank.read(beta)?);
            let (sums, squares) = (rank.read(sums)?, rank.read(squares)?);
            let eps = rank.program.model.norm_epsilon;
            kernels::norm_forward(&rank.pool, rows, cols, width, eps, x, sums, squares, gamma, beta, y);
            Ok(x.len())
        })
    }

    #[rustfmt::skip]
    pub(super) fn norm_backward_sums(&mut self, operation: &Operation) -> Swept {
        let Operation::NormBackwardSums {
            input, sums, squares, gamma, gradient, output, gamma_gradient, beta_gradient, write,
        } = *operation else { return Ok(0) };
        self.write(output, |rank, out| {
            rank.write(gamma_gradient, |rank, dgamma| {
                rank.write(beta_gradient, |rank, dbeta| {
                    let ((rows, cols), width) = (rank.dims(input), rank.value(input).cols);
                    let (x, dy, gamma) = (rank.read(input)?, rank.read(gradient)?, rank.read(gamma)?);
                    let (sums, squares) = (rank.read(sums)?, rank.read(squares)?);
                    let eps = rank.program.model.norm_epsilon;
                    let add = rank.accumulates(write);
                    kernels::norm_backward_sums(
                        &rank.pool, rows, cols, width, eps, x, sums, squares, gamma, dy, out, dgamma, dbeta, add,
                    );
                    Ok(x.len())
                })
            })
        })
    }

    #[rustfmt::skip]
    pub(super) fn norm_backward(&mut self, operation: &Operation) -> Swept {
        let Operation::NormBackward { input, sums, squares, gamma, gradient, reduced, output, write } = *operation
        else { return Ok(0) };
        self.write(output, |rank, dx| {
            let ((rows, cols), width) = (rank.dims(input), rank.value(input).cols);
            let (x, dy, gamma) = (rank.read(input)?, rank.read(gradient)?, rank.read(gamma)?);
            let (sums, squares, reduced) = (rank.read(sums)?, rank.read(squares)?, rank.read(reduced)?);
            let (eps, add) = (rank.program.model.norm_epsilon, rank.accumulates(write));
            kernels::norm_backward(
                &rank.pool, rows, cols, width, eps, x, sums, squares, gamma, dy, reduced, dx, add,
            );
            Ok(x.len())
        })
    }
}
