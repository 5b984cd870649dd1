//! The engine's [`Backend`] on a device, method by method.

use std::borrow::Cow;
use std::ops::Range;

use quadrille_engine::{
    Algorithms, AttentionMask, Backend, DeviceUse, ElementMask, EngineError, Gamma, GraphUse, Kind, OwnSamples,
    ParameterUpdate, Positions, Statistics, Totals, UpdateRule, Values, View,
};
use quadrille_spec::ElementType;
use quadrille_step::{Product, Scalar};
use quadrille_tensor::{
    AdamW, AttentionShape, CacheShape, Curve, GroupShape, GroupedShape, HeadNorm, LatentShape, LogitsShape, NormShape,
    PanelShape, Pool, ProductShape, Rotary, RouterLosses, RouterRule, RouterShape, Segments, Shape, SpreadShape,
    TableShape, TokenGroups, Transpose,
};

use super::buffer::done;
use super::convert::{attention_mask, element_mask, gamma, read, statistics, update, written};
use super::{Cuda, DeviceAngles, DeviceBuffer, DeviceIndices, DeviceSamples, DeviceView, DeviceViewMut};
use crate::array::{Element, Number};
use crate::driver::{Memory, Place};
use crate::ops::{
    Places, Saved, attention_scratch, cached_scratch, column_scratch, head_norm_scratch, loss_scratch, losses_scratch,
    route_scratch, spread_scratch, sum_scratch, update_table,
};

type Done = Result<(), EngineError>;
type Swept = Result<usize, EngineError>;

/// What elements of a kind are.
fn element<S: Values + Number>(kind: Kind) -> Element
where
    S::Real: Number,
{
    match kind {
        Kind::Stored => S::ELEMENT,
        Kind::Real => S::Real::ELEMENT,
    }
}

type R<'v> = DeviceView<'v>;
type W<'v> = DeviceViewMut<'v>;

#[rustfmt::skip]
impl<S: Values + Number> Backend for Cuda<S>
where
    S::Real: Number,
{
    type Real = S::Real;
    type Stored = S;
    type Buffer = DeviceBuffer;
    type View<'v> = DeviceView<'v>;
    type ViewMut<'v> = DeviceViewMut<'v>;
    type Scalars = Vec<f64>;
    type Samples = DeviceSamples;
    type Angles = DeviceAngles;
    type Indices = DeviceIndices;

    const FUSES: bool = true;

    fn open(rank: usize, threads: usize) -> Result<Self, EngineError> {
        Ok(Self::new(rank, threads)?)
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn allocate(&self, bytes: u64) -> Result<DeviceBuffer, EngineError> {
        let part = self.arena.take(self.lanes.driver(), bytes as usize)?;
        Ok(DeviceBuffer::new(&self.lanes, part)?)
    }

    fn reserve(&self, buffers: &[u64]) -> Done {
        Ok(self.arena.reserve(self.lanes.driver(), buffers.iter().map(|bytes| *bytes as usize))?)
    }

    fn memory(&self) -> Result<Option<DeviceUse>, EngineError> {
        let ([buffers, alignment], driver) = (self.arena.given(), self.lanes.driver());
        let Memory { used, total } = driver.device().memory()?;
        let [workspace, used, total] = [driver.device().workspace(), used, total].map(|bytes| bytes as u64);
        let [scratch, pinned] = self.lanes.taken();
        Ok(Some(DeviceUse { buffers, alignment, workspace, scratch, pinned, used, total }))
    }

    fn graphs(&self) -> Option<GraphUse> {
        self.lanes.graphs()
    }

    fn bytes(of: &DeviceBuffer) -> u64 {
        of.bytes() as u64
    }

    fn view(of: &DeviceBuffer, kind: Kind, range: Range<usize>) -> R<'_> {
        DeviceView::of(of.array(element::<S>(kind), range))
    }

    fn view_mut(of: &mut DeviceBuffer, kind: Kind, range: Range<usize>) -> W<'_> {
        DeviceViewMut::of(of.array(element::<S>(kind), range))
    }

    fn part<'p>(of: &'p mut W<'_>, range: Range<usize>) -> W<'p> {
        DeviceViewMut::of(of.array.part(range))
    }

    fn upload<O>(&self, to: &mut W<'_>, write: impl FnOnce(&mut [S::Real]) -> O) -> Result<O, EngineError> {
        self.change(to.array, write)
    }

    fn download<O>(&self, from: R<'_>, read: impl FnOnce(&[S::Real]) -> O) -> Result<O, EngineError> {
        Ok(read(&self.seen(from.array)?))
    }

    fn fill<O>(to: &mut DeviceBuffer, bytes: usize, write: impl FnOnce(&mut [u8]) -> O) -> O {
        let mut host = vec![0; bytes];
        let result = write(&mut host);
        done(to.exchange(bytes, Place::Host(host.as_ptr())));
        result
    }

    fn look<O>(from: &DeviceBuffer, bytes: usize, read: impl FnOnce(&[u8]) -> O) -> O {
        let mut host = vec![0; bytes];
        done(from.exchange(bytes, Place::HostMut(host.as_mut_ptr())));
        read(&host)
    }

    fn indices(&self, positions: Vec<u32>, room: usize) -> Result<DeviceIndices, EngineError> {
        let (len, bytes) = (positions.len(), room.max(positions.len()) * size_of::<u32>());
        let memory = self.lanes.take(bytes)?;
        let indices = DeviceIndices { memory, len };
        self.up(&positions, indices.array())?;
        Ok(indices)
    }

    fn positions<'i>(&self, of: &'i DeviceIndices) -> Result<Cow<'i, [u32]>, EngineError> {
        let mut positions = vec![0_u32; of.len];
        self.down(of.array(), &mut positions)?;
        Ok(Cow::Owned(positions))
    }

    fn load_samples(&self, from: &mut OwnSamples, to: &mut DeviceSamples) -> Done {
        self.take_samples(from, to)
    }

    fn settle(&self) -> Done {
        Ok(self.settled()?)
    }

    fn start(&self) -> Done {
        Ok(self.lanes.start()?)
    }

    fn begin_step(&self) -> Done {
        Ok(self.totals.clear()?)
    }

    fn totals(&self) -> Result<Totals, EngineError> {
        Ok(self.totals.get()?)
    }

    fn loads(&self) -> Result<Vec<u64>, EngineError> {
        Ok(self.totals.loads()?.into_iter().map(|load| load as u64).collect())
    }

    fn take_scalar(&self, scalar: Scalar) -> Result<Vec<f64>, EngineError> {
        Ok(self.totals.take(scalar)?)
    }

    fn put_scalar(&self, scalar: Scalar, summed: Vec<f64>) -> Done {
        Ok(self.totals.put(scalar, summed)?)
    }

    fn prepare_update(&self, rule: &UpdateRule) -> Done {
        Ok(self.totals.decide(|totals| rule.update(totals))?)
    }

    fn prepare_attempt(&self, rule: &UpdateRule) -> Done {
        Ok(self.totals.decide(|totals| rule.attempt(totals))?)
    }

    fn prepare_matmuls(&self, products: &[(ProductShape, Transpose)]) -> Done {
        // The library transposes as it reads, and its workspace is there from a stream's first product on.
        if products.iter().all(|(product, run_as)| *run_as == product.stored) {
            return Ok(());
        }
        Err(EngineError::OtherAlgorithms { of: "a processor".into(), here: self.lanes.driver().device().library()? })
    }

    fn choose_algorithms(&self, products: &[(Product, ElementType)]) -> Result<Option<Algorithms>, EngineError> {
        Ok(Some(self.choose(products)?))
    }

    fn use_algorithms(&self, chosen: &Algorithms) -> Done {
        self.adopt(chosen)
    }

    fn matmul(&self, product: ProductShape, _run_as: Transpose, a: R<'_>, b: R<'_>, c: &mut W<'_>, accumulate: bool) -> Done {
        self.product(product, a.array, b.array, c.array, accumulate)
    }

    fn matmul_with_bias(&self, product: ProductShape, _run_as: Transpose, a: R<'_>, b: R<'_>, bias: R<'_>, c: &mut W<'_>) -> Done {
        self.biased_product(product, a.array, b.array, bias.array, c.array)
    }

    fn grouped_matmul(&self, shape: GroupedShape, segments: &Segments, a: R<'_>, b: R<'_>, c: &mut W<'_>, accumulate: bool) -> Done {
        self.products_of_experts(shape, segments, a.array, b.array, c.array, accumulate)
    }

    fn matmul_few_rows(&self, product: ProductShape, a: R<'_>, b: R<'_>, c: &mut W<'_>) -> Done {
        self.product(product, a.array, b.array, c.array, false)
    }

    fn copy(&self, y: &mut W<'_>, x: R<'_>) -> Done {
        Ok(self.queue(0)?.copy(y.array, x.array)?)
    }

    fn add_assign(&self, y: &mut W<'_>, x: R<'_>) -> Done {
        Ok(self.queue(0)?.add_assign(y.array, x.array)?)
    }

    fn compress(&self, y: &mut W<'_>, x: R<'_>, indices: &DeviceIndices, from: usize, accumulate: bool) -> Done {
        let end = indices.len.min(from + y.array.len);
        let own = indices.array().part(from.min(end)..end);
        Ok(self.queue(0)?.compress(x.array, own, y.array, accumulate)?)
    }

    fn expand(&self, y: &mut W<'_>, x: R<'_>, indices: &DeviceIndices) -> Done {
        Ok(self.queue(0)?.expand(x.array, indices.array(), y.array)?)
    }

    fn scale(&self, x: &mut W<'_>, factor: f64) -> Done {
        Ok(self.queue(0)?.scale(x.array, factor)?)
    }

    fn cap(&self, x: &mut W<'_>, cap: f64) -> Done {
        Ok(self.queue(0)?.cap(x.array, cap)?)
    }

    fn round(&self, p: &mut W<'_>, master: R<'_>) -> Done {
        Ok(self.queue(0)?.round(p.array, master.array)?)
    }

    fn sum_squares(&self, x: R<'_>, runs: &[Range<usize>]) -> Done {
        self.squares(runs.iter().map(|run| (x.array, run.clone())))
    }

    fn sum_squares_of_all(&self, arrays: &[(R<'_>, Vec<Range<usize>>)]) -> Done {
        self.squares(arrays.iter().flat_map(|(x, runs)| runs.iter().map(|run| (x.array, run.clone()))))
    }

    fn adamw(&self, constants: &AdamW, p: &mut W<'_>, master: Option<&mut W<'_>>, g: R<'_>, m: &mut W<'_>, v: &mut W<'_>) -> Done {
        let (update, master) = (self.totals.update(), written(master));
        Ok(self.queue(0)?.adamw(constants, update, p.array, master, g.array, m.array, v.array)?)
    }

    fn adamw_of_all(&self, updates: &mut [ParameterUpdate<R<'_>, W<'_>>]) -> Done {
        let parameters: Vec<_> = updates.iter().map(update).collect();
        let (table, units) = update_table(&parameters);
        let table = self.uploads.put(table)?;
        Ok(self.queue(0)?.adamw_of_all(S::ELEMENT, table, parameters.len(), units, self.totals.update())?)
    }

    fn embed_forward(&self, shape: TableShape, samples: &DeviceSamples, rows: Range<usize>, table: R<'_>, y: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.embed_forward(shape, samples.tokens(0).part(rows), table.array, y.array)?)
    }

    fn embed_backward(&self, shape: TableShape, samples: &DeviceSamples, rows: Range<usize>, dy: R<'_>, dtable: &mut W<'_>, accumulate: bool) -> Done {
        let (tokens, count) = (&samples.host.tokens[0][rows.clone()], dtable.array.len / shape.cols.max(1));
        let places = Places::new(count, rows.len(), |row| (tokens[row] as usize).wrapping_sub(shape.start));
        self.add_rows(shape.cols, places, dy.array, dtable.array, accumulate)
    }

    fn patches(&self, samples: &DeviceSamples, numbers: Range<usize>, y: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.rounded(samples.patches(0).part(numbers), y.array)?)
    }

    fn add_positions(&self, shape: Shape, x: &mut W<'_>, table: R<'_>, at: Positions<'_>) -> Done {
        let at = self.placed(at)?;
        Ok(self.queue(0)?.add_positions(shape, x.array, table.array, at)?)
    }

    fn positions_backward(&self, shape: Shape, dy: R<'_>, dtable: &mut W<'_>, at: Positions<'_>, accumulate: bool) -> Done {
        let count = dtable.array.len / shape.cols.max(1);
        let places = Places::new(count, shape.rows, |row| at.position(row));
        self.add_rows(shape.cols, places, dy.array, dtable.array, accumulate)
    }

    fn cross_entropy_max(&self, shape: LogitsShape, logits: R<'_>, maxima: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.cross_entropy_max(shape, logits.array, maxima.array)?)
    }

    fn cross_entropy_sums(&self, shape: LogitsShape, samples: &DeviceSamples, rows: Range<usize>, logits: R<'_>, maxima: R<'_>, sums: &mut W<'_>) -> Done {
        let targets = samples.tokens(1).part(rows);
        Ok(self.queue(0)?.cross_entropy_sums(shape, logits.array, maxima.array, targets, sums.array)?)
    }

    fn cross_entropy_gradient(&self, shape: LogitsShape, samples: &DeviceSamples, rows: Range<usize>, logits: &mut W<'_>, maxima: R<'_>, sums: R<'_>, scale: f64, cap: Option<f64>) -> Done {
        let targets = samples.tokens(1).part(rows.clone());
        self.queue(0)?.cross_entropy_gradient(shape, logits.array, maxima.array, sums.array, targets, scale, cap)?;
        self.cross_entropy_loss(samples, rows, sums)
    }

    fn cross_entropy_loss(&self, samples: &DeviceSamples, rows: Range<usize>, sums: R<'_>) -> Done {
        let (targets, [loss, counted]) = (samples.tokens(1).part(rows), self.totals.loss());
        Ok(self.queue(loss_scratch(targets.len))?.cross_entropy_loss(sums.array, targets, loss, counted)?)
    }

    fn squared_error(&self, samples: &DeviceSamples, numbers: Range<usize>, predictions: &mut W<'_>, scale: f64) -> Done {
        self.squared_error_loss(samples, numbers.clone(), DeviceView::of(predictions.array))?;
        Ok(self.queue(0)?.squared_error(predictions.array, samples.patches(1).part(numbers), scale)?)
    }

    fn squared_error_loss(&self, samples: &DeviceSamples, numbers: Range<usize>, predictions: R<'_>) -> Done {
        let (targets, [loss, _]) = (samples.patches(1).part(numbers), self.totals.loss());
        self.totals.count(predictions.elements() as u64, 0);
        Ok(self.queue(sum_scratch(targets.len))?.squared_error_loss(predictions.array, targets, loss)?)
    }

    fn norm_row_sums(&self, shape: Shape, x: R<'_>, sums: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.norm_row_sums(shape, x.array, sums.array)?)
    }

    fn norm_centered_squares(&self, shape: NormShape, x: R<'_>, sums: R<'_>, squares: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.norm_centered_squares(shape, x.array, sums.array, squares.array)?)
    }

    fn rms_norm_squares(&self, shape: Shape, x: R<'_>, squares: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.rms_norm_squares(shape, x.array, squares.array)?)
    }

    fn norm_forward(&self, shape: NormShape, x: R<'_>, of: Statistics<R<'_>>, by: Gamma<R<'_>>, beta: Option<R<'_>>, y: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.norm_forward(shape, x.array, statistics(of), gamma(by), read(beta), y.array)?)
    }

    fn norm_backward_sums(&self, shape: NormShape, x: R<'_>, of: Statistics<R<'_>>, by: Gamma<R<'_>>, dy: R<'_>, out: &mut W<'_>, dgamma: &mut W<'_>, dbeta: Option<&mut W<'_>>, accumulate: bool) -> Done {
        let queue = self.queue(column_scratch(2 * shape.cols, x.array.element))?;
        let (of, by, dbeta) = (statistics(of), gamma(by), written(dbeta));
        Ok(queue.norm_backward_sums(shape, x.array, of, by, dy.array, out.array, dgamma.array, dbeta, accumulate)?)
    }

    fn norm_backward(&self, shape: NormShape, x: R<'_>, of: Statistics<R<'_>>, by: Gamma<R<'_>>, dy: R<'_>, reduced: R<'_>, dx: &mut W<'_>, accumulate: bool) -> Done {
        let (of, by) = (statistics(of), gamma(by));
        Ok(self.queue(0)?.norm_backward(shape, x.array, of, by, dy.array, reduced.array, dx.array, accumulate)?)
    }

    fn whole_norm(&self, shape: NormShape, x: R<'_>, sums: Option<&mut W<'_>>, squares: &mut W<'_>, by: Gamma<R<'_>>, beta: Option<R<'_>>, y: &mut W<'_>) -> Done {
        let of = crate::ops::Statistics { sums: written(sums), squares: squares.array };
        Ok(self.queue(0)?.whole_norm(shape, x.array, of, gamma(by), read(beta), y.array)?)
    }

    fn whole_norm_backward(&self, shape: NormShape, x: R<'_>, of: Statistics<R<'_>>, by: Gamma<R<'_>>, dy: R<'_>, out: &mut W<'_>, dgamma: &mut W<'_>, dbeta: Option<&mut W<'_>>, dx: &mut W<'_>, add: [bool; 2]) -> Done {
        let queue = self.queue(column_scratch(2 * shape.cols, x.array.element))?;
        let (of, by, dbeta) = (statistics(of), gamma(by), written(dbeta));
        Ok(queue.whole_norm_backward(shape, x.array, of, by, dy.array, out.array, dgamma.array, dbeta, dx.array, add)?)
    }

    fn head_norm_forward(&self, norm: HeadNorm, by: Gamma<R<'_>>, beta: Option<R<'_>>, x: &mut W<'_>) -> Swept {
        self.queue(0)?.head_norm_forward(norm, gamma(by), read(beta), x.array)?;
        Ok(norm.elements(x.array.len / norm.cols().max(1)))
    }

    fn head_norm_backward(&self, norm: HeadNorm, x: R<'_>, by: Gamma<R<'_>>, dy: &mut W<'_>, dgamma: &mut W<'_>, dbeta: Option<&mut W<'_>>, accumulate: bool) -> Swept {
        let rows = x.elements() / norm.cols().max(1);
        let queue = self.queue(head_norm_scratch(norm, rows, x.array.element))?;
        queue.head_norm_backward(norm, x.array, gamma(by), dy.array, dgamma.array, written(dbeta), accumulate)?;
        Ok(norm.elements(rows))
    }

    fn bias_forward(&self, shape: Shape, x: &mut W<'_>, bias: R<'_>) -> Done {
        Ok(self.queue(0)?.bias_forward(shape, x.array, bias.array)?)
    }

    fn bias_backward(&self, shape: Shape, dy: R<'_>, dbias: &mut W<'_>, accumulate: bool) -> Done {
        let queue = self.queue(column_scratch(shape.cols, dy.array.element))?;
        Ok(queue.bias_backward(shape, dy.array, dbias.array, accumulate)?)
    }

    fn bias_curve_forward(&self, curve: Curve, shape: Shape, pre: &mut W<'_>, bias: Option<R<'_>>, y: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.bias_curve_forward(curve, shape, pre.array, read(bias), y.array)?)
    }

    fn bias_gated_forward(&self, curve: Curve, shape: Shape, pre: &mut W<'_>, bias: Option<R<'_>>, y: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.bias_gated_forward(curve, shape, pre.array, read(bias), y.array)?)
    }

    fn activate_curve(&self, curve: Curve, pre: R<'_>, y: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.activate_curve(curve, pre.array, y.array)?)
    }

    fn activate_gated(&self, curve: Curve, pre: R<'_>, y: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.activate_gated(curve, pre.array, y.array)?)
    }

    fn bias_curve_backward(&self, curve: Curve, shape: Shape, pre: R<'_>, dy: &mut W<'_>, dbias: Option<&mut W<'_>>, accumulate: bool) -> Done {
        let queue = self.queue(column_scratch(shape.cols, pre.array.element))?;
        Ok(queue.bias_curve_backward(curve, shape, pre.array, dy.array, written(dbias), accumulate)?)
    }

    fn bias_gated_backward(&self, curve: Curve, shape: Shape, pre: &mut W<'_>, dy: R<'_>, dbias: Option<&mut W<'_>>, accumulate: bool) -> Done {
        let queue = self.queue(column_scratch(2 * shape.cols, dy.array.element))?;
        Ok(queue.bias_gated_backward(curve, shape, pre.array, dy.array, written(dbias), accumulate)?)
    }

    fn dropout(&self, shape: Shape, x: &mut W<'_>, mask: &ElementMask) -> Done {
        Ok(self.queue(0)?.dropout(shape, x.array, &element_mask(mask))?)
    }

    fn residual_forward(&self, shape: Shape, x: &mut W<'_>, bias: Option<R<'_>>, residual: R<'_>, mask: Option<&ElementMask>) -> Done {
        let mask = mask.map(element_mask);
        Ok(self.queue(0)?.residual_forward(shape, x.array, read(bias), residual.array, mask.as_ref())?)
    }

    fn angles(&self, head_dim: usize, frequencies: &[f64], positions: impl Iterator<Item = usize>) -> Result<DeviceAngles, EngineError> {
        let rotary = Rotary::<S::Real>::new(head_dim, frequencies, positions);
        let len = rotary.table().len();
        let memory = self.lanes.take(size_of_val(rotary.table()))?;
        self.up(rotary.table(), memory.array(S::Real::ELEMENT).part(0..len))?;
        Ok(DeviceAngles { memory, pairs: frequencies.len(), len })
    }

    fn join_latent(&self, shape: LatentShape, queries: R<'_>, pairs: R<'_>, shared: R<'_>, qkv: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.join_latent(shape, queries.array, pairs.array, shared.array, qkv.array)?)
    }

    fn split_latent(&self, shape: LatentShape, dqkv: R<'_>, dqueries: &mut W<'_>, dpairs: &mut W<'_>, dshared: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.split_latent(shape, dqkv.array, dqueries.array, dpairs.array, dshared.array)?)
    }

    fn rotate(&self, shape: GroupShape, angles: &DeviceAngles, at: Positions<'_>, x: &mut W<'_>, back: bool) -> Swept {
        let (table, at) = (angles.memory.array(S::Real::ELEMENT).part(0..angles.len), self.placed(at)?);
        self.queue(0)?.rotate(shape, angles.pairs, table, at, x.array, back)?;
        Ok(shape.rows * shape.groups * (shape.heads + 1) * shape.head_dim)
    }

    fn attention_forward(&self, shape: AttentionShape, qkv: R<'_>, keys_values: Option<R<'_>>, out: &mut W<'_>, log_sum_exp: &mut W<'_>, mask: Option<&AttentionMask>) -> Done {
        let mask = mask.map(attention_mask);
        Ok(self.queue(0)?.attention_forward(shape, qkv.array, read(keys_values), out.array, log_sum_exp.array, mask.as_ref())?)
    }

    fn attention_backward(&self, shape: AttentionShape, qkv: R<'_>, keys_values: Option<(R<'_>, &mut W<'_>)>, out: R<'_>, log_sum_exp: R<'_>, dout: R<'_>, dqkv: &mut W<'_>, mask: Option<&AttentionMask>) -> Done {
        let (mask, (keys_values, dkv)) = (mask.map(attention_mask), keys_values.unzip());
        let (qkv, keys_values, out, log_sum_exp, dout) = (qkv.array, read(keys_values), out.array, log_sum_exp.array, dout.array);
        let queue = self.queue(attention_scratch(shape, qkv.element))?;
        Ok(queue.attention_backward(shape, Saved { qkv, keys_values, out, log_sum_exp, dout }, dqkv.array, written(dkv), mask.as_ref())?)
    }

    fn split_heads(&self, shape: GroupShape, qkv: R<'_>, queries: &mut W<'_>, keys: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.split_heads(shape, qkv.array, queries.array, keys.array)?)
    }

    fn join_heads(&self, shape: GroupShape, queries: R<'_>, keys: R<'_>, beside: Option<R<'_>>, qkv: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.join_heads(shape, queries.array, keys.array, read(beside), qkv.array)?)
    }

    fn pack_keys_values(&self, shape: GroupShape, qkv: R<'_>, kv: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.pack_keys_values(shape, qkv.array, kv.array)?)
    }

    fn unpack_keys_values(&self, shape: GroupShape, kv: R<'_>, qkv: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.unpack_keys_values(shape, kv.array, qkv.array)?)
    }

    fn store_keys_values(&self, shape: CacheShape, starts: &[usize], qkv: R<'_>, cache: &mut W<'_>) -> Done {
        let starts = self.uploads.put_numbers(starts.iter().copied())?;
        Ok(self.queue(0)?.store_keys_values(shape, starts, qkv.array, cache.array)?)
    }

    fn cached_attention(&self, shape: CacheShape, starts: &[usize], qkv: R<'_>, cache: R<'_>, out: &mut W<'_>) -> Done {
        let first = starts.iter().all(|start| *start == 0);
        let starts = self.uploads.put_numbers(starts.iter().copied())?;
        let queue = self.queue(cached_scratch(shape, qkv.array.element))?;
        Ok(queue.cached_attention(shape, starts, first, qkv.array, cache.array, out.array)?)
    }

    fn newest_rows(&self, cols: usize, tokens: usize, newest: &[usize], x: R<'_>, y: &mut W<'_>) -> Done {
        let newest = self.uploads.put_numbers(newest.iter().copied())?;
        Ok(self.queue(0)?.newest_rows(cols, tokens, newest, x.array, y.array)?)
    }

    fn router_forward(&self, shape: RouterShape, cols: usize, x: R<'_>, weight: R<'_>, logits: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.router_forward(shape, cols, x.array, weight.array, logits.array)?)
    }

    fn router_input_gradient(&self, shape: RouterShape, cols: usize, dlogits: R<'_>, weight: R<'_>, dx: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.router_input_gradient(shape, cols, dlogits.array, weight.array, dx.array)?)
    }

    fn router_weight_gradient(&self, shape: RouterShape, cols: usize, x: R<'_>, dlogits: R<'_>, dweight: &mut W<'_>, accumulate: bool) -> Done {
        Ok(self.queue(0)?.router_weight_gradient(shape, cols, x.array, dlogits.array, dweight.array, accumulate)?)
    }

    fn route(&self, shape: RouterShape, rule: RouterRule, groups: TokenGroups, logits: R<'_>, bias: Option<R<'_>>, routes: &mut W<'_>) -> Done {
        let queue = self.queue(route_scratch(shape, routes.array.element))?;
        Ok(queue.route(shape, rule, groups, logits.array, read(bias), routes.array)?)
    }

    fn count_choices(&self, shape: RouterShape, routes: R<'_>, scope: impl Fn(usize) -> usize, counts: &mut W<'_>, accumulate: bool) -> Done {
        let scopes = self.scopes(shape.rows, scope)?;
        Ok(self.queue(0)?.count_choices(shape, routes.array, scopes, counts.array, accumulate)?)
    }

    fn follow_loads(&self, rate: f64, choices: usize, experts: usize, loads: R<'_>, bias: &mut W<'_>) -> Done {
        let update = self.totals.update();
        Ok(self.queue(0)?.follow_loads(update, rate, choices, experts, loads.array, bias.array)?)
    }

    fn router_losses(&self, first: usize, shape: RouterShape, rule: RouterRule, losses: RouterLosses, logits: R<'_>, routes: R<'_>, counts: Option<R<'_>>, scope: impl Fn(usize) -> usize) -> Done {
        let counts = match counts {
            Some(counts) => Some((counts.array, self.scopes(shape.rows, scope)?)),
            None => None,
        };
        let loads = self.totals.loads_of(first, shape.experts)?;
        self.totals.count(0, (shape.rows * shape.per_token) as u64);
        let queue = self.queue(losses_scratch(shape))?;
        queue.router_losses(shape, rule, losses, logits.array, routes.array, counts, self.totals.routers())?;
        Ok(queue.add_loads(shape, routes.array, loads)?)
    }

    fn route_backward(&self, shape: RouterShape, rule: RouterRule, losses: RouterLosses, factor: f64, logits: &mut W<'_>, routes: R<'_>, counts: Option<R<'_>>, dweights: R<'_>, scope: impl Fn(usize) -> usize + Sync) -> Done {
        let counts = match counts {
            Some(counts) => Some((counts.array, self.scopes(shape.rows, scope)?)),
            None => None,
        };
        Ok(self.queue(0)?.route_backward(shape, rule, losses, factor, logits.array, routes.array, counts, dweights.array)?)
    }

    fn spread(&self, shape: SpreadShape<'_>, x: R<'_>, routes: R<'_>, y: &mut W<'_>) -> Done {
        let starts = self.starts(shape)?;
        Ok(self.queue(spread_scratch(Self::places(shape)))?.spread(shape, starts, x.array, routes.array, y.array)?)
    }

    fn spread_backward(&self, shape: SpreadShape<'_>, dy: R<'_>, routes: R<'_>, dx: &mut W<'_>) -> Done {
        let starts = self.starts(shape)?;
        Ok(self.queue(0)?.spread_backward(shape, starts, dy.array, routes.array, dx.array)?)
    }

    fn combine(&self, shape: SpreadShape<'_>, x: R<'_>, routes: R<'_>, y: &mut W<'_>) -> Done {
        let starts = self.starts(shape)?;
        Ok(self.queue(0)?.combine(shape, starts, x.array, routes.array, y.array)?)
    }

    fn combine_backward(&self, shape: SpreadShape<'_>, dy: R<'_>, x: R<'_>, routes: R<'_>, dx: &mut W<'_>, dweights: &mut W<'_>) -> Done {
        let starts = self.starts(shape)?;
        let queue = self.queue(spread_scratch(Self::places(shape)))?;
        Ok(queue.combine_backward(shape, starts, dy.array, x.array, routes.array, dx.array, dweights.array)?)
    }

    fn pack_columns(&self, shape: Shape, parts: usize, x: R<'_>, y: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.pack_columns(shape, parts, x.array, y.array)?)
    }

    fn unpack_columns(&self, shape: Shape, parts: usize, x: R<'_>, y: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.unpack_columns(shape, parts, x.array, y.array)?)
    }

    fn slice_columns(&self, shape: Shape, part: usize, parts: usize, x: R<'_>, y: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.slice_columns(shape, part, parts, x.array, y.array)?)
    }

    fn copy_panel_columns(&self, shape: PanelShape, x: R<'_>, y: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.copy_panel_columns(shape, x.array, y.array)?)
    }

    fn store_panel_columns(&self, shape: PanelShape, y: R<'_>, x: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.store_panel_columns(shape, y.array, x.array)?)
    }
}
