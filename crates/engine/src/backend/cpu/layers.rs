//! The processor's kernels of products, whole arrays, the model's ends, norms and perceptrons.

use std::ops::Range;

use quadrille_tensor as kernels;
use quadrille_tensor::{
    AdamW, Buffer, Curve, Element, GroupedShape, HeadNorm, LogitsShape, NormShape, PanelShape, ProductShape, Segments,
    Shape, TableShape, Transpose,
};

use super::Cpu;
use crate::backend::kinds::{of_either_kind, output_of_either_kind};
use crate::backend::memory::{Numbers, NumbersMut};
use crate::backend::norms::{centered, factors};
use crate::backend::totals::counted;
use crate::backend::{
    Done, ElementMask, Gamma, LayerKernels, Positions, Statistics, Swept, Totals, Update, View, ViewMut,
};
use crate::state::samples::OwnSamples;

for_each_element! {
#[rustfmt::skip]
impl LayerKernels for Cpu<S> {
    fn prepare_matmuls(&self, products: &[(ProductShape, Transpose)]) -> Done {
        let needed = products.iter().map(|(product, run_as)| kernels::matmul_as_scratch(*run_as, *product));
        *self.scratch.borrow_mut() = Buffer::new(needed.max().unwrap_or(0));
        Ok(())
    }

    fn matmul(&self, product: ProductShape, run_as: Transpose, a: Numbers<'_, S>, b: Numbers<'_, S>, c: &mut NumbersMut<'_, S>, accumulate: bool) -> Done {
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

    fn grouped_matmul(&self, shape: GroupedShape, segments: &Segments, a: Numbers<'_, S>, b: Numbers<'_, S>, c: &mut NumbersMut<'_, S>, accumulate: bool) -> Done {
        let pool = &self.pool;
        let a = a.stored();
        let b = b.stored();
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

    fn adamw(&self, constants: &AdamW, p: &mut NumbersMut<'_, S>, master: Option<&mut NumbersMut<'_, S>>, g: Numbers<'_, S>, m: &mut NumbersMut<'_, S>, v: &mut NumbersMut<'_, S>) -> Done {
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

    fn embed_forward(&self, shape: TableShape, samples: &OwnSamples, rows: Range<usize>, table: Numbers<'_, S>, y: &mut NumbersMut<'_, S>) -> Done {
        kernels::embed_forward(&self.pool, shape, &samples.tokens[0][rows], table.stored(), y.stored());
        Ok(())
    }

    fn embed_backward(&self, shape: TableShape, samples: &OwnSamples, rows: Range<usize>, dy: Numbers<'_, S>, dtable: &mut NumbersMut<'_, S>, accumulate: bool) -> Done {
        let tokens = &samples.tokens[0][rows];
        let dy = dy.stored();
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
        let dy = dy.stored();
        let at = |row| at.position(row);
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
        let targets = &samples.tokens[1][rows];
        let scale = Self::Real::from_f64(scale);
        let cap = cap.map(Self::Real::from_f64);
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
        let targets = &samples.patches[1][numbers];
        let count = predictions.elements() as u64;
        self.add(kernels::squared_error(&self.pool, predictions.stored(), targets, Self::Real::from_f64(scale)), count);
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
        let pool = &self.pool;
        let squares = statistics.squares.real();
        factors(gamma, |gamma| match centered(statistics, beta) {
            Some((sums, beta)) => kernels::norm_forward(pool, shape, x.stored(), sums, squares, gamma, beta.real(), y.stored()),
            None => kernels::rms_norm_forward(pool, shape, x.stored(), squares, gamma, y.stored()),
        });
        Ok(())
    }

    fn norm_backward_sums(&self, shape: NormShape, x: Numbers<'_, S>, statistics: Statistics<Numbers<'_, S>>, gamma: Gamma<Numbers<'_, S>>, dy: Numbers<'_, S>, out: &mut NumbersMut<'_, S>, dgamma: &mut NumbersMut<'_, S>, dbeta: Option<&mut NumbersMut<'_, S>>, accumulate: bool) -> Done {
        let pool = &self.pool;
        let squares = statistics.squares.real();
        factors(gamma, |gamma| match centered(statistics, dbeta) {
            Some((sums, dbeta)) => {
                kernels::norm_backward_sums(pool, shape, x.stored(), sums, squares, gamma, dy.stored(), out.real(), dgamma.real(), dbeta.real(), accumulate);
            }
            None => kernels::rms_norm_backward_sums(pool, shape, x.stored(), squares, gamma, dy.stored(), out.real(), dgamma.real(), accumulate),
        });
        Ok(())
    }

    fn norm_backward(&self, shape: NormShape, x: Numbers<'_, S>, statistics: Statistics<Numbers<'_, S>>, gamma: Gamma<Numbers<'_, S>>, dy: Numbers<'_, S>, reduced: Numbers<'_, S>, dx: &mut NumbersMut<'_, S>, accumulate: bool) -> Done {
        let pool = &self.pool;
        let squares = statistics.squares.real();
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
        let scale = Self::Real::from_f64(mask.dropout.scale);
        kernels::dropout(&self.pool, shape, x.stored(), scale, |row, col| mask.keeps(row, col));
        Ok(())
    }

    fn residual_forward(&self, shape: Shape, x: &mut NumbersMut<'_, S>, bias: Option<Numbers<'_, S>>, residual: Numbers<'_, S>, mask: Option<&ElementMask>) -> Done {
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
