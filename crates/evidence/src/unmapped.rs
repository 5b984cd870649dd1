//! Why a row of a source is not predicted.

use std::fmt;

/// Why a row is not predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unmapped {
    /// It was computed by a formula or simulated.
    NotMeasured,
    /// It is no time or memory of a whole step.
    Metric(&'static str),
    /// A column is empty that the prediction needs, and the source's texts do not say it either.
    Missing(&'static str),
    /// Experts of which the source does not say how many a token chooses, how wide they are, or how tokens come to them.
    Experts,
    /// Products in 8 or 4 bits on a device without them.
    Narrow,
    /// The source counts FLOPs in a way that cannot be turned into seconds.
    Convention,
    /// A source whose framework is not described.
    Source,
    /// An optimizer that is not described.
    Optimizer,
    /// A device that is not described.
    Device,
    /// A network that the source does not say enough about.
    Network,
    /// A model that is no plain decoder: the reason.
    Architecture(&'static str),
    /// A layout that is not described, or that the framework's rules refuse.
    Layout,
    /// An attention kernel that the source does not say.
    Kernels,
    /// Kernels were chosen for the same bits, not for speed.
    Deterministic,
    /// The same run is another row, too.
    Repeated,
}

impl fmt::Display for Unmapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMeasured => f.write_str("not measured: computed or simulated"),
            Self::Metric(name) => write!(f, "'{name}' is no time or memory of a step"),
            Self::Missing(column) => write!(f, "'{column}' is not said"),
            Self::Experts => f.write_str("experts that are not described"),
            Self::Narrow => f.write_str("products in 8 or 4 bits on a device without them"),
            Self::Convention => f.write_str("a count of FLOPs that gives no seconds"),
            Self::Source => f.write_str("a framework that is not described"),
            Self::Optimizer => f.write_str("an optimizer that is not described"),
            Self::Device => f.write_str("a device that is not described"),
            Self::Network => f.write_str("a network that is not described"),
            Self::Architecture(why) => write!(f, "another model: {why}"),
            Self::Layout => f.write_str("a layout that cannot be described"),
            Self::Kernels => f.write_str("an attention kernel that is not said"),
            Self::Deterministic => f.write_str("kernels that give the same bits, not the fastest"),
            Self::Repeated => f.write_str("the same run as another row"),
        }
    }
}
