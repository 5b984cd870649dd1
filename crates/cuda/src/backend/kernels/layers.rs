//! A device's kernels of products, whole arrays, perceptrons and columns.

use std::ops::Range;

use quadrille_engine::{Algorithms, ElementMask, EngineError, LayerKernels, Values};
use quadrille_spec::ElementType;
use quadrille_step::Product;
use quadrille_tensor::{AdamW, Curve, GroupedShape, PanelShape, ProductShape, Segments, Shape, Transpose};

use super::{Done, R, W};
use crate::array::Number;
use crate::backend::convert::{element_mask, read, written};
use crate::backend::{Cuda, DeviceIndices};
use crate::ops::column_scratch;

impl<S: Values + Number> LayerKernels for Cuda<S>
where
    S::Real: Number,
{
    type Fused = Self;

    fn fused(&self) -> Option<&Self> {
        Some(self)
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

    fn matmul(
        &self,
        product: ProductShape,
        _run_as: Transpose,
        a: R<'_>,
        b: R<'_>,
        c: &mut W<'_>,
        accumulate: bool,
    ) -> Done {
        self.product(product, a.array, b.array, c.array, accumulate)
    }

    fn grouped_matmul(
        &self,
        shape: GroupedShape,
        segments: &Segments,
        a: R<'_>,
        b: R<'_>,
        c: &mut W<'_>,
        accumulate: bool,
    ) -> Done {
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

    fn adamw(
        &self,
        constants: &AdamW,
        p: &mut W<'_>,
        master: Option<&mut W<'_>>,
        g: R<'_>,
        m: &mut W<'_>,
        v: &mut W<'_>,
    ) -> Done {
        let update = self.totals.update();
        let master = written(master);
        Ok(self.queue(0)?.adamw(constants, update, p.array, master, g.array, m.array, v.array)?)
    }

    fn bias_forward(&self, shape: Shape, x: &mut W<'_>, bias: R<'_>) -> Done {
        Ok(self.queue(0)?.bias_forward(shape, x.array, bias.array)?)
    }

    fn bias_backward(&self, shape: Shape, dy: R<'_>, dbias: &mut W<'_>, accumulate: bool) -> Done {
        let queue = self.queue(column_scratch(shape.cols, dy.array.element))?;
        Ok(queue.bias_backward(shape, dy.array, dbias.array, accumulate)?)
    }

    fn bias_curve_forward(
        &self,
        curve: Curve,
        shape: Shape,
        pre: &mut W<'_>,
        bias: Option<R<'_>>,
        y: &mut W<'_>,
    ) -> Done {
        Ok(self.queue(0)?.bias_curve_forward(curve, shape, pre.array, read(bias), y.array)?)
    }

    fn bias_gated_forward(
        &self,
        curve: Curve,
        shape: Shape,
        pre: &mut W<'_>,
        bias: Option<R<'_>>,
        y: &mut W<'_>,
    ) -> Done {
        Ok(self.queue(0)?.bias_gated_forward(curve, shape, pre.array, read(bias), y.array)?)
    }

    fn activate_curve(&self, curve: Curve, pre: R<'_>, y: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.activate_curve(curve, pre.array, y.array)?)
    }

    fn activate_gated(&self, curve: Curve, pre: R<'_>, y: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.activate_gated(curve, pre.array, y.array)?)
    }

    fn bias_curve_backward(
        &self,
        curve: Curve,
        shape: Shape,
        pre: R<'_>,
        dy: &mut W<'_>,
        dbias: Option<&mut W<'_>>,
        accumulate: bool,
    ) -> Done {
        let queue = self.queue(column_scratch(shape.cols, pre.array.element))?;
        Ok(queue.bias_curve_backward(curve, shape, pre.array, dy.array, written(dbias), accumulate)?)
    }

    fn bias_gated_backward(
        &self,
        curve: Curve,
        shape: Shape,
        pre: &mut W<'_>,
        dy: R<'_>,
        dbias: Option<&mut W<'_>>,
        accumulate: bool,
    ) -> Done {
        let queue = self.queue(column_scratch(2 * shape.cols, dy.array.element))?;
        Ok(queue.bias_gated_backward(curve, shape, pre.array, dy.array, written(dbias), accumulate)?)
    }

    fn dropout(&self, shape: Shape, x: &mut W<'_>, mask: &ElementMask) -> Done {
        Ok(self.queue(0)?.dropout(shape, x.array, &element_mask(mask))?)
    }

    fn residual_forward(
        &self,
        shape: Shape,
        x: &mut W<'_>,
        bias: Option<R<'_>>,
        residual: R<'_>,
        mask: Option<&ElementMask>,
    ) -> Done {
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
