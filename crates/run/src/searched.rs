//! What is asked of a search for layouts, from names, words and numbers.

use quadrille_cost::native::{Framework, Learned, Numbers};
use quadrille_plan::native::{Bound, Cancel, Question, Reserve, Space, devices_of_nodes, hardware};
use quadrille_spec::{
    Axis, Cluster, ElementType, EvenPieces, Field, FlopsConvention, Imbalance, Layout, LayoutFile, LayoutRequest,
    Model, Offload, Sparsity, SpecError,
};

use crate::open_layout::check_node;
use crate::{BudgetSpec, OpenLayout, Refusal, RunError, SaidLayout, described, imbalance};

/// Devices where nobody says how many.
const DEVICES: usize = 1024;

/// A [`Question`] as it is said; what is said of a layout is beside it.
#[derive(Debug, Clone, Default)]
pub struct SearchSpec {
    /// Numbers of devices, ascending, of which the largest counts.
    pub devices: Option<Vec<usize>>,
    /// Numbers of whole nodes, ascending, of which the largest counts; in place of `devices`.
    pub nodes: Option<Vec<usize>>,
    /// Devices of a fast domain.
    pub fast_domain: Option<usize>,
    /// What trains.
    pub framework: Option<String>,
    /// How much of the matrices of blocks is pruned.
    pub sparsity: Option<Sparsity>,
    /// What the framework's numbers are, where they are not its usual ones.
    pub numbers: Numbers,
    /// How unequally ranks get rows of experts, as [`imbalance`] reads it.
    pub imbalance: Option<String>,
    /// Whether layouts are tried that the framework cannot run.
    pub any_layout: bool,
    /// Choices that are fixed or bounded, each as `pipe=8`.
    pub constraints: Vec<(Bound, String)>,
    /// What of each device's memory stays free; where nothing is said [`Reserve::usual`].
    pub reserve: Option<Reserve>,
    /// Most looks of a search ([`Question::limit`]).
    pub limit: Option<u64>,
    /// Tokens of the whole training.
    pub tokens: Option<f64>,
    /// Price of a device for an hour.
    pub price_per_hour: Option<f64>,
    /// What else is said of the whole training.
    pub budget: BudgetSpec,
    /// How the FLOPs that the model needs are counted.
    pub flops_convention: FlopsConvention,
}

impl SearchSpec {
    /// The cluster of searches where nobody names one.
    pub const CLUSTER: &str = "selene";

    /// The question about a model.
    ///
    /// # Errors
    /// Names that are not known, files that cannot be read; choices that the search makes itself; what breaks a rule.
    pub fn question(&self, model: Model, layout: &SaidLayout) -> Result<Question, RunError> {
        let cluster = described::cluster(layout.cluster.as_deref().unwrap_or(Self::CLUSTER))?;
        self.question_on(cluster, model, layout)
    }

    /// The same on a cluster that is known, whatever the layout names.
    ///
    /// # Errors
    /// As [`Self::question`], but for the cluster's.
    pub fn question_on(&self, mut cluster: Cluster, model: Model, layout: &SaidLayout) -> Result<Question, RunError> {
        if let Some(devices) = self.fast_domain {
            cluster = hardware::with(&cluster, "tiers.0.devices", devices as f64)?;
        }
        let file = layout.read()?;
        let said = layout.choices.over(&file);
        check_interval(&said)?;
        check_open(layout, &file)?;
        let devices = self.devices(layout, &file, &cluster)?;
        let mut request = LayoutRequest::new("x=1".parse()?, 2 * devices);
        said.get(Field::GlobalBatch).map_or(Ok(()), |batch| Field::GlobalBatch.set(&mut request, batch))?;
        request.seq_len = said.size(Field::SeqLen);
        let batch_tokens = request.batch_tokens;
        let request = request.in_sequences(&model)?.into_owned();
        request.check_without_grid(&model, devices)?;
        let per_node = said.size(Field::PerNode);
        if per_node == Some(0) {
            return Err(SpecError::invalid("per-node", 0, "it must be at least 1", "give a positive number").into());
        }
        check_node(&cluster, per_node, devices, |devices| format!("{devices}, or leave it out"))?;
        let usual = (Framework::MEGATRON.name, ElementType::F32);
        let name = self.framework.as_deref();
        let framework = framework(name, usual, layout.dtype, self.sparsity, self.numbers, &said)?.on(&cluster);
        let mut space = self.space(&said)?;
        if !self.any_layout {
            space.keep_to(&framework);
        }
        if framework.sparsity.is_some() {
            space.keep_to_pruned(&model)?;
        }
        let has_tokens = self.tokens.is_some();
        let has_price = self.price_per_hour.is_some();
        let budget = self.budget.budget(has_tokens, has_price, space.bucket.is_some())?;
        let reserve = self.reserve.unwrap_or_else(|| Reserve::usual(&framework));
        let question = Question {
            seq_len: request.seq_len.unwrap_or(model.seq_len),
            global_batch: request.global_batch,
            batch_tokens,
            space,
            framework,
            imbalance: self.imbalance.as_deref().map_or(Ok(Imbalance::EQUAL), imbalance)?,
            per_node,
            reserve,
            tokens: positive("`search.tokens`", self.tokens, "300e9")?,
            price_per_hour: positive("`search.price_per_hour`", self.price_per_hour, "2.5")?,
            budget,
            flops_convention: self.flops_convention,
            limit: self.limit,
            cancel: Cancel::default(),
            learned: Learned::default(),
            model,
            cluster,
            devices,
        };
        question.reserved()?;
        if !self.any_layout {
            question.check_numbers()?;
        }
        Ok(question)
    }

    /// The number of devices: said, or that of the layout file's grid; of several the largest.
    fn devices(&self, layout: &SaidLayout, file: &LayoutFile, cluster: &Cluster) -> Result<usize, RunError> {
        let last = |numbers: &Option<Vec<usize>>| numbers.as_deref().and_then(|numbers| numbers.last().copied());
        let devices = last(&self.devices);
        let nodes = last(&self.nodes);
        let said = [("`search.devices`", devices), ("`search.nodes`", nodes), ("`run.ranks`", layout.ranks)];
        let mut said = said.into_iter().filter_map(|(key, number)| Some((key, number?)));
        if let (Some((one, number)), Some((other, also))) = (said.next(), said.next()) {
            return Err(
                Refusal::new(format!("{one} {number} and {other} {also} say the same; leave one of them out")).into()
            );
        }
        let per_node = layout.choices.over(file).size(Field::PerNode);
        let of_nodes = nodes.map(|nodes| devices_of_nodes(cluster, per_node, nodes)).transpose()?;
        let devices = match devices.or(of_nodes).or(layout.ranks) {
            Some(devices) => devices,
            None if file.get(Field::Grid).is_some() => file.request()?.grid.ranks(),
            None => DEVICES,
        };
        match devices {
            0 => Err(Refusal::new("`run.ranks` 0: there is at least one rank").into()),
            1..=0x100_0000 => Ok(devices),
            _ => Err(Refusal::new(format!("`run.ranks` {devices}: a grid has at most 2^24 ranks; use fewer")).into()),
        }
    }

    /// The choices that are open: what is said of the layout is fixed.
    fn space(&self, said: &LayoutFile) -> Result<Space, SpecError> {
        let mut space = Space::default();
        for field in Space::fields().concat() {
            if let Some(value) = said.get(field) {
                space.constrain(Bound::Fix, &format!("{}={value}", field.name()))?;
            }
        }
        let mut request = LayoutRequest::new("x=1".parse()?, 1);
        for field in [Field::Offload, Field::Bucket] {
            said.get(field).map_or(Ok(()), |value| field.set(&mut request, value))?;
        }
        request.check_used()?;
        space.bucket = (request.offload != Offload::None).then(|| request.bucket.unwrap_or(Layout::BUCKET));
        self.constraints.iter().try_for_each(|(bound, constraint)| space.constrain(*bound, constraint))?;
        Ok(space)
    }
}

/// What trains, in the types that were said, a model that is pruned so. Where nobody names it, it is what the layout was planned for,
/// else the `usual` one; where nobody names a type of values, that of this program's engine is the one beside.
///
/// # Errors
/// No such framework; types that it does not take; one that knows of no pruned models.
pub fn framework(
    name: Option<&str>,
    (usual, usual_dtype): (&str, ElementType),
    dtype: Option<ElementType>,
    sparsity: Option<Sparsity>,
    numbers: Numbers,
    said: &LayoutFile,
) -> Result<Framework, RunError> {
    let planned = said.planned().filter(|_| name.is_none());
    let framework = Framework::by_name(name.or(planned.map(|planned| planned.framework.as_str())).unwrap_or(usual))?;
    let numbers = numbers.over(planned.map_or(Ok(Numbers::default()), Numbers::planned)?);
    let gradients = said.get(Field::Gradients);
    if framework.is_own() {
        check_stored(numbers)?;
        let mut request = LayoutRequest { dtype: usual_dtype, ..LayoutRequest::new("x=1".parse()?, 1) };
        said.get(Field::Dtype).map_or(Ok(()), |dtype| Field::Dtype.set(&mut request, dtype))?;
        request.dtype = dtype.unwrap_or(request.dtype);
        gradients.map_or(Ok(()), |gradients| Field::Gradients.set(&mut request, gradients))?;
        request.check_used()?;
        return Ok(Framework { sparsity, ..Framework::own(request.dtype, request.gradient_type()) });
    }
    if let Some(sparsity) = sparsity {
        return Err(Refusal::new(format!(
            "`search.sparsity` {sparsity}: {} trains no pruned models; leave it out, or give `search.framework` quadrille",
            framework.name
        ))
        .into());
    }
    if dtype.is_some() || said.get(Field::Dtype).is_some() {
        return Err(Refusal::new(format!(
            "`layout.{}`, or the layout file's line {}: {} says itself what values are stored in; leave it out, or give \
             `search.framework` quadrille",
            Field::Dtype.key(),
            Field::Dtype.name(),
            framework.name
        ))
        .into());
    }
    let mut request = LayoutRequest::new("x=1".parse()?, 1);
    gradients.map_or(Ok(()), |gradients| Field::Gradients.set(&mut request, gradients))?;
    let gradients = request.gradients.or(numbers.gradients);
    if let Some(gradients) = gradients.filter(|gradients| *gradients == ElementType::F64) {
        let rule = format!("{} sums gradients of weights in f32 or in 16 bits", framework.name);
        return Err(SpecError::invalid("`layout.gradients`", gradients, rule, "give f32 or bf16").into());
    }
    Ok(framework.in_formats(Numbers { gradients, ..numbers }))
}

/// Refuses what this program's engine does not store or multiply.
fn check_stored(numbers: Numbers) -> Result<(), Refusal> {
    let said = [("`search.products`", numbers.products.is_some()), ("`search.moments`", numbers.moments.is_some())];
    match said.into_iter().find(|(_, said)| *said) {
        None => Ok(()),
        Some((key, _)) => Err(Refusal::new(format!(
            "{key}: quadrille multiplies and stores what `layout.dtype` says; leave it out, or give `search.framework` megatron"
        ))),
    }
}

/// Refuses what is no positive number.
pub(crate) fn positive(key: &str, value: Option<f64>, example: &str) -> Result<Option<f64>, Refusal> {
    match value {
        Some(value) if !(value.is_finite() && value > 0.0) => {
            Err(Refusal::new(format!("{key} {value}: give a positive number, e.g. {key} {example}")))
        }
        value => Ok(value),
    }
}

/// Refuses an interval of recomputation that is found for a layout: there is none yet.
fn check_interval(said: &LayoutFile) -> Result<(), Refusal> {
    if OpenLayout::leaves_interval(said) {
        Err(Refusal::new(format!(
            "`layout.recompute` {}, or the layout file's line recompute: the search has no layout yet that the interval could \
             be found for; give full:K, or leave it out",
            OpenLayout::LEAST_INTERVAL
        )))
    } else {
        Ok(())
    }
}

/// Refuses what the search chooses in a way of its own, unless a layout file says the same.
fn check_open(layout: &SaidLayout, file: &LayoutFile) -> Result<(), RunError> {
    let whole = file.get(Field::Grid).is_some();
    let asked = file.request()?;
    let said = |field| layout.choices.get(field).is_some();
    let order = "the search tries every order";
    let group = "groups are as long as the pipeline";
    let blocks = "pieces of layers are as equal as possible";
    let waits = "the search knows updates that wait for the norm; `search.price` has a price of other layouts";
    let mut merged = asked.clone();
    let overlap = layout.choices.get(Field::OptimizerOverlap);
    overlap.map_or(Ok(()), |value| Field::OptimizerOverlap.set(&mut merged, value))?;
    let overlaps = merged.optimizer_overlap;
    let another_group = asked.microbatch_group.is_some_and(|n| !whole || n != asked.grid.size(Axis::Pipe));
    let uneven = asked.stage_blocks.as_deref().is_some_and(|n| !EvenPieces::are(n));
    let fixed = "use `space.fix` x=2,pipe=4 to fix axes";
    let choices = [
        ("`layout.grid`", layout.grid.as_deref().is_some_and(|grid| grid != "auto"), fixed),
        ("`layout.order`", said(Field::Order), order),
        ("`layout.microbatch_group`", said(Field::MicrobatchGroup), group),
        ("`layout.stage_blocks`", said(Field::StageBlocks), blocks),
        ("`layout.optimizer_overlap`", overlaps, waits),
        // A grid with its order is that of a whole layout: the search chooses another.
        ("`run.layout`: its line 'order'", file.get(Field::Order).is_some() && !whole, order),
        ("`run.layout`: its line 'microbatch_group'", another_group, group),
        ("`run.layout`: its line 'stage_blocks'", uneven, blocks),
    ];
    match choices.into_iter().find(|(_, said, _)| *said) {
        None => Ok(()),
        Some((choice, _, why)) => Err(Refusal::new(format!("{choice}: {why}; leave it out")).into()),
    }
}
