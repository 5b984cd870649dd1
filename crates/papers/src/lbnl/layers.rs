//! The layers of a transformer block: operations, traffic of memory, communication, and the time of each pass.
//!
//! Letters as in the specification: `b` sequences of a microbatch, `l` tokens of a device (its share of the sequence),
//! `n = b l` rows, `E` embedding, `F` hidden width of the perceptron, `H` heads, `q` size of a head, `L` sequence
//! length, `m1` and `m2` the two tensor-parallel sizes. Shares are integer divisions that round down. One element of
//! a value takes two bytes, of a dropout mask one.

use super::configuration::{Cut, Strategy};
use super::shape::Shape;
use super::system::{Collective, Group, System};

/// Bytes of an element, FP16.
pub(super) const ELEMENT_BYTES: f64 = 2.0;
/// Part of a unit's FLOP/s that every layer reaches.
const EFFICIENCY: f64 = 0.8;
/// Seconds until a layer's pass computes, however little it computes.
const START_S: f64 = 2e-5;

/// Seconds of a pass; `total` is the sum of the other three.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Time {
    /// All of it.
    pub total: f64,
    /// Computation, with its start.
    pub compute: f64,
    /// What the memory takes longer than the computation.
    pub memory: f64,
    /// Communication that nothing hides.
    pub communication: f64,
}

impl Time {
    fn plus(self, other: Self) -> Self {
        Self {
            total: self.total + other.total,
            compute: self.compute + other.compute,
            memory: self.memory + other.memory,
            communication: self.communication + other.communication,
        }
    }
}

/// A layer's work in one direction on one device, for one microbatch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pass {
    /// Operations; vector work inside fused attention counts as the products that take as long.
    pub flops: f64,
    /// Bytes to and from memory.
    pub traffic_bytes: f64,
    /// Seconds.
    pub time: Time,
}

/// A layer of the block on one device, for one microbatch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layer {
    /// As in the published tables: `fc1`, `fc1-bias`, `act1`, `dpr1`, ...
    pub name: &'static str,
    /// Which unit computes.
    pub unit: Unit,
    /// Forward.
    pub forward: Pass,
    /// Backward.
    pub backward: Pass,
    /// Bytes kept for the backward pass.
    pub activation_bytes: f64,
    /// Bytes of weights.
    pub weight_bytes: f64,
}

/// The two units of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Tensor cores.
    Matrix,
    /// Everything else.
    Vector,
}

/// What a pass does: FLOPs, elements to and from memory, seconds of communication.
#[derive(Clone, Copy)]
struct Work {
    flops: f64,
    elements: f64,
    communication: f64,
}

impl Work {
    fn local(flops: f64, elements: f64) -> Self {
        Self { flops, elements, communication: 0.0 }
    }
}

/// Which width of a linear layer is cut over the devices of `m1`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharded {
    Inputs,
    Outputs,
}

/// The layers of a block in the order of the published tables: perceptron, then attention, each closed by a norm.
pub fn layers(shape: &Shape, system: &System, cut: &Cut) -> [Layer; 14] {
    let on = Device::new(shape, system, cut);
    let Shape { embed, ffn, .. } = *shape;
    let m1 = cut.hidden.size;
    let rows = on.tokens;
    let width = embed / m1;
    // Values inside the perceptron, and on the residual stream.
    let inner = on.rows() * (ffn / m1) as f64;
    let fc1_bias = on.bias("fc1-bias", rows, ffn / m1);
    let act = on.gelu("act1", inner);
    let dropout = on.dropout("dpr1", inner);
    let attention = on.attention("fusedla");
    if cut.strategy == Strategy::Summa {
        let outer = on.rows() * width as f64;
        return [
            on.summa("fc1", embed, ffn),
            fc1_bias,
            act,
            dropout,
            on.summa("fc2", ffn, embed),
            on.bias("fc2-bias", rows, width),
            on.dropout("dpr2", outer),
            on.summa_norm("ln1"),
            on.summa("qkv", embed, 3 * embed),
            attention,
            on.summa("vproj", embed, embed),
            on.bias("vproj-bias", rows, width),
            on.dropout("dpr_v", outer),
            on.summa_norm("ln2"),
        ];
    }
    let outer = (cut.microbatch * (rows / m1)) as f64 * embed as f64;
    // The output biases: one strategy replicates both, the other cuts one by tokens and one by width.
    let [(fc2_rows, fc2_width), (projection_rows, projection_width)] = match cut.strategy {
        Strategy::OneD => [(rows, embed), (rows, embed)],
        _ => [(rows / m1, embed), (rows, width)],
    };
    [
        on.linear("fc1", embed, ffn, Sharded::Outputs),
        fc1_bias,
        act,
        dropout,
        on.linear("fc2", ffn, embed, Sharded::Inputs),
        on.bias("fc2-bias", fc2_rows, fc2_width),
        on.dropout("dpr2", outer),
        on.norm("ln1"),
        on.linear("qkv", embed, 3 * embed, Sharded::Outputs),
        attention,
        on.linear("vproj", embed, embed, Sharded::Inputs),
        on.bias("vproj-bias", projection_rows, projection_width),
        on.dropout("dpr_v", outer),
        on.norm("ln2"),
    ]
}

/// One transformer block on one device, for one microbatch: the sums over its layers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Block {
    /// Seconds of the forward pass.
    pub forward: Time,
    /// Seconds of the backward pass.
    pub backward: Time,
    /// FLOPs of both.
    pub flops: f64,
    /// Bytes of weights.
    pub weight_bytes: f64,
    /// Bytes kept for the backward pass.
    pub activation_bytes: f64,
    /// Bytes that a pipeline sends on in one direction: what the norm that closes the perceptron keeps.
    pub boundary_bytes: f64,
}

impl Block {
    /// Prices the block. `cut` is one that [`Configuration::check`](super::Configuration::check) accepts.
    pub fn new(shape: &Shape, system: &System, cut: &Cut) -> Self {
        let layers = layers(shape, system, cut);
        let sum = |of: fn(&Layer) -> f64| layers.iter().map(of).sum();
        let time = |of: fn(&Layer) -> Time| layers.iter().map(of).fold(Time::default(), Time::plus);
        Self {
            forward: time(|layer| layer.forward.time),
            backward: time(|layer| layer.backward.time),
            flops: sum(|layer| layer.forward.flops + layer.backward.flops),
            weight_bytes: sum(|layer| layer.weight_bytes),
            activation_bytes: sum(|layer| layer.activation_bytes),
            boundary_bytes: layers[7].activation_bytes,
        }
    }
}

/// A device that holds a share of a block.
struct Device<'a> {
    shape: &'a Shape,
    system: &'a System,
    cut: &'a Cut,
    /// `l`: tokens of a sequence.
    tokens: u64,
}

impl<'a> Device<'a> {
    fn new(shape: &'a Shape, system: &'a System, cut: &'a Cut) -> Self {
        Self { shape, system, cut, tokens: shape.seq / cut.sequence.size }
    }

    fn rows(&self) -> f64 {
        (self.cut.microbatch * self.tokens) as f64
    }

    fn communication(&self, kind: Collective, elements: f64, group: Group) -> f64 {
        self.system.communication(kind, ELEMENT_BYTES * elements, group)
    }

    /// Roofline (specification, section 2): computation or memory, whichever is slower, then communication.
    fn pass(&self, unit: Unit, work: Work) -> Pass {
        let rate = match unit {
            Unit::Matrix => self.system.matrix_flop_per_s,
            Unit::Vector => self.system.vector_flop_per_s,
        };
        let compute = START_S + work.flops / (EFFICIENCY * rate);
        let traffic_bytes = ELEMENT_BYTES * work.elements;
        let memory = (traffic_bytes / self.system.memory_bandwidth - compute).max(0.0);
        let communication = work.communication;
        let total = compute + memory + communication;
        Pass { flops: work.flops, traffic_bytes, time: Time { total, compute, memory, communication } }
    }

    /// The roofline of a product in panels (5.2): of `work.communication`, the collectives of one panel, one set is
    /// always exposed, and of as many as there are panels what takes longer than computation and memory.
    fn panelled_pass(&self, work: Work) -> Pass {
        let panel = work.communication;
        let mut pass = self.pass(Unit::Matrix, Work::local(work.flops, work.elements));
        let busy = pass.time.total;
        pass.time.communication = panel + (self.cut.panels as f64 * panel - busy).max(0.0);
        pass.time.total = busy + pass.time.communication;
        pass
    }

    fn layer(
        &self,
        name: &'static str,
        unit: Unit,
        [forward, backward]: [Work; 2],
        activations: f64,
        weights: f64,
    ) -> Layer {
        Layer {
            name,
            unit,
            forward: self.pass(unit, forward),
            backward: self.pass(unit, backward),
            activation_bytes: ELEMENT_BYTES * activations,
            weight_bytes: ELEMENT_BYTES * weights,
        }
    }

    /// A linear layer whose weight one group cuts (5.1): partial sums of outputs, or of the inputs' gradients, are
    /// reduced and scattered along the sequence.
    fn linear(&self, name: &'static str, inputs: u64, outputs: u64, sharded: Sharded) -> Layer {
        let group = self.cut.hidden;
        let share = |width: u64, cut| if sharded == cut { width / group.size } else { width } as f64;
        let n = self.rows();
        let i = share(inputs, Sharded::Inputs);
        let o = share(outputs, Sharded::Outputs);
        let scatter = |width: u64| self.communication(Collective::ReduceScatter, n * width as f64, group);
        let (forward, backward) = match sharded {
            Sharded::Inputs => (scatter(outputs), 0.0),
            Sharded::Outputs => (0.0, scatter(inputs)),
        };
        let forward = Work { flops: n * o * (2.0 * i - 1.0), elements: n * i + n * o + i * o, communication: forward };
        let backward = Work {
            flops: n * i * (2.0 * o - 1.0) + i * o * (2.0 * n - 1.0),
            elements: 2.0 * (i * o + n * i + n * o),
            communication: backward,
        };
        self.layer(name, Unit::Matrix, [forward, backward], n * i, i * o)
    }

    /// A linear layer whose operands both groups cut (5.2): panels of one operand are broadcast over each.
    fn summa(&self, name: &'static str, inputs: u64, outputs: u64) -> Layer {
        let Cut { hidden, sequence, panels, .. } = *self.cut;
        let n = self.rows();
        let i = inputs as f64;
        let o = (outputs / hidden.size) as f64;
        let panels = panels as f64;
        let rows = |kind| self.communication(kind, n * i / panels, hidden);
        let weights = |kind| self.communication(kind, i * o / panels, sequence);
        let broadcast = rows(Collective::Broadcast) + weights(Collective::Broadcast);
        let reduce = rows(Collective::Reduce) + weights(Collective::Reduce);
        let elements = n * i + i * o + panels * n * o;
        let forward = Work { flops: 2.0 * n * o * i, elements, communication: broadcast };
        let backward = Work {
            flops: n * i * (2.0 * o - 1.0) + i * o * (2.0 * n - 1.0),
            elements: 2.0 * elements,
            communication: broadcast + reduce,
        };
        Layer {
            name,
            unit: Unit::Matrix,
            forward: self.panelled_pass(forward),
            backward: self.panelled_pass(backward),
            activation_bytes: ELEMENT_BYTES * n * (inputs / hidden.size) as f64,
            weight_bytes: ELEMENT_BYTES * (inputs / sequence.size) as f64 * o,
        }
    }

    /// A bias (5.3), added to `rows` tokens of each sequence.
    fn bias(&self, name: &'static str, rows: u64, width: u64) -> Layer {
        let width = width as f64;
        let values = (self.cut.microbatch * rows) as f64 * width;
        self.layer(name, Unit::Vector, [Work::local(values, values + width); 2], 0.0, width)
    }

    /// The activation function (5.4).
    fn gelu(&self, name: &'static str, values: f64) -> Layer {
        let work = [Work::local(8.0 * values, 2.0 * values), Work::local(13.0 * values, 3.0 * values)];
        self.layer(name, Unit::Vector, work, values, 0.0)
    }

    /// Dropout (5.5): two values and a mask, which takes half of an element and is all that is kept.
    fn dropout(&self, name: &'static str, values: f64) -> Layer {
        self.layer(name, Unit::Vector, [Work::local(values, 2.5 * values); 2], 0.5 * values, 0.0)
    }

    /// Layer norm over whole rows, of which each device of the group has its share (5.6); its output is gathered.
    fn norm(&self, name: &'static str) -> Layer {
        let Cut { hidden, microbatch, .. } = *self.cut;
        let width = self.shape.embed as f64;
        let n = (microbatch * (self.tokens / hidden.size)) as f64;
        let exchange = |kind| self.communication(kind, self.rows() * width, hidden);
        let gather = exchange(Collective::AllGather);
        let scatter = exchange(Collective::ReduceScatter);
        self.norm_of(name, n, width, [gather, scatter])
    }

    /// Layer norm between SUMMA's layers (5.7): statistics are reduced. It divides the sequence length where the
    /// embedding is meant, as the paper's code does.
    fn summa_norm(&self, name: &'static str) -> Layer {
        let Cut { hidden, sequence, microbatch, .. } = *self.cut;
        let Shape { seq, embed, .. } = *self.shape;
        let n = self.rows();
        let width = (seq / hidden.size) as f64;
        let reduce = |elements| self.communication(Collective::AllReduce, elements, hidden);
        let backward = 2 * embed / hidden.size + 2 * microbatch * seq / sequence.size;
        self.norm_of(name, n, width, [reduce(2.0 * n), reduce(backward as f64)])
    }

    /// The norm of `n` rows of `width` values, with the seconds of communication of both passes.
    fn norm_of(&self, name: &'static str, n: f64, width: f64, communication: [f64; 2]) -> Layer {
        let values = n * width;
        let forward =
            Work { flops: 9.0 * values, elements: 2.0 * (values + n + width), communication: communication[0] };
        let backward = Work {
            flops: 8.0 * values + 4.0 * n * (width - 1.0),
            elements: 5.0 * values + 2.0 * width,
            communication: communication[1],
        };
        self.layer(name, Unit::Vector, [forward, backward], values, 2.0 * width)
    }

    /// Fused attention (5.8): nothing of the size of the logits is kept or leaves the chip; keys and values of the
    /// whole sequence are gathered, and gathered again for the backward pass. Vector work counts as the products that
    /// would take as long.
    fn attention(&self, name: &'static str) -> Layer {
        let Shape { seq, embed, heads, .. } = *self.shape;
        let Cut { hidden, sequence, microbatch, .. } = *self.cut;
        let ratio = self.system.matrix_flop_per_s / self.system.vector_flop_per_s;
        let l = self.tokens as f64;
        let q = (embed / heads) as f64;
        let heads = (microbatch * (heads / hidden.size)) as f64;
        let length = seq as f64;
        let logits = heads * l * length;
        // Values of the device's queries and of the whole sequence's keys.
        let queries = heads * l * q;
        let keys = heads * length * q;
        let row_sums = heads * l * (length - 1.0);
        let softmax = 2.0 * logits + row_sums;
        let softmax_backward = 3.0 * logits + row_sums;
        let dropout = logits;
        let logits_flops = logits * (2.0 * q - 1.0);
        let attend_flops = queries * (2.0 * length - 1.0);
        let keys_gradient_flops = keys * (2.0 * l - 1.0);
        let vector_forward = ratio * (softmax + dropout);
        let activations = 4.0 * queries + 2.0 * heads * l;
        let exchange = |kind| self.communication(kind, 2.0 * keys, sequence);
        let gather = exchange(Collective::AllGather);
        let forward = Work {
            flops: logits_flops + attend_flops + vector_forward,
            elements: 2.0 * queries + 2.0 * keys + heads * l,
            communication: gather,
        };
        // Gradients of logits, of softmax and dropout, of the product with values; then logits to dropout once more.
        let backward = Work {
            flops: (attend_flops + keys_gradient_flops)
                + ratio * (softmax_backward + dropout)
                + (logits_flops + keys_gradient_flops)
                + (logits_flops + vector_forward),
            elements: 2.0 * keys + 2.0 * queries + activations,
            communication: gather + exchange(Collective::ReduceScatter),
        };
        self.layer(name, Unit::Matrix, [forward, backward], activations, 0.0)
    }
}
