//! How a program that trains stores numbers and which kernels it has, beyond what a layout says.

/// What a framework does the same way in every layout.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Framework {
    /// What it is called in reports.
    pub name: &'static str,
    /// Bytes that a parameter takes.
    pub states: StateBytes,
    /// Bytes of an activation and of what is sent of it.
    pub activation_bytes: u64,
    /// How attention is computed.
    pub attention: AttentionKernel,
    /// Bytes of a device that are taken before the first value: the driver's context, communication buffers.
    pub reserved_bytes: u64,
    /// Bytes that the allocator holds per byte in use at the peak, at least 1.
    pub allocator_factor: f64,
}

/// Bytes per parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateBytes {
    /// The weight that products read.
    pub weight: u64,
    /// The gradient that microbatches are summed in.
    pub gradient: u64,
    /// Master weight and the optimizer's moments.
    pub optimizer: u64,
    /// What is sent of a gradient.
    pub sent_gradient: u64,
}

/// How attention is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionKernel {
    /// Tile by tile; scores are never stored, and the backward pass computes them again.
    Flash,
    /// Scores and probabilities are stored: `heads * seq_len^2` numbers a sequence, several times.
    Stored,
}

impl Framework {
    /// This program's engine in f32: weights and gradients of 4 bytes, two moments.
    pub const QUADRILLE: Self = Self {
        name: "quadrille",
        states: StateBytes { weight: 4, gradient: 4, optimizer: 8, sent_gradient: 4 },
        activation_bytes: 4,
        attention: AttentionKernel::Flash,
        reserved_bytes: 0,
        allocator_factor: 1.0,
    };
}
