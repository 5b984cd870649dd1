//! How much of a step's time rests on numbers of the hardware that are assumed.

use quadrille_plan::native::explain::{Sensitivity, assumed};
use quadrille_plan::native::hardware;
use quadrille_spec::Cluster;
use serde_json::{Map, Value, json};

/// Above this part of a step for a tenth of all assumed numbers people are warned.
const MUCH: f64 = 0.02;
/// Numbers of the hardware that a warning names: at most so many, and none below this part of a step.
const NAMED: (usize, f64) = (4, 0.002);

/// What a tenth of all assumed numbers is worth of a step of `seconds`, as a part of it.
fn worth(sensitivities: &[Sensitivity], seconds: f64) -> f64 {
    assumed(sensitivities).map(|each| each.gained_seconds.abs() / seconds).sum()
}

/// A warning where much of a step's time rests on assumed numbers, or where nobody has looked.
pub(super) fn assumed_text(sensitivities: &[Sensitivity], seconds: f64) -> String {
    if sensitivities.is_empty() {
        return "note: how much of its time rests on assumed numbers was not looked at: its prices take long, and\n\
                time is limited\n"
            .to_owned();
    }
    let all = worth(sensitivities, seconds);
    if all <= MUCH {
        return String::new();
    }
    let share = |each: &Sensitivity| each.gained_seconds.abs() / seconds;
    let named = assumed(sensitivities).filter(|each| share(each) >= NAMED.1).take(NAMED.0);
    let named: Vec<_> = named.map(|each| format!("{} {:.1}%", each.field, 100.0 * share(each))).collect();
    format!(
        "warning: numbers of the hardware that nobody measured, fitted or promised carry its time: a tenth more\n\
         of each is worth {:.1}% of a step together ({})\n",
        100.0 * all,
        named.join(", ")
    )
}

/// The same as a document; null where nobody has looked.
pub(super) fn assumed_document(sensitivities: &[Sensitivity], seconds: f64) -> Value {
    if sensitivities.is_empty() {
        return Value::Null;
    }
    json!({
        "gained_share": worth(sensitivities, seconds),
        "fields": assumed(sensitivities).map(|each| each.field.as_str()).collect::<Vec<_>>(),
    })
}

/// Where each number of the hardware is from, by its name.
pub(super) fn origins(cluster: &Cluster) -> Map<String, Value> {
    hardware::fields(cluster)
        .into_iter()
        .map(|name| {
            let origin = json!(cluster.origin(&name).name());
            (name, origin)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_looked_at_is_not_told_as_nothing() {
        assert_eq!(assumed_document(&[], 1.0), Value::Null);
        assert!(assumed_text(&[], 1.0).contains("was not looked at"));
    }
}
