//! The report of a sweep, and its rows.

use quadrille_plan::native::Question;
use quadrille_plan::native::sweep::{Point, Sweep, Variable};
use quadrille_spec::{FlopsConvention, SpecError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::plan::{PricedLayout, columns, names, values_of};
use crate::{ReportError, ReportVersion};

/// The best layout for every value of one number, or every pair of values of two.
///
/// Times are in seconds, sizes in bytes, unless a field's name says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepReport {
    /// Version of the document.
    pub version: ReportVersion,
    /// Name of the model.
    pub model: String,
    /// Name of the cluster.
    pub cluster: String,
    /// Framework that trains.
    pub framework: String,
    /// Convention by which the FLOPs of TFLOP/s and MFU are counted.
    pub flops_convention: FlopsConvention,
    /// Number of devices, unless it varies.
    pub gpus: usize,
    /// Sequences in a step, unless they vary.
    pub global_batch: usize,
    /// Tokens in a sequence, unless they vary.
    pub seq_len: usize,
    /// Tokens of the whole training; null where they are not known.
    pub tokens: Option<f64>,
    /// The one or two numbers that vary.
    pub variables: Vec<SweepVariable>,
    /// A point for every value of the first number, or for every pair of values, of which those of the second vary fastest.
    pub points: Vec<SweepPoint>,
}

/// A number that varies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepVariable {
    /// Its name on the command line.
    pub name: String,
    /// True if it is the number of devices, or of nodes.
    pub is_devices: bool,
    /// Its values, ascending.
    pub values: Vec<f64>,
}

/// The best layout of a point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepPoint {
    /// Values of the numbers that vary.
    pub values: Vec<f64>,
    /// The best layout; null if missing.
    pub plan: Option<PricedLayout>,
    /// True if a limit ended the search before it looked at everything.
    pub stopped: bool,
    /// Reason why there is no layout; null where there is one.
    pub reason: Option<String>,
}

impl SweepReport {
    /// Report of a sweep.
    ///
    /// # Errors
    /// None for what a sweep has found.
    pub fn new(sweep: &Sweep) -> Result<Self, SpecError> {
        let Question { model, cluster, framework, devices, global_batch, seq_len, tokens, flops_convention, .. } =
            &sweep.question;
        let variables: Vec<_> = sweep.variables().map(SweepVariable::new).collect();
        let points = sweep.points.iter().map(|point| SweepPoint::new(point, variables.len()));
        Ok(Self {
            version: ReportVersion::CURRENT,
            model: model.name.clone(),
            cluster: cluster.name.clone(),
            framework: framework.name.to_owned(),
            flops_convention: *flops_convention,
            gpus: *devices,
            global_batch: *global_batch,
            seq_len: *seq_len,
            tokens: *tokens,
            points: points.collect::<Result<_, _>>()?,
            variables,
        })
    }

    /// Header and rows of comma-separated values: for every point the numbers that vary, the fields of its layout, and the reason
    /// why there is none.
    ///
    /// # Errors
    /// A layout that is no object of JSON, which none is.
    pub fn rows(&self) -> Result<Vec<Vec<String>>, ReportError> {
        let columns = |point: &SweepPoint| point.plan.as_ref().map_or(Ok(Vec::new()), columns);
        let priced = self.points.iter().map(columns).collect::<Result<Vec<_>, _>>()?;
        let names = names(&priced);
        let variables = self.variables.iter().map(|variable| format!("vary_{}", variable.name));
        let header =
            variables.chain(names.iter().cloned()).chain(["stopped".to_owned(), "reason".to_owned()]).collect();
        let row = |(point, columns): (&SweepPoint, &Vec<(String, String)>)| {
            let values = point.values.iter().map(ToString::to_string);
            let reason = point.reason.clone().unwrap_or_default();
            values.chain(values_of(&names, columns)).chain([point.stopped.to_string(), reason]).collect()
        };
        Ok(std::iter::once(header).chain(self.points.iter().zip(&priced).map(row)).collect())
    }
}

impl SweepVariable {
    fn new(variable: &Variable) -> Self {
        Self { name: variable.to_string(), is_devices: variable.is_devices(), values: variable.values().to_vec() }
    }
}

impl SweepPoint {
    fn new(point: &Point, variables: usize) -> Result<Self, SpecError> {
        let Point { values, question, best, stopped } = point;
        let plan = match best {
            Ok(best) => Some(PricedLayout::new(question, &question.setting()?, best, &question.layout(best)?)),
            Err(_) => None,
        };
        let reason = best.as_ref().err().map(ToString::to_string);
        Ok(Self { values: values[..variables].to_vec(), plan, stopped: *stopped, reason })
    }
}

#[cfg(test)]
mod tests {
    use quadrille_cost::native::Framework;
    use quadrille_plan::native::Nothing;
    use quadrille_spec::{Cluster, Model};
    use serde_json::{Value, json};

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
        let document = serde_json::to_value(SweepReport::new(&sweep).unwrap()).unwrap();
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
        let text = |sweep: &Sweep| sweep_text(&SweepReport::new(sweep).unwrap()).shown(Style::FULL);
        let told = text(&known);
        assert!(told.contains("error band: what 8 of 10") && !told.contains("no error band"), "{told}");
        let report = SweepReport::new(&known).unwrap();
        let band = report.points[0].plan.as_ref().and_then(|plan| plan.error_band.as_ref()).unwrap();
        let ends = [band.low, band.high].map(|end| format!("{:+.0}%", 100.0 * (end - 1.0)));
        assert!(told.contains(&ends.join(" to ")), "{ends:?}: {told}");
        // Memory four times as fast is that of another device.
        let fast = sweep("device.memory_bandwidth=2e12,8e12", None);
        let told = text(&fast);
        let reason = "no error band of device.memory_bandwidth 8000000: no published runs of this kind";
        let reason = reason.replace("8000000", "8.00 T");
        assert!(told.contains(&reason), "{told}");
        let rows = SweepReport::new(&fast).unwrap().rows().unwrap();
        let at = rows[0].iter().position(|name| name == "error_band_low").unwrap();
        assert!(!rows[1][at].is_empty() && rows[2][at].is_empty(), "{rows:?}");
    }

    #[test]
    fn rows_have_the_plan_or_why_there_is_none() {
        let mut sweep = sweep("gpus=2,4", None);
        sweep.points[1].best = Err(NOTHING);
        let rows = SweepReport::new(&sweep).unwrap().rows().unwrap();
        assert_eq!((rows.len(), rows[0][0].as_str(), rows[1][0].as_str()), (3, "vary_gpus", "2"));
        let last = |row: usize| rows[row].last().unwrap().as_str();
        assert_eq!((last(0), last(1), last(2)), ("reason", "", NOTHING.to_string().as_str()));
        assert!(rows.iter().all(|row| row.len() == rows[0].len()));
    }
}
