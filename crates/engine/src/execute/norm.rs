//! Norms in the pieces between which ranks reduce row statistics.

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
            Operation::RowSquares { input, output } => self.write(output, |rank, squares| {
                let ((rows, cols), x) = (rank.dims(input), rank.read(input)?);
                kernels::rms_norm_squares(&rank.pool, rows, cols, x, squares);
                Ok(x.len())
            }),
            _ => Ok(0),
        }
    }

    pub(super) fn norm(&mut self, operation: &Operation) -> Swept {
        let Operation::Norm { input, sums, squares, gamma, beta, output } = *operation else { return Ok(0) };
        self.write(output, |rank, y| {
            let ((rows, cols), width) = (rank.dims(input), rank.value(input).cols);
            let (x, squares, gamma) = (rank.read(input)?, rank.read(squares)?, rank.read(gamma)?);
            let eps = rank.program.model.norm_epsilon;
            match rank.read_some(sums)?.zip(rank.read_some(beta)?) {
                Some((sums, beta)) => {
                    kernels::norm_forward(&rank.pool, rows, cols, width, eps, x, sums, squares, gamma, beta, y);
                }
                None => kernels::rms_norm_forward(&rank.pool, rows, cols, width, eps, x, squares, gamma, y),
            }
            Ok(x.len())
        })
    }

    pub(super) fn norm_backward_sums(&mut self, operation: &Operation) -> Swept {
        let Operation::NormBackwardSums { output, gamma_gradient, beta_gradient, .. } = *operation else {
            return Ok(0);
        };
        self.write(output, |rank, out| {
            rank.write(gamma_gradient, |rank, dgamma| match beta_gradient {
                Some(beta) => rank.write(beta, |rank, dbeta| rank.norm_sums(operation, out, dgamma, Some(dbeta))),
                None => rank.norm_sums(operation, out, dgamma, None),
            })
        })
    }

    #[rustfmt::skip]
    fn norm_sums(
        &self, operation: &Operation, out: &mut [T], dgamma: &mut [T], dbeta: Option<&mut [T]>,
    ) -> Swept {
        let Operation::NormBackwardSums { input, sums, squares, gamma, gradient, write, .. } = *operation
        else { return Ok(0) };
        let ((rows, cols), width, pool) = (self.dims(input), self.value(input).cols, &self.pool);
        let (x, dy, gamma, squares) =
            (self.read(input)?, self.read(gradient)?, self.read(gamma)?, self.read(squares)?);
        let (eps, add) = (self.program.model.norm_epsilon, self.accumulates(write));
        match self.read_some(sums)?.zip(dbeta) {
            Some((sums, dbeta)) => kernels::norm_backward_sums(
                pool, rows, cols, width, eps, x, sums, squares, gamma, dy, out, dgamma, dbeta, add,
            ),
            None => kernels::rms_norm_backward_sums(
                pool, rows, cols, width, eps, x, squares, gamma, dy, out, dgamma, add,
            ),
        }
        Ok(x.len())
    }

    #[rustfmt::skip]
    pub(super) fn norm_backward(&mut self, operation: &Operation) -> Swept {
        let Operation::NormBackward { input, sums, squares, gamma, gradient, reduced, output, write } = *operation
        else { return Ok(0) };
        self.write(output, |rank, dx| {
            let ((rows, cols), width, pool) = (rank.dims(input), rank.value(input).cols, &rank.pool);
            let (x, dy, gamma) = (rank.read(input)?, rank.read(gradient)?, rank.read(gamma)?);
            let (squares, reduced) = (rank.read(squares)?, rank.read(reduced)?);
            let (eps, add) = (rank.program.model.norm_epsilon, rank.accumulates(write));
            match rank.read_some(sums)? {
                Some(sums) => kernels::norm_backward(
                    pool, rows, cols, width, eps, x, sums, squares, gamma, dy, reduced, dx, add,
                ),
                None => kernels::rms_norm_backward(
                    pool, rows, cols, width, eps, x, squares, gamma, dy, reduced, dx, add,
                ),
            }
            Ok(x.len())
        })
    }
}
