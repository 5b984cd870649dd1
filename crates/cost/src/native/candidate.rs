//! A layout as a search handles it: small, copied freely, compared by value.

use quadrille_spec::{
    Activations, Axis, AxisOrder, AxisSet, Cluster, Dispatch, ElementType, EvenPieces, Grid, KeepWeights, Layout,
    LayoutRequest, Linear, Offload, Overlap, Recompute, Schedule, SpecError, Zero, used_of_domain,
};

/// Every choice of a layout that changes its price. Pieces of layers are as equal as possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// Sizes of the axes, in the order of [`Axis::ALL`].
    pub sizes: [usize; Axis::COUNT],
    /// For each axis, how many neighbours along it share a domain of the innermost tier; divides its size.
    pub inside: [usize; Axis::COUNT],
    /// Sequences of one (data, expert) rank in one pass, split over z.
    pub microbatch: usize,
    /// How activations lie.
    pub activations: Activations,
    /// How linear layers are multiplied.
    pub linear: Linear,
    /// Panels of a SUMMA product; not read elsewhere.
    pub summa_panels: usize,
    /// Overlap passes: the input gradient's reduction, the weight gradients' reductions, the weights' gathers.
    pub overlap: Overlap,
    /// Parts of a microbatch whose computation and communication interleave.
    pub overlap_chunks: usize,
    /// The order of passes over microbatches.
    pub schedule: Schedule,
    /// Pieces of layers that each stage owns.
    pub chunks: usize,
    /// What the backward pass computes again.
    pub recompute: Recompute,
    /// Whether recomputation keeps the outputs of collectives.
    pub keep_communicated: bool,
    /// What is sharded over the axes that replicate weights: data, expert and context.
    pub zero: Zero,
    /// How long weights gathered over z are kept.
    pub keep_weights: KeepWeights,
    /// Elements of a bucket of the optimizer's states, if they lie in the host's memory.
    pub bucket: Option<usize>,
    /// The axes over which experts are spread, as far as they are above 1; none in a model without experts.
    pub experts_over: AxisSet,
    /// What ranks with the same tokens send to experts.
    pub dispatch: Dispatch,
    /// [`Layout::expert_rows`].
    pub expert_rows: usize,
    /// [`Layout::vocab_multiple`].
    pub vocab_multiple: usize,
}

impl Candidate {
    /// One device, one microbatch of one sequence, nothing switched on but overlap passes.
    pub const PLAIN: Self = Self {
        sizes: [1; Axis::COUNT],
        inside: [1; Axis::COUNT],
        microbatch: 1,
        activations: Activations::Scattered,
        linear: Linear::Pmm,
        summa_panels: 1,
        overlap: Overlap::ALL,
        overlap_chunks: 1,
        schedule: Schedule::OneForwardOneBackward,
        chunks: 1,
        recompute: Recompute::None,
        keep_communicated: false,
        zero: Zero::Off,
        keep_weights: KeepWeights::Use,
        bucket: None,
        experts_over: AxisSet::EMPTY,
        dispatch: Dispatch::Dropped,
        expert_rows: 0,
        vocab_multiple: 1,
    };

    /// What a layout on a cluster is for the native model.
    pub fn of(layout: &Layout, cluster: &Cluster) -> Self {
        Self::on_domains(layout, Domains::of(cluster).used(layout))
    }

    /// Devices of a domain of a cluster's innermost tier that a layout uses.
    pub fn used_domain(layout: &Layout, cluster: &Cluster) -> usize {
        Domains::of(cluster).used(layout)
    }

    /// The same where layouts use so many devices of each domain of the innermost tier.
    pub(super) fn on_domains(layout: &Layout, domain: usize) -> Self {
        Self {
            sizes: Axis::ALL.map(|axis| layout.grid.size(axis)),
            inside: inside(&layout.grid, domain),
            microbatch: layout.microbatch,
            activations: layout.activations,
            linear: layout.linear,
            summa_panels: layout.summa_panels,
            overlap: layout.overlap,
            overlap_chunks: layout.overlap_chunks,
            schedule: layout.schedule,
            chunks: layout.chunks,
            recompute: layout.recompute,
            keep_communicated: layout.keep_communicated,
            zero: layout.zero,
            keep_weights: layout.keep_weights,
            bucket: (layout.offload != Offload::None).then_some(layout.bucket),
            experts_over: layout.experts_over,
            dispatch: layout.dispatch,
            expert_rows: layout.expert_rows,
            vocab_multiple: layout.vocab_multiple,
        }
    }

    /// The most ranks of a node of a cluster that all nodes have alike, and whose domains no group of the layout's ranks straddles.
    pub fn fullest_node(layout: &Layout, cluster: &Cluster) -> usize {
        Domains::of(cluster).fullest_node(layout)
    }

    /// The axes above 1 over which experts are spread.
    pub fn spreading(&self) -> AxisSet {
        self.experts_over.iter().filter(|axis| self.size(*axis) > 1).collect()
    }

    /// Ranks that share the experts of a block.
    pub fn expert_ranks(&self) -> usize {
        self.experts_over.iter().map(|axis| self.size(axis)).product()
    }

    /// The layout that it stands for: with the order of axes that puts `inside` of them into a domain, and so many
    /// ranks in a node.
    ///
    /// # Errors
    /// Sizes that are no grid; an `inside` that no order of axes gives, since only one axis can lie partly inside.
    pub fn request(&self, global_batch: usize, seq_len: usize) -> Result<LayoutRequest, SpecError> {
        let grid = Grid::of_sizes(self.sizes)?.with_order(self.order()?);
        Ok(LayoutRequest {
            per_node: Some(self.domain()),
            activations: self.activations,
            linear: self.linear,
            summa_panels: (self.linear == Linear::Summa).then_some(self.summa_panels),
            overlap: self.overlap,
            overlap_chunks: self.overlap_chunks,
            schedule: self.schedule,
            chunks: self.chunks,
            recompute: self.recompute,
            keep_communicated: self.keep_communicated,
            zero: self.zero,
            keep_weights: self.keep_weights,
            offload: self.offload(),
            bucket: self.bucket,
            experts_over: Some(self.spreading()),
            dispatch: self.dispatch,
            expert_rows: self.expert_rows,
            vocab_multiple: self.vocab_multiple,
            microbatch: Some(self.microbatch),
            seq_len: Some(seq_len),
            ..LayoutRequest::new(grid, global_batch)
        })
    }

    /// The candidate as a layout without a list of pieces, in the usual order of axes: what rules and programs of some of its
    /// layers need.
    ///
    /// # Errors
    /// Sizes that are no grid.
    pub fn without_pieces(&self, global_batch: usize, seq_len: usize) -> Result<Layout, SpecError> {
        Ok(Layout {
            grid: Grid::of_sizes(self.sizes)?,
            per_node: 1,
            activations: self.activations,
            linear: self.linear,
            summa_panels: self.summa_panels,
            overlap: self.overlap,
            overlap_chunks: self.overlap_chunks,
            schedule: self.schedule,
            chunks: self.chunks,
            microbatch_group: self.size(Axis::Pipe),
            stage_blocks: Vec::new(),
            recompute: self.recompute,
            keep_communicated: self.keep_communicated,
            zero: self.zero,
            keep_weights: self.keep_weights,
            offload: self.offload(),
            bucket: self.bucket.unwrap_or(Layout::BUCKET),
            optimizer_overlap: false,
            experts_over: self.spreading(),
            dispatch: self.dispatch,
            expert_rows: self.expert_rows,
            vocab_multiple: self.vocab_multiple,
            global_batch,
            microbatch: self.microbatch,
            seq_len,
            dtype: ElementType::F32,
            gradients: ElementType::F32,
        })
    }

    /// The candidate as a layout of a model of so many layers, whether its sizes follow the rules or not.
    ///
    /// # Errors
    /// Sizes that are no grid; an `inside` that no order of axes gives.
    pub fn layout(&self, layers: usize, global_batch: usize, seq_len: usize) -> Result<Layout, SpecError> {
        let layout = self.without_pieces(global_batch, seq_len)?;
        let stages = self.size(Axis::Pipe);
        let microbatches = self.microbatches(global_batch);
        let even = EvenPieces::new(layers, stages, self.chunks);
        // Of the groups that the interleaved schedule takes the smallest.
        let whole = |group: &usize| matches!(microbatches % group, rest if rest == 0 || rest >= stages);
        Ok(Layout {
            microbatch_group: (stages..=microbatches).find(whole).unwrap_or(stages),
            grid: layout.grid.with_order(self.order()?),
            per_node: self.domain(),
            stage_blocks: even.blocks().collect(),
            ..layout
        })
    }

    /// The order of axes that gives `inside`: first those that lie wholly inside, then the one that lies partly inside,
    /// then the others.
    ///
    /// # Errors
    /// Several axes that lie partly inside.
    pub fn order(&self) -> Result<AxisOrder, SpecError> {
        self.order_as(AxisOrder::USUAL)
    }

    /// The same, with axes that lie alike as they do in the usual order of a framework.
    ///
    /// # Errors
    /// As [`Self::order`].
    pub fn order_as(&self, usual: AxisOrder) -> Result<AxisOrder, SpecError> {
        let place = |axis: &Axis| match (self.inside[*axis as usize], self.size(*axis)) {
            (inside, size) if inside == size => 0,
            (1, _) => 2,
            _ => 1,
        };
        if Axis::ALL.iter().filter(|axis| place(axis) == 1).count() > 1 {
            let rule = "in an order of axes at most one lies partly inside a node";
            let remedy = "put the whole of one axis inside, or none of it";
            return Err(SpecError::invalid("inside", format!("{:?}", self.inside), rule, remedy));
        }
        let mut axes = usual.axes();
        axes.sort_by_key(place);
        axes.map(Axis::name).join(",").parse()
    }

    /// Where the optimizer's states lie.
    fn offload(&self) -> Offload {
        if self.bucket.is_some() { Offload::Host } else { Offload::None }
    }

    /// The size of one axis.
    pub fn size(&self, axis: Axis) -> usize {
        self.sizes[axis as usize]
    }

    /// How many shares the batch is cut into: the (data, expert) ranks.
    pub fn batch_shares(&self) -> usize {
        Axis::BATCH.map(|axis| self.size(axis)).iter().product()
    }

    /// Devices of the layout.
    pub fn devices(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Devices of the layout that share a domain of the innermost tier.
    pub fn domain(&self) -> usize {
        self.inside.iter().product()
    }

    /// Passes over microbatches in a step.
    pub fn microbatches(&self, global_batch: usize) -> usize {
        global_batch / self.batch_shares() / self.microbatch
    }
}

/// Nodes and domains of the innermost tier, by their devices; no bound is `usize::MAX`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Domains {
    node: usize,
    /// Of the innermost tier: a part of a node, a node, or several.
    pub innermost: usize,
}

impl Domains {
    pub fn of(cluster: &Cluster) -> Self {
        let innermost = cluster.fast_domain().unwrap_or(usize::MAX);
        Self { node: cluster.node_devices().unwrap_or(innermost), innermost }
    }

    /// As [`Candidate::fullest_node`].
    pub fn fullest_node(self, layout: &Layout) -> usize {
        let ranks = layout.grid.ranks();
        let is_full = |per_node: &usize| {
            let used = self.used(&Layout { per_node: *per_node, ..layout.clone() });
            inside(&layout.grid, used).iter().product::<usize>() == used
        };
        (1..=self.node.min(ranks)).rev().filter(|node| ranks.is_multiple_of(*node)).find(is_full).unwrap_or(1)
    }

    /// Devices of a domain of the innermost tier that a layout uses, as its nodes say: of a domain of several nodes as many whole ones
    /// as no group of the layout's ranks straddles. Of more ranks to a node than it has devices, those of a candidate, all.
    pub fn used(self, layout: &Layout) -> usize {
        let Self { node, innermost } = self;
        let ranks = layout.grid.ranks();
        let per_node = layout.per_node;
        if innermost <= node {
            return used_of_domain(innermost, node, per_node).min(ranks);
        }
        if per_node > node {
            return per_node.min(innermost).min(ranks);
        }
        let most = (innermost / node).min(ranks / per_node);
        let is_full = |used: &usize| {
            ranks.is_multiple_of(*used) && inside(&layout.grid, *used).iter().product::<usize>() == *used
        };
        (1..=most).rev().map(|nodes| nodes * per_node).find(is_full).unwrap_or(per_node)
    }
}

/// How many neighbours along each axis share one of the blocks of `domain` consecutive ranks. Where such a block ends
/// amid a group, groups straddle it: the largest size that all of them have inside counts.
pub fn inside(grid: &Grid, domain: usize) -> [usize; Axis::COUNT] {
    inside_by(grid.order().axes(), Axis::ALL.map(|axis| grid.size(axis)), domain.min(grid.ranks()))
}

/// The same of ranks in an order of axes, from the inside out.
pub fn inside_by(
    order: impl IntoIterator<Item = Axis>,
    sizes: [usize; Axis::COUNT],
    domain: usize,
) -> [usize; Axis::COUNT] {
    let mut inside = [1; Axis::COUNT];
    let mut left = domain;
    for axis in order {
        let size = sizes[axis as usize];
        inside[axis as usize] = common_divisor(size, left);
        left = if left.is_multiple_of(size) { left / size } else { 1 };
    }
    inside
}

/// The largest number that divides both.
pub fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
pub(super) mod tests {
    use quadrille_spec::Model;

    use super::*;

    /// A candidate of that grid and order on nodes of 8 devices.
    pub fn candidate(grid: &str, order: &str) -> Candidate {
        let grid = grid.parse::<Grid>().unwrap().with_order(order.parse().unwrap());
        let model = Model::gpt(8, 64, 8, 128, 32);
        let request = LayoutRequest { activations: Activations::Replicated, ..LayoutRequest::new(grid, 192) };
        Candidate::of(&Layout::new(&model, &request).unwrap(), &Cluster::preset("selene").unwrap())
    }

    #[test]
    fn nodes_are_filled_from_the_innermost_axis() {
        assert_eq!(candidate("x=4,data=4,pipe=2", "x,y,z,data").inside, [4, 1, 1, 1, 1, 2, 1]);
        assert_eq!(candidate("x=4,data=4,pipe=2", "pipe,data,x,y,z").inside, [1, 1, 1, 1, 1, 4, 2]);
        assert_eq!(candidate("x=2,data=2", "x,y,z,data").inside, [2, 1, 1, 1, 1, 2, 1]);
        // Nodes of 8 in groups of 3: some groups straddle two nodes, and pipe is 3 devices apart.
        assert_eq!(candidate("data=3,pipe=8", "data,x,y,z").inside, [1; Axis::COUNT]);
    }

    /// Ranks of a node as a layout has them, and what of its axes lies inside a domain of the innermost tier.
    #[test]
    fn domains_are_parts_of_nodes_or_several_of_them() {
        let model = Model::gpt(8, 64, 8, 128, 32);
        let inside = |cluster: &str, grid: &str, per_node| {
            let grid = grid.parse::<Grid>().unwrap();
            let request =
                LayoutRequest { per_node, activations: Activations::Replicated, ..LayoutRequest::new(grid, 1152) };
            let layout = Layout::new(&model, &request).unwrap();
            Candidate::of(&layout, &Cluster::preset(cluster).unwrap()).inside
        };
        for per_node in [None, Some(8), Some(4), Some(2)] {
            assert_eq!(inside("frontier", "x=4,data=16", per_node), [2, 1, 1, 1, 1, 1, 1], "{per_node:?}");
        }
        assert_eq!(inside("frontier", "x=4,data=16", Some(1)), [1; Axis::COUNT]);
        assert_eq!(inside("pcie-8x-l40s", "x=4,data=4", Some(8)), [4, 1, 1, 1, 1, 1, 1]);
        // Two of three devices at each socket.
        assert_eq!(inside("summit", "x=4,data=16", Some(4)), [2, 1, 1, 1, 1, 1, 1]);
        // 16 of 18 hosts, all 18, and of 18 hosts half.
        assert_eq!(inside("gb200-nvl72", "x=4,data=32", Some(4)), [4, 1, 1, 1, 1, 16, 1]);
        assert_eq!(inside("gb200-nvl72", "x=4,data=36", Some(4)), [4, 1, 1, 1, 1, 18, 1]);
        assert_eq!(inside("gb200-nvl72", "x=4,data=32", Some(2)), [4, 1, 1, 1, 1, 8, 1]);
        assert_eq!(inside("gb200-nvl72", "x=4,data=32", Some(64)), [4, 1, 1, 1, 1, 16, 1]);
        assert_eq!(inside("gb200-nvl72", "x=2", None), [2, 1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn requests_are_the_layouts_that_candidates_came_from() {
        let cluster = Cluster::preset("selene").unwrap();
        let model = Model::gpt(8, 64, 8, 128, 32);
        for (grid, order) in [("x=4,data=4,pipe=2", "x,y,z,data"), ("x=4,data=4,pipe=2", "pipe,data,x,y,z")] {
            let from = candidate(grid, order);
            let layout = Layout::new(&model, &from.request(192, 32).unwrap()).unwrap();
            assert_eq!(Candidate::of(&layout, &cluster), from);
        }
    }

    #[test]
    fn what_no_order_gives_is_refused() {
        let partly = Candidate { inside: [2, 1, 1, 1, 1, 2, 1], ..candidate("x=4,data=4", "x,y,z,data") };
        let message = partly.request(64, 32).unwrap_err().to_string();
        assert!(message.contains("at most one lies partly inside"), "{message}");
    }
}
