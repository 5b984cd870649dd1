//! Which of AxoNN's overlap optimisations are on, and that of experts.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::SpecError;

/// The switches of the overlap passes (AxoNN SC24, section V-D). None changes a bit of the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Overlap {
    /// OAR: the reduction of an input gradient runs under the weight-gradient product. Without effect in the zero-bubble
    /// schedule, which puts that product off.
    pub all_reduce: bool,
    /// ORS: reduce-scatters of weight gradients are waited for after the whole backward pass: the last of each, where
    /// ZeRO has one over data after that over z.
    pub reduce_scatter: bool,
    /// OAG: the next layer's weights are gathered under this layer's computation.
    pub all_gather: bool,
    /// OAA: all-to-alls to and from experts run under the shared perceptron, and whatever else does not need their rows.
    pub all_to_all: bool,
}

impl Overlap {
    /// Every overlap.
    pub const ALL: Self = Self { all_reduce: true, reduce_scatter: true, all_gather: true, all_to_all: true };
    /// No overlap.
    pub const NONE: Self = Self { all_reduce: false, reduce_scatter: false, all_gather: false, all_to_all: false };
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ALL => f.write_str("all"),
            Self::NONE => f.write_str("none"),
            Self { all_reduce, reduce_scatter, all_gather, all_to_all } => {
                let named = [(all_reduce, "oar"), (reduce_scatter, "ors"), (all_gather, "oag"), (all_to_all, "oaa")];
                f.write_str(
                    &named.into_iter().filter(|(on, _)| *on).map(|(_, name)| name).collect::<Vec<_>>().join(","),
                )
            }
        }
    }
}

impl FromStr for Overlap {
    type Err = SpecError;

    /// Reads `all`, `none` or a list of `oar`, `ors`, `oag`, `oaa`.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        match text {
            "all" => return Ok(Self::ALL),
            "none" => return Ok(Self::NONE),
            _ => {}
        }
        let mut overlap = Self::NONE;
        for name in text.split(',').map(str::trim) {
            match name {
                "oar" => overlap.all_reduce = true,
                "ors" => overlap.reduce_scatter = true,
                "oag" => overlap.all_gather = true,
                "oaa" => overlap.all_to_all = true,
                _ => {
                    return Err(SpecError::Unknown {
                        what: "overlap",
                        name: name.to_owned(),
                        known: ["all", "none", "oar", "ors", "oag", "oaa"].map(str::to_owned).to_vec(),
                    });
                }
            }
        }
        Ok(overlap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_round_trip() {
        for text in ["all", "none", "oar", "ors,oag", "oar,oag,oaa"] {
            assert_eq!(text.parse::<Overlap>().unwrap().to_string(), text);
        }
        assert!("oar,xyz".parse::<Overlap>().is_err());
        assert!("".parse::<Overlap>().is_err());
    }
}
