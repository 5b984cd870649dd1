//! A device's kernels of products, whole arrays, the model's ends, norms and perceptrons.

use std::ops::Range;

use quadrille_engine::{
    Algorithms, ElementMask, EngineError, Gamma, LayerKernels, ParameterUpdate, Positions, Statistics, Values, View,
};
use quadrille_spec::ElementType;
use quadrille_step::Product;
use quadrille_tensor::{
    AdamW, Curve, GroupedShape, HeadNorm, LogitsShape, NormShape, PanelShape, ProductShape, Segments, Shape,
    TableShape, Transpose,
};

use super::{Done, R, Swept, W};
use crate::array::Number;
use crate::backend::convert::{element_mask, gamma, read, statistics, update, written};
use crate::backend::{Cuda, DeviceIndices, DeviceSamples, DeviceView};
use crate::ops::{Places, column_scratch, head_norm_scratch, loss_scratch, sum_scratch, update_table};

#[rustfmt::skip]
impl<S: Values + Number> LayerKernels for Cuda<S>
where
    S::Real: Number,
{
    const FUSES: bool = true;

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
        let update = self.totals.update();
        let master = written(master);
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
        let tokens = &samples.host.tokens[0][rows.clone()];
        let count = dtable.array.len / shape.cols.max(1);
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
        let targets = samples.tokens(1).part(rows);
        let [loss, counted] = self.totals.loss();
        Ok(self.queue(loss_scratch(targets.len))?.cross_entropy_loss(sums.array, targets, loss, counted)?)
    }

    fn squared_error(&self, samples: &DeviceSamples, numbers: Range<usize>, predictions: &mut W<'_>, scale: f64) -> Done {
        self.squared_error_loss(samples, numbers.clone(), DeviceView::of(predictions.array))?;
        Ok(self.queue(0)?.squared_error(predictions.array, samples.patches(1).part(numbers), scale)?)
    }

    fn squared_error_loss(&self, samples: &DeviceSamples, numbers: Range<usize>, predictions: R<'_>) -> Done {
        let targets = samples.patches(1).part(numbers);
        let [loss, _] = self.totals.loss();
        self.totals.count(predictions.elements() as u64);
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
        let of = statistics(of);
        let by = gamma(by);
        let dbeta = written(dbeta);
        Ok(queue.norm_backward_sums(shape, x.array, of, by, dy.array, out.array, dgamma.array, dbeta, accumulate)?)
    }

    fn norm_backward(&self, shape: NormShape, x: R<'_>, of: Statistics<R<'_>>, by: Gamma<R<'_>>, dy: R<'_>, reduced: R<'_>, dx: &mut W<'_>, accumulate: bool) -> Done {
        let of = statistics(of);
        let by = gamma(by);
        Ok(self.queue(0)?.norm_backward(shape, x.array, of, by, dy.array, reduced.array, dx.array, accumulate)?)
    }

    fn whole_norm(&self, shape: NormShape, x: R<'_>, sums: Option<&mut W<'_>>, squares: &mut W<'_>, by: Gamma<R<'_>>, beta: Option<R<'_>>, y: &mut W<'_>) -> Done {
        let of = crate::ops::Statistics { sums: written(sums), squares: squares.array };
        Ok(self.queue(0)?.whole_norm(shape, x.array, of, gamma(by), read(beta), y.array)?)
    }

    fn whole_norm_backward(&self, shape: NormShape, x: R<'_>, of: Statistics<R<'_>>, by: Gamma<R<'_>>, dy: R<'_>, out: &mut W<'_>, dgamma: &mut W<'_>, dbeta: Option<&mut W<'_>>, dx: &mut W<'_>, add: [bool; 2]) -> Done {
        let queue = self.queue(column_scratch(2 * shape.cols, x.array.element))?;
        let of = statistics(of);
        let by = gamma(by);
        let dbeta = written(dbeta);
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
