//! A device's kernels of samples, embeddings and losses.

use std::ops::Range;

use quadrille_engine::{EndKernels, Positions, Values, View};
use quadrille_tensor::{LogitsShape, Shape, TableShape};

use super::{Done, R, W};
use crate::array::Number;
use crate::backend::{Cuda, DeviceSamples, DeviceView};
use crate::ops::{Places, loss_scratch, sum_scratch};

impl<S: Values + Number> EndKernels for Cuda<S>
where
    S::Real: Number,
{
    fn embed_forward(
        &self,
        shape: TableShape,
        samples: &DeviceSamples,
        rows: Range<usize>,
        table: R<'_>,
        y: &mut W<'_>,
    ) -> Done {
        Ok(self.queue(0)?.embed_forward(shape, samples.tokens(0).part(rows), table.array, y.array)?)
    }

    fn embed_backward(
        &self,
        shape: TableShape,
        samples: &DeviceSamples,
        rows: Range<usize>,
        dy: R<'_>,
        dtable: &mut W<'_>,
        accumulate: bool,
    ) -> Done {
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

    fn positions_backward(
        &self,
        shape: Shape,
        dy: R<'_>,
        dtable: &mut W<'_>,
        at: Positions<'_>,
        accumulate: bool,
    ) -> Done {
        let count = dtable.array.len / shape.cols.max(1);
        let places = Places::new(count, shape.rows, |row| at.position(row));
        self.add_rows(shape.cols, places, dy.array, dtable.array, accumulate)
    }

    fn cross_entropy_max(&self, shape: LogitsShape, logits: R<'_>, maxima: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.cross_entropy_max(shape, logits.array, maxima.array)?)
    }

    fn cross_entropy_sums(
        &self,
        shape: LogitsShape,
        samples: &DeviceSamples,
        rows: Range<usize>,
        logits: R<'_>,
        maxima: R<'_>,
        sums: &mut W<'_>,
    ) -> Done {
        let targets = samples.tokens(1).part(rows);
        Ok(self.queue(0)?.cross_entropy_sums(shape, logits.array, maxima.array, targets, sums.array)?)
    }

    fn cross_entropy_gradient(
        &self,
        shape: LogitsShape,
        samples: &DeviceSamples,
        rows: Range<usize>,
        logits: &mut W<'_>,
        maxima: R<'_>,
        sums: R<'_>,
        scale: f64,
        cap: Option<f64>,
    ) -> Done {
        let targets = samples.tokens(1).part(rows.clone());
        self.queue(0)?.cross_entropy_gradient(shape, logits.array, maxima.array, sums.array, targets, scale, cap)?;
        self.cross_entropy_loss(samples, rows, sums)
    }

    fn cross_entropy_loss(&self, samples: &DeviceSamples, rows: Range<usize>, sums: R<'_>) -> Done {
        let targets = samples.tokens(1).part(rows);
        let [loss, counted] = self.totals.loss();
        Ok(self.queue(loss_scratch(targets.len))?.cross_entropy_loss(sums.array, targets, loss, counted)?)
    }

    fn squared_error(
        &self,
        samples: &DeviceSamples,
        numbers: Range<usize>,
        predictions: &mut W<'_>,
        scale: f64,
    ) -> Done {
        self.squared_error_loss(samples, numbers.clone(), DeviceView::of(predictions.array))?;
        Ok(self.queue(0)?.squared_error(predictions.array, samples.patches(1).part(numbers), scale)?)
    }

    fn squared_error_loss(&self, samples: &DeviceSamples, numbers: Range<usize>, predictions: R<'_>) -> Done {
        let targets = samples.patches(1).part(numbers);
        let [loss, _] = self.totals.loss();
        self.totals.count(predictions.elements() as u64);
        Ok(self.queue(sum_scratch(targets.len))?.squared_error_loss(predictions.array, targets, loss)?)
    }
}
