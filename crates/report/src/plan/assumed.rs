//! How much of a step's time rests on numbers of the hardware that are assumed.

use quadrille_plan::native::explain::{Sensitivity, assumed};
use quadrille_plan::native::hardware;
use quadrille_spec::{Cluster, Origin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::by_name::ByName;

/// Above this part of a step for a tenth of all assumed numbers people are warned.
const MUCH: f64 = 0.02;
/// Numbers of the hardware that a warning names: at most so many, and none below this part of a step.
const NAMED: (usize, f64) = (4, 0.002);

/// Part of a step that rests on assumed numbers of the hardware.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AssumedShare {
    /// Part of a step that a tenth more of all assumed numbers is worth.
    pub gained_share: f64,
    /// Names of the numbers, those worth most first.
    pub fields: Vec<String>,
    /// Part of a step that a tenth more of each is worth; no part of documents.
    #[serde(skip)]
    pub shares: Vec<f64>,
}

impl AssumedShare {
    /// Share of a step of `seconds`; `None` where nothing is known of it.
    pub fn new(sensitivities: &[Sensitivity], seconds: f64) -> Option<Self> {
        if sensitivities.is_empty() {
            return None;
        }
        let shares: Vec<f64> = assumed(sensitivities).map(|each| each.gained_seconds.abs() / seconds).collect();
        Some(Self {
            gained_share: shares.iter().sum(),
            fields: assumed(sensitivities).map(|each| each.field.clone()).collect(),
            shares,
        })
    }

    /// Warning where much of a step's time rests on assumed numbers.
    fn text(&self) -> String {
        if self.gained_share <= MUCH {
            return String::new();
        }
        let (most, least) = NAMED;
        let named = self.fields.iter().zip(&self.shares).filter(|(_, share)| **share >= least).take(most);
        let named: Vec<_> = named.map(|(field, share)| format!("{field} {:.1}%", 100.0 * share)).collect();
        format!(
            "warning: numbers of the hardware that nobody measured, fitted or promised carry its time: a tenth more\n\
             of each is worth {:.1}% of a step together ({})\n",
            100.0 * self.gained_share,
            named.join(", ")
        )
    }
}

/// Warning where much of a step's time rests on assumed numbers, or where that is not known.
pub(super) fn assumed_text(share: Option<&AssumedShare>) -> String {
    let unknown = || {
        "note: how much of its time rests on assumed numbers was not looked at: its prices take long, and\n\
         time is limited\n"
            .to_owned()
    };
    share.map_or_else(unknown, AssumedShare::text)
}

/// Origin of each number of the hardware, by its name.
pub(super) fn origins(cluster: &Cluster) -> ByName<Origin> {
    let named = |name: String| {
        let origin = cluster.origin(&name);
        (name, origin)
    };
    hardware::fields(cluster).into_iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_share_is_not_reported_as_zero() {
        assert_eq!(AssumedShare::new(&[], 1.0), None);
        assert!(assumed_text(None).contains("was not looked at"));
    }
}
