//! A sweep as a document and as rows.

use quadrille_plan::native::Question;
use quadrille_plan::native::sweep::{Point, Sweep, Variable};
use quadrille_spec::SpecError;
use serde_json::{Value, json};

use crate::plan::{columns, entry, names, values_of};

/// What varies and what does not, and for every point the entry of `plan`, or why there is none.
///
/// # Errors
/// None for what a sweep has found.
pub fn document(sweep: &Sweep) -> Result<Value, SpecError> {
    let Question { model, cluster, framework, devices, global_batch, seq_len, tokens, flops_convention, .. } =
        &sweep.question;
    let variable = |variable: &Variable| {
        json!({
            "name": variable.to_string(),
            "is_devices": variable.is_devices(),
            "values": variable.values(),
        })
    };
    Ok(json!({
        "model": model.name,
        "cluster": cluster.name,
        "framework": framework.name,
        "flops_convention": flops_convention.to_string(),
        "gpus": devices,
        "global_batch": global_batch,
        "seq_len": seq_len,
        "tokens": tokens,
        "variables": sweep.variables().map(variable).collect::<Vec<_>>(),
        "points": sweep.points.iter().map(|found| point(sweep, found)).collect::<Result<Vec<_>, _>>()?,
    }))
}

fn point(sweep: &Sweep, point: &Point) -> Result<Value, SpecError> {
    let Point { values, question, best, stopped } = point;
    let plan = match best {
        Ok(best) => Some(entry(question, &question.setting()?, best, &question.layout(best)?)?),
        Err(_) => None,
    };
    let reason = best.as_ref().err().map(ToString::to_string);
    let values = &values[..sweep.variables().count()];
    Ok(json!({ "values": values, "plan": plan, "stopped": stopped, "reason": reason }))
}

/// For comma-separated values: a header and a row for every point, with the numbers that vary, the fields of a plan, and
/// why there is none.
///
/// # Errors
/// None for what a sweep has found.
pub fn rows(sweep: &Sweep) -> Result<Vec<Vec<String>>, SpecError> {
    let columns = |point: &Point| match &point.best {
        Ok(best) => columns(&point.question, &point.question.setting()?, best),
        Err(_) => Ok(Vec::new()),
    };
    let priced = sweep.points.iter().map(columns).collect::<Result<Vec<_>, SpecError>>()?;
    let names = names(&priced);
    let variables = sweep.variables().map(|variable| format!("vary_{variable}"));
    let header = variables.chain(names.iter().cloned()).chain(["stopped".to_owned(), "reason".to_owned()]).collect();
    let row = |(point, columns): (&Point, &Vec<(String, String)>)| {
        let values = point.values.iter().take(sweep.variables().count()).map(ToString::to_string);
        let reason = point.best.as_ref().err().map_or_else(String::new, ToString::to_string);
        values.chain(values_of(&names, columns)).chain([point.stopped.to_string(), reason]).collect()
    };
    Ok(std::iter::once(header).chain(sweep.points.iter().zip(&priced).map(row)).collect())
}

#[cfg(test)]
mod tests {
    use quadrille_cost::native::Framework;
    use quadrille_plan::native::Nothing;
    use quadrille_spec::{Cluster, Model};

    use super::*;
    use crate::{Style, sweep_text};

    fn sweep(first: &str, second: Option<&str>) -> Sweep {
        let model = Model { name: "a model".to_owned(), ..Model::preset("gpt2-124m").unwrap() };
        let question = Question::new(model, Cluster::preset("selene").unwrap(), Framework::MEGATRON, 4, 16);
        Sweep::new(question, first.parse().unwrap(), second.map(|second| second.parse().unwrap())).unwrap()
    }

    const NOTHING: Nothing = Nothing::Stopped { devices: 4 };

    #[test]
    fn documents_have_the_plan_of_every_point_or_why_there_is_none() {
        let mut sweep = sweep("nvs=4,8", Some("gpus=2,4"));
        sweep.points[1].best = Err(NOTHING);
        let document = document(&sweep).unwrap();
        assert_eq!(document["variables"][1], json!({ "name": "gpus", "is_devices": true, "values": [2.0, 4.0] }));
        let [first, second] = [0, 1].map(|at| &document["points"][at]);
        assert_eq!((&first["values"], &first["plan"]["devices"]), (&json!([4.0, 2.0]), &json!(2)));
        let parts = first["plan"]["parts_s"].as_object().unwrap();
        assert!(parts["compute"].as_f64() < first["plan"]["time_s"].as_f64() && first["reason"].is_null());
        assert_eq!((&second["plan"], &second["reason"]), (&Value::Null, &json!(NOTHING.to_string())));
    }

    #[test]
    fn points_have_an_error_band_or_why_there_is_none() {
        let known = sweep("gpus=2,4", None);
        let text = |sweep: &Sweep| sweep_text(sweep).unwrap().shown(Style::FULL);
        let told = text(&known);
        assert!(told.contains("error band: what 8 of 10") && !told.contains("no error band"), "{told}");
        let band = &document(&known).unwrap()["points"][0]["plan"]["error_band"];
        let ends = ["low", "high"].map(|end| format!("{:+.0}%", 100.0 * (band[end].as_f64().unwrap() - 1.0)));
        assert!(told.contains(&ends.join(" to ")), "{ends:?}: {told}");
        // Memory four times as fast is that of another device.
        let fast = sweep("device.memory_bandwidth=2e12,8e12", None);
        let told = text(&fast);
        let reason = "no error band of device.memory_bandwidth 8000000: no published runs of this kind";
        let reason = reason.replace("8000000", "8.00 T");
        assert!(told.contains(&reason), "{told}");
        let rows = rows(&fast).unwrap();
        let at = rows[0].iter().position(|name| name == "error_band_low").unwrap();
        assert!(!rows[1][at].is_empty() && rows[2][at].is_empty(), "{rows:?}");
    }

    #[test]
    fn rows_have_the_plan_or_why_there_is_none() {
        let mut sweep = sweep("gpus=2,4", None);
        sweep.points[1].best = Err(NOTHING);
        let rows = rows(&sweep).unwrap();
        assert_eq!((rows.len(), rows[0][0].as_str(), rows[1][0].as_str()), (3, "vary_gpus", "2"));
        let last = |row: usize| rows[row].last().unwrap().as_str();
        assert_eq!((last(0), last(1), last(2)), ("reason", "", NOTHING.to_string().as_str()));
        assert!(rows.iter().all(|row| row.len() == rows[0].len()));
    }
}
