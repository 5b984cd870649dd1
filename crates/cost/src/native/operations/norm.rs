//! Norms: row statistics, reduced over the axis that cuts columns, and the row scaled by them.

use quadrille_spec::{CollectiveKind, Norm};

use super::pass::Pass;
use super::{Sink, Slot, Sweep, Values};

// Elements of 16 bits that the kernels of an eager norm move per element of the stream, from their definitions in f32:
// conversion 3, square 4, mean 2;
const EAGER_STATISTICS: u64 = 9;
/// scaling 4, conversion back 3, weight 2;
const EAGER_SCALING: u64 = 9;
/// backward: weight 2 and its gradient 3, conversion 3, scaling 4, the statistics' product 6 and sum 2,
const EAGER_SUMS: u64 = 20;
/// the mean's gradient 2, the square's 6, their sum 6, conversion back 3, the addition to the stream 3.
const EAGER_BACKWARD: u64 = 20;

// Elements of 16 bits that an eager norm keeps for its backward pass beside its output: input and quotient in f32, the
// quotient again.
const EAGER_KEPT: u64 = 5;

impl<S: Sink> Pass<'_, S> {
    /// Elements that a norm keeps beside statistics, input and output.
    pub fn norm_copies(&self) -> u64 {
        if self.s.framework.eager.norms { EAGER_KEPT * self.s.stream() } else { 0 }
    }

    /// Makes what `made` says of a norm's statistics and output.
    pub fn norm(&mut self, made: Values) {
        if made.statistics {
            self.statistics();
        }
        if made.normed {
            let (rows, cols, stream) = (self.s.stream_rows, self.s.stream_cols, self.s.stream());
            let vectors = self.s.norm.vectors() as u64;
            self.take(stream);
            let moved = if self.s.framework.eager.norms { EAGER_SCALING } else { 2 } * stream;
            self.sweep(Sweep::Norm, stream, moved + vectors * (rows + cols));
        }
    }

    /// Sums and centered squares of a layer norm; squares of an RMS norm.
    fn statistics(&mut self) {
        let (rows, stream, group) = (self.s.stream_rows, self.s.stream(), self.s.column_group);
        self.take(self.norm_copies());
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
                let moved = if self.s.framework.eager.norms { EAGER_STATISTICS } else { 1 } * stream;
                self.sweep(Sweep::RowSquares, stream, self.unless_fused(moved + rows));
            }
        }
        self.reduce_in_place(group, rows);
    }

    /// What a kernel of its own moves; nothing where rows lie on one rank and the kernel of the norm does it along.
    fn unless_fused(&self, moved: u64) -> u64 {
        let fused = self.s.framework.fused_norms && self.s.members(self.s.column_group) == 1;
        if fused { 0 } else { moved }
    }

    /// The norm's backward: it adds to the gradient of the residual stream, or `begins` it. `kept`: the forward pass has
    /// kept its input and statistics.
    pub fn norm_backward(&mut self, begins: bool, kept: bool) {
        let (rows, cols, stream) = (self.s.stream_rows, self.s.stream_cols, self.s.stream());
        let sums = self.s.norm.vectors() as u64;
        self.take(sums * rows);
        let eager = self.s.framework.eager.norms;
        let moved = if eager { EAGER_SUMS } else { 2 } * stream + 2 * sums * rows + (1 + sums) * cols;
        self.sweep(Sweep::NormBackwardSums, stream, self.unless_fused(moved));
        if self.s.members(self.s.column_group) > 1 {
            self.begin(Slot::Now, CollectiveKind::AllReduce, self.s.column_group, sums * rows);
            self.sink.wait(Slot::Now);
        }
        if begins {
            self.take(stream);
        }
        let moved = if eager { EAGER_BACKWARD } else { 3 } * stream;
        self.sweep(Sweep::NormBackward, stream, moved + 2 * sums * rows + cols);
        // Its row sums, the gradient of its output, the statistics and the input.
        self.give(sums * rows + stream);
        self.give_of(kept, sums * rows + stream + self.norm_copies());
    }
}
