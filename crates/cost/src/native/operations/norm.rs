//! Norms: row statistics, reduced over the axis that cuts columns, and the row scaled by them.

use quadrille_spec::{CollectiveKind, Norm};

use super::pass::Pass;
use super::{Sink, Slot, Sweep, Values};

impl<S: Sink> Pass<'_, S> {
    /// Makes what `made` says of a norm's statistics and output.
    pub fn norm(&mut self, made: Values) {
        if made.statistics {
            self.statistics();
        }
        if made.normed {
            let (rows, cols, stream) = (self.s.stream_rows, self.s.stream_cols, self.s.stream());
            let vectors = self.s.norm.vectors() as u64;
            self.take(stream);
            self.sweep(Sweep::Norm, stream, 2 * stream + vectors * (rows + cols));
        }
    }

    /// Sums and centered squares of a layer norm; squares of an RMS norm.
    fn statistics(&mut self) {
        let (rows, stream, group) = (self.s.stream_rows, self.s.stream(), self.s.column_group);
        match self.s.norm {
            Norm::Layer => {
                self.take(rows);
                self.sweep(Sweep::RowSums, stream, self.unless_fused(stream + rows));
                self.reduce_in_place(group, rows);
                self.take(rows);
                self.sweep(Sweep::CenteredSquares, stream, self.unless_fused(stream + 2 * rows));
            }
            Norm::Rms => {
                self.take(rows);
                self.sweep(Sweep::RowSquares, stream, self.unless_fused(stream + rows));
            }
        }
        self.reduce_in_place(group, rows);
    }

    /// What a kernel of its own moves; nothing where rows lie on one rank and the kernel of the norm does it along.
    fn unless_fused(&self, moved: u64) -> u64 {
        let fused = self.s.framework.fused_norms && self.s.members(self.s.column_group) == 1;
        if fused { 0 } else { moved }
    }

    /// The norm's backward: it adds to the gradient of the residual stream, or `begins` it.
    pub fn norm_backward(&mut self, begins: bool) {
        let (rows, cols, stream) = (self.s.stream_rows, self.s.stream_cols, self.s.stream());
        let sums = self.s.norm.vectors() as u64;
        self.take(sums * rows);
        let moved = 2 * stream + 2 * sums * rows + (1 + sums) * cols;
        self.sweep(Sweep::NormBackwardSums, stream, self.unless_fused(moved));
        if self.s.members(self.s.column_group) > 1 {
            self.begin(Slot::Now, CollectiveKind::AllReduce, self.s.column_group, sums * rows);
            self.sink.wait(Slot::Now);
        }
        if begins {
            self.take(stream);
        }
        self.sweep(Sweep::NormBackward, stream, 3 * stream + 2 * sums * rows + cols);
        // Its row sums, the gradient of its output, the statistics and the input.
        self.give(2 * sums * rows + 2 * stream);
    }
}
