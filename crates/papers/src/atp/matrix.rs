//! How fast devices reach each other, layer by layer of an interconnect, and what the dimensions of a mesh get of it.

use quadrille_spec::SpecError;

use super::mesh::Mesh;

/// Most ranks of a layer of a matrix.
const MAX_RANKS: usize = 512;
/// Most devices of a matrix.
const MAX_DEVICES: usize = 1 << 14;
const MAX_BANDWIDTH: f64 = 1e18;

/// A layer of a hierarchical communication matrix (section 3.4): how its ranks, devices or groups of devices, reach each
/// other. The same inside every rank of the layer outside it.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixLayer {
    p2p: Vec<Vec<f64>>,
    group: Vec<f64>,
}

impl MatrixLayer {
    /// `p2p[i][j]` is the bandwidth of the links between ranks `i` and `j`, 0 where there is none; `group[i]` what rank
    /// `i` can send to all others at once.
    ///
    /// # Errors
    /// Fewer than 2 or more than 512 ranks; a matrix that is not square, symmetric, of zero diagonal and of bandwidths;
    /// ranks that no chain of links joins; a group bandwidth below one of the rank's links or above all of them.
    pub fn new(p2p: Vec<Vec<f64>>, group: Vec<f64>) -> Result<Self, SpecError> {
        let ranks = group.len();
        if !(2..=MAX_RANKS).contains(&ranks) {
            let rule = format!("a layer of a communication matrix has 2..={MAX_RANKS} ranks");
            return Err(SpecError::invalid(
                "group",
                format!("{ranks} ranks"),
                rule,
                "give each rank's group bandwidth",
            ));
        }
        let layer = Self { p2p, group };
        layer.check_matrix()?;
        layer.check_groups()?;
        Ok(layer)
    }

    /// Every rank is linked to every other with `link`, and sends `group` in all.
    ///
    /// # Errors
    /// Those of [`MatrixLayer::new`].
    pub fn fully_connected(ranks: usize, link: f64, group: f64) -> Result<Self, SpecError> {
        Self::of(ranks, group, |i, j| if i == j { 0.0 } else { link })
    }

    /// Ranks in a ring: each is linked to the one before and the one after it with `link`, and sends over both links.
    ///
    /// # Errors
    /// Those of [`MatrixLayer::new`]; a ring of two, whose ranks would be linked twice.
    pub fn ring(ranks: usize, link: f64) -> Result<Self, SpecError> {
        if ranks < 3 {
            return Err(SpecError::invalid(
                "ring",
                ranks,
                "a ring has at least 3 ranks",
                "describe two as fully connected",
            ));
        }
        let neighbours = |i: usize, j: usize| (i + 1) % ranks == j || (j + 1) % ranks == i;
        Self::of(ranks, 2.0 * link, |i, j| if neighbours(i, j) { link } else { 0.0 })
    }

    fn of(ranks: usize, group: f64, link: impl Fn(usize, usize) -> f64) -> Result<Self, SpecError> {
        // No more than is refused anyway, whatever number is asked for.
        let ranks = ranks.min(MAX_RANKS + 1);
        let p2p = (0..ranks).map(|i| (0..ranks).map(|j| link(i, j)).collect()).collect();
        Self::new(p2p, vec![group; ranks])
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.group.len()
    }

    /// Bandwidth of the links between two ranks; `None` for a rank that the layer does not have.
    pub fn link(&self, from: usize, to: usize) -> Option<f64> {
        self.p2p.get(from)?.get(to).copied()
    }

    /// What a rank can send to all others at once; `None` for a rank that the layer does not have.
    pub fn group(&self, rank: usize) -> Option<f64> {
        self.group.get(rank).copied()
    }

    fn check_matrix(&self) -> Result<(), SpecError> {
        let ranks = self.ranks();
        let square = self.p2p.len() == ranks && self.p2p.iter().all(|row| row.len() == ranks);
        if !square {
            let lengths: Vec<String> = self.p2p.iter().map(|row| row.len().to_string()).collect();
            let rule = format!("it has a row and a column for each of the {ranks} ranks that have a group bandwidth");
            let rows = format!("rows of {}", lengths.join(", "));
            return Err(SpecError::invalid("p2p", rows, rule, "give 0 for ranks without a link"));
        }
        for (i, row) in self.p2p.iter().enumerate() {
            for (j, link) in row.iter().enumerate() {
                let invalid =
                    |rule: &str, remedy: &str| Err(SpecError::invalid(format!("p2p[{i}][{j}]"), link, rule, remedy));
                if !(0.0..=MAX_BANDWIDTH).contains(link) {
                    return invalid(
                        "a bandwidth lies in 0..=1e18 bytes per second",
                        "give bytes per second, e.g. 25e9",
                    );
                }
                if i == j && *link != 0.0 {
                    return invalid("a rank has no link to itself", "give 0");
                }
                if *link != self.p2p[j][i] {
                    return invalid("links are as fast in both directions", "make the matrix symmetric");
                }
            }
        }
        match self.widest_paths(0).iter().position(|path| *path == 0.0) {
            None => Ok(()),
            Some(rank) => Err(SpecError::invalid(
                "p2p",
                format!("ranks 0 and {rank} apart"),
                "every rank reaches every other over links",
                "describe parts that are not joined by a layer outside them",
            )),
        }
    }

    fn check_groups(&self) -> Result<(), SpecError> {
        for (rank, (group, links)) in self.group.iter().zip(&self.p2p).enumerate() {
            let fastest = links.iter().copied().fold(0.0, f64::max);
            let all = links.iter().sum::<f64>();
            // The sum is rounded.
            if !(fastest..=all * (1.0 + 1e-12)).contains(group) {
                let rule = format!("it lies between the rank's fastest link, {fastest:e}, and all of them, {all:e}");
                let remedy = "correct it, or the rank's row of p2p";
                return Err(SpecError::invalid(format!("group[{rank}]"), format!("{group:e}"), rule, remedy));
            }
        }
        Ok(())
    }

    /// From `rank` to each other one, the slowest link of the best chain of links; infinite to itself, 0 without a chain.
    fn widest_paths(&self, rank: usize) -> Vec<f64> {
        let mut widest = vec![0.0; self.ranks()];
        widest[rank] = f64::INFINITY;
        let mut open: Vec<usize> = (0..self.ranks()).collect();
        while let Some(at) = (0..open.len()).max_by(|a, b| f64::total_cmp(&widest[open[*a]], &widest[open[*b]])) {
            let through = open.swap_remove(at);
            for rank in &open {
                widest[*rank] = widest[*rank].max(widest[through].min(self.p2p[through][*rank]));
            }
        }
        widest
    }

    /// What `rank` can use of its group bandwidth to reach the others of `subset`: no more than its links to them. Without
    /// a link to any of them it goes through ranks outside the subset, over the widest path; what else those send is not
    /// looked at.
    fn usable(&self, rank: usize, subset: &[usize]) -> f64 {
        let links: f64 = subset.iter().map(|other| self.p2p[rank][*other]).sum();
        if links > 0.0 {
            return links.min(self.group[rank]);
        }
        let paths = self.widest_paths(rank);
        subset.iter().filter(|other| **other != rank).map(|other| paths[*other]).fold(0.0, f64::max)
    }
}

/// Hierarchical communication matrix: layers from the outermost to that whose ranks are devices.
#[derive(Debug, Clone, PartialEq)]
pub struct HierarchicalMatrix {
    layers: Vec<MatrixLayer>,
}

impl HierarchicalMatrix {
    /// A matrix of these layers, outermost first.
    ///
    /// # Errors
    /// No layer, or more than 2^14 devices.
    pub fn new(layers: Vec<MatrixLayer>) -> Result<Self, SpecError> {
        let devices = layers.iter().try_fold(1_usize, |devices, layer| devices.checked_mul(layer.ranks()));
        if layers.is_empty() || devices.is_none_or(|devices| devices > MAX_DEVICES) {
            let ranks: Vec<String> = layers.iter().map(|layer| layer.ranks().to_string()).collect();
            let rule = format!("a communication matrix has 1 layer or more, and at most {MAX_DEVICES} devices");
            return Err(SpecError::invalid("layers", format!("[{}]", ranks.join(", ")), rule, "give it other layers"));
        }
        Ok(Self { layers })
    }

    /// A switch that joins all devices with the same bandwidth.
    ///
    /// # Errors
    /// Those of [`MatrixLayer::new`].
    pub fn flat(devices: usize, bandwidth: f64) -> Result<Self, SpecError> {
        Self::new(vec![MatrixLayer::fully_connected(devices, bandwidth, bandwidth)?])
    }

    /// A two-dimensional torus: a ring of `rings` rings of `devices` devices, by links of bandwidth `link` (figure 7b).
    ///
    /// # Errors
    /// Those of [`MatrixLayer::ring`].
    pub fn torus(rings: usize, devices: usize, link: f64) -> Result<Self, SpecError> {
        Self::new(vec![MatrixLayer::ring(rings, devices as f64 * link)?, MatrixLayer::ring(devices, link)?])
    }

    /// The layers, outermost first.
    pub fn layers(&self) -> &[MatrixLayer] {
        &self.layers
    }

    /// Number of devices.
    pub fn devices(&self) -> usize {
        self.layers.iter().map(MatrixLayer::ranks).product()
    }

    /// `[B1', B2']`, equation 3: the slowest of what the layers give the groups of either dimension. A dimension of one
    /// device sends nothing: infinite.
    ///
    /// A layer's group bandwidth counts as far as a group of the mesh has links to use it (the correction by the P2P
    /// matrix), divided by the groups that share a rank. Equation 3 divides by `d2`, which is that number where a rank of
    /// the layer holds at least `d2` devices; a single device belongs to one group of dimension 1 only, as section 5.4
    /// has it (`B1' = GroupBW`).
    ///
    /// # Errors
    /// A mesh of another number of devices.
    pub fn link_bandwidths(&self, mesh: Mesh) -> Result<[f64; 2], SpecError> {
        let devices = self.devices();
        if mesh.d1.checked_mul(mesh.d2) != Some(devices) {
            let meshes: Vec<String> = Mesh::all(devices).iter().map(Mesh::to_string).collect();
            let rule = format!("the communication matrix has {devices} devices");
            return Err(SpecError::invalid("mesh", mesh, rule, format!("use one of {}", meshes.join(", "))));
        }
        Ok(self.bottlenecks(mesh))
    }

    /// [`HierarchicalMatrix::link_bandwidths`] of a mesh of all devices.
    pub(super) fn bottlenecks(&self, Mesh { d1, d2 }: Mesh) -> [f64; 2] {
        let first: Vec<Vec<usize>> = (0..d2).map(|j| (0..d1).map(|i| i * d2 + j).collect()).collect();
        let second: Vec<Vec<usize>> = (0..d1).map(|i| (0..d2).map(|j| i * d2 + j).collect()).collect();
        [self.bottleneck(&first), self.bottleneck(&second)]
    }

    /// The least bandwidth of a rank that any of `groups` communicates through, all of them at once; devices ascend.
    fn bottleneck(&self, groups: &[Vec<usize>]) -> f64 {
        let mut least = f64::INFINITY;
        let mut per_rank = self.devices();
        for layer in &self.layers {
            let ranks = layer.ranks();
            per_rank /= ranks;
            let mut sharing = vec![0_usize; self.devices() / per_rank];
            let mut subsets = Vec::new();
            for group in groups {
                let mut touched: Vec<usize> = group.iter().map(|device| device / per_rank).collect();
                touched.dedup();
                // Ranks of this layer communicate in it only inside the same rank of the layer outside.
                for subset in touched.chunk_by(|a, b| a / ranks == b / ranks).filter(|subset| subset.len() > 1) {
                    subset.iter().for_each(|rank| sharing[*rank] += 1);
                    subsets.push(subset.to_vec());
                }
            }
            for subset in subsets {
                let local: Vec<usize> = subset.iter().map(|rank| rank % ranks).collect();
                for rank in subset {
                    least = least.min(layer.usable(rank % ranks, &local) / sharing[rank] as f64);
                }
            }
        }
        least
    }
}
