//! What was found, as a document and as a table of comma-separated values.

use quadrille_plan::native::{Answer, Question, Ranked, Setting};
use quadrille_run::layout_json;
use quadrille_run::units::shortest;
use quadrille_spec::{Axis, Imbalance, Layout, SpecError};
use serde_json::{Map, Value, json};

use super::advised::advised_document;
use super::assumed::{assumed_document, origins};
use super::band;
use super::budget;
use super::text::oversized;
use super::{explanation_document, memory};
use crate::candidate::notation;

/// All that was found, as `plan --json` prints it.
///
/// # Errors
/// None for what a search has found.
pub fn document(answer: &Answer) -> Result<Value, SpecError> {
    let Answer { question, search, found, .. } = answer;
    let counts = found.counts;
    let entries = |ranked: &[Ranked]| {
        let entry = |ranked| entry(question, &search.setting, ranked, &question.layout(ranked)?);
        ranked.iter().map(entry).collect::<Result<Vec<_>, _>>()
    };
    let mut plans = entries(&found.ranked)?;
    for (plan, ranked) in plans.iter_mut().zip(&found.ranked) {
        tell_variants(answer, ranked, plan);
    }
    let mut document = json!({
        "model": question.model.name,
        "cluster": question.cluster.name,
        "cost": "native",
        "framework": question.framework.name,
        "planned": question.framework.planned(),
        "sparsity": question.framework.sparsity,
        "imbalance": question.imbalance,
        "flops_convention": question.flops_convention.to_string(),
        "gpus": question.devices,
        "global_batch": question.global_batch,
        "seq_len": question.seq_len,
        "origins": origins(&question.cluster),
        "device_memory_bytes": question.cluster.device_memory,
        "reserved_bytes": question.reserved()?,
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
        "refusals": answer.refusals().iter().map(|refused| json!({
            "rule": refused.rule,
            "grids": refused.grids,
            "configurations": refused.configurations,
            "example": refused.example,
        })).collect::<Vec<_>>(),
        "seconds": answer.seconds,
        "stopped": found.stopped,
        "too_long": found.too_long,
        "plans": plans,
        "advised": advised_document(answer)?,
        "called_too_large": oversized(question),
        "framework_differences": question.differences(&question.layout(&answer.advised)?),
        "assumed": assumed_document(&answer.sensitivities, answer.advised.price.seconds),
    });
    let band = band::fields(question, &answer.advised.candidate);
    for (name, value) in budget::document(answer).into_iter().chain(band) {
        document[name] = value;
    }
    if search.front {
        document["pareto"] = json!(entries(&answer.front)?);
        document["stopped_gpus"] = json!(answer.incomplete);
    }
    if let Some(explanation) = &answer.explanation {
        document["explanation"] = explanation_document(explanation, &search.setting);
    }
    Ok(document)
}

/// Adds the number of variants of a layout to its entry, where the best of them alone is shown.
pub(super) fn tell_variants(answer: &Answer, ranked: &Ranked, entry: &mut Value) {
    if let Some(variants) = answer.variants_of(ranked) {
        entry["variants"] = json!(variants);
    }
}

/// For comma-separated values: a header, then the ranking, or the front if that was asked for, a layout a row.
///
/// # Errors
/// None for what a search has found.
pub fn rows(answer: &Answer) -> Result<Vec<Vec<String>>, SpecError> {
    let shown = if answer.search.front { &answer.front } else { &answer.found.ranked };
    let columns = |ranked| columns(answer.question, &answer.search.setting, ranked);
    let rows = shown.iter().map(columns).collect::<Result<Vec<_>, _>>()?;
    let names = names(&rows);
    let rows: Vec<_> = rows.iter().map(|row| values_of(&names, row)).collect();
    Ok((!names.is_empty()).then_some(names).into_iter().chain(rows).collect())
}

/// The names of the columns of some rows, each once: layouts with SUMMA, or with groups of microbatches, have one more.
pub(crate) fn names(rows: &[Vec<(String, String)>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (name, _) in rows.iter().flatten() {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// What a row has in these columns; nothing in those that it does not have.
pub(crate) fn values_of(names: &[String], row: &[(String, String)]) -> Vec<String> {
    let cell = |name: &String| row.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    names.iter().map(|name| cell(name).unwrap_or_default()).collect()
}

/// A layout with its price, an entry of `plans`.
///
/// # Errors
/// None for a layout that has a price.
pub fn entry(question: &Question, setting: &Setting, ranked: &Ranked, layout: &Layout) -> Result<Value, SpecError> {
    let Ranked { candidate, price } = ranked;
    let mut layout = layout_json(layout);
    // What values are other frameworks say themselves.
    if let Some(fields) = layout.as_object_mut().filter(|_| !question.framework.is_own()) {
        fields.remove("dtype");
    }
    let parts = &price.parts;
    // Of expert, which few layouts have, where there is one.
    let named = Axis::ALL.into_iter().filter(|axis| *axis != Axis::Expert || candidate.size(*axis) > 1);
    let communication: Map<String, Value> =
        named.map(|axis| (axis.name().to_owned(), json!(parts.communication[axis as usize]))).collect();
    let mut classes: Map<String, Value> =
        memory(price).into_iter().map(|(class, bytes)| (class.to_owned(), json!(bytes))).collect();
    classes.insert("stage".to_owned(), json!(price.memory.stage));
    let derived = question.derived(setting, ranked);
    let mut entry = json!({
        "notation": notation(candidate),
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
        "flops_convention": question.flops_convention.to_string(),
        "model_flops": derived.model_flops,
        "executed_flops": price.executed_flops,
        "tflops_per_device": derived.tflops_per_device,
        "mfu": derived.mfu,
        "hfu": derived.hfu,
        "tokens_per_s": derived.tokens_per_second,
    });
    let of_layout = || question.imbalance.times_in(setting.model, candidate.expert_ranks());
    let imbalance = (question.imbalance != Imbalance::EQUAL).then(of_layout);
    let imbalance = imbalance.map(|times| ("imbalance", json!(times)));
    let fitting = derived.fitting_runs.map(|part| ("fitting_runs", json!(part)));
    let band = band::fields(question, candidate);
    for (name, value) in imbalance.into_iter().chain(fitting).chain(budget::fields(question, &derived)).chain(band) {
        entry[name] = value;
    }
    Ok(entry)
}

/// The same as named columns of text; lists with spaces between their values.
///
/// # Errors
/// None for what a search of this question has found.
pub fn columns(question: &Question, setting: &Setting, ranked: &Ranked) -> Result<Vec<(String, String)>, SpecError> {
    fn flatten(name: &str, value: &Value, columns: &mut Vec<(String, String)>) {
        let text = match value {
            Value::Object(fields) => {
                let prefix = if matches!(name, "" | "layout") { String::new() } else { format!("{name}_") };
                fields.iter().for_each(|(field, value)| flatten(&format!("{prefix}{field}"), value, columns));
                return;
            }
            // A column of what some rows have only.
            Value::Null => return,
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
    flatten("", &entry(question, setting, ranked, &question.layout(ranked)?)?, &mut found);
    // Every row has these columns, with a band or without.
    for name in band::COLUMNS {
        if found.iter().all(|(known, _)| known != name) {
            found.push((name.to_owned(), String::new()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_other_columns_are_of_one_table() {
        let row = |columns: &[(&str, &str)]| -> Vec<(String, String)> {
            columns.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let rows = [row(&[("a", "1"), ("c", "2")]), row(&[("a", "3"), ("b", "4"), ("c", "5")])];
        let names = names(&rows);
        assert_eq!(names, ["a", "c", "b"]);
        assert_eq!(rows.map(|row| values_of(&names, &row)), [["1", "2", ""], ["3", "5", "4"]]);
    }
}
