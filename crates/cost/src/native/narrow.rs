//! Products whose operands are cast to fewer bits than they are stored in: 8 or 4.
//!
//! A linear layer casts its input and the gradient of its output, each once and in both orders of its elements: one for the
//! product of the forward pass or of the input gradient, one for that of the weight gradient. Weights are cast once a step,
//! which is not priced: of a parameter six bytes, beside some thirty of its update. Nor are the narrow copies of weights counted
//! that a framework keeps beside them, if it does: with parameters stored in 8 bits alone there are none.

use quadrille_spec::{Device, ElementType, Peaks, SpecError, named};

/// What operands of products are cast to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NarrowFormat {
    /// 8 bits with a scale for a whole tensor, from its largest element: a pass over it before the cast.
    Fp8,
    /// 8 bits with a scale of 4 bytes for each 128 elements (DeepSeek-V3, arXiv 2412.19437, section 3.3).
    Fp8Block,
    /// 8 bits with a scale of a byte for each 32 elements (Open Compute Project, Microscaling Formats 1.0).
    Mxfp8,
    /// 4 bits with a scale of a byte for each 16 elements and one for the tensor, from its largest element; operands of weight
    /// gradients are rotated (NVIDIA, arXiv 2509.25149).
    Nvfp4,
}

named!(NarrowFormat, "format of products", {
    "fp8" => Fp8,
    "fp8-block" => Fp8Block,
    "mxfp8" => Mxfp8,
    "nvfp4" => Nvfp4,
});

impl NarrowFormat {
    /// Bytes of an operand's element, with its share of the scales.
    pub(super) fn operand_bytes(self) -> f64 {
        match self {
            Self::Fp8 => 1.0,
            Self::Fp8Block => 1.0 + 4.0 / 128.0,
            Self::Mxfp8 => 1.0 + 1.0 / 32.0,
            Self::Nvfp4 => 0.5 + 1.0 / 16.0,
        }
    }

    /// Bytes of an element of an operand, and of its gradient, that is gathered over axes that cut weights: ranks cast before they send
    /// (Transformer Engine's all-gathers of quantised tensors). Scales that go along one order of the elements ask for gradients in
    /// both orders, one for either product. Scales are left out, and 4 bits count as a byte, two orders of them as well.
    pub(super) fn gathered_bytes(self) -> [u64; 2] {
        match self {
            Self::Fp8 | Self::Nvfp4 => [1, 1],
            Self::Fp8Block | Self::Mxfp8 => [1, 2],
        }
    }

    /// Bytes of an element of an operand that is kept as it was cast; scales are left out, and 4 bits count as a byte.
    pub(super) fn kept_bytes(self) -> u64 {
        self.operand_bytes().floor().max(1.0) as u64
    }

    /// Bytes that the cast of an element of `stored` bytes moves: it is read, before that once more where the scale is the whole
    /// tensor's, and written in both orders.
    pub(super) fn cast_bytes(self, stored: f64) -> f64 {
        let reads = match self {
            Self::Fp8 | Self::Nvfp4 => 2.0,
            Self::Fp8Block | Self::Mxfp8 => 1.0,
        };
        reads * stored + 2.0 * self.operand_bytes()
    }

    /// FLOP/s of such products; `None`: the device has none. Tensor cores that scale 32 elements at a time came with those of 4 bits.
    pub fn peak(self, peaks: &Peaks) -> Option<f64> {
        match self {
            Self::Fp8 | Self::Fp8Block => peaks.fp8,
            Self::Mxfp8 => peaks.fp4.and(peaks.fp8),
            Self::Nvfp4 => peaks.fp4,
        }
    }

    /// Makes sure that a device has products of such operands.
    ///
    /// # Errors
    /// It says nothing of them.
    pub fn check_on(self, device: &Device) -> Result<(), SpecError> {
        if self.peak(&device.peak).is_some() {
            return Ok(());
        }
        let field = match self {
            Self::Fp8 | Self::Fp8Block => "peak.fp8",
            Self::Mxfp8 | Self::Nvfp4 => "peak.fp4",
        };
        let rule = format!("{} has no products of such operands (it has no {field})", device.name);
        let remedy = "name a device that has them, or leave products in the type of values";
        Err(SpecError::invalid("products", self, rule, remedy))
    }
}

/// Types of a framework's numbers; `None`: its usual ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Numbers {
    /// Type in which gradients of weights are summed: f32, or 16 bits.
    pub gradients: Option<ElementType>,
    /// Type in which the optimizer's moments are stored.
    pub moments: Option<Moments>,
    /// Type to which operands of products of blocks are cast; `None`: they are not cast. The head's never are.
    pub products: Option<NarrowFormat>,
}

impl Numbers {
    /// [`Self::default`], in constants.
    pub(super) const USUAL: Self = Self { gradients: None, moments: None, products: None };
}

/// What both moments of an optimizer are stored in, its master copy being f32 (Megatron-Core's precision-aware optimizer).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moments {
    /// 4 bytes each.
    F32,
    /// 2 bytes each.
    Bf16,
    /// A byte each.
    Fp8,
}

named!(Moments, "type of moments", { "f32" => F32, "bf16" => Bf16, "fp8" => Fp8 });

impl Moments {
    /// Bytes of both.
    pub fn bytes(self) -> u64 {
        match self {
            Self::F32 => 8,
            Self::Bf16 => 4,
            Self::Fp8 => 2,
        }
    }
}
