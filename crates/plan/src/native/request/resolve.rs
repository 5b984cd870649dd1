//! Validation of a request: the search's own inputs, once.

use quadrille_cost::native::{Framework, Learned, Numbers};
use quadrille_spec::{
    Axis, Cluster, ElementType, EvenPieces, Field, FieldValue, Imbalance, Layout, LayoutFile, LayoutRequest, Offload,
    SpecError,
};

use super::PlanRequest;
use super::budget::positive;
use super::framework::framework;
use crate::native::nothing::Nothing;
use crate::native::{
    Bound, Cancel, ClusterSource, ModelSource, Question, Reserve, Space, TOLERANCE, Wanted, check_node,
    devices_of_nodes, hardware,
};

/// Number of devices where none is given.
const DEVICES: usize = 1024;

/// Name of the interval of recomputation that takes the least memory of a layout.
pub(super) const LEAST_INTERVAL: &str = "full:auto";

/// A request in the search's terms.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// Question to the search.
    pub question: Question,
    /// Parts of the answer that are asked for.
    pub wanted: Wanted,
}

impl PlanRequest {
    /// The search's inputs; `cancel` ends it, and tables of `learned` serve it. Of several numbers of devices the smallest that
    /// trains in time is chosen here, by searches.
    ///
    /// # Errors
    /// A field that breaks its rule; no number of devices that trains in time.
    pub fn resolve(&self, cancel: &Cancel, learned: &Learned) -> Result<Resolved, Nothing> {
        let mut question = self.question()?;
        question.cancel = cancel.clone();
        question.learned = learned.clone();
        let several = self.several(&question)?;
        if let Some(gpus) = several.as_deref().filter(|_| !self.pareto) {
            if question.deadline().is_none() {
                let numbers = gpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
                let rule = "several numbers of devices are compared by `search.pareto`, and `search.days` plans the smallest that trains \
                            in time";
                let remedy = "add one of them, or give one number";
                return Err(SpecError::invalid(self.devices_key(), numbers, rule, remedy).into());
            }
            question = question.smallest_in_time(gpus)?;
        }
        let devices = question.devices;
        let divisors = || (1..=devices).filter(|count| devices.is_multiple_of(*count)).collect();
        let wanted = Wanted {
            top: self.top.unwrap_or(Self::TOP),
            variants: self.variants,
            front_over: self.pareto.then(|| several.unwrap_or_else(divisors)),
            tolerance: (!self.exotic).then(|| self.tolerance.unwrap_or(TOLERANCE)),
            explain: self.explain,
            brief: false,
        };
        Ok(Resolved { question, wanted })
    }

    /// Key of the field that gives the number of devices.
    fn devices_key(&self) -> &'static str {
        if self.nodes.is_empty() { "`search.devices`" } else { "`search.nodes`" }
    }

    /// Several numbers of devices, if there are.
    fn several(&self, question: &Question) -> Result<Option<Vec<usize>>, SpecError> {
        let counts = match self.nodes.as_slice() {
            [] => self.gpus.clone(),
            nodes => nodes.iter().map(|nodes| question.devices_of_nodes(*nodes)).collect::<Result<_, _>>()?,
        };
        Ok((counts.len() > 1).then_some(counts))
    }

    /// The question to the search, on the largest number of devices.
    ///
    /// # Errors
    /// A field that breaks its rule.
    pub fn question(&self) -> Result<Question, SpecError> {
        if self.version != Self::VERSION {
            let rule = format!("this program reads requests of version {}", Self::VERSION);
            return Err(SpecError::invalid("version", self.version, rule, "write the request anew"));
        }
        if self.top == Some(0) {
            return Err(SpecError::invalid("top", 0, "a report has at least one layout", "give a positive number"));
        }
        if self.search_limit == Some(0) {
            let rule = "a search looks at something";
            return Err(SpecError::invalid("`search.limit`", 0, rule, "give a positive number, or leave it out"));
        }
        if let (true, Some(tolerance)) = (self.exotic, self.tolerance) {
            let rule = "the fastest layout is recommended with exotic";
            return Err(SpecError::invalid("tolerance", tolerance, rule, "leave one of them out"));
        }
        let source = self.model.clone().unwrap_or(ModelSource::from(Self::MODEL));
        let model = source.model(self.set.pairs())?;
        let mut cluster = self.cluster.clone().unwrap_or(ClusterSource::from(Self::CLUSTER)).cluster()?;
        if let Some(devices) = self.nvs {
            cluster = hardware::with(&cluster, "tiers.0.devices", devices as f64)?;
        }
        let choices = self.choices.over(&self.layout);
        check_interval(&choices)?;
        self.check_open()?;
        let devices = self.devices(&choices, &cluster)?;
        let mut request = LayoutRequest::new("x=1".parse()?, 2 * devices);
        choices.get(Field::GlobalBatch).map_or(Ok(()), |batch| Field::GlobalBatch.set(&mut request, batch))?;
        request.seq_len = choices.size(Field::SeqLen);
        let batch_tokens = request.batch_tokens;
        let request = request.in_sequences(&model)?.into_owned();
        request.check_without_grid(&model, devices)?;
        let per_node = choices.size(Field::PerNode);
        if per_node == Some(0) {
            return Err(SpecError::invalid("per-node", 0, "it must be at least 1", "give a positive number"));
        }
        check_node(&cluster, per_node, devices, |devices| format!("{devices}, or leave it out"))?;
        let usual = (Framework::MEGATRON.name, ElementType::F32);
        let numbers = Numbers { products: self.products, moments: self.moments, gradients: None };
        let name = self.framework.as_deref();
        let framework = framework(name, usual, self.dtype, self.sparsity, numbers, &choices)?.on(&cluster);
        let mut space = self.space(&choices)?;
        if !self.any_layout {
            space.keep_to(&framework);
        }
        if framework.sparsity.is_some() {
            space.keep_to_pruned(&model)?;
        }
        let budget = self.budget(space.bucket.is_some())?;
        let question = Question {
            seq_len: request.seq_len.unwrap_or(model.seq_len),
            global_batch: request.global_batch,
            batch_tokens,
            space,
            framework,
            imbalance: self.imbalance.clone().unwrap_or(Imbalance::EQUAL),
            per_node,
            reserve: self.memory_reserve.unwrap_or_else(|| Reserve::usual(&framework)),
            tokens: positive("`search.tokens`", self.tokens, "300e9")?,
            price_per_hour: positive("`search.price_per_hour`", self.price_per_hour, "2.5")?,
            budget,
            flops_convention: self.flops_convention.unwrap_or_default(),
            limit: self.search_limit,
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

    /// Number of devices: as given, or that of the layout's grid; of several the largest.
    fn devices(&self, choices: &LayoutFile, cluster: &Cluster) -> Result<usize, SpecError> {
        let gpus = self.gpus.last().copied();
        let nodes = self.nodes.last().copied();
        if let (Some(gpus), Some(nodes)) = (gpus, nodes) {
            let rule = format!("`search.nodes` {nodes} give the number of devices, too");
            return Err(SpecError::invalid("`search.devices`", gpus, rule, "leave one of them out"));
        }
        let per_node = choices.size(Field::PerNode);
        let of_nodes = nodes.map(|nodes| devices_of_nodes(cluster, per_node, nodes)).transpose()?;
        let devices = match gpus.or(of_nodes) {
            Some(devices) => devices,
            None if self.layout.get(Field::Grid).is_some() => self.layout.request()?.grid.ranks(),
            None => DEVICES,
        };
        let field = self.devices_key();
        let has_none = self.gpus.iter().chain(&self.nodes).any(|count| *count == 0);
        match if has_none { 0 } else { devices } {
            0 => Err(SpecError::invalid(field, 0, "there is at least one device", "give a positive number")),
            1..=0x100_0000 => Ok(devices),
            _ => Err(SpecError::invalid(field, devices, "a grid has at most 2^24 ranks", "use fewer")),
        }
    }

    /// The choices that are open to the search; those of the layout are fixed.
    fn space(&self, choices: &LayoutFile) -> Result<Space, SpecError> {
        let mut space = Space::default();
        for field in Space::fields().concat() {
            if let Some(value) = choices.get(field) {
                space.constrain(Bound::Fix, &format!("{}={value}", field.name()))?;
            }
        }
        let mut request = LayoutRequest::new("x=1".parse()?, 1);
        for field in [Field::Offload, Field::Bucket] {
            choices.get(field).map_or(Ok(()), |value| field.set(&mut request, value))?;
        }
        request.check_used()?;
        space.bucket = (request.offload != Offload::None).then(|| request.bucket.unwrap_or(Layout::BUCKET));
        for (bound, constraints) in [(Bound::Fix, &self.fix), (Bound::Max, &self.max), (Bound::Min, &self.min)] {
            constraints.iter().try_for_each(|(key, value)| space.constrain(bound, &format!("{key}={value}")))?;
        }
        Ok(space)
    }

    /// Refuses choices that the search makes in a way of its own, unless a whole layout has them.
    fn check_open(&self) -> Result<(), SpecError> {
        let file = &self.layout;
        let is_whole = file.get(Field::Grid).is_some();
        let of_file = file.request()?;
        let order = "the search tries every order";
        let group = "groups are as long as the pipeline";
        let blocks = "pieces of layers are as equal as possible";
        let waits = "the search knows updates that wait for the norm; `search.price` has a price of other layouts";
        let mut merged = of_file.clone();
        let overlap = self.choices.get(Field::OptimizerOverlap);
        overlap.map_or(Ok(()), |value| Field::OptimizerOverlap.set(&mut merged, value))?;
        let is_other_group = of_file.microbatch_group.is_some_and(|n| !is_whole || n != of_file.grid.size(Axis::Pipe));
        let is_uneven = of_file.stage_blocks.as_deref().is_some_and(|n| !EvenPieces::are(n));
        let given = |field| self.choices.get(field).is_some();
        let refused = [
            (
                Field::Grid,
                given(Field::Grid),
                "the search tries all sizes of axes; use `space.fix` x=2,pipe=4 to fix some",
            ),
            (Field::Order, given(Field::Order), order),
            (Field::MicrobatchGroup, given(Field::MicrobatchGroup), group),
            (Field::StageBlocks, given(Field::StageBlocks), blocks),
            (Field::OptimizerOverlap, merged.optimizer_overlap, waits),
            // A grid with its order is that of a whole layout: the search chooses another.
            (Field::Order, file.get(Field::Order).is_some() && !is_whole, order),
            (Field::MicrobatchGroup, is_other_group, group),
            (Field::StageBlocks, is_uneven, blocks),
        ];
        let Some((field, _, rule)) = refused.into_iter().find(|(_, is_given, _)| *is_given) else { return Ok(()) };
        let value = self.choices.get(field);
        let name = if value.is_some() {
            format!("`layout.{}`", field.key())
        } else {
            format!("`run.layout`: {}", field.key())
        };
        let value = value.or(file.get(field)).map(FieldValue::to_string).unwrap_or_default();
        Err(SpecError::invalid(name, value, rule, "leave it out"))
    }
}

/// Refuses an interval of recomputation that is found for a layout: a search has none yet.
fn check_interval(choices: &LayoutFile) -> Result<(), SpecError> {
    let least = FieldValue::Name(LEAST_INTERVAL.to_owned());
    if choices.get(Field::Recompute) != Some(&least) {
        return Ok(());
    }
    let rule = "the search has no layout yet that the interval could be found for";
    Err(SpecError::invalid("`layout.recompute`", LEAST_INTERVAL, rule, "give full:K, or leave it out"))
}
