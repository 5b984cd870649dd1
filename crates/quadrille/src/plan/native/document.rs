//! What was found, as a document and as a table of comma-separated values.

use quadrille_plan::native::{Ranked, Setting};
use quadrille_run::layout_json;
use quadrille_spec::{Axis, Layout};
use serde_json::{Map, Value, json};

use super::describe::{Derived, memory};
use super::{Answer, Case, layout};
use crate::failure::Failure;
use crate::output::{csv, shortest};

impl Answer<'_> {
    pub fn document(&self) -> Result<Value, Failure> {
        let Self { case, search, found, .. } = self;
        let counts = found.counts;
        let entries = |ranked: &[Ranked]| {
            ranked.iter().map(|ranked| entry(case, &search.setting, ranked)).collect::<Result<Vec<_>, _>>()
        };
        let mut document = json!({
            "model": case.model.name,
            "cluster": case.cluster.name,
            "cost": "native",
            "framework": case.framework.name,
            "gpus": case.gpus,
            "global_batch": case.global_batch,
            "seq_len": case.seq_len,
            "device_memory_bytes": case.cluster.device_memory,
            "reserved_bytes": case.reserved()?,
            "counts": {
                "grids": counts.grids,
                "legal_grids": counts.legal_grids,
                "configurations": counts.enumerated,
                "legal": counts.legal,
                "priced": counts.priced,
                "fitting": counts.fitting,
                "too_large": counts.too_large,
                "too_slow": counts.too_slow,
            },
            "refusals": self.refusals().iter().map(|refusal| json!({
                "rule": refusal.rule,
                "grids": refusal.grids,
                "configurations": refusal.configurations,
                "example": refusal.example,
            })).collect::<Vec<_>>(),
            "seconds": self.seconds,
            "stopped": found.stopped,
            "plans": entries(&found.ranked)?,
        });
        if search.front {
            document["pareto"] = json!(entries(&self.front)?);
            document["stopped_gpus"] = json!(self.incomplete);
        }
        if let Some(explanation) = &self.explanation {
            document["explanation"] = explanation.document(&search.setting);
        }
        Ok(document)
    }

    /// The ranking, or the front if that was asked for, a layout a line.
    pub fn csv(&self) -> Result<String, Failure> {
        let shown = if self.search.front { &self.front } else { &self.found.ranked };
        let rows: Vec<_> =
            shown.iter().map(|ranked| columns(self.case, &self.search.setting, ranked)).collect::<Result<_, _>>()?;
        let header = rows.first().map(|row| row.iter().map(|(name, _)| name.clone()).collect());
        let rows = rows.into_iter().map(|row| row.into_iter().map(|(_, value)| value).collect());
        csv(header.into_iter().chain(rows))
    }

    /// What each rule refused, most grids first.
    pub fn refusals(&self) -> Vec<Refusal> {
        let mut refusals: Vec<_> = self
            .found
            .refused
            .iter()
            .map(|(rule, refused)| Refusal {
                rule: rule.to_string(),
                grids: refused.grids,
                configurations: refused.configurations,
                example: self.search.refusal(refused).map_or_else(String::new, |error| error.to_string()),
            })
            .collect();
        refusals.sort_by_key(|refusal| std::cmp::Reverse((refusal.grids, refusal.configurations)));
        refusals
    }
}

/// What a rule refused.
pub struct Refusal {
    pub rule: String,
    pub grids: u64,
    pub configurations: u64,
    /// The message of one of them.
    pub example: String,
}

/// A layout with its price.
pub fn entry(case: &Case, setting: &Setting, ranked: &Ranked) -> Result<Value, Failure> {
    entry_of(case, setting, ranked, &layout(case, ranked)?)
}

/// The same of a layout whose pieces and groups a search would not choose.
pub fn entry_of(case: &Case, setting: &Setting, ranked: &Ranked, layout: &Layout) -> Result<Value, Failure> {
    let Ranked { candidate, price } = ranked;
    let mut layout = layout_json(layout);
    // What values are is the framework's.
    if let Some(fields) = layout.as_object_mut() {
        fields.remove("dtype");
    }
    let parts = &price.parts;
    let communication: Map<String, Value> =
        Axis::ALL.into_iter().map(|axis| (axis.name().to_owned(), json!(parts.communication[axis as usize]))).collect();
    let mut classes: Map<String, Value> =
        memory(price).into_iter().map(|(class, bytes)| (class.to_owned(), json!(bytes))).collect();
    classes.insert("stage".to_owned(), json!(price.memory.stage));
    let derived = Derived::new(case, setting, ranked);
    let mut entry = json!({
        "layout": layout,
        "devices": candidate.devices(),
        "time_s": price.seconds,
        "parts_s": {
            "compute": parts.compute,
            "memory_bound": parts.memory_bound,
            "launch": parts.launch,
            "communication": communication,
            "bubble": parts.bubble,
            "optimizer": parts.optimizer,
            "tokens": parts.data_loading,
        },
        "memory_bytes": price.memory.total(),
        "memory": classes,
        "model_flops": price.model_flops,
        "executed_flops": price.executed_flops,
        "mfu": derived.mfu,
        "hfu": derived.hfu,
        "tokens_per_s": derived.tokens_per_second,
    });
    let optional = [("days", derived.days), ("device_hours", derived.device_hours), ("cost", derived.cost)];
    for (name, value) in optional {
        if let Some(value) = value {
            entry[name] = json!(value);
        }
    }
    Ok(entry)
}

/// The same as named columns of text; lists with spaces between their values.
pub fn columns(case: &Case, setting: &Setting, ranked: &Ranked) -> Result<Vec<(String, String)>, Failure> {
    fn flatten(name: &str, value: &Value, columns: &mut Vec<(String, String)>) {
        let text = match value {
            Value::Object(fields) => {
                let prefix = if matches!(name, "" | "layout") { String::new() } else { format!("{name}_") };
                fields.iter().for_each(|(field, value)| flatten(&format!("{prefix}{field}"), value, columns));
                return;
            }
            Value::Array(values) => values.iter().map(Value::to_string).collect::<Vec<_>>().join(" "),
            Value::String(text) => text.clone(),
            Value::Number(number) => number
                .as_u64()
                .map_or_else(|| number.as_f64().map_or_else(String::new, shortest), |whole| whole.to_string()),
            other => other.to_string(),
        };
        columns.push((name.to_owned(), text));
    }
    let mut found = Vec::new();
    flatten("", &entry(case, setting, ranked)?, &mut found);
    Ok(found)
}
