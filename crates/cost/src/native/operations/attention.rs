//! The core of attention: in one kernel that keeps no scores, or with stored scores.
//!
//! Stored scores, elements per head and sequence of `s` tokens (Korthikanti et al. 2022, section 4.1): the product of
//! queries and keys is written and turned into probabilities, which are kept (2 bytes each in 16 bits); dropout keeps
//! its mask (1 byte) and its result (2 bytes), together `5 heads s^2` bytes a sequence. The backward pass multiplies the
//! gradient with the values, goes back through dropout and softmax, and multiplies twice more and for the values.

use quadrille_spec::CollectiveKind::{AllGather, ReduceScatter};

use super::pass::Pass;
use super::{Core, Group, Sink, Sweep};

// Elements of 16 bits that the kernels of eager scores move per score: scale 2, mask 2, softmax to f32 3, conversion
// back 3; backward conversion 3, softmax 6, conversion back 3, mask 2, scale 2.
const EAGER_SCORES: u64 = 10;
const EAGER_SCORES_BACKWARD: u64 = 16;

impl<S: Sink> Pass<'_, S> {
    /// Elements of queries, keys and values, of the output, and of the row statistics.
    fn attention_sizes(&self) -> (u64, u64, u64) {
        let s = self.s;
        (s.inner_rows * s.qkv.outputs, s.inner_rows * s.attention_cols, s.inner_rows * s.attention_cols / s.head_dim)
    }

    /// Keys and values of this rank's tokens, and of whole sequences.
    fn key_values(&self) -> (u64, u64) {
        let local = self.s.inner_rows * self.s.key_value_cols;
        (local, local * self.s.context)
    }

    /// Where context cuts sequences, keys and values are gathered.
    fn gather_keys_values(&mut self) -> u64 {
        if self.s.context == 1 {
            return 0;
        }
        let (local, whole) = self.key_values();
        self.take(local);
        self.sweep(Sweep::PackKeysValues, local, 2 * local);
        self.take(whole);
        self.collective(AllGather, Group::Context, whole);
        self.give(local);
        whole
    }

    /// The forward core. `keeps_scores`: stored scores stay for the backward pass; `leaves_keys_values`: gathered ones,
    /// too.
    pub fn attention(&mut self, keeps_scores: bool, leaves_keys_values: bool) {
        let (qkv, output, statistics) = self.attention_sizes();
        let whole = self.gather_keys_values();
        self.take(output);
        if self.s.stores_scores() {
            self.stored_core(keeps_scores);
        } else {
            self.take(statistics);
            let moved = qkv + whole + output + statistics;
            self.core(false, moved);
        }
        self.give_if(!leaves_keys_values, whole);
    }

    fn core(&mut self, backward: bool, moved: u64) {
        let (_, outputs, _) = self.attention_sizes();
        self.sink.attention(Core { backward, outputs, moved, heads: self.s.heads });
    }

    /// Scores of a rank: rows of queries times keys of the whole sequence, for every head.
    fn scores(&self) -> u64 {
        self.s.inner_rows * self.s.attention_cols / self.s.head_dim * self.s.seq_len
    }

    /// Bytes that the backward pass needs of stored scores.
    pub fn score_bytes(&self) -> u64 {
        // Eager scores keep the softmax in f32 beside its conversion.
        let softmax = if self.s.framework.eager.scores { 3 } else { 1 };
        let copies = softmax + u64::from(self.s.dropout);
        let kept = copies * self.scores() * self.s.framework.activation_bytes * self.s.chunks;
        kept + self.mask_bytes(self.scores())
    }

    /// Products of scores and of values, softmax and dropout between.
    pub fn stored_core(&mut self, keeps: bool) {
        let s = self.s;
        let (rows, scores) = (s.seq_len / s.context, self.scores());
        let bytes = self.score_bytes();
        // The eager kernels' scores before and after the mask.
        let masked = if s.framework.eager.scores { 2 * scores } else { 0 };
        self.sink.take(bytes);
        self.take(masked);
        self.sink.batched_product(false, [rows, s.seq_len, s.head_dim], s.heads);
        self.sweep(Sweep::Scores, scores, if s.framework.eager.scores { EAGER_SCORES } else { 2 } * scores);
        self.give(masked);
        if s.dropout {
            self.sweep(Sweep::Dropout, scores, 2 * scores);
        }
        self.sink.batched_product(false, [rows, s.head_dim, s.seq_len], s.heads);
        if !keeps {
            self.sink.give(bytes);
        }
    }

    /// The backward core: the gradient of queries, keys and values from that of the output. `gathers`: keys and values
    /// are not there from recomputation. `kept`: the forward pass has kept queries, keys and values, and the output.
    pub fn attention_backward(&mut self, gathers: bool, kept: [bool; 2]) {
        let (qkv, output, statistics) = self.attention_sizes();
        let s = self.s;
        if gathers {
            self.gather_keys_values();
        }
        let (local, whole) = if s.context > 1 { self.key_values() } else { (0, 0) };
        let gradients = whole;
        self.take(gradients + qkv);
        if s.stores_scores() {
            self.stored_backward();
        } else {
            let moved = 2 * (qkv + whole + output) + statistics;
            self.core(true, moved);
            self.give_of(kept[1], statistics);
        }
        // Gathered keys and values, q, k and v, the output and its gradient.
        self.give(whole + output);
        self.give_of(kept[0], qkv);
        // The projection's input, unless that is gathered.
        if s.gathers(Group::Y) {
            self.give_of(kept[1], output)
        } else {
            self.give_needed(kept[1], output)
        }
        if s.context > 1 {
            self.take(local);
            self.collective(ReduceScatter, Group::Context, gradients);
            self.give(gradients);
            self.sweep(Sweep::UnpackKeysValues, local, 2 * local);
            self.give(local);
        }
    }

    fn stored_backward(&mut self) {
        let s = self.s;
        let (rows, scores) = (s.seq_len / s.context, self.scores());
        let kept = self.score_bytes();
        self.take(scores);
        for shape in [[s.seq_len, s.head_dim, rows], [rows, s.seq_len, s.head_dim]] {
            self.sink.batched_product(true, shape, s.heads);
        }
        if s.dropout {
            self.sweep(Sweep::Dropout, scores, 2 * scores);
        }
        self.sweep(Sweep::Scores, scores, if s.framework.eager.scores { EAGER_SCORES_BACKWARD } else { 3 } * scores);
        for shape in [[rows, s.head_dim, s.seq_len], [s.seq_len, s.head_dim, rows]] {
            self.sink.batched_product(true, shape, s.heads);
        }
        self.give(scores);
        self.sink.give(kept);
    }
}
