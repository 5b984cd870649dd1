//! The planning request of options of the command line.

use quadrille_plan::native::{Assignments, ClusterSource, ModelSource, PlanRequest};
use quadrille_run::{Settings, described, imbalance};
use quadrille_spec::{Cluster, ElementType, Field, Model, SpecError};
use serde_json::Value;

use super::question::QuestionArguments;
use crate::arguments::ModelArguments;
use crate::failure::Failure;
use crate::layout_arguments::LayoutArguments;
use crate::output;

/// The request of the options that `plan` and `sweep` share; numbers of devices are left to them.
///
/// # Errors
/// Files that cannot be read, or break a rule; an option that is no value of its field.
pub fn request(
    model: &ModelArguments,
    layout: &LayoutArguments,
    question: &QuestionArguments,
    dtype: Option<ElementType>,
) -> Result<PlanRequest, Failure> {
    if layout.ranks == Some(0) {
        return Err(Failure::usage("--ranks 0: there is at least one rank; give a positive number"));
    }
    let mut choices = layout.flags.said.clone();
    if let Some(grid) = layout.grid.as_deref().filter(|grid| *grid != "auto") {
        choices = choices.with(Field::Grid, Field::Grid.parse(grid)?);
    }
    Ok(PlanRequest {
        model: model_source(model)?,
        set: assignments(&model.set)?,
        cluster: layout.cluster.as_deref().map(cluster_source).transpose()?,
        gpus: layout.ranks.into_iter().collect(),
        framework: question.framework.clone(),
        sparsity: question.sparsity,
        dtype,
        products: question.numbers.products,
        moments: question.numbers.moments,
        imbalance: question.imbalance.as_deref().map(imbalance).transpose()?,
        any_layout: question.any_layout,
        layout: layout.said(None).read()?,
        fix: assignments(&question.fix)?,
        max: assignments(&question.max)?,
        min: assignments(&question.min)?,
        memory_reserve: question.memory_reserve,
        search_limit: question.search_limit,
        tokens: question.tokens,
        price_per_hour: question.price_per_hour,
        currency: question.currency.as_deref().map(str::parse).transpose()?,
        days: question.days,
        goodput: question.goodput,
        mtbf: question.mtbf,
        checkpoint_bandwidth: question.checkpoint_bandwidth,
        checkpoint_seconds: question.checkpoint_seconds,
        restart_seconds: question.restart_seconds,
        flops_convention: question.flops_convention,
        choices,
        ..PlanRequest::default()
    })
}

/// Sets the numbers of devices or of nodes in place of `--ranks`, which is another name of one.
///
/// # Errors
/// Both, or `--ranks` with either.
pub fn set_devices(request: &mut PlanRequest, gpus: Vec<usize>, nodes: Vec<usize>) -> Result<(), Failure> {
    let given = [("--gpus", gpus.last()), ("--nodes", nodes.last()), ("--ranks", request.gpus.last())];
    let given: Vec<_> = given.into_iter().filter_map(|(option, count)| Some((option, *count?))).collect();
    if let [(one, count), (other, other_count), ..] = given.as_slice() {
        let rule = "both are the number of devices; leave one of them out";
        return Err(Failure::usage(format!("{one} {count} and {other} {other_count}: {rule}")));
    }
    if !gpus.is_empty() {
        request.gpus = gpus;
    }
    request.nodes = nodes;
    Ok(())
}

/// Prints where model and cluster are from, if more than usual is printed.
pub fn print_sources(model: &ModelArguments, layout: &LayoutArguments) {
    let configuration = model.from_hf.as_deref().map(|path| path.display().to_string());
    output::source("model", configuration.as_deref().or(model.model.as_deref()).unwrap_or(PlanRequest::MODEL));
    output::source("cluster", layout.cluster.as_deref().unwrap_or(PlanRequest::CLUSTER));
}

fn assignments(texts: &[String]) -> Result<Assignments, SpecError> {
    Assignments::from_texts(texts.iter().map(String::as_str))
}

/// A preset by its name; files by what they hold, so that a request reads none.
fn model_source(model: &ModelArguments) -> Result<Option<ModelSource>, Failure> {
    let set = Settings::replaced_of_model(&model.set)?;
    if let Some(path) = &model.from_hf {
        // Errors name the file.
        described::model_of_hugging_face(path, &set)?;
        let text = described::configuration(path)?;
        return match serde_json::from_str(&text) {
            Ok(Value::Object(configuration)) => Ok(Some(ModelSource::HuggingFace(configuration))),
            _ => Err(Failure::usage(format!("{}: it is no object of JSON", path.display()))),
        };
    }
    let Some(name) = model.model.as_deref() else { return Ok(None) };
    if described::names_file(name) {
        described::model(name, &set)?;
        return Ok(Some(ModelSource::Described(Box::new(described::model_file(name)?))));
    }
    Model::preset_text(name)?;
    Ok(Some(ModelSource::from(name)))
}

fn cluster_source(name: &str) -> Result<ClusterSource, Failure> {
    if described::names_file(name) {
        return Ok(ClusterSource::from(&described::cluster(name)?));
    }
    Cluster::preset_text(name)?;
    Ok(ClusterSource::from(name))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::CommandFactory;
    use proptest::prelude::*;
    use proptest::sample::{Index, select};
    use serde_json::{Map, json};

    use super::super::plan_request;
    use super::*;
    use crate::arguments::{Arguments, Command};
    use crate::launch;

    /// Options with one value, each with some of their values.
    const OPTIONS: &[(&str, &[&str])] = &[
        ("model", &["llama2-7b", "mixtral-8x7b"]),
        ("cluster", &["dgx-h100", "gb200-nvl72"]),
        ("gpus", &["8", "8..64", "96,64"]),
        ("nvs", &["4", "72"]),
        ("framework", &["fsdp", "quadrille"]),
        ("dtype", &["bf16", "f64"]),
        ("sparsity", &["0.9", "0"]),
        ("products", &["fp8", "mxfp8"]),
        ("moments", &["bf16"]),
        ("imbalance", &["1.5"]),
        ("memory_reserve", &["5%", "runs:97%", "4GB", "0"]),
        ("search_limit", &["1", "18446744073709551615"]),
        ("price_per_hour", &["2.5"]),
        ("currency", &["EUR"]),
        ("days", &["30", "0.5"]),
        ("mtbf", &["50000"]),
        ("checkpoint_bandwidth", &["1e9"]),
        ("checkpoint_seconds", &["30"]),
        ("restart_seconds", &["60"]),
        ("flops_convention", &["megatron"]),
        ("top", &["1", "10", "25"]),
        ("tolerance", &["5%", "0.25"]),
        ("grid", &["x=2,data=4"]),
        ("order", &["pipe,data,expert,context,z,y,x"]),
        ("per_node", &["4"]),
        ("activations", &["replicated"]),
        ("linear", &["summa"]),
        ("summa_panels", &["4"]),
        ("experts_over", &["x,expert"]),
        ("dispatch", &["duplicated"]),
        ("expert_rows", &["2"]),
        ("vocab_multiple", &["128"]),
        ("global_batch", &["512", "4M"]),
        ("microbatch", &["2"]),
        ("seq_len", &["4096", "8k"]),
        ("gradients", &["bf16"]),
        ("schedule", &["interleaved"]),
        ("chunks", &["3"]),
        ("microbatch_group", &["4"]),
        ("stage_blocks", &["3,5"]),
        ("recompute", &["full:2", "full:auto"]),
        ("cac", &["true", "false"]),
        ("zero", &["2"]),
        ("keep_weights", &["step"]),
        ("offload", &["host"]),
        ("bucket", &["1000000"]),
        ("optimizer_overlap", &["true"]),
        ("overlap", &["none", "oar,ors"]),
        ("overlap_chunks", &["2"]),
    ];
    const SWITCHES: &[&str] = &["any_layout", "goodput", "variants", "pareto", "explain"];
    const TABLES: &[(&str, &[(&str, &str)])] = &[
        ("set", &[("layers", "4"), ("hidden", "1024")]),
        ("fix", &[("x", "8"), ("schedule", "1f1b"), ("overlap", "oar+ors")]),
        ("max", &[("pipe", "16"), ("x", "8")]),
        ("min", &[("y", "2")]),
    ];

    fn parsed(words: &[String]) -> PlanRequest {
        let words: Vec<OsString> =
            ["quadrille", "plan"].map(OsString::from).into_iter().chain(words.iter().map(OsString::from)).collect();
        let Command::Plan(arguments) = launch::read(&words).unwrap().command else {
            unreachable!("the words are of plan")
        };
        plan_request(&arguments).unwrap()
    }

    proptest! {
        #[test]
        fn options_bodies_and_files_give_the_same_request(
            options in proptest::collection::vec(of_option(), 0..12), switches in proptest::collection::vec(select(SWITCHES), 0..3),
            tables in proptest::collection::vec(of_table(), 0..5), nodes in any::<bool>(),
        ) {
            let mut body = Map::from_iter([("tokens".to_owned(), json!("15T"))]);
            for (name, value) in options {
                let name = if nodes && name == "gpus" { "nodes" } else { name };
                body.insert(name.to_owned(), json!(value));
            }
            switches.into_iter().for_each(|name| _ = body.insert(name.to_owned(), json!(true)));
            for (name, key, value) in tables {
                body.entry(name).or_insert_with(|| json!({}))[key] = json!(value);
            }
            let request = parsed(&words(&body));
            let of_body = PlanRequest::from_json(&Value::Object(body).to_string()).unwrap();
            prop_assert_eq!(&request, &of_body);
            prop_assert_eq!(&PlanRequest::from_json(&request.to_json().unwrap()).unwrap(), &request);
        }
    }

    fn of_option() -> impl Strategy<Value = (&'static str, &'static str)> {
        (select(OPTIONS), any::<Index>()).prop_map(|((name, values), at)| (name, *at.get(values)))
    }

    fn of_table() -> impl Strategy<Value = (&'static str, &'static str, &'static str)> {
        (select(TABLES), any::<Index>()).prop_map(|((name, pairs), at)| {
            let (key, value) = *at.get(pairs);
            (name, key, value)
        })
    }

    /// The words of the command line for a body.
    fn words(body: &Map<String, Value>) -> Vec<String> {
        let mut words = Vec::new();
        for (name, value) in body {
            let option = format!("--{}", name.replace('_', "-"));
            match value {
                Value::Bool(_) => words.push(option),
                Value::Object(table) => {
                    words
                        .extend(table.iter().map(|(key, value)| format!("{option}={key}={}", value.as_str().unwrap())));
                }
                value => words.push(format!("{option}={}", value.as_str().unwrap())),
            }
        }
        words
    }

    /// Each option of `plan` is a field of the request, or says where the answer is written.
    #[test]
    fn every_option_is_a_field_of_the_request() {
        let fields = OPTIONS
            .iter()
            .map(|(name, _)| *name)
            .chain(SWITCHES.iter().copied())
            .chain(TABLES.iter().map(|(name, _)| *name));
        let fields: Vec<_> = fields.chain(["tokens", "nodes", "exotic", "layout"]).collect();
        let others = ["request", "from_hf", "ranks", "json", "csv", "out", "html", "help"];
        let command = Arguments::command();
        let plan = command.find_subcommand("plan").unwrap();
        for argument in plan.get_arguments() {
            let name = argument.get_long().unwrap().replace('-', "_");
            assert!(fields.contains(&name.as_str()) != others.contains(&name.as_str()), "--{name}");
        }
    }

    #[test]
    fn options_win_over_the_file_of_a_request() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("request.toml");
        let text = "model = 'llama3-8b'\ncluster = 'dgx-h100'\ngpus = 64\nglobal_batch = '4M'\nmax = { pipe = 4, x = 8 }\ntop = 3";
        std::fs::write(&path, text).unwrap();
        let file = format!("--request={}", path.display());
        assert_eq!(parsed(std::slice::from_ref(&file)), PlanRequest::from_toml(text).unwrap());
        let words = ["--gpus=128", "--max=x=2", "--schedule=1f1b"].map(str::to_owned);
        let request = parsed(&[&[file], words.as_slice()].concat());
        let expected = "model = 'llama3-8b'\ncluster = 'dgx-h100'\ngpus = 128\nglobal_batch = '4M'\nmax = { pipe = 4, x = 2 }\n\
                        schedule = '1f1b'\ntop = 3";
        assert_eq!(request, PlanRequest::from_toml(expected).unwrap());
    }
}
