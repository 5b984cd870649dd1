//! The ends of the model: embedding, final norm, head and loss. Those of tokens are here; see `patches`, too.

use quadrille_spec::CollectiveKind::{AllGather, AllReduce, ReduceScatter};

use super::pass::Pass;
use super::{Group, Product, Sink, Slot, Sweep, Swept};

impl<S: Sink> Pass<'_, S> {
    /// Token rows of full width that every rank of the mesh has a part of, to the residual stream: columns scattered,
    /// then rows scattered or summed. `last`: of the reductions, what the last of them is called.
    fn enter_stream(&mut self, last: Slot) {
        let s = self.s;
        let whole = s.rows * s.hidden;
        let mut held = whole;
        let columns = s.members(s.column_group);
        let rows = s.members(s.row_group);
        if columns > 1 {
            self.take(whole);
            self.sweep(Sweep::Pack, whole, 2 * whole);
            self.give(whole);
            held = whole / columns;
            self.take(held);
            self.begin(if rows > 1 { Slot::Now } else { last }, ReduceScatter, s.column_group, whole);
            if rows > 1 {
                self.sink.wait(Slot::Now);
                self.give(whole);
            }
        }
        if rows > 1 {
            let scatters = s.stream_rows_cut();
            if scatters {
                self.take(held / rows);
            }
            self.begin(last, if scatters { ReduceScatter } else { AllReduce }, s.row_group, held);
        }
    }

    /// Waits for what [`Pass::enter_stream`] has begun.
    fn stream_done(&mut self, last: Slot) {
        let s = self.s;
        let (columns, rows) = (s.members(s.column_group), s.members(s.row_group));
        if columns * rows == 1 {
            return;
        }
        self.sink.wait(last);
        let whole = s.rows * s.hidden;
        match rows {
            1 => self.give(whole),
            _ => self.give_if(s.stream_rows_cut(), whole / columns),
        }
    }

    /// The residual stream to rows of full width: rows gathered, then columns. Gives the stream back after it if nothing
    /// else needs it.
    fn leave_stream(&mut self, is_last_use: bool) {
        let s = self.s;
        let (columns, mut held) = (s.members(s.column_group), s.stream());
        let mut own = is_last_use;
        if s.stream_rows_cut() {
            let gathered = s.rows * s.stream_cols;
            self.gather_rows(s.row_group, gathered);
            self.give_if(own, held);
            (held, own) = (gathered, true);
        }
        if columns > 1 {
            let whole = s.rows * s.hidden;
            self.take(whole);
            self.collective(AllGather, s.column_group, whole);
            self.give_if(own, held);
            self.take(whole);
            self.sweep(Sweep::Unpack, whole, 2 * whole);
            self.give(whole);
        }
    }

    /// Tokens or patches to the residual stream.
    pub fn embedding(&mut self) {
        let s = self.s;
        let (whole, stream) = (s.rows * s.hidden, s.stream());
        if s.patches {
            self.patch_embedding();
        } else {
            self.weight();
            self.take(whole);
            self.sweep(Sweep::Embed, whole, 2 * whole);
            self.weight_done(s.table);
            self.enter_stream(Slot::Now);
            self.stream_done(Slot::Now);
        }
        if s.learned_positions {
            self.sweep(Sweep::AddPositions, stream, s.positions + 2 * stream);
        }
        if s.dropout {
            self.sweep(Sweep::Dropout, stream, 2 * stream);
            let mask = self.mask_bytes(stream);
            self.sink.take(mask);
        }
        self.done();
    }

    /// `tile_is_there`: a tied head of the same pass has begun the table's gradient.
    pub fn embedding_backward(&mut self, tile_is_there: bool) {
        let s = self.s;
        let (whole, stream) = (s.rows * s.hidden, s.stream());
        if s.dropout {
            self.sweep(Sweep::Dropout, stream, 2 * stream);
            let mask = self.mask_bytes(stream);
            self.sink.give(mask);
        }
        if s.learned_positions {
            self.sweep(Sweep::PositionsBackward, stream, stream + s.positions);
        }
        if s.patches {
            return self.patch_embedding_backward();
        }
        self.leave_stream(true);
        if !tile_is_there {
            self.take_tile(s.table);
        }
        self.sweep(Sweep::EmbedBackward, whole, 3 * whole);
        self.give_needed(false, whole);
        self.sink.scatter(s.table);
    }

    /// An element-wise operation on logits, or predicted numbers.
    pub(super) fn sweep_logits(&mut self, sweep: Sweep, logits: u64, moved: u64) {
        let element_bytes = self.s.framework.logit_bytes;
        self.sink.sweep(Swept { sweep, elements: logits, moved, element_bytes, once: false });
    }

    /// Final norm, and logits with cross-entropy (one maximum and one fused sum of two per row over the mesh), or
    /// predicted patches with their squared error.
    pub fn head(&mut self) {
        let s = self.s;
        let (rows, logits) = (s.rows, s.rows * s.logits);
        self.norm(super::Values::all(s));
        if s.patches {
            return self.patch_head();
        }
        self.leave_stream(true);
        self.weight();
        self.sink.take(logits * s.framework.loss_bytes * s.chunks);
        self.product(Product::Forward, [rows, s.logits, s.hidden]);
        self.weight_done(s.table);
        self.take(rows);
        // In halves of a logit: conversion 3 and maximum 2; difference 4, exponential 4, sum 2 and quotient 4; scaling 4
        // and conversion back 3.
        let [maximum, sums, gradient] = if s.framework.eager.loss { [5, 14, 7] } else { [2, 2, 4] };
        let moved = |halves: u64| halves * logits / 2;
        self.sweep_logits(Sweep::CrossEntropyMax, logits, moved(maximum) + rows);
        self.reduce_in_place(Group::Mesh, rows);
        self.take(2 * rows);
        self.sweep_logits(Sweep::CrossEntropySums, logits, moved(sums) + 3 * rows);
        self.reduce_in_place(Group::Mesh, 2 * rows);
        self.sweep_logits(Sweep::CrossEntropyGradient, logits, moved(gradient) + 3 * rows);
        self.give(3 * rows);
        self.done();
    }

    /// `is_open`: a tied table's gradient waits for the embedding's.
    pub fn head_backward(&mut self, is_open: bool) {
        let s = self.s;
        let (rows, whole) = (s.rows, s.rows * s.hidden);
        if s.patches {
            return self.patch_head_backward();
        }
        self.weight();
        self.take(whole);
        self.product(Product::InputGradient, [rows, s.hidden, s.logits]);
        self.weight_done(s.table);
        self.enter_stream(Slot::Reduction);
        let hides = s.overlap.all_reduce;
        if !hides {
            self.stream_done(Slot::Reduction);
        }
        self.weight_gradient([s.logits, s.hidden, rows]);
        if hides {
            self.stream_done(Slot::Reduction);
        }
        // The logits' gradient and the gathered input.
        self.sink.give_needed(true, rows * s.logits * s.framework.loss_bytes * s.chunks);
        self.give_needed(true, whole);
        if !is_open {
            self.sink.scatter(s.table);
        }
        self.norm_backward(true, true);
        self.done();
    }
}
