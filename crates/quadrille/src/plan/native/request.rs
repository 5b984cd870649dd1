//! The planning request of options of the command line.

use quadrille_plan::native::{Assignments, ClusterSource, ModelSource, PlanRequest};
use quadrille_run::{Settings, described, imbalance};
use quadrille_spec::{Cluster, ElementType, Field, Model, SpecError};
use serde_json::Value;

use super::arguments::QuestionArguments;
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
