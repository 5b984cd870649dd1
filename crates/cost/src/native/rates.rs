//! How long a device takes for an operation: `launch + max(FLOPs / rate, bytes / memory bandwidth)`.

use std::ops::AddAssign;

use quadrille_spec::{Device, Efficiency};
use quadrille_step::GemmPass;

use super::measured::{attention_flops, product_flops};
use super::{Framework, NarrowFormat};

/// A device as formulas need it.
#[derive(Debug, Clone)]
pub(super) struct Rates {
    /// Seconds of a FLOP at the peak of products.
    product: f64,
    /// Seconds of an element-wise arithmetic operation.
    vector: f64,
    /// Seconds of a byte to or from memory.
    byte: f64,
    launch: f64,
    products: Efficiency,
    /// Of what `products` says, what the framework's libraries reach.
    product_rate: f64,
    /// And of that, what is left where rows of logits begin anywhere.
    unaligned_rate: f64,
    attention: Efficiency,
    /// Of what `attention` says, what the framework's kernel reaches.
    attention_rate: f64,
    /// Bytes of the operands of products.
    /// Of an activation.
    pub element_bytes: f64,
    narrow: Option<NarrowRates>,
}

/// How a device multiplies operands that are cast to fewer bits.
#[derive(Debug, Clone)]
struct NarrowRates {
    format: NarrowFormat,
    /// Seconds of a FLOP at the peak.
    product: f64,
    products: Efficiency,
}

/// What an operation takes on the compute stream, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Taken {
    /// While arithmetic is the limit.
    pub compute: f64,
    /// What memory traffic adds.
    pub memory: f64,
    /// Before it begins.
    pub launch: f64,
}

impl Taken {
    pub fn seconds(&self) -> f64 {
        self.compute + self.memory + self.launch
    }

    /// So many such operations.
    pub fn times(self, count: f64) -> Self {
        Self { compute: count * self.compute, memory: count * self.memory, launch: count * self.launch }
    }
}

impl AddAssign for Taken {
    fn add_assign(&mut self, other: Self) {
        self.compute += other.compute;
        self.memory += other.memory;
        self.launch += other.launch;
    }
}

impl Rates {
    /// Products run at the peak of the type that the framework stores activations in.
    pub fn new(device: &Device, framework: &Framework) -> Self {
        let peak = framework.peak(device);
        let (attention, of_attention) = framework.attention_rates(device);
        Self {
            product: 1.0 / peak,
            vector: 1.0 / device.vector_rate,
            byte: 1.0 / (device.memory_bandwidth * device.memory_efficiency),
            launch: device.launch_seconds + framework.dispatch_seconds,
            products: framework.products(device).clone(),
            product_rate: framework.product_rate,
            unaligned_rate: framework.unaligned_rate,
            attention: attention.clone(),
            attention_rate: framework.attention_rate * of_attention / peak,
            element_bytes: framework.activation_bytes as f64,
            narrow: framework.numbers.products.and_then(|format| {
                let products = device.narrow_products.as_ref().unwrap_or_else(|| framework.products(device)).clone();
                Some(NarrowRates { format, product: 1.0 / format.peak(&device.peak)?, products })
            }),
        }
    }

    /// Whether operands of products are cast to fewer bits.
    pub fn casts(&self) -> bool {
        self.narrow.is_some()
    }

    fn taken(&self, compute: f64, bytes: f64) -> Taken {
        Taken { compute, memory: (bytes * self.byte - compute).max(0.0), launch: self.launch }
    }

    /// So many products `[m, k] [k, n]` beside each other, their shape as `[m, n, k]`; `output`: bytes that each moves of an
    /// element of its result.
    pub fn products(&self, shape: [f64; 3], count: f64, output: f64) -> Taken {
        self.products_at(self.product, shape, count, output)
    }

    /// The same without tensor cores: on the units for vectors, which reach as much of their peak.
    pub fn vector_products(&self, shape: [f64; 3], count: f64, output: f64) -> Taken {
        self.products_at(self.vector, shape, count, output)
    }

    /// The same where rows of logits begin anywhere: tensor cores take them, but are fed slowly.
    pub fn unaligned_products(&self, shape: [f64; 3], count: f64, output: f64) -> Taken {
        self.products_at(self.product / self.unaligned_rate, shape, count, output)
    }

    fn products_at(&self, flop: f64, [m, n, k]: [f64; 3], count: f64, output: f64) -> Taken {
        let rate = self.product_rate * self.products.at([m, n, k]);
        let compute = count * product_flops([m, n, k]) * flop / rate;
        self.taken(compute, count * ((m * k + k * n) * self.element_bytes + m * n * output))
    }

    /// The same of operands that are cast to fewer bits, the left one for this product.
    pub fn narrow_products(&self, pass: GemmPass, [m, n, k]: [f64; 3], count: f64, output: f64) -> Taken {
        let Some(narrow) = &self.narrow else { return self.products([m, n, k], count, output) };
        let rate = self.product_rate * narrow.products.at([m, n, k]);
        let compute = count * product_flops([m, n, k]) * narrow.product / rate;
        let operands = (m * k + k * n) * narrow.format.operand_bytes();
        let mut taken = self.taken(compute, count * (operands + m * n * output));
        if pass != GemmPass::WeightGradient {
            taken += self.traffic(count * m * k * narrow.format.cast_bytes(self.element_bytes));
        }
        taken
    }

    /// Flash-style attention over `outputs` elements of its output, with heads of so many columns and so many `rows` of queries
    /// of all heads and sequences.
    pub fn attention(
        &self,
        backward: bool,
        causal: bool,
        [seq_len, head_dim, rows]: [f64; 3],
        outputs: f64,
        bytes: f64,
    ) -> Taken {
        let flops = attention_flops(backward, causal, seq_len, outputs);
        let efficiency = self.attention_rate * self.attention.of_attention([seq_len, head_dim, rows]);
        self.taken(flops * self.product / efficiency, bytes)
    }

    /// So many arithmetic operations on elements.
    pub fn swept(&self, arithmetic: f64, bytes: f64) -> Taken {
        self.taken(arithmetic * self.vector, bytes)
    }

    /// Memory traffic alone.
    pub fn traffic(&self, bytes: f64) -> Taken {
        Taken { compute: 0.0, memory: bytes * self.byte, launch: self.launch }
    }
}
