//! Why a search found nothing, and what would help.

use quadrille_spec::{Axis, SpecError};

use super::ranking::Ranked;
use super::search::{Found, Search};

/// A search without a result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Nothing {
    /// The search was stopped too early.
    #[error("the search was stopped before it found a layout of {devices} devices that fits; give it more time")]
    Stopped {
        /// The wanted number of devices.
        devices: usize,
    },
    /// Every configuration breaks a rule.
    #[error("no legal layout of {devices} devices: {refused}, most because '{rule}', e.g. {example}")]
    Illegal {
        /// The wanted number of devices.
        devices: usize,
        /// How many grids or configurations were refused.
        refused: String,
        /// The rule that refused most.
        rule: String,
        /// One of its refusals, with a remedy.
        example: String,
    },
    /// No legal layout fits.
    #[error(
        "no layout of {devices} devices fits into {capacity} bytes: the smallest needs {} (parameters {}, gradients {}, \
         optimizer {}, activations {}, buffers {}, framework {}); use more devices or devices with more memory, or fix \
         and reserve less",
        smallest.price.memory.total(), smallest.price.memory.parameters, smallest.price.memory.gradients,
        smallest.price.memory.optimizer, smallest.price.memory.activations, smallest.price.memory.buffers,
        smallest.price.memory.framework
    )]
    TooLarge {
        /// The wanted number of devices.
        devices: usize,
        /// Bytes that a layout may use of a device.
        capacity: u64,
        /// The layout that needs least.
        smallest: Box<Ranked>,
    },
    /// Constraints that no grid keeps, or what cannot be priced.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

impl Search<'_> {
    /// Why a search with this outcome found nothing.
    pub fn why_nothing(&self, found: &Found, stop: &(dyn Fn() -> bool + Sync)) -> Nothing {
        let devices = self.devices;
        if found.counts.grids == 0 {
            return self.no_grid().into();
        }
        if found.counts.legal == 0 && !found.stopped {
            let most = found.refused.iter().max_by_key(|(_, refused)| (refused.grids, refused.configurations));
            let rule = most.map_or_else(String::new, |(rule, _)| rule.to_string());
            let example =
                most.and_then(|(_, refused)| self.refusal(refused)).map_or_else(String::new, |e| e.to_string());
            let refused = match found.counts.enumerated {
                0 => format!("{} grids are refused", found.counts.grids),
                configurations => {
                    format!("{} grids and {configurations} configurations are refused", found.counts.grids)
                }
            };
            return Nothing::Illegal { devices, refused, rule, example };
        }
        match (self.setting.capacity, self.smallest(stop)) {
            (_, Err(error)) => error.into(),
            (Some(capacity), Ok(Some(smallest))) if smallest.price.memory.total() > capacity => {
                Nothing::TooLarge { devices, capacity, smallest: Box::new(smallest) }
            }
            _ => Nothing::Stopped { devices },
        }
    }

    /// Which constraint no grid keeps.
    fn no_grid(&self) -> SpecError {
        for axis in Axis::ALL {
            let range = self.space.axes[axis as usize];
            let divides = (range.least..=range.most.min(self.devices)).any(|size| self.devices.is_multiple_of(size));
            if !divides {
                let near = quadrille_spec::nearest_divisors(self.devices, range.least);
                let near = near.iter().map(|size| format!("{axis}={size}")).collect::<Vec<_>>().join(" or ");
                let value = range.only().map_or(format!("{}..={}", range.least, range.most), |only| only.to_string());
                let rule = format!("the size of an axis divides the {} devices", self.devices);
                return SpecError::invalid(axis.name(), value, rule, format!("try {near}"));
            }
        }
        let rule = format!("the sizes of all axes multiply to the {} devices", self.devices);
        SpecError::invalid("constraints", "all together", rule, "fix or bound fewer axes")
    }
}
