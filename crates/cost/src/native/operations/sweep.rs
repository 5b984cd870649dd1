//! Element-wise operations.

macro_rules! sweeps {
    ($($variant:ident $name:literal $flops:literal,)+) => {
        /// Element-wise operations.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(in crate::native) enum Sweep {
            $($variant),+
        }

        impl Sweep {
            /// All, in the order of their declaration.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The name of the operation in ledgers.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// Arithmetic operations that it takes for an element.
            pub fn flops(self) -> f64 {
                match self { $(Self::$variant => $flops),+ }
            }
        }
    };
}

// Arithmetic operations are those of the LBNL model's layers (Subramanian et al. 2024, public code): 9 forward and 12
// backward for a layer norm, 8 and 13 for GELU, 5 for the softmax of a score with its dropout, 1 for dropout and bias;
// spread over the operations of this program, 0 for copies. RMS norm, rotary positions, SwiGLU and the squared error
// are counted from their definitions.
sweeps! {
    Embed "embed" 0.0,
    Patches "patches" 0.0,
    AddPositions "add-positions" 1.0,
    Dropout "dropout" 1.0,
    RowSums "row-sums" 1.0,
    CenteredSquares "centered-squares" 3.0,
    RowSquares "row-squares" 2.0,
    Norm "norm" 5.0,
    Bias "bias" 1.0,
    Rotate "rotate" 3.0,
    RotateBack "rotate-back" 3.0,
    BiasGelu "bias-gelu" 9.0,
    BiasSwiglu "bias-swiglu" 3.0,
    Gelu "gelu" 8.0,
    Swiglu "swiglu" 3.0,
    Residual "residual" 3.0,
    CrossEntropyMax "cross-entropy-max" 1.0,
    CrossEntropySums "cross-entropy-sums" 3.0,
    CrossEntropyGradient "cross-entropy-gradient" 3.0,
    SquaredError "squared-error" 4.0,
    EmbedBackward "embed-backward" 1.0,
    PositionsBackward "positions-backward" 1.0,
    NormBackwardSums "norm-backward-sums" 6.0,
    NormBackward "norm-backward" 6.0,
    BiasBackward "bias-backward" 1.0,
    GeluBackward "gelu-backward" 13.0,
    SwigluBackward "swiglu-backward" 6.0,
    PackKeysValues "pack-keys-values" 0.0,
    UnpackKeysValues "unpack-keys-values" 0.0,
    CopyPanel "copy-panel" 0.0,
    StorePanel "store-panel" 1.0,
    Pack "pack" 0.0,
    Unpack "unpack" 0.0,
    SliceRows "slice-rows" 0.0,
    Accumulate "accumulate" 1.0,
    AdamW "adamw" 12.0,
    // Scale, mask, softmax and dropout of stored scores: no operation of the step program.
    Scores "scores" 6.0,
}

impl Sweep {
    /// The operation of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|sweep| sweep.name() == name)
    }
}
