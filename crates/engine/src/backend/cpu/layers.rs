//! The processor's kernels of products, whole arrays, perceptrons and columns.

use std::ops::Range;

use quadrille_tensor as kernels;
use quadrille_tensor::{
    AdamW, Buffer, Curve, Element, GroupedShape, PanelShape, ProductShape, Segments, Shape, Transpose,
};

use super::Cpu;
use crate::backend::kinds::{of_either_kind, output_of_either_kind};
use crate::backend::memory::{Numbers, NumbersMut};
use crate::backend::{Done, ElementMask, LayerKernels, NoFusedKernels, Totals, Update, View};

for_each_element! {
impl LayerKernels for Cpu<S> {
    type Fused = NoFusedKernels;

    fn fused(&self) -> Option<&NoFusedKernels> {
        None
    }

    fn prepare_matmuls(&self, products: &[(ProductShape, Transpose)]) -> Done {
        let needed = products.iter().map(|(product, run_as)| kernels::matmul_as_scratch(*run_as, *product));
        *self.scratch.borrow_mut() = Buffer::new(needed.max().unwrap_or(0));
        Ok(())
    }

    fn matmul(
        &self,
        product: ProductShape,
        run_as: Transpose,
        a: Numbers<'_, S>,
        b: Numbers<'_, S>,
        c: &mut NumbersMut<'_, S>,
        accumulate: bool,
    ) -> Done {
        let pool = &self.pool;
        let a = a.stored();
        let b = b.stored();
        output_of_either_kind!(c => if run_as == product.stored {
            kernels::matmul(pool, product, a, b, c, accumulate);
        } else {
            kernels::matmul_as(pool, run_as, product, a, b, c, accumulate, &mut self.scratch.borrow_mut());
        });
        Ok(())
    }

    fn grouped_matmul(
        &self,
        shape: GroupedShape,
        segments: &Segments,
        a: Numbers<'_, S>,
        b: Numbers<'_, S>,
        c: &mut NumbersMut<'_, S>,
        accumulate: bool,
    ) -> Done {
        let pool = &self.pool;
        let a = a.stored();
        let b = b.stored();
        output_of_either_kind!(c => kernels::grouped_matmul(pool, shape, segments, a, b, c, accumulate));
        Ok(())
    }

    fn matmul_few_rows(
        &self,
        product: ProductShape,
        a: Numbers<'_, S>,
        b: Numbers<'_, S>,
        c: &mut NumbersMut<'_, S>,
    ) -> Done {
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

    fn compress(
        &self,
        y: &mut NumbersMut<'_, S>,
        x: Numbers<'_, S>,
        indices: &Vec<u32>,
        from: usize,
        accumulate: bool,
    ) -> Done {
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
        kernels::scale(&self.pool, x.stored(), Self::Real::from_f64(factor));
        Ok(())
    }

    fn cap(&self, x: &mut NumbersMut<'_, S>, cap: f64) -> Done {
        kernels::cap(&self.pool, x.stored(), Self::Real::from_f64(cap));
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

    fn adamw(
        &self,
        constants: &AdamW,
        p: &mut NumbersMut<'_, S>,
        master: Option<&mut NumbersMut<'_, S>>,
        g: Numbers<'_, S>,
        m: &mut NumbersMut<'_, S>,
        v: &mut NumbersMut<'_, S>,
    ) -> Done {
        let Update { applied, gradient_scale } = self.update.get();
        let pool = &self.pool;
        let m = m.real();
        let v = v.real();
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

    fn bias_forward(&self, shape: Shape, x: &mut NumbersMut<'_, S>, bias: Numbers<'_, S>) -> Done {
        kernels::bias_forward(&self.pool, shape, x.stored(), bias.real());
        Ok(())
    }

    fn bias_backward(&self, shape: Shape, dy: Numbers<'_, S>, dbias: &mut NumbersMut<'_, S>, accumulate: bool) -> Done {
        kernels::bias_backward(&self.pool, shape, dy.stored(), dbias.real(), accumulate);
        Ok(())
    }

    fn bias_curve_forward(
        &self,
        curve: Curve,
        shape: Shape,
        pre: &mut NumbersMut<'_, S>,
        bias: Option<Numbers<'_, S>>,
        y: &mut NumbersMut<'_, S>,
    ) -> Done {
        kernels::bias_curve_forward(&self.pool, curve, shape, pre.stored(), bias.map(Numbers::real), y.stored());
        Ok(())
    }

    fn bias_gated_forward(
        &self,
        curve: Curve,
        shape: Shape,
        pre: &mut NumbersMut<'_, S>,
        bias: Option<Numbers<'_, S>>,
        y: &mut NumbersMut<'_, S>,
    ) -> Done {
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

    fn bias_curve_backward(
        &self,
        curve: Curve,
        shape: Shape,
        pre: Numbers<'_, S>,
        dy: &mut NumbersMut<'_, S>,
        dbias: Option<&mut NumbersMut<'_, S>>,
        accumulate: bool,
    ) -> Done {
        let dbias = dbias.map(NumbersMut::real);
        kernels::bias_curve_backward(&self.pool, curve, shape, pre.stored(), dy.stored(), dbias, accumulate);
        Ok(())
    }

    fn bias_gated_backward(
        &self,
        curve: Curve,
        shape: Shape,
        pre: &mut NumbersMut<'_, S>,
        dy: Numbers<'_, S>,
        dbias: Option<&mut NumbersMut<'_, S>>,
        accumulate: bool,
    ) -> Done {
        let dbias = dbias.map(NumbersMut::real);
        kernels::bias_gated_backward(&self.pool, curve, shape, pre.stored(), dy.stored(), dbias, accumulate);
        Ok(())
    }

    fn dropout(&self, shape: Shape, x: &mut NumbersMut<'_, S>, mask: &ElementMask) -> Done {
        let scale = Self::Real::from_f64(mask.dropout.scale);
        kernels::dropout(&self.pool, shape, x.stored(), scale, |row, col| mask.keeps(row, col));
        Ok(())
    }

    fn residual_forward(
        &self,
        shape: Shape,
        x: &mut NumbersMut<'_, S>,
        bias: Option<Numbers<'_, S>>,
        residual: Numbers<'_, S>,
        mask: Option<&ElementMask>,
    ) -> Done {
        let keep = mask.map(|mask| (Self::Real::from_f64(mask.dropout.scale), |row, col| mask.keeps(row, col)));
        let dropout = keep.as_ref().map(|(scale, keep)| (*scale, keep as _));
        kernels::residual_forward(&self.pool, shape, x.stored(), bias.map(Numbers::real), residual.stored(), dropout);
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

    fn slice_columns(
        &self,
        shape: Shape,
        part: usize,
        parts: usize,
        x: Numbers<'_, S>,
        y: &mut NumbersMut<'_, S>,
    ) -> Done {
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
