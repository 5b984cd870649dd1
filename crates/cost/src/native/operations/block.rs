//! A transformer block: `x + projection(attention(qkv(norm1(x))))`, then `x + down(activation(up(norm2(x))))`.

use quadrille_spec::{Activation, Recompute};

use super::linear::{Gradient, Input, Weight};
use super::pass::Pass;
use super::summa::TokenPanels;
use super::{Group, Sink, Sizes, Sweep, Values};

/// The weights that a forward pass gathers, in order; all at once where the framework gathers blocks.
pub(in crate::native) fn forward_weights(s: &Sizes) -> ([u64; 4], usize) {
    let tiles = s.linears().map(|linear| linear.tile());
    if s.framework.gathers_blocks { ([tiles.iter().sum(), 0, 0, 0], 1) } else { (tiles, 4) }
}

/// The weights that a backward pass gathers, in order, with those of recomputation; see [`forward_weights`]. With
/// communication-aware recomputation each is gathered once.
pub(in crate::native) fn backward_weights(s: &Sizes, again: Values) -> ([u64; 8], usize) {
    let [qkv, projection, up, down] = s.linears().map(|linear| linear.tile());
    let mut order = [0; 8];
    let mut count = 0;
    if s.framework.gathers_blocks {
        order[0] = qkv + projection + up + down;
        return (order, 1);
    }
    let mut add = |condition: bool, tile: u64| {
        if condition {
            order[count] = tile;
            count += 1;
        }
    };
    let shared = s.keep_communicated;
    add(true, down);
    for (repeated, tile) in [(again.qkv, qkv), (again.stream, projection), (again.pre, up)] {
        add(repeated, tile);
    }
    add(again.output && !shared, down);
    for (repeated, tile) in [(again.pre, up), (again.stream, projection), (again.qkv, qkv)] {
        add(!(shared && repeated), tile);
    }
    (order, count)
}

impl<S: Sink> Pass<'_, S> {
    /// The forward pass of a block: makes what `made` says and leaves what `kept` says.
    pub fn block(&mut self, made: Values, kept: Values) {
        self.attention_half(made, kept);
        self.perceptron_half(made, kept);
        if !self.recomputes {
            self.done();
        }
    }

    /// Weights that communication-aware recomputation gathers serve the backward pass.
    fn shared_weight(&self) -> Weight {
        if self.recomputes && self.s.keep_communicated { Weight::Left } else { Weight::Gathered }
    }

    /// The same in the backward pass.
    fn weight_again(&self, repeated: bool) -> Weight {
        if repeated && self.s.keep_communicated { Weight::There } else { Weight::Gathered }
    }

    /// Whether the panels of tokens of a product that recomputation repeats are kept for it, or there.
    fn token_panels(&self, made: Values, kept: Values, again: bool) -> TokenPanels {
        match (kept.panels && again, made.panels) {
            (_, true) => TokenPanels::There,
            (true, false) => TokenPanels::Kept,
            (false, false) => TokenPanels::Travel,
        }
    }

    fn attention_half(&mut self, made: Values, kept: Values) {
        let s = self.s;
        self.normed(made, kept);
        if made.qkv {
            let repeated = Values::again(s, false);
            self.tokens = self.token_panels(made, kept, repeated.qkv);
            self.linear(s.qkv, self.shared_weight());
            let columns = s.qkv.outputs;
            let elements = s.inner_rows * columns;
            if s.biases {
                self.sweep(Sweep::Bias, elements, 2 * elements + columns);
            }
            if s.rotary {
                self.sweep(Sweep::Rotate, self.rotated(), self.rotating() * self.rotated());
            }
        }
        self.normed_done(made, kept);
        let output = s.inner_rows * s.attention_cols;
        if made.attention {
            self.attention(kept.scores, s.keep_communicated && self.recomputes);
            // Queries, keys and values, and the statistics of the softmax.
            self.give_if(made.qkv && !kept.qkv, s.inner_rows * s.qkv.outputs);
            self.give_if(!s.stores_scores() && !kept.attention, output / s.head_dim);
        }
        let gathered = s.rows * s.attention_cols;
        if made.gathered_attention {
            self.gather_rows(Group::Y, gathered);
        }
        if made.stream {
            self.tokens = self.token_panels(made, kept, Values::again(s, false).stream);
            self.linear(s.projection, self.shared_weight());
            self.residual(Values::again(s, false).stream);
        }
        self.give_if(made.gathered_attention && !kept.gathered_attention, gathered);
        self.give_if(made.attention && !kept.attention, output);
    }

    fn perceptron_half(&mut self, made: Values, kept: Values) {
        let s = self.s;
        self.normed(made, kept);
        let pre = s.inner_rows * s.up.outputs;
        let (activated, gathered) = (s.inner_rows * self.activated_cols(), s.rows * self.activated_cols());
        if made.pre {
            self.tokens = self.token_panels(made, kept, Values::again(s, false).pre);
            self.linear(s.up, self.shared_weight());
        }
        self.normed_done(made, kept);
        if made.activated {
            self.activation(made.pre);
            let copies = self.between(activated, 1);
            if made.pre {
                self.take(copies);
            }
            self.give_if(made.pre && !kept.pre, pre + copies);
        }
        if made.gathered_activated {
            self.gather_rows(Group::Y, gathered);
            self.give_if(!kept.activated, activated);
        }
        if made.output {
            self.tokens = self.token_panels(made, kept, Values::again(s, true).output);
            self.linear(s.down, self.weight_again(self.recomputes));
            self.residual(Values::again(s, s.framework.repeats_whole_segments).output);
            // The stream after the attention is read for the last time.
            self.give_if(made.stream && !kept.stream, s.stream());
        }
        self.give_if(made.gathered_activated && !kept.gathered_activated, gathered);
        let last = made.activated && !made.gathered_activated;
        self.give_if(last && !kept.activated, activated);
    }

    /// A norm and the gather of its output.
    fn normed(&mut self, made: Values, kept: Values) {
        self.norm(made);
        if made.gathered_normed {
            self.gather_rows(Group::X, self.s.rows * self.s.stream_cols);
            self.give_if(!kept.normed, self.s.stream());
        }
    }

    /// The norm's output has been multiplied.
    fn normed_done(&mut self, made: Values, kept: Values) {
        let s = self.s;
        self.give_if(made.gathered_normed && !kept.gathered_normed, s.rows * s.stream_cols);
        self.give_if(made.normed && !made.gathered_normed && !kept.normed, s.stream());
        let statistics = s.norm.vectors() as u64 * s.stream_rows + self.norm_copies();
        self.give_if(made.statistics && !kept.statistics, statistics);
    }

    /// Columns of the activation function's output.
    fn activated_cols(&self) -> u64 {
        self.s.up.outputs / self.s.activation.inputs() as u64
    }

    /// Elements of queries and keys.
    fn rotated(&self) -> u64 {
        self.s.inner_rows * (self.s.attention_cols + self.s.key_value_cols / 2)
    }

    /// Elements that rotary positions move per element: the eager kernels are a negation and concatenation 2, two products
    /// 4 and a sum 3.
    fn rotating(&self) -> u64 {
        if self.s.framework.eager.pointwise { 9 } else { 2 }
    }

    /// Elements that an eager SwiGLU moves more per element of its output: forward what is between its two kernels 2;
    /// backward twice that and an operand again.
    fn between(&self, activated: u64, factor: u64) -> u64 {
        let eager = self.s.framework.eager.pointwise && self.s.activation == Activation::Swiglu;
        if eager { factor * activated } else { 0 }
    }

    /// Bias and activation function, or the function alone of a stored input.
    fn activation(&mut self, with_bias: bool) {
        let s = self.s;
        let (pre, activated) = (s.inner_rows * s.up.outputs, s.inner_rows * self.activated_cols());
        let bias = if s.biases { s.up.outputs } else { 0 };
        self.take(activated);
        let (fused, alone) = match s.activation {
            Activation::Swiglu => (Sweep::BiasSwiglu, Sweep::Swiglu),
            // A problem has one of these two.
            _ => (Sweep::BiasGelu, Sweep::Gelu),
        };
        match with_bias {
            true => self.sweep(fused, pre, 2 * pre + activated + bias),
            false => self.sweep(alone, pre, pre + activated + self.between(activated, 2)),
        }
    }

    /// Bias, dropout and the addition to the residual stream, in place of a product. `repeated`: the backward pass does
    /// it again and needs no mask until then.
    fn residual(&mut self, repeated: bool) {
        let (stream, cols) = (self.s.stream(), self.s.stream_cols);
        let bias = if self.s.biases { cols } else { 0 };
        if self.recomputes || !repeated {
            let mask = self.mask_bytes(stream);
            self.sink.take(mask);
        }
        self.sweep(Sweep::Residual, stream, 3 * stream + bias);
    }

    /// The backward pass of a block with recomputation. `again`: what is computed again, all of it before the first
    /// gradient of a weight that needs some of it; of selective recomputation each part where it is needed.
    pub fn block_backward(&mut self, again: Values) {
        let s = self.s;
        let full = matches!(s.recompute, Recompute::Full { .. });
        self.recomputes = true;
        let kept = Values::needed(s);
        let forward = Values::kept(s);
        let there = |kept_gathered: bool| kept_gathered || s.framework.keeps_gathered_inputs;
        let stream = s.stream();

        let gradient = self.residual_backward();
        let input = Input {
            elements: s.inner_rows * self.activated_cols(),
            gathered: there(forward.gathered_activated),
            local: !s.gathers(Group::Y) || (kept.activated && !forward.gathered_activated),
            kept: [forward.gathered_activated, forward.activated],
        };
        self.linear_backward(s.down, gradient, input, Weight::Gathered, |pass| match full {
            true => pass.block(again, kept),
            false => pass.perceptron_half(Values { normed: false, gathered_normed: false, ..again }, kept),
        });
        self.activation_backward(forward.pre);
        let in_kept = s.activation == Activation::Swiglu && forward.pre;
        let d_pre = Gradient { elements: s.inner_rows * s.up.outputs, is_last_use: true, in_kept };
        let normed = Input {
            elements: stream,
            gathered: there(forward.gathered_normed),
            local: !s.gathers(Group::X) || (kept.normed && !forward.gathered_normed),
            kept: [forward.gathered_normed, forward.normed],
        };
        let norm_again = |pass: &mut Self| {
            if !full {
                pass.normed(again, kept);
            }
        };
        self.linear_backward(s.up, d_pre, normed, self.weight_again(again.pre), norm_again);
        self.norm_backward(false, forward.stream);

        let gradient = self.residual_backward();
        let attended = Input {
            elements: s.inner_rows * s.attention_cols,
            gathered: there(forward.gathered_attention),
            local: false,
            kept: [forward.gathered_attention, forward.attention],
        };
        self.linear_backward(s.projection, gradient, attended, self.weight_again(again.stream), |_| ());
        if again.scores && !full {
            self.stored_core(true);
        }
        self.attention_backward(!(s.keep_communicated && again.attention), [forward.qkv, forward.attention]);
        let d_qkv = Gradient { elements: s.inner_rows * s.qkv.outputs, is_last_use: true, in_kept: false };
        if s.rotary {
            self.sweep(Sweep::RotateBack, self.rotated(), self.rotating() * self.rotated());
        }
        if s.biases {
            self.sweep(Sweep::BiasBackward, d_qkv.elements, d_qkv.elements + s.qkv.outputs);
        }
        self.linear_backward(s.qkv, d_qkv, normed, self.weight_again(again.qkv), norm_again);
        self.norm_backward(false, !full);
        self.done();
    }

    /// Dropout and bias of a residual branch; the gradient of the branch is that of the stream unless dropout is between.
    fn residual_backward(&mut self) -> Gradient {
        let (stream, cols) = (self.s.stream(), self.s.stream_cols);
        if self.s.dropout {
            self.take(stream);
            self.sweep(Sweep::Dropout, stream, 2 * stream);
            let mask = self.mask_bytes(stream);
            self.sink.give(mask);
        }
        if self.s.biases {
            self.sweep(Sweep::BiasBackward, stream, stream + cols);
        }
        Gradient { elements: stream, is_last_use: self.s.dropout, in_kept: false }
    }

    /// The gradient before the activation function takes the place of the larger of its operands.
    fn activation_backward(&mut self, kept: bool) {
        let s = self.s;
        let (pre, activated) = (s.inner_rows * s.up.outputs, s.inner_rows * self.activated_cols());
        let bias = if s.biases { s.up.outputs } else { 0 };
        let (sweep, freed) = match s.activation {
            Activation::Swiglu => (Sweep::SwigluBackward, activated),
            _ => (Sweep::GeluBackward, pre),
        };
        self.sweep(sweep, pre, 2 * pre + activated + bias + self.between(activated, 5));
        self.give_of(kept && s.activation == Activation::Gelu, freed);
        self.give(self.between(activated, 1));
    }
}
