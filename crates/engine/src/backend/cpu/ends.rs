//! The processor's kernels of samples, embeddings and losses.

use std::ops::Range;

use quadrille_tensor as kernels;
use quadrille_tensor::{Element, LogitsShape, Shape, TableShape};

use super::Cpu;
use crate::backend::kinds::output_of_either_kind;
use crate::backend::memory::{Numbers, NumbersMut};
use crate::backend::totals::counted;
use crate::backend::{Done, EndKernels, Positions, View, ViewMut};
use crate::state::samples::OwnSamples;

for_each_element! {
impl EndKernels for Cpu<S> {
    fn embed_forward(
        &self,
        shape: TableShape,
        samples: &OwnSamples,
        rows: Range<usize>,
        table: Numbers<'_, S>,
        y: &mut NumbersMut<'_, S>,
    ) -> Done {
        kernels::embed_forward(&self.pool, shape, &samples.tokens[0][rows], table.stored(), y.stored());
        Ok(())
    }

    fn embed_backward(
        &self,
        shape: TableShape,
        samples: &OwnSamples,
        rows: Range<usize>,
        dy: Numbers<'_, S>,
        dtable: &mut NumbersMut<'_, S>,
        accumulate: bool,
    ) -> Done {
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

    fn positions_backward(
        &self,
        shape: Shape,
        dy: Numbers<'_, S>,
        dtable: &mut NumbersMut<'_, S>,
        at: Positions<'_>,
        accumulate: bool,
    ) -> Done {
        let dy = dy.stored();
        let at = |row| at.position(row);
        output_of_either_kind!(dtable => kernels::positions_backward(&self.pool, shape, dy, dtable, at, accumulate));
        Ok(())
    }

    fn cross_entropy_max(&self, shape: LogitsShape, logits: Numbers<'_, S>, maxima: &mut NumbersMut<'_, S>) -> Done {
        kernels::cross_entropy_max(&self.pool, shape, logits.stored(), maxima.real());
        Ok(())
    }

    fn cross_entropy_sums(
        &self,
        shape: LogitsShape,
        samples: &OwnSamples,
        rows: Range<usize>,
        logits: Numbers<'_, S>,
        maxima: Numbers<'_, S>,
        sums: &mut NumbersMut<'_, S>,
    ) -> Done {
        kernels::cross_entropy_sums(
            &self.pool,
            shape,
            logits.stored(),
            maxima.real(),
            &samples.tokens[1][rows],
            sums.real(),
        );
        Ok(())
    }

    fn cross_entropy_gradient(
        &self,
        shape: LogitsShape,
        samples: &OwnSamples,
        rows: Range<usize>,
        logits: &mut NumbersMut<'_, S>,
        maxima: Numbers<'_, S>,
        sums: Numbers<'_, S>,
        scale: f64,
        cap: Option<f64>,
    ) -> Done {
        let targets = &samples.tokens[1][rows];
        let scale = Self::Real::from_f64(scale);
        let cap = cap.map(Self::Real::from_f64);
        let loss = kernels::cross_entropy_gradient(
            &self.pool,
            shape,
            logits.stored(),
            maxima.real(),
            sums.real(),
            targets,
            scale,
            cap,
        );
        self.add(loss, counted(targets));
        Ok(())
    }

    fn cross_entropy_loss(&self, samples: &OwnSamples, rows: Range<usize>, sums: Numbers<'_, S>) -> Done {
        let targets = &samples.tokens[1][rows];
        self.add(kernels::cross_entropy_loss(sums.real(), targets), counted(targets));
        Ok(())
    }

    fn squared_error(
        &self,
        samples: &OwnSamples,
        numbers: Range<usize>,
        predictions: &mut NumbersMut<'_, S>,
        scale: f64,
    ) -> Done {
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
}
}
