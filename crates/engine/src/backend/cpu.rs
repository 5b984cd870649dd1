//! The processor: kernels of `quadrille_tensor` on the rank's own threads. Every method is done when it returns.

use std::cell::{Cell, RefCell};
use std::mem::swap;
use std::ops::Range;

use quadrille_spec::IGNORED;
use quadrille_step::Scalar;
use quadrille_tensor as kernels;
use quadrille_tensor::{
    AdamW, AttentionShape, Buffer, CacheShape, Curve, GroupShape, HeadNorm, LogitsShape, NormShape, PanelShape, Pool,
    ProductShape, Rotary, Shape, TableShape, Transpose,
};

use super::{
    AttentionMask, Backend, Done, ElementMask, Gamma, Positions, Statistics, Swept, Totals, Update, UpdateRule,
};
use crate::samples::OwnSamples;
use crate::{EngineError, Real};

/// Kernels and everyone else mean the same targets.
const _: () = assert!(kernels::IGNORED == IGNORED);

/// A rank's threads, and what its kernels add up, in elements of type `T`.
pub struct Cpu<T> {
    pool: Pool,
    totals: Cell<Totals>,
    update: Cell<Update>,
    /// For operands of products that are transposed first.
    scratch: RefCell<Buffer<T>>,
}

impl<T> Cpu<T> {
    /// Adds to the totals.
    fn add(&self, loss: f64, targets: u64) {
        let totals = self.totals.get();
        self.totals.set(Totals { loss: totals.loss + loss, targets: totals.targets + targets, ..totals });
    }
}

/// Targets that are not ignored.
fn counted(targets: &[u32]) -> u64 {
    targets.iter().filter(|target| **target != IGNORED).count() as u64
}

/// Calls `with` what a norm multiplies columns with.
fn factors<T: Real, R>(gamma: Gamma<&[T]>, with: impl FnOnce(&[T]) -> R) -> R {
    if !gamma.offset {
        return with(gamma.stored);
    }
    T::with_scratch(gamma.stored.len(), |factors| {
        factors.iter_mut().zip(gamma.stored).for_each(|(factor, gamma)| *factor = T::ONE + *gamma);
        with(factors)
    })
}

/// The sums and beta, or the gradient of beta, that a layer norm has.
fn centered<T, V>(statistics: Statistics<&[T]>, vector: Option<V>) -> Option<(&[T], V)> {
    statistics.sums.zip(vector)
}

#[rustfmt::skip]
impl<T: Real> Backend for Cpu<T> {
    type Real = T;
    type Buffer = Buffer<T>;
    type View<'v> = &'v [T];
    type ViewMut<'v> = &'v mut [T];
    type Scalars = Vec<f64>;
    type Samples = OwnSamples;
    type Angles = Rotary<T>;

    fn open(_rank: usize, threads: usize) -> Result<Self, EngineError> {
        let (totals, update, scratch) = (Cell::default(), Cell::default(), RefCell::default());
        Ok(Self { pool: Pool::new(threads), totals, update, scratch })
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn allocate(&self, elements: usize) -> Result<Buffer<T>, EngineError> {
        Ok(Buffer::new(elements))
    }

    fn elements(of: &Buffer<T>) -> usize {
        of.len()
    }

    fn view(of: &Buffer<T>, range: Range<usize>) -> &[T] {
        &of[range]
    }

    fn view_mut(of: &mut Buffer<T>, range: Range<usize>) -> &mut [T] {
        &mut of[range]
    }

    fn part<'p>(of: &'p mut &mut [T], range: Range<usize>) -> &'p mut [T] {
        &mut of[range]
    }

    fn upload<R>(&self, to: &mut &mut [T], write: impl FnOnce(&mut [T]) -> R) -> Result<R, EngineError> {
        Ok(write(to))
    }

    fn download<R>(&self, from: &[T], read: impl FnOnce(&[T]) -> R) -> Result<R, EngineError> {
        Ok(read(from))
    }

    fn load_samples(&self, from: &mut OwnSamples, to: &mut OwnSamples) -> Done {
        swap(from, to);
        Ok(())
    }

    fn settle(&self) -> Done {
        Ok(())
    }

    fn begin_step(&self) -> Done {
        self.totals.set(Totals::default());
        Ok(())
    }

    fn totals(&self) -> Result<Totals, EngineError> {
        Ok(self.totals.get())
    }

    fn take_scalar(&self, scalar: Scalar) -> Result<Vec<f64>, EngineError> {
        let totals = self.totals.get();
        Ok(match scalar {
            Scalar::Loss => vec![totals.loss, totals.targets as f64],
            Scalar::GradientNormSquared => vec![totals.norm_squared],
        })
    }

    fn put_scalar(&self, scalar: Scalar, summed: Vec<f64>) -> Done {
        let totals = self.totals.get();
        self.totals.set(match scalar {
            Scalar::Loss => Totals { loss: summed[0], targets: summed[1] as u64, ..totals },
            Scalar::GradientNormSquared => Totals { norm_squared: summed[0], ..totals },
        });
        Ok(())
    }

    fn prepare_update(&self, rule: &UpdateRule) -> Done {
        self.update.set(rule.update(self.totals.get()));
        Ok(())
    }

    fn prepare_matmuls(&self, products: &[(ProductShape, Transpose)]) -> Done {
        let needed = products.iter().map(|(product, run_as)| kernels::matmul_as_scratch(*run_as, *product));
        *self.scratch.borrow_mut() = Buffer::new(needed.max().unwrap_or(0));
        Ok(())
    }

    fn matmul(&self, product: ProductShape, run_as: Transpose, a: &[T], b: &[T], c: &mut &mut [T], accumulate: bool) -> Done {
        if run_as == product.stored {
            kernels::matmul(&self.pool, product, a, b, c, accumulate);
        } else {
            kernels::matmul_as(&self.pool, run_as, product, a, b, c, accumulate, &mut self.scratch.borrow_mut());
        }
        Ok(())
    }

    fn matmul_few_rows(&self, product: ProductShape, a: &[T], b: &[T], c: &mut &mut [T]) -> Done {
        kernels::matmul_few_rows(&self.pool, product, a, b, c);
        Ok(())
    }

    fn copy(&self, y: &mut &mut [T], x: &[T]) -> Done {
        kernels::copy(&self.pool, y, x);
        Ok(())
    }

    fn add_assign(&self, y: &mut &mut [T], x: &[T]) -> Done {
        kernels::add_assign(&self.pool, y, x);
        Ok(())
    }

    fn scale(&self, x: &mut &mut [T], factor: f64) -> Done {
        kernels::scale(&self.pool, x, T::from_f64(factor));
        Ok(())
    }

    fn sum_squares(&self, x: &[T], runs: &[Range<usize>]) -> Done {
        let squares: f64 = runs.iter().map(|run| kernels::sum_of_squares(&self.pool, &x[run.clone()])).sum();
        let totals = self.totals.get();
        self.totals.set(Totals { norm_squared: totals.norm_squared + squares, ..totals });
        Ok(())
    }

    fn adamw(&self, constants: &AdamW, p: &mut &mut [T], g: &[T], m: &mut &mut [T], v: &mut &mut [T]) -> Done {
        let Update { applied, gradient_scale } = self.update.get();
        if applied {
            kernels::adamw(&self.pool, constants, gradient_scale, p, g, m, v);
        }
        Ok(())
    }

    fn embed_forward(&self, shape: TableShape, samples: &OwnSamples, rows: Range<usize>, table: &[T], y: &mut &mut [T]) -> Done {
        kernels::embed_forward(&self.pool, shape, &samples.tokens[0][rows], table, y);
        Ok(())
    }

    fn embed_backward(&self, shape: TableShape, samples: &OwnSamples, rows: Range<usize>, dy: &[T], dtable: &mut &mut [T], accumulate: bool) -> Done {
        kernels::embed_backward(&self.pool, shape, &samples.tokens[0][rows], dy, dtable, accumulate);
        Ok(())
    }

    fn patches(&self, samples: &OwnSamples, numbers: Range<usize>, y: &mut &mut [T]) -> Done {
        kernels::rounded(&self.pool, &samples.patches[0][numbers], y);
        Ok(())
    }

    fn add_positions(&self, shape: Shape, x: &mut &mut [T], table: &[T], at: Positions<'_>) -> Done {
        kernels::add_positions(&self.pool, shape, x, table, |row| at.position(row));
        Ok(())
    }

    fn positions_backward(&self, shape: Shape, dy: &[T], dtable: &mut &mut [T], at: Positions<'_>, accumulate: bool) -> Done {
        kernels::positions_backward(&self.pool, shape, dy, dtable, |row| at.position(row), accumulate);
        Ok(())
    }

    fn cross_entropy_max(&self, shape: LogitsShape, logits: &[T], maxima: &mut &mut [T]) -> Done {
        kernels::cross_entropy_max(&self.pool, shape, logits, maxima);
        Ok(())
    }

    fn cross_entropy_sums(&self, shape: LogitsShape, samples: &OwnSamples, rows: Range<usize>, logits: &[T], maxima: &[T], sums: &mut &mut [T]) -> Done {
        kernels::cross_entropy_sums(&self.pool, shape, logits, maxima, &samples.tokens[1][rows], sums);
        Ok(())
    }

    fn cross_entropy_gradient(&self, shape: LogitsShape, samples: &OwnSamples, rows: Range<usize>, logits: &mut &mut [T], maxima: &[T], sums: &[T], scale: f64) -> Done {
        let (targets, scale) = (&samples.tokens[1][rows], T::from_f64(scale));
        let loss = kernels::cross_entropy_gradient(&self.pool, shape, logits, maxima, sums, targets, scale);
        self.add(loss, counted(targets));
        Ok(())
    }

    fn cross_entropy_loss(&self, samples: &OwnSamples, rows: Range<usize>, sums: &[T]) -> Done {
        let targets = &samples.tokens[1][rows];
        self.add(kernels::cross_entropy_loss(sums, targets), counted(targets));
        Ok(())
    }

    fn squared_error(&self, samples: &OwnSamples, numbers: Range<usize>, predictions: &mut &mut [T], scale: f64) -> Done {
        let (targets, count) = (&samples.patches[1][numbers], predictions.len() as u64);
        self.add(kernels::squared_error(&self.pool, predictions, targets, T::from_f64(scale)), count);
        Ok(())
    }

    fn squared_error_loss(&self, samples: &OwnSamples, numbers: Range<usize>, predictions: &[T]) -> Done {
        let targets = &samples.patches[1][numbers];
        self.add(kernels::squared_error_loss(&self.pool, predictions, targets), predictions.len() as u64);
        Ok(())
    }

    fn norm_row_sums(&self, shape: Shape, x: &[T], sums: &mut &mut [T]) -> Done {
        kernels::norm_row_sums(&self.pool, shape, x, sums);
        Ok(())
    }

    fn norm_centered_squares(&self, shape: NormShape, x: &[T], sums: &[T], squares: &mut &mut [T]) -> Done {
        kernels::norm_centered_squares(&self.pool, shape, x, sums, squares);
        Ok(())
    }

    fn rms_norm_squares(&self, shape: Shape, x: &[T], squares: &mut &mut [T]) -> Done {
        kernels::rms_norm_squares(&self.pool, shape, x, squares);
        Ok(())
    }

    fn norm_forward(&self, shape: NormShape, x: &[T], statistics: Statistics<&[T]>, gamma: Gamma<&[T]>, beta: Option<&[T]>, y: &mut &mut [T]) -> Done {
        let (pool, squares) = (&self.pool, statistics.squares);
        factors(gamma, |gamma| match centered(statistics, beta) {
            Some((sums, beta)) => kernels::norm_forward(pool, shape, x, sums, squares, gamma, beta, y),
            None => kernels::rms_norm_forward(pool, shape, x, squares, gamma, y),
        });
        Ok(())
    }

    fn norm_backward_sums(&self, shape: NormShape, x: &[T], statistics: Statistics<&[T]>, gamma: Gamma<&[T]>, dy: &[T], out: &mut &mut [T], dgamma: &mut &mut [T], dbeta: Option<&mut &mut [T]>, accumulate: bool) -> Done {
        let (pool, squares) = (&self.pool, statistics.squares);
        factors(gamma, |gamma| match centered(statistics, dbeta) {
            Some((sums, dbeta)) => {
                kernels::norm_backward_sums(pool, shape, x, sums, squares, gamma, dy, out, dgamma, dbeta, accumulate);
            }
            None => kernels::rms_norm_backward_sums(pool, shape, x, squares, gamma, dy, out, dgamma, accumulate),
        });
        Ok(())
    }

    fn norm_backward(&self, shape: NormShape, x: &[T], statistics: Statistics<&[T]>, gamma: Gamma<&[T]>, dy: &[T], reduced: &[T], dx: &mut &mut [T], accumulate: bool) -> Done {
        let (pool, squares) = (&self.pool, statistics.squares);
        factors(gamma, |gamma| match statistics.sums {
            Some(sums) => kernels::norm_backward(pool, shape, x, sums, squares, gamma, dy, reduced, dx, accumulate),
            None => kernels::rms_norm_backward(pool, shape, x, squares, gamma, dy, reduced, dx, accumulate),
        });
        Ok(())
    }

    fn head_norm_forward(&self, norm: HeadNorm, gamma: Gamma<&[T]>, beta: Option<&[T]>, x: &mut &mut [T]) -> Swept {
        Ok(factors(gamma, |gamma| kernels::head_norm_forward(&self.pool, norm, gamma, beta, x)))
    }

    fn head_norm_backward(&self, norm: HeadNorm, x: &[T], gamma: Gamma<&[T]>, dy: &mut &mut [T], dgamma: &mut &mut [T], dbeta: Option<&mut &mut [T]>, accumulate: bool) -> Swept {
        let dbeta = dbeta.map(|dbeta| &mut **dbeta);
        Ok(factors(gamma, |gamma| kernels::head_norm_backward(&self.pool, norm, x, gamma, dy, dgamma, dbeta, accumulate)))
    }

    fn bias_forward(&self, shape: Shape, x: &mut &mut [T], bias: &[T]) -> Done {
        kernels::bias_forward(&self.pool, shape, x, bias);
        Ok(())
    }

    fn bias_backward(&self, shape: Shape, dy: &[T], dbias: &mut &mut [T], accumulate: bool) -> Done {
        kernels::bias_backward(&self.pool, shape, dy, dbias, accumulate);
        Ok(())
    }

    fn bias_curve_forward(&self, curve: Curve, shape: Shape, pre: &mut &mut [T], bias: Option<&[T]>, y: &mut &mut [T]) -> Done {
        kernels::bias_curve_forward(&self.pool, curve, shape, pre, bias, y);
        Ok(())
    }

    fn bias_gated_forward(&self, curve: Curve, shape: Shape, pre: &mut &mut [T], bias: Option<&[T]>, y: &mut &mut [T]) -> Done {
        kernels::bias_gated_forward(&self.pool, curve, shape, pre, bias, y);
        Ok(())
    }

    fn activate_curve(&self, curve: Curve, pre: &[T], y: &mut &mut [T]) -> Done {
        kernels::activate_curve(&self.pool, curve, pre, y);
        Ok(())
    }

    fn activate_gated(&self, curve: Curve, pre: &[T], y: &mut &mut [T]) -> Done {
        kernels::activate_gated(&self.pool, curve, pre, y);
        Ok(())
    }

    fn bias_curve_backward(&self, curve: Curve, shape: Shape, pre: &[T], dy: &mut &mut [T], dbias: Option<&mut &mut [T]>, accumulate: bool) -> Done {
        let dbias = dbias.map(|dbias| &mut **dbias);
        kernels::bias_curve_backward(&self.pool, curve, shape, pre, dy, dbias, accumulate);
        Ok(())
    }

    fn bias_gated_backward(&self, curve: Curve, shape: Shape, pre: &mut &mut [T], dy: &[T], dbias: Option<&mut &mut [T]>, accumulate: bool) -> Done {
        let dbias = dbias.map(|dbias| &mut **dbias);
        kernels::bias_gated_backward(&self.pool, curve, shape, pre, dy, dbias, accumulate);
        Ok(())
    }

    fn dropout(&self, shape: Shape, x: &mut &mut [T], mask: &ElementMask) -> Done {
        let scale = T::from_f64(mask.dropout.scale);
        kernels::dropout(&self.pool, shape, x, scale, |row, col| mask.keeps(row, col));
        Ok(())
    }

    fn residual_forward(&self, shape: Shape, x: &mut &mut [T], bias: Option<&[T]>, residual: &[T], mask: Option<&ElementMask>) -> Done {
        let keep = mask.map(|mask| (T::from_f64(mask.dropout.scale), |row, col| mask.keeps(row, col)));
        let dropout = keep.as_ref().map(|(scale, keep)| (*scale, keep as _));
        kernels::residual_forward(&self.pool, shape, x, bias, residual, dropout);
        Ok(())
    }

    fn angles(&self, head_dim: usize, frequencies: &[f64], positions: impl Iterator<Item = usize>) -> Result<Rotary<T>, EngineError> {
        Ok(Rotary::new(head_dim, frequencies, positions))
    }

    fn rotate(&self, shape: GroupShape, angles: &Rotary<T>, at: Positions<'_>, x: &mut &mut [T], back: bool) -> Swept {
        Ok(kernels::rotate(&self.pool, shape, angles, |row| at.angle(row), x, back))
    }

    fn attention_forward(&self, shape: AttentionShape, qkv: &[T], keys_values: Option<&[T]>, out: &mut &mut [T], log_sum_exp: &mut &mut [T], mask: Option<&AttentionMask>) -> Done {
        let keep = mask.map(|mask| (T::from_f64(mask.dropout.scale), |s, head, query, key| mask.keeps(s, head, query, key)));
        let dropout = keep.as_ref().map(|(scale, keep)| (*scale, keep as _));
        kernels::attention_forward(&self.pool, shape, qkv, keys_values, out, log_sum_exp, dropout);
        Ok(())
    }

    fn attention_backward(&self, shape: AttentionShape, qkv: &[T], keys_values: Option<(&[T], &mut &mut [T])>, out: &[T], log_sum_exp: &[T], dout: &[T], dqkv: &mut &mut [T], mask: Option<&AttentionMask>) -> Done {
        let keep = mask.map(|mask| (T::from_f64(mask.dropout.scale), |s, head, query, key| mask.keeps(s, head, query, key)));
        let dropout = keep.as_ref().map(|(scale, keep)| (*scale, keep as _));
        let keys_values = keys_values.map(|(kv, dkv)| (kv, &mut **dkv));
        kernels::attention_backward(&self.pool, shape, qkv, keys_values, out, log_sum_exp, dout, dqkv, dropout);
        Ok(())
    }

    fn pack_keys_values(&self, shape: GroupShape, qkv: &[T], kv: &mut &mut [T]) -> Done {
        kernels::pack_keys_values(&self.pool, shape, qkv, kv);
        Ok(())
    }

    fn unpack_keys_values(&self, shape: GroupShape, kv: &[T], qkv: &mut &mut [T]) -> Done {
        kernels::unpack_keys_values(&self.pool, shape, kv, qkv);
        Ok(())
    }

    fn store_keys_values(&self, shape: CacheShape, starts: &[usize], qkv: &[T], cache: &mut &mut [T]) -> Done {
        kernels::store_keys_values(&self.pool, shape, starts, qkv, cache);
        Ok(())
    }

    fn cached_attention(&self, shape: CacheShape, starts: &[usize], qkv: &[T], cache: &[T], out: &mut &mut [T]) -> Done {
        kernels::cached_attention(&self.pool, shape, starts, qkv, cache, out);
        Ok(())
    }

    fn newest_rows(&self, cols: usize, tokens: usize, newest: &[usize], x: &[T], y: &mut &mut [T]) -> Done {
        kernels::newest_rows(cols, tokens, newest, x, y);
        Ok(())
    }

    fn pack_columns(&self, shape: Shape, parts: usize, x: &[T], y: &mut &mut [T]) -> Done {
        kernels::pack_columns(&self.pool, shape, parts, x, y);
        Ok(())
    }

    fn unpack_columns(&self, shape: Shape, parts: usize, x: &[T], y: &mut &mut [T]) -> Done {
        kernels::unpack_columns(&self.pool, shape, parts, x, y);
        Ok(())
    }

    fn slice_columns(&self, shape: Shape, part: usize, parts: usize, x: &[T], y: &mut &mut [T]) -> Done {
        kernels::slice_columns(&self.pool, shape, part, parts, x, y);
        Ok(())
    }

    fn copy_panel_columns(&self, shape: PanelShape, x: &[T], y: &mut &mut [T]) -> Done {
        kernels::copy_panel_columns(&self.pool, shape, x, y);
        Ok(())
    }

    fn store_panel_columns(&self, shape: PanelShape, y: &[T], x: &mut &mut [T]) -> Done {
        kernels::store_panel_columns(&self.pool, shape, y, x);
        Ok(())
    }
}
