//! What layouts are compared for: a model on a cluster.

use quadrille_cost::native::{Candidate, Framework, Learned, Memory, Price, PriceError, Problem, common_divisor};
use quadrille_cost::simulation::Simulation;
use quadrille_spec::{Cluster, Imbalance, Layout, LayoutRequest, Model, SpecError};

use super::legal::Rules;
use super::question::{Cancel, Reserve};

/// Everything that a layout is priced with.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// The model.
    pub model: &'a Model,
    /// Where it runs.
    pub cluster: &'a Cluster,
    /// What trains it.
    pub framework: Framework,
    /// How unequally ranks get rows of experts that drop nothing.
    pub imbalance: &'a Imbalance,
    /// Sequences in a step.
    pub global_batch: usize,
    /// Tokens in a sequence.
    pub seq_len: usize,
    /// Most devices of a node that may be used; `None`: all.
    pub most_of_node: Option<usize>,
    /// Devices of every node that are used; `None`: all.
    pub per_node: Option<usize>,
    /// Memory of a device that stays free; `None`: `capacity` is the same on any number of devices.
    pub reserve: Option<Reserve>,
    /// Bytes that a layout may use of a device; `None`: any number.
    pub capacity: Option<u64>,
    /// What searches have learned of the model's programs and will; `None`: each learns for itself.
    pub learned: Option<&'a Learned>,
}

impl Setting<'_> {
    /// The same for layouts of so many devices: with what runs take there beside tensors, and with as many devices of every node.
    #[must_use]
    pub fn on_devices(self, devices: usize) -> Self {
        let framework = self.framework.on_devices(devices);
        let kept = |memory: u64| self.reserve.and_then(|reserve| reserve.of(memory, &framework).ok());
        let capacity = self.cluster.device_memory.and_then(|memory| Some(memory - kept(memory)?));
        let per_node = self.cluster.used_of_node(devices, self.most_of_node);
        Self { framework, per_node, capacity: capacity.or(self.capacity), ..self }
    }

    /// The price of a layout.
    ///
    /// # Errors
    /// What cannot be priced.
    pub fn price(&self, layout: &Layout) -> Result<Price, PriceError> {
        self.problem()?.price_layout(layout)
    }

    /// The passes of a step of a layout, as its price has them, unless it is cancelled.
    ///
    /// # Errors
    /// What cannot be priced; what nobody waits for any more.
    pub fn passes(&self, layout: &Layout, cancel: &Cancel) -> Result<Simulation, PriceError> {
        self.problem()?.passes(layout, &|| cancel.is_cancelled())
    }

    /// Whether a layout of this price may be used.
    pub fn fits(&self, price: &Price) -> bool {
        self.has_room(&price.memory)
    }

    /// Whether a layout that needs so much memory may be used.
    pub(super) fn has_room(&self, memory: &Memory) -> bool {
        self.capacity.is_none_or(|capacity| memory.total() <= capacity)
    }

    /// The layout of a candidate, on nodes of the cluster.
    ///
    /// # Errors
    /// None for what a search has found.
    pub fn layout(&self, candidate: &Candidate) -> Result<Layout, SpecError> {
        let mut request = candidate.request(self.global_batch, self.seq_len)?;
        // Types of this program's engine are the layout's; others say themselves what numbers are.
        if self.framework.is_own() {
            (request.dtype, request.gradients) = (self.framework.dtype, Some(self.framework.gradients));
        }
        request.grid = request.grid.with_order(candidate.order_as(self.framework.order())?);
        let on_nodes = LayoutRequest { per_node: Some(self.ranks_of_node(candidate)), ..request.clone() };
        let layout = Layout::new(self.model, &on_nodes)?;
        // Where whole nodes do not make up its domains, these are taken for nodes.
        let of_nodes = Candidate::of(&layout, self.cluster);
        let is_placed =
            of_nodes.inside == candidate.inside && Candidate::used_domain(&layout, self.cluster) == candidate.domain();
        if is_placed { Ok(layout) } else { Layout::new(self.model, &request) }
    }

    /// Ranks of a candidate that share a node: those of several domains of the innermost tier, or an equal part of a domain's.
    fn ranks_of_node(&self, candidate: &Candidate) -> usize {
        let domain = candidate.domain();
        let ranks = candidate.devices();
        let Some(node) = self.cluster.node_devices() else { return domain };
        let node = self.per_node.map_or(node, |per_node| per_node.min(node));
        let full = self.cluster.used_domain(self.per_node).unwrap_or(domain);
        if domain <= node {
            domain * common_divisor(ranks / domain, (node / full).max(1))
        } else {
            common_divisor(domain, node)
        }
    }

    pub(super) fn problem(&self) -> Result<Problem, SpecError> {
        let used = self.per_node.map(|per_node| self.cluster.with_used(per_node));
        let cluster = used.as_ref().unwrap_or(self.cluster);
        let problem = Problem::new(self.model, cluster, self.framework, self.global_batch, self.seq_len)?;
        problem.with_imbalance(self.imbalance)
    }

    /// The room for rows of experts that a candidate needs, if it is not said.
    pub(super) fn expert_rows(&self, candidate: &Candidate) -> usize {
        self.imbalance.expert_rows(self.model, candidate.expert_ranks())
    }

    /// Whether so much room is enough for the rows of a candidate's experts.
    pub(super) fn has_rows(&self, candidate: &Candidate, expert_rows: usize) -> bool {
        self.imbalance.has_room(self.model, candidate.expert_ranks(), expert_rows)
    }

    pub(super) fn rules(&self) -> Rules<'_> {
        Rules { model: self.model, global_batch: self.global_batch, seq_len: self.seq_len }
    }
}
