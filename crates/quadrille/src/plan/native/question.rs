//! From flags to the question of a search.

use std::time::Duration;

use quadrille_cost::native::Framework;
use quadrille_engine::Hyper;
use quadrille_plan::native::{Bound, Question, Reserve, Space, hardware};
use quadrille_run::{OpenLayout, described};
use quadrille_spec::{Axis, ElementType, EvenPieces, Field, LayoutFile, LayoutRequest, Offload, SpecError};

use super::arguments::QuestionArguments;
use crate::arguments::ModelArguments;
use crate::failure::Failure;
use crate::layout_arguments::LayoutArguments;
use crate::quantities::check_reserve;
use crate::settings;

const DEFAULT_MODEL: &str = "gpt3-175b";
const DEFAULT_CLUSTER: &str = "selene";
const DEFAULT_GPUS: usize = 1024;

/// Reads model, cluster and constraints; `gpus` are the numbers of devices, `nvs` the devices of a fast domain.
pub fn question(
    model: &ModelArguments,
    layout: &LayoutArguments,
    question: &QuestionArguments,
    dtype: Option<ElementType>,
    gpus: Option<&[usize]>,
    nvs: Option<usize>,
) -> Result<Question, Failure> {
    let model = settings::settings(model, DEFAULT_MODEL, Hyper::default())?.model;
    let mut cluster = described::cluster(layout.cluster.as_deref().unwrap_or(DEFAULT_CLUSTER))?;
    if let Some(nvs) = nvs {
        cluster = hardware::with(&cluster, "tiers.0.devices", nvs as f64)?;
    }
    let file = layout.file()?;
    check_interval(&layout.flags.said.over(&file))?;
    check_open(layout, &file)?;
    let gpus = devices(layout, &file, gpus)?;
    let said = layout.flags.said.over(&file);
    let mut request = LayoutRequest::new("x=1".parse()?, said.size(Field::GlobalBatch).unwrap_or(2 * gpus));
    request.seq_len = said.size(Field::SeqLen);
    request.check_without_grid(&model, gpus)?;
    let per_node = said.size(Field::PerNode);
    if per_node == Some(0) {
        return Err(SpecError::invalid("per-node", 0, "it must be at least 1", "give a positive number").into());
    }
    let positive = |flag: &str, value: Option<f64>, example: &str| match value {
        Some(value) if !(value.is_finite() && value > 0.0) => {
            Err(Failure::usage(format!("{flag} {value}: give a positive number, e.g. {flag} {example}")))
        }
        value => Ok(value),
    };
    let framework = framework(question.framework.as_deref(), dtype, &said)?;
    let mut space = space(&said, question)?;
    if !question.any_layout {
        space.keep_to(&framework);
    }
    let time_limit = positive("--time-limit", question.time_limit, "10")?;
    let time_limit = time_limit.map(Duration::try_from_secs_f64).transpose();
    let reserve = question.memory_reserve.unwrap_or(Reserve::USUAL);
    check_reserve(reserve, &cluster)?;
    Ok(Question {
        seq_len: request.seq_len.unwrap_or(model.seq_len),
        global_batch: request.global_batch,
        space,
        framework,
        per_node,
        reserve,
        tokens: positive("--tokens", question.tokens, "300e9")?,
        price_per_hour: positive("--price-per-hour", question.price_per_hour, "2.5")?,
        time_limit: time_limit.map_err(|_| Failure::usage("--time-limit: that are too many seconds; give fewer"))?,
        model,
        cluster,
        devices: gpus,
    })
}

/// What trains, in the types that were said; Megatron-LM where nothing else was.
pub fn framework(name: Option<&str>, dtype: Option<ElementType>, said: &LayoutFile) -> Result<Framework, Failure> {
    let framework = Framework::by_name(name.unwrap_or(Framework::MEGATRON.name))?;
    let gradients = said.get(Field::Gradients);
    if framework.is_own() {
        let mut request = LayoutRequest::new("x=1".parse()?, 1);
        said.get(Field::Dtype).map_or(Ok(()), |dtype| Field::Dtype.set(&mut request, dtype))?;
        request.dtype = dtype.unwrap_or(request.dtype);
        gradients.map_or(Ok(()), |gradients| Field::Gradients.set(&mut request, gradients))?;
        request.check_used()?;
        return Ok(Framework::own(request.dtype, request.gradient_type()));
    }
    let dtype = dtype.is_some() || said.get(Field::Dtype).is_some();
    let said = [("dtype", dtype), ("gradients", gradients.is_some())];
    match said.into_iter().find(|(_, said)| *said) {
        None => Ok(framework),
        Some((field, _)) => Err(Failure::usage(format!(
            "--{field}, or the layout file's line {field}: {} says itself what numbers are stored in; leave it out, or give \
             --framework quadrille",
            framework.name
        ))),
    }
}

/// The number of devices: typed, or that of the layout file's grid; of several the largest.
fn devices(layout: &LayoutArguments, file: &LayoutFile, gpus: Option<&[usize]>) -> Result<usize, Failure> {
    let typed = gpus.and_then(|gpus| gpus.last().copied());
    if let (Some(gpus), Some(ranks)) = (typed, layout.ranks) {
        return Err(Failure::usage(format!("--gpus {gpus} and --ranks {ranks} say the same; leave one of them out")));
    }
    let devices = match typed.or(layout.ranks) {
        Some(devices) => devices,
        None if file.get(Field::Grid).is_some() => file.request()?.grid.ranks(),
        None => DEFAULT_GPUS,
    };
    match devices {
        0 => Err(Failure::usage("--ranks 0: there is at least one rank")),
        1..=0x100_0000 => Ok(devices),
        _ => Err(Failure::usage(format!("--ranks {devices}: a grid has at most 2^24 ranks; use fewer"))),
    }
}

/// Refuses an interval of recomputation that is found for a layout: there is none yet.
fn check_interval(said: &LayoutFile) -> Result<(), Failure> {
    match OpenLayout::leaves_interval(said) {
        false => Ok(()),
        true => Err(Failure::usage(format!(
            "--recompute {}, or the layout file's line recompute: the search has no layout yet that the interval could be found \
             for; give full:K, or leave it out",
            OpenLayout::LEAST_INTERVAL
        ))),
    }
}

/// Refuses what the search chooses in a way of its own, unless a layout file says the same.
fn check_open(layout: &LayoutArguments, file: &LayoutFile) -> Result<(), Failure> {
    let whole = file.get(Field::Grid).is_some();
    let asked = file.request()?;
    let flag = |field| layout.flags.said.get(field).is_some();
    let order = "the search tries every order";
    let group = "groups are as long as the pipeline";
    let blocks = "pieces of layers are as equal as possible";
    let states = "the search keeps the optimizer's states on the device; explain --price has a price of other layouts";
    let another_group = asked.microbatch_group.is_some_and(|n| !whole || n != asked.grid.size(Axis::Pipe));
    let uneven = asked.stage_blocks.as_deref().is_some_and(|n| !EvenPieces::are(n));
    let flags = [
        ("--grid", layout.grid.as_deref().is_some_and(|grid| grid != "auto"), "use --fix x=2,pipe=4 to fix axes"),
        ("--order", flag(Field::Order), order),
        ("--microbatch-group", flag(Field::MicrobatchGroup), group),
        ("--stage-blocks", flag(Field::StageBlocks), blocks),
        ("--offload", flag(Field::Offload), states),
        ("--bucket", flag(Field::Bucket), states),
        ("--optimizer-overlap", flag(Field::OptimizerOverlap), states),
        // A grid with its order is that of a whole layout: the search chooses another.
        ("--layout: its line 'order'", file.get(Field::Order).is_some() && !whole, order),
        ("--layout: its line 'microbatch_group'", another_group, group),
        ("--layout: its line 'stage_blocks'", uneven, blocks),
        ("--layout: its line 'offload'", asked.offload != Offload::None, states),
    ];
    match flags.into_iter().find(|(_, typed, _)| *typed) {
        None => Ok(()),
        Some((flag, _, why)) => Err(Failure::usage(format!("{flag}: {why}; leave it out"))),
    }
}

/// The choices that are open: what flags and file of the layout say is fixed.
fn space(said: &LayoutFile, question: &QuestionArguments) -> Result<Space, Failure> {
    let mut space = Space::default();
    for field in Space::fields().concat() {
        if let Some(value) = said.get(field) {
            space.constrain(Bound::Fix, &format!("{}={value}", field.name()))?;
        }
    }
    for (bound, constraints) in [(Bound::Fix, &question.fix), (Bound::Max, &question.max), (Bound::Min, &question.min)]
    {
        constraints.iter().try_for_each(|constraint| space.constrain(bound, constraint))?;
    }
    Ok(space)
}
