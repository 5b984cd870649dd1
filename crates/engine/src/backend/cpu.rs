//! The processor: kernels of `quadrille_tensor` on the rank's own threads. Every method is done when it returns.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::mem::swap;
use std::ops::Range;

use half::{bf16, f16};
use quadrille_spec::IGNORED;
use quadrille_step::Scalar;
use quadrille_tensor as kernels;
use quadrille_tensor::{
    AdamW, AttentionShape, Buffer, CacheShape, Curve, Element, GroupShape, GroupedShape, HeadNorm, LatentShape,
    LogitsShape, NormShape, PanelShape, Pool, ProductShape, Rotary, RouterLosses, RouterRule, RouterShape, Segments,
    Shape, SpreadShape, TableShape, TokenGroups, Transpose,
};

use super::kinds::{of_either_kind, output_of_either_kind};
use super::loads::Loads;
use super::memory::{Bytes, Numbers, NumbersMut};
use super::norms::{centered, factors};
use super::totals::counted;
use super::{
    AttentionMask, Backend, Done, ElementMask, Gamma, Kind, Positions, Statistics, Swept, Totals, Update, UpdateRule,
    View, ViewMut,
};
use crate::EngineError;
use crate::samples::OwnSamples;

/// Kernels and everyone else mean the same targets.
const _: () = assert!(kernels::IGNORED == IGNORED);

/// A rank's threads, and what its kernels add up. Values are stored in elements of type `S`.
pub struct Cpu<S> {
    pool: Pool,
    totals: Cell<Totals>,
    loads: Loads,
    update: Cell<Update>,
    /// For operands of products that are transposed first.
    scratch: RefCell<Buffer<S>>,
}

impl<S> Cpu<S> {
    /// Adds to the totals.
    fn add(&self, loss: f64, targets: u64) {
        let totals = self.totals.get();
        self.totals.set(Totals { loss: totals.loss + loss, targets: totals.targets + targets, ..totals });
    }
}

for_each_element! { f32, f64, bf16, f16;
#[rustfmt::skip]
impl Backend for Cpu<S> {
    type Real = Real;
    type Stored = S;
    type Buffer = Bytes;
    type View<'v> = Numbers<'v, S>;
    type ViewMut<'v> = NumbersMut<'v, S>;
    type Scalars = Vec<f64>;
    type Samples = OwnSamples;
    type Angles = Rotary<Real>;
    type Indices = Vec<u32>;

    fn open(_rank: usize, threads: usize) -> Result<Self, EngineError> {
        let (totals, update, scratch) = (Cell::default(), Cell::default(), RefCell::default());
        Ok(Self { pool: Pool::new(threads), totals, loads: Loads::default(), update, scratch })
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn allocate(&self, bytes: u64) -> Result<Bytes, EngineError> {
        Ok(Bytes::new(bytes as usize))
    }

    fn bytes(of: &Bytes) -> u64 {
        of.len() as u64
    }

    fn view(of: &Bytes, kind: Kind, range: Range<usize>) -> Numbers<'_, S> {
        Numbers::of(of, kind, range)
    }

    fn view_mut(of: &mut Bytes, kind: Kind, range: Range<usize>) -> NumbersMut<'_, S> {
        NumbersMut::of(of, kind, range)
    }

    fn part<'p>(of: &'p mut NumbersMut<'_, S>, range: Range<usize>) -> NumbersMut<'p, S> {
        of.part(range)
    }

    fn upload<R>(&self, to: &mut NumbersMut<'_, S>, write: impl FnOnce(&mut [Real]) -> R) -> Result<R, EngineError> {
        Ok(to.changed(write))
    }

    fn download<R>(&self, from: Numbers<'_, S>, read: impl FnOnce(&[Real]) -> R) -> Result<R, EngineError> {
        Ok(from.seen(read))
    }

    fn fill<R>(to: &mut Bytes, bytes: usize, write: impl FnOnce(&mut [u8]) -> R) -> R {
        write(&mut to.elements_mut()[..bytes])
    }

    fn look<R>(from: &Bytes, bytes: usize, read: impl FnOnce(&[u8]) -> R) -> R {
        read(&from.elements()[..bytes])
    }

    fn indices(&self, mut positions: Vec<u32>, room: usize) -> Result<Vec<u32>, EngineError> {
        positions.shrink_to(room);
        positions.reserve_exact(room - positions.len());
        Ok(positions)
    }

    fn positions<'i>(&self, of: &'i Vec<u32>) -> Result<Cow<'i, [u32]>, EngineError> {
        Ok(Cow::Borrowed(of))
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
        self.loads.put(Vec::new());
        Ok(())
    }

    fn totals(&self) -> Result<Totals, EngineError> {
        Ok(self.totals.get())
    }

    fn loads(&self) -> Result<Vec<u64>, EngineError> {
        Ok(self.loads.counts())
    }

    fn take_scalar(&self, scalar: Scalar) -> Result<Vec<f64>, EngineError> {
        let mut summands = self.totals.get().of(scalar);
        if let Scalar::Routers { experts } = scalar {
            summands.extend(self.loads.take(experts));
        }
        Ok(summands)
    }

    fn put_scalar(&self, scalar: Scalar, mut summed: Vec<f64>) -> Done {
        if let Scalar::Routers { .. } = scalar {
            self.loads.put(summed.split_off(Totals::OF_ROUTERS));
        }
        self.totals.set(self.totals.get().with(scalar, &summed));
        Ok(())
    }

    fn prepare_update(&self, rule: &UpdateRule) -> Done {
        self.update.set(rule.update(self.totals.get()));
        Ok(())
    }

    fn prepare_attempt(&self, rule: &UpdateRule) -> Done {
        self.update.set(rule.attempt(self.totals.get()));
        Ok(())
    }

    fn prepare_matmuls(&self, products: &[(ProductShape, Transpose)]) -> Done {
        let needed = products.iter().map(|(product, run_as)| kernels::matmul_as_scratch(*run_as, *product));
        *self.scratch.borrow_mut() = Buffer::new(needed.max().unwrap_or(0));
        Ok(())
    }

    fn matmul(&self, product: ProductShape, run_as: Transpose, a: Numbers<'_, S>, b: Numbers<'_, S>, c: &mut NumbersMut<'_, S>, accumulate: bool) -> Done {
        let (pool, a, b) = (&self.pool, a.stored(), b.stored());
        output_of_either_kind!(c => if run_as == product.stored {
            kernels::matmul(pool, product, a, b, c, accumulate);
        } else {
            kernels::matmul_as(pool, run_as, product, a, b, c, accumulate, &mut self.scratch.borrow_mut());
        });
        Ok(())
    }

    fn grouped_matmul(&self, shape: GroupedShape, segments: &Segments, a: Numbers<'_, S>, b: Numbers<'_, S>, c: &mut NumbersMut<'_, S>, accumulate: bool) -> Done {
        let (pool, a, b) = (&self.pool, a.stored(), b.stored());
        output_of_either_kind!(c => kernels::grouped_matmul(pool, shape, segments, a, b, c, accumulate));
        Ok(())
    }

    fn matmul_few_rows(&self, product: ProductShape, a: Numbers<'_, S>, b: Numbers<'_, S>, c: &mut NumbersMut<'_, S>) -> Done {
        kernels::matmul_few_rows(&self.pool, product, a.stored(), b.stored(), c.stored());
        Ok(())
    }

    fn copy(&self, y: &mut NumbersMut<'_, S>, x: Numbers<'_, S>) -> Done {
        of_either_kind!(x, y => kernels::copy(&self.pool, y, x));
        Ok(())
    }

    fn add_assign(&self, y: &mut NumbersMut<'_, S>, x: Numbers<'_, S>) -> Done {
        of_either_kind!(x, y => kernels::add_assign(&self.pool, y, x));
        Ok(())
    }

    fn compress(&self, y: &mut NumbersMut<'_, S>, x: Numbers<'_, S>, indices: &Vec<u32>, from: usize, accumulate: bool) -> Done {
        of_either_kind!(x, y => {
            let end = indices.len().min(from + y.len());
            kernels::compress(&self.pool, x, &indices[from.min(end)..end], y, accumulate);
        });
        Ok(())
    }

    fn expand(&self, y: &mut NumbersMut<'_, S>, x: Numbers<'_, S>, indices: &Vec<u32>) -> Done {
        of_either_kind!(x, y => kernels::expand(&self.pool, x, indices, y));
        Ok(())
    }

    fn scale(&self, x: &mut NumbersMut<'_, S>, factor: f64) -> Done {
        kernels::scale(&self.pool, x.stored(), Real::from_f64(factor));
        Ok(())
    }

    fn cap(&self, x: &mut NumbersMut<'_, S>, cap: f64) -> Done {
        kernels::cap(&self.pool, x.stored(), Real::from_f64(cap));
        Ok(())
    }

    fn round(&self, p: &mut NumbersMut<'_, S>, master: Numbers<'_, S>) -> Done {
        output_of_either_kind!(p => kernels::round(&self.pool, p, master.real()));
        Ok(())
    }

    fn sum_squares(&self, x: Numbers<'_, S>, runs: &[Range<usize>]) -> Done {
        let of_run = |run: &Range<usize>| match x.part(run.clone()) {
            Numbers::Stored(x) => kernels::sum_of_squares(&self.pool, x),
            Numbers::Real(x) => kernels::sum_of_squares(&self.pool, x),
        };
        let squares: f64 = runs.iter().map(of_run).sum();
        let totals = self.totals.get();
        self.totals.set(Totals { norm_squared: totals.norm_squared + squares, ..totals });
        Ok(())
    }

    fn adamw(&self, constants: &AdamW, p: &mut NumbersMut<'_, S>, master: Option<&mut NumbersMut<'_, S>>, g: Numbers<'_, S>, m: &mut NumbersMut<'_, S>, v: &mut NumbersMut<'_, S>) -> Done {
        let (Update { applied, gradient_scale }, pool, m, v) = (self.update.get(), &self.pool, m.real(), v.real());
        if !applied {
            return Ok(());
        }
        let Some(master) = master else {
            kernels::adamw(pool, constants, gradient_scale, p.real(), g.real(), m, v);
            return Ok(());
        };
        let master = master.real();
        output_of_either_kind!(p => match g {
            Numbers::Stored(g) => kernels::adamw_master(pool, constants, gradient_scale, master, p, g, m, v),
            Numbers::Real(g) => kernels::adamw_master(pool, constants, gradient_scale, master, p, g, m, v),
        });
        Ok(())
    }

    fn embed_forward(&self, shape: TableShape, samples: &OwnSamples, rows: Range<usize>, table: Numbers<'_, S>, y: &mut NumbersMut<'_, S>) -> Done {
        kernels::embed_forward(&self.pool, shape, &samples.tokens[0][rows], table.stored(), y.stored());
        Ok(())
    }

    fn embed_backward(&self, shape: TableShape, samples: &OwnSamples, rows: Range<usize>, dy: Numbers<'_, S>, dtable: &mut NumbersMut<'_, S>, accumulate: bool) -> Done {
        let (tokens, dy) = (&samples.tokens[0][rows], dy.stored());
        output_of_either_kind!(dtable => kernels::embed_backward(&self.pool, shape, tokens, dy, dtable, accumulate));
        Ok(())
    }

    fn patches(&self, samples: &OwnSamples, numbers: Range<usize>, y: &mut NumbersMut<'_, S>) -> Done {
        kernels::rounded(&self.pool, &samples.patches[0][numbers], y.stored());
        Ok(())
    }

    fn add_positions(&self, shape: Shape, x: &mut NumbersMut<'_, S>, table: Numbers<'_, S>, at: Positions<'_>) -> Done {
        kernels::add_positions(&self.pool, shape, x.stored(), table.stored(), |row| at.position(row));
        Ok(())
    }

    fn positions_backward(&self, shape: Shape, dy: Numbers<'_, S>, dtable: &mut NumbersMut<'_, S>, at: Positions<'_>, accumulate: bool) -> Done {
        let (dy, at) = (dy.stored(), |row| at.position(row));
        output_of_either_kind!(dtable => kernels::positions_backward(&self.pool, shape, dy, dtable, at, accumulate));
        Ok(())
    }

    fn cross_entropy_max(&self, shape: LogitsShape, logits: Numbers<'_, S>, maxima: &mut NumbersMut<'_, S>) -> Done {
        kernels::cross_entropy_max(&self.pool, shape, logits.stored(), maxima.real());
        Ok(())
    }

    fn cross_entropy_sums(&self, shape: LogitsShape, samples: &OwnSamples, rows: Range<usize>, logits: Numbers<'_, S>, maxima: Numbers<'_, S>, sums: &mut NumbersMut<'_, S>) -> Done {
        kernels::cross_entropy_sums(&self.pool, shape, logits.stored(), maxima.real(), &samples.tokens[1][rows], sums.real());
        Ok(())
    }

    fn cross_entropy_gradient(&self, shape: LogitsShape, samples: &OwnSamples, rows: Range<usize>, logits: &mut NumbersMut<'_, S>, maxima: Numbers<'_, S>, sums: Numbers<'_, S>, scale: f64, cap: Option<f64>) -> Done {
        let (targets, scale, cap) = (&samples.tokens[1][rows], Real::from_f64(scale), cap.map(Real::from_f64));
        let loss = kernels::cross_entropy_gradient(&self.pool, shape, logits.stored(), maxima.real(), sums.real(), targets, scale, cap);
        self.add(loss, counted(targets));
        Ok(())
    }

    fn cross_entropy_loss(&self, samples: &OwnSamples, rows: Range<usize>, sums: Numbers<'_, S>) -> Done {
        let targets = &samples.tokens[1][rows];
        self.add(kernels::cross_entropy_loss(sums.real(), targets), counted(targets));
        Ok(())
    }

    fn squared_error(&self, samples: &OwnSamples, numbers: Range<usize>, predictions: &mut NumbersMut<'_, S>, scale: f64) -> Done {
        let (targets, count) = (&samples.patches[1][numbers], predictions.elements() as u64);
        self.add(kernels::squared_error(&self.pool, predictions.stored(), targets, Real::from_f64(scale)), count);
        Ok(())
    }

    fn squared_error_loss(&self, samples: &OwnSamples, numbers: Range<usize>, predictions: Numbers<'_, S>) -> Done {
        let targets = &samples.patches[1][numbers];
        self.add(kernels::squared_error_loss(&self.pool, predictions.stored(), targets), predictions.elements() as u64);
        Ok(())
    }

    fn norm_row_sums(&self, shape: Shape, x: Numbers<'_, S>, sums: &mut NumbersMut<'_, S>) -> Done {
        kernels::norm_row_sums(&self.pool, shape, x.stored(), sums.real());
        Ok(())
    }

    fn norm_centered_squares(&self, shape: NormShape, x: Numbers<'_, S>, sums: Numbers<'_, S>, squares: &mut NumbersMut<'_, S>) -> Done {
        kernels::norm_centered_squares(&self.pool, shape, x.stored(), sums.real(), squares.real());
        Ok(())
    }

    fn rms_norm_squares(&self, shape: Shape, x: Numbers<'_, S>, squares: &mut NumbersMut<'_, S>) -> Done {
        kernels::rms_norm_squares(&self.pool, shape, x.stored(), squares.real());
        Ok(())
    }

    fn norm_forward(&self, shape: NormShape, x: Numbers<'_, S>, statistics: Statistics<Numbers<'_, S>>, gamma: Gamma<Numbers<'_, S>>, beta: Option<Numbers<'_, S>>, y: &mut NumbersMut<'_, S>) -> Done {
        let (pool, squares) = (&self.pool, statistics.squares.real());
        factors(gamma, |gamma| match centered(statistics, beta) {
            Some((sums, beta)) => kernels::norm_forward(pool, shape, x.stored(), sums, squares, gamma, beta.real(), y.stored()),
            None => kernels::rms_norm_forward(pool, shape, x.stored(), squares, gamma, y.stored()),
        });
        Ok(())
    }

    fn norm_backward_sums(&self, shape: NormShape, x: Numbers<'_, S>, statistics: Statistics<Numbers<'_, S>>, gamma: Gamma<Numbers<'_, S>>, dy: Numbers<'_, S>, out: &mut NumbersMut<'_, S>, dgamma: &mut NumbersMut<'_, S>, dbeta: Option<&mut NumbersMut<'_, S>>, accumulate: bool) -> Done {
        let (pool, squares) = (&self.pool, statistics.squares.real());
        factors(gamma, |gamma| match centered(statistics, dbeta) {
            Some((sums, dbeta)) => {
                kernels::norm_backward_sums(pool, shape, x.stored(), sums, squares, gamma, dy.stored(), out.real(), dgamma.real(), dbeta.real(), accumulate);
            }
            None => kernels::rms_norm_backward_sums(pool, shape, x.stored(), squares, gamma, dy.stored(), out.real(), dgamma.real(), accumulate),
        });
        Ok(())
    }

    fn norm_backward(&self, shape: NormShape, x: Numbers<'_, S>, statistics: Statistics<Numbers<'_, S>>, gamma: Gamma<Numbers<'_, S>>, dy: Numbers<'_, S>, reduced: Numbers<'_, S>, dx: &mut NumbersMut<'_, S>, accumulate: bool) -> Done {
        let (pool, squares) = (&self.pool, statistics.squares.real());
        factors(gamma, |gamma| match statistics.sums.map(Numbers::real) {
            Some(sums) => kernels::norm_backward(pool, shape, x.stored(), sums, squares, gamma, dy.stored(), reduced.real(), dx.stored(), accumulate),
            None => kernels::rms_norm_backward(pool, shape, x.stored(), squares, gamma, dy.stored(), reduced.real(), dx.stored(), accumulate),
        });
        Ok(())
    }

    fn head_norm_forward(&self, norm: HeadNorm, gamma: Gamma<Numbers<'_, S>>, beta: Option<Numbers<'_, S>>, x: &mut NumbersMut<'_, S>) -> Swept {
        Ok(factors(gamma, |gamma| kernels::head_norm_forward(&self.pool, norm, gamma, beta.map(Numbers::real), x.stored())))
    }

    fn head_norm_backward(&self, norm: HeadNorm, x: Numbers<'_, S>, gamma: Gamma<Numbers<'_, S>>, dy: &mut NumbersMut<'_, S>, dgamma: &mut NumbersMut<'_, S>, dbeta: Option<&mut NumbersMut<'_, S>>, accumulate: bool) -> Swept {
        let dbeta = dbeta.map(NumbersMut::real);
        Ok(factors(gamma, |gamma| kernels::head_norm_backward(&self.pool, norm, x.stored(), gamma, dy.stored(), dgamma.real(), dbeta, accumulate)))
    }

    fn bias_forward(&self, shape: Shape, x: &mut NumbersMut<'_, S>, bias: Numbers<'_, S>) -> Done {
        kernels::bias_forward(&self.pool, shape, x.stored(), bias.real());
        Ok(())
    }

    fn bias_backward(&self, shape: Shape, dy: Numbers<'_, S>, dbias: &mut NumbersMut<'_, S>, accumulate: bool) -> Done {
        kernels::bias_backward(&self.pool, shape, dy.stored(), dbias.real(), accumulate);
        Ok(())
    }

    fn bias_curve_forward(&self, curve: Curve, shape: Shape, pre: &mut NumbersMut<'_, S>, bias: Option<Numbers<'_, S>>, y: &mut NumbersMut<'_, S>) -> Done {
        kernels::bias_curve_forward(&self.pool, curve, shape, pre.stored(), bias.map(Numbers::real), y.stored());
        Ok(())
    }

    fn bias_gated_forward(&self, curve: Curve, shape: Shape, pre: &mut NumbersMut<'_, S>, bias: Option<Numbers<'_, S>>, y: &mut NumbersMut<'_, S>) -> Done {
        kernels::bias_gated_forward(&self.pool, curve, shape, pre.stored(), bias.map(Numbers::real), y.stored());
        Ok(())
    }

    fn activate_curve(&self, curve: Curve, pre: Numbers<'_, S>, y: &mut NumbersMut<'_, S>) -> Done {
        kernels::activate_curve(&self.pool, curve, pre.stored(), y.stored());
        Ok(())
    }

    fn activate_gated(&self, curve: Curve, pre: Numbers<'_, S>, y: &mut NumbersMut<'_, S>) -> Done {
        kernels::activate_gated(&self.pool, curve, pre.stored(), y.stored());
        Ok(())
    }

    fn bias_curve_backward(&self, curve: Curve, shape: Shape, pre: Numbers<'_, S>, dy: &mut NumbersMut<'_, S>, dbias: Option<&mut NumbersMut<'_, S>>, accumulate: bool) -> Done {
        let dbias = dbias.map(NumbersMut::real);
        kernels::bias_curve_backward(&self.pool, curve, shape, pre.stored(), dy.stored(), dbias, accumulate);
        Ok(())
    }

    fn bias_gated_backward(&self, curve: Curve, shape: Shape, pre: &mut NumbersMut<'_, S>, dy: Numbers<'_, S>, dbias: Option<&mut NumbersMut<'_, S>>, accumulate: bool) -> Done {
        let dbias = dbias.map(NumbersMut::real);
        kernels::bias_gated_backward(&self.pool, curve, shape, pre.stored(), dy.stored(), dbias, accumulate);
        Ok(())
    }

    fn dropout(&self, shape: Shape, x: &mut NumbersMut<'_, S>, mask: &ElementMask) -> Done {
        let scale = Real::from_f64(mask.dropout.scale);
        kernels::dropout(&self.pool, shape, x.stored(), scale, |row, col| mask.keeps(row, col));
        Ok(())
    }

    fn residual_forward(&self, shape: Shape, x: &mut NumbersMut<'_, S>, bias: Option<Numbers<'_, S>>, residual: Numbers<'_, S>, mask: Option<&ElementMask>) -> Done {
        let keep = mask.map(|mask| (Real::from_f64(mask.dropout.scale), |row, col| mask.keeps(row, col)));
        let dropout = keep.as_ref().map(|(scale, keep)| (*scale, keep as _));
        kernels::residual_forward(&self.pool, shape, x.stored(), bias.map(Numbers::real), residual.stored(), dropout);
        Ok(())
    }

    fn angles(&self, head_dim: usize, frequencies: &[f64], positions: impl Iterator<Item = usize>) -> Result<Rotary<Real>, EngineError> {
        Ok(Rotary::new(head_dim, frequencies, positions))
    }

    fn join_latent(&self, shape: LatentShape, queries: Numbers<'_, S>, pairs: Numbers<'_, S>, shared: Numbers<'_, S>, qkv: &mut NumbersMut<'_, S>) -> Done {
        kernels::join_latent(&self.pool, shape, queries.stored(), pairs.stored(), shared.stored(), qkv.stored());
        Ok(())
    }

    fn split_latent(&self, shape: LatentShape, dqkv: Numbers<'_, S>, dqueries: &mut NumbersMut<'_, S>, dpairs: &mut NumbersMut<'_, S>, dshared: &mut NumbersMut<'_, S>) -> Done {
        kernels::split_latent(&self.pool, shape, dqkv.stored(), dqueries.stored(), dpairs.stored(), dshared.stored());
        Ok(())
    }

    fn rotate(&self, shape: GroupShape, angles: &Rotary<Real>, at: Positions<'_>, x: &mut NumbersMut<'_, S>, back: bool) -> Swept {
        Ok(kernels::rotate(&self.pool, shape, angles, |row| at.angle(row), x.stored(), back))
    }

    fn attention_forward(&self, shape: AttentionShape, qkv: Numbers<'_, S>, keys_values: Option<Numbers<'_, S>>, out: &mut NumbersMut<'_, S>, log_sum_exp: &mut NumbersMut<'_, S>, mask: Option<&AttentionMask>) -> Done {
        let keep = mask.map(|mask| (Real::from_f64(mask.dropout.scale), |s, head, query, key| mask.keeps(s, head, query, key)));
        let dropout = keep.as_ref().map(|(scale, keep)| (*scale, keep as _));
        kernels::attention_forward(&self.pool, shape, qkv.stored(), keys_values.map(Numbers::stored), out.stored(), log_sum_exp.real(), dropout);
        Ok(())
    }

    fn attention_backward(&self, shape: AttentionShape, qkv: Numbers<'_, S>, keys_values: Option<(Numbers<'_, S>, &mut NumbersMut<'_, S>)>, out: Numbers<'_, S>, log_sum_exp: Numbers<'_, S>, dout: Numbers<'_, S>, dqkv: &mut NumbersMut<'_, S>, mask: Option<&AttentionMask>) -> Done {
        let keep = mask.map(|mask| (Real::from_f64(mask.dropout.scale), |s, head, query, key| mask.keeps(s, head, query, key)));
        let dropout = keep.as_ref().map(|(scale, keep)| (*scale, keep as _));
        let keys_values = keys_values.map(|(kv, dkv)| (kv.stored(), dkv.stored()));
        kernels::attention_backward(&self.pool, shape, qkv.stored(), keys_values, out.stored(), log_sum_exp.real(), dout.stored(), dqkv.stored(), dropout);
        Ok(())
    }

    fn split_heads(&self, shape: GroupShape, qkv: Numbers<'_, S>, queries: &mut NumbersMut<'_, S>, keys: &mut NumbersMut<'_, S>) -> Done {
        kernels::split_heads(&self.pool, shape, qkv.stored(), queries.stored(), keys.stored());
        Ok(())
    }

    fn join_heads(&self, shape: GroupShape, queries: Numbers<'_, S>, keys: Numbers<'_, S>, beside: Option<Numbers<'_, S>>, qkv: &mut NumbersMut<'_, S>) -> Done {
        kernels::join_heads(&self.pool, shape, queries.stored(), keys.stored(), beside.map(Numbers::stored), qkv.stored());
        Ok(())
    }

    fn pack_keys_values(&self, shape: GroupShape, qkv: Numbers<'_, S>, kv: &mut NumbersMut<'_, S>) -> Done {
        of_either_kind!(qkv, kv => kernels::pack_keys_values(&self.pool, shape, qkv, kv));
        Ok(())
    }

    fn unpack_keys_values(&self, shape: GroupShape, kv: Numbers<'_, S>, qkv: &mut NumbersMut<'_, S>) -> Done {
        of_either_kind!(kv, qkv => kernels::unpack_keys_values(&self.pool, shape, kv, qkv));
        Ok(())
    }

    fn store_keys_values(&self, shape: CacheShape, starts: &[usize], qkv: Numbers<'_, S>, cache: &mut NumbersMut<'_, S>) -> Done {
        kernels::store_keys_values(&self.pool, shape, starts, qkv.stored(), cache.stored());
        Ok(())
    }

    fn cached_attention(&self, shape: CacheShape, starts: &[usize], qkv: Numbers<'_, S>, cache: Numbers<'_, S>, out: &mut NumbersMut<'_, S>) -> Done {
        kernels::cached_attention(&self.pool, shape, starts, qkv.stored(), cache.stored(), out.stored());
        Ok(())
    }

    fn newest_rows(&self, cols: usize, tokens: usize, newest: &[usize], x: Numbers<'_, S>, y: &mut NumbersMut<'_, S>) -> Done {
        kernels::newest_rows(cols, tokens, newest, x.stored(), y.stored());
        Ok(())
    }

    fn router_forward(&self, shape: RouterShape, cols: usize, x: Numbers<'_, S>, weight: Numbers<'_, S>, logits: &mut NumbersMut<'_, S>) -> Done {
        kernels::router_forward(&self.pool, shape, cols, x.stored(), weight.real(), logits.real());
        Ok(())
    }

    fn router_input_gradient(&self, shape: RouterShape, cols: usize, dlogits: Numbers<'_, S>, weight: Numbers<'_, S>, dx: &mut NumbersMut<'_, S>) -> Done {
        kernels::router_input_gradient(&self.pool, shape, cols, dlogits.real(), weight.real(), dx.stored());
        Ok(())
    }

    fn router_weight_gradient(&self, shape: RouterShape, cols: usize, x: Numbers<'_, S>, dlogits: Numbers<'_, S>, dweight: &mut NumbersMut<'_, S>, accumulate: bool) -> Done {
        kernels::router_weight_gradient(&self.pool, shape, cols, x.stored(), dlogits.real(), dweight.real(), accumulate);
        Ok(())
    }

    fn route(&self, shape: RouterShape, rule: RouterRule, groups: TokenGroups, logits: Numbers<'_, S>, bias: Option<Numbers<'_, S>>, routes: &mut NumbersMut<'_, S>) -> Done {
        kernels::route(&self.pool, shape, rule, groups, logits.real(), bias.map(Numbers::real), routes.real());
        Ok(())
    }

    fn count_choices(&self, shape: RouterShape, routes: Numbers<'_, S>, scope: impl Fn(usize) -> usize, counts: &mut NumbersMut<'_, S>, accumulate: bool) -> Done {
        kernels::count_choices(shape, routes.real(), scope, counts.real(), accumulate);
        Ok(())
    }

    fn follow_loads(&self, rate: f64, choices: usize, experts: usize, loads: Numbers<'_, S>, bias: &mut NumbersMut<'_, S>) -> Done {
        if self.update.get().applied {
            kernels::follow_loads(rate, choices, experts, loads.real(), bias.real());
        }
        Ok(())
    }

    fn router_losses(&self, first: usize, shape: RouterShape, rule: RouterRule, losses: RouterLosses, logits: Numbers<'_, S>, routes: Numbers<'_, S>, counts: Option<Numbers<'_, S>>, scope: impl Fn(usize) -> usize) -> Done {
        let counts = counts.map(Numbers::real).unwrap_or_default();
        let (balance, z) = kernels::router_losses(shape, rule, losses, logits.real(), counts, scope);
        let dropped = kernels::dropped_choices(shape, routes.real());
        self.loads.add(first, shape, routes.real());
        let mut totals = self.totals.get();
        (totals.balance, totals.router_z) = (totals.balance + balance, totals.router_z + z);
        (totals.choices, totals.dropped) = (totals.choices + (shape.rows * shape.per_token) as u64, totals.dropped + dropped);
        self.totals.set(totals);
        Ok(())
    }

    fn route_backward(&self, shape: RouterShape, rule: RouterRule, losses: RouterLosses, factor: f64, logits: &mut NumbersMut<'_, S>, routes: Numbers<'_, S>, counts: Option<Numbers<'_, S>>, dweights: Numbers<'_, S>, scope: impl Fn(usize) -> usize + Sync) -> Done {
        let counts = counts.map(Numbers::real).unwrap_or_default();
        kernels::route_backward(&self.pool, shape, rule, losses, factor, logits.real(), routes.real(), counts, dweights.real(), scope);
        Ok(())
    }

    fn spread(&self, shape: SpreadShape<'_>, x: Numbers<'_, S>, routes: Numbers<'_, S>, y: &mut NumbersMut<'_, S>) -> Done {
        kernels::spread(&self.pool, shape, x.stored(), routes.real(), y.stored());
        Ok(())
    }

    fn spread_backward(&self, shape: SpreadShape<'_>, dy: Numbers<'_, S>, routes: Numbers<'_, S>, dx: &mut NumbersMut<'_, S>) -> Done {
        kernels::spread_backward(&self.pool, shape, dy.stored(), routes.real(), dx.stored());
        Ok(())
    }

    fn combine(&self, shape: SpreadShape<'_>, x: Numbers<'_, S>, routes: Numbers<'_, S>, y: &mut NumbersMut<'_, S>) -> Done {
        kernels::combine(&self.pool, shape, x.stored(), routes.real(), y.stored());
        Ok(())
    }

    fn combine_backward(&self, shape: SpreadShape<'_>, dy: Numbers<'_, S>, x: Numbers<'_, S>, routes: Numbers<'_, S>, dx: &mut NumbersMut<'_, S>, dweights: &mut NumbersMut<'_, S>) -> Done {
        kernels::combine_backward(&self.pool, shape, dy.stored(), x.stored(), routes.real(), dx.stored(), dweights.real());
        Ok(())
    }

    fn pack_columns(&self, shape: Shape, parts: usize, x: Numbers<'_, S>, y: &mut NumbersMut<'_, S>) -> Done {
        of_either_kind!(x, y => kernels::pack_columns(&self.pool, shape, parts, x, y));
        Ok(())
    }

    fn unpack_columns(&self, shape: Shape, parts: usize, x: Numbers<'_, S>, y: &mut NumbersMut<'_, S>) -> Done {
        of_either_kind!(x, y => kernels::unpack_columns(&self.pool, shape, parts, x, y));
        Ok(())
    }

    fn slice_columns(&self, shape: Shape, part: usize, parts: usize, x: Numbers<'_, S>, y: &mut NumbersMut<'_, S>) -> Done {
        of_either_kind!(x, y => kernels::slice_columns(&self.pool, shape, part, parts, x, y));
        Ok(())
    }

    fn copy_panel_columns(&self, shape: PanelShape, x: Numbers<'_, S>, y: &mut NumbersMut<'_, S>) -> Done {
        of_either_kind!(x, y => kernels::copy_panel_columns(&self.pool, shape, x, y));
        Ok(())
    }

    fn store_panel_columns(&self, shape: PanelShape, y: Numbers<'_, S>, x: &mut NumbersMut<'_, S>) -> Done {
        of_either_kind!(y, x => kernels::store_panel_columns(&self.pool, shape, y, x));
        Ok(())
    }
}
}
