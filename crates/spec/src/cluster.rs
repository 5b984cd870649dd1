//! A cluster: its devices and how fast they talk to each other.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::origins::numbers_of;
use crate::{Axis, Calibration, Device, Grid, Origin, Origins, SpecError};

/// Devices, the links inside a node and those between nodes. Files: [`Cluster::from_toml`].
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    /// What the cluster is called in reports.
    pub name: String,
    /// Where the numbers come from.
    pub source: String,
    /// What every rank runs on; `None` where nobody said how fast it is: then only communication can be priced.
    pub device: Option<Device>,
    /// The networks that join devices, innermost first; empty where only the two levels of AxoNN's model are known.
    pub tiers: Vec<Tier>,
    /// Memory of a device in bytes; `None`: not bounded by a device.
    pub device_memory: Option<u64>,
    /// Devices of a node, that is of a host, where the file says it; see [`Self::node_devices`]. Domains of tiers may be smaller
    /// (Frontier: two of the eight dies of a node) and larger (NVL72: 18 nodes of four devices).
    pub devices_per_node: Option<usize>,
    /// The two levels of AxoNN's model, a domain of the fast networks and what joins them; `None`: all devices share one.
    pub network: Option<Network>,
    /// Bandwidth in bytes per second inside a node, where `group_bandwidths` says nothing else.
    pub intra_node_bandwidth: f64,
    /// Known bandwidths of groups inside a node.
    pub group_bandwidths: Vec<GroupBandwidth>,
    /// What the numbers were fitted to, where they were measured.
    pub calibration: Option<Calibration>,
    /// Where memory, network and bandwidths inside a node are from; device and tiers say themselves where theirs are from.
    pub origins: Origins,
}

/// A network that joins devices (the innermost) or domains of the tier below: NVLink in a node, InfiniBand between nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tier {
    /// What the network is called in reports.
    pub name: String,
    /// Devices in a domain of this tier, a multiple of those of the tier below; `None` on the outermost: any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<usize>,
    /// Links by which one domain of the tier below (one device on the innermost tier) joins this tier.
    #[serde(default = "one")]
    pub links: usize,
    /// Bytes per second of a link in one direction.
    pub bandwidth: f64,
    /// Fraction of the bandwidth that large messages reach, in (0, 1].
    pub efficiency: f64,
    /// Seconds before a message's first byte arrives.
    pub latency: f64,
    /// Bytes of a message that reaches half of `efficiency`; 0: messages of all sizes reach all of it.
    #[serde(default)]
    pub half_bytes: f64,
    /// Where each of these numbers is from.
    #[serde(default, skip_serializing_if = "Origins::is_empty")]
    pub origins: Origins,
}

fn one() -> usize {
    1
}

impl Tier {
    /// The names of its numbers, as its file has them.
    pub fn numbers(&self) -> Vec<String> {
        numbers_of(self)
    }
}

/// AxoNN's two levels: domains of equal size, every pair of them joined by equal bandwidth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Network {
    /// Devices of a domain, in most clusters a node: AxoNN's `G_node`.
    pub devices_per_node: usize,
    /// Peer-to-peer bidirectional bandwidth between two nodes in bytes per second: AxoNN's `beta_inter`.
    pub bandwidth: f64,
}

/// The peer-to-peer bandwidth that collectives reach inside a node when all outer groups of a two-level hierarchy
/// run at once: the database of AxoNN's performance model (SC24, section V-B, case 1).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupBandwidth {
    /// `G0`: devices between two neighbours of a group, the product of the sizes of the inner axes.
    pub inner: usize,
    /// `G1`: devices in a group.
    pub group: usize,
    /// Bytes per second.
    pub bandwidth: f64,
}

impl Cluster {
    /// Its own numbers by name, beside those of device and tiers.
    pub const NUMBERS: [&str; 5] =
        ["device_memory", "devices_per_node", "inter_node_bandwidth", "intra_node_bandwidth", "group_bandwidths"];

    /// Where a number is from, by its name: `device.peak.half`, `tiers.0.latency`, `inter_node_bandwidth`. What is not described
    /// is assumed.
    pub fn origin(&self, number: &str) -> Origin {
        let of_tier = |index: &str, name| Some(self.tiers.get(index.parse::<usize>().ok()?)?.origins.of(name));
        match number.split_once('.') {
            Some(("device", name)) => self.device.as_ref().map(|device| device.origins.of(name)).unwrap_or_default(),
            Some(("tiers", name)) => {
                name.split_once('.').and_then(|(tier, name)| of_tier(tier, name)).unwrap_or_default()
            }
            _ => self.origins.of(number),
        }
    }

    /// Devices of a domain of the innermost tier: a part of a node, a node or a rack of them; `None` where no tier says it, or one
    /// joins all.
    pub fn fast_domain(&self) -> Option<usize> {
        self.tiers.first().and_then(|tier| tier.devices)
    }

    /// Devices of a node: those of the file, else those of a domain of the innermost tier; `None`: any number.
    pub fn node_devices(&self) -> Option<usize> {
        self.devices_per_node.or_else(|| self.fast_domain())
    }

    /// Ranks of a job of `ranks` ranks that share a node: as many in each ([`Self::used_of_node`]).
    pub fn ranks_of_node(&self, ranks: usize) -> usize {
        let node = self.node_devices().unwrap_or(ranks);
        self.used_of_node(ranks, None).unwrap_or(node).min(ranks)
    }

    /// Devices of every node that a job of `ranks` ranks uses, at most `most` of each: as many as leave all nodes alike. `None`: all
    /// of every node, or a part of one.
    pub fn used_of_node(&self, ranks: usize, most: Option<usize>) -> Option<usize> {
        let node = self.node_devices()?;
        let most = most.map_or(node, |most| most.clamp(1, node));
        let alike = (1..=most.min(ranks)).rev().find(|used| ranks.is_multiple_of(*used))?;
        let used = if ranks > most { alike } else { most };
        (used < node).then_some(used)
    }

    /// The cluster of which jobs use `per_node` devices of every node: domains that nodes consist of share these evenly, and domains
    /// of several nodes have as many of each. Unchanged where a node has no more devices.
    pub fn with_used(&self, per_node: usize) -> Self {
        let Some(node) = self.node_devices().filter(|node| (1..*node).contains(&per_node)) else {
            return self.clone();
        };
        let mut used = Self { devices_per_node: Some(per_node), ..self.clone() };
        for devices in used.tiers.iter_mut().filter_map(|tier| tier.devices.as_mut()) {
            *devices = used_of_domain(*devices, node, per_node);
        }
        used
    }

    /// Devices of a domain of the innermost tier that jobs use, at most `per_node` of every node; `None`: any number.
    pub fn used_domain(&self, per_node: Option<usize>) -> Option<usize> {
        let domain = self.fast_domain()?;
        let node = self.node_devices().unwrap_or(domain);
        Some(per_node.map_or(domain, |per_node| used_of_domain(domain, node, per_node)))
    }

    /// How many of `ranks` ranks share a domain of AxoNN's model, [`Network`].
    pub fn per_node(&self, ranks: usize) -> usize {
        self.network.map_or(ranks, |network| network.devices_per_node.min(ranks))
    }

    /// Bytes per second inside a node for groups of `group` devices, `inner` devices apart: the table's entry,
    /// else the general bandwidth.
    pub fn group_bandwidth(&self, inner: usize, group: usize) -> f64 {
        let entry = self.group_bandwidths.iter().find(|entry| (entry.inner, entry.group) == (inner, group));
        entry.map_or(self.intra_node_bandwidth, |entry| entry.bandwidth)
    }

    /// The network between nodes that hold `per_node` of `ranks` ranks each; `None` if one node holds them all.
    ///
    /// # Errors
    /// More ranks in a node than it has devices, or several nodes without a network.
    pub fn network_for(&self, ranks: usize, per_node: usize) -> Result<Option<Network>, SpecError> {
        let invalid = |rule: String, remedy: &str| Err(SpecError::invalid("per-node", per_node, rule, remedy));
        match self.network {
            Some(network) if per_node.min(ranks) > network.devices_per_node => invalid(
                format!("a node of {} has {} devices", self.name, network.devices_per_node),
                "put fewer ranks into a node, or describe another cluster",
            ),
            None if per_node < ranks => invalid(
                format!("{} is a single node, which cannot hold only a part of {ranks} ranks", self.name),
                "leave per-node out, or give the cluster devices_per_node and inter_node_bandwidth",
            ),
            network => Ok(network.filter(|_| per_node < ranks)),
        }
    }

    /// The bandwidth in bytes per second that a ring of each axis gets, indexed by `Axis as usize`, while the groups of
    /// this axis run at once; `per_node` ranks share a node. It is that of AxoNN's performance model (SC24, section V-B).
    ///
    /// With `G_j` the sizes in the grid's order of axes, innermost first: inside a node (case 1, `prod_{j<=i} G_j` at most
    /// `per_node`) the cluster's table for `(prod_{j<i} G_j, G_i)`; else equation 7,
    /// `beta_inter / min(per_node, prod_{j<i} G_j)`. As published, also where the size of a node is no multiple of the
    /// group's extent, so that some groups straddle two nodes. Infinite for an axis of size 1, which sends nothing.
    ///
    /// # Errors
    /// Those of [`Self::network_for`].
    pub fn ring_bandwidths(&self, grid: &Grid, per_node: usize) -> Result<[f64; Axis::COUNT], SpecError> {
        let network = self.network_for(grid.ranks(), per_node)?;
        let mut bandwidths = [f64::INFINITY; Axis::COUNT];
        let mut inner = 1;
        for axis in grid.order().axes() {
            let size = grid.size(axis);
            if size > 1 {
                bandwidths[axis as usize] = match network {
                    Some(network) if inner * size > per_node => network.bandwidth / inner.min(per_node) as f64,
                    _ => self.group_bandwidth(inner, size),
                };
            }
            inner *= size;
        }
        Ok(bandwidths)
    }
}

/// Devices of a domain of `domain` devices that jobs use, `per_node` of every node of `node` devices: all that they use of several
/// nodes, else an equal part of a node's.
pub fn used_of_domain(domain: usize, node: usize, per_node: usize) -> usize {
    if per_node >= node {
        domain
    } else if domain > node {
        domain / node * per_node
    } else {
        (1..=domain.min(per_node)).rev().find(|used| per_node.is_multiple_of(*used)).unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_use_parts_of_nodes_evenly() {
        let tiers = |name: &str, per_node: usize| {
            let used = Cluster::preset(name).unwrap().with_used(per_node);
            used.tiers.iter().filter_map(|tier| tier.devices).collect::<Vec<_>>()
        };
        // Eight dies in four packages; two sockets of three; 18 hosts of four in a rack.
        assert_eq!(
            (tiers("frontier", 8), tiers("frontier", 4), tiers("frontier", 1)),
            (vec![2, 8], vec![2, 4], vec![1, 1])
        );
        assert_eq!((tiers("summit", 6), tiers("summit", 4), tiers("summit", 2)), (vec![3, 6], vec![2, 4], vec![2, 2]));
        assert_eq!((tiers("gb200-nvl72", 4), tiers("gb200-nvl72", 2)), (vec![72], vec![36]));
        assert_eq!((tiers("dgx-h100", 64), tiers("dgx-h100", 6)), (vec![8], vec![6]));
        for name in Cluster::preset_names() {
            let cluster = Cluster::preset(name).unwrap();
            for per_node in 1..=cluster.node_devices().unwrap_or(8) {
                let used = cluster.with_used(per_node);
                assert_eq!(cluster.used_domain(Some(per_node)), used.fast_domain(), "{name}, {per_node}");
            }
        }
    }

    #[test]
    fn nodes_are_used_alike() {
        let used = |name: &str, ranks, most| Cluster::preset(name).unwrap().used_of_node(ranks, most);
        // Six devices in a node of Summit, four in one of a rack of 72, eight dies on Frontier.
        assert_eq!(
            (used("summit", 64, None), used("summit", 60, None), used("summit", 4, None)),
            (Some(4), None, None)
        );
        assert_eq!((used("gb200-nvl72", 90, None), used("gb200-nvl72", 36, None)), (Some(3), None));
        assert_eq!((used("frontier", 64, Some(6)), used("frontier", 12, None)), (Some(4), Some(6)));
        assert_eq!((used("dgx-h100", 20, None), used("dgx-h100", 4, Some(2))), (Some(5), Some(2)));
        assert_eq!((used("dgx-h100", 1, Some(2)), used("dgx-h100", 16, Some(64))), (Some(2), None));
        let dgx = Cluster::preset("dgx-h100").unwrap();
        assert_eq!([1, 8, 12, 20, 64].map(|ranks| dgx.ranks_of_node(ranks)), [1, 8, 6, 5, 8]);
    }

    #[test]
    fn groups_have_the_bandwidth_of_the_table_or_the_general_one() {
        let perlmutter = Cluster::preset("perlmutter").unwrap();
        assert_eq!(perlmutter.group_bandwidth(1, 4), 300e9);
        assert_eq!(perlmutter.group_bandwidth(2, 2), 100e9);
        assert_eq!(Cluster::preset("local").unwrap().group_bandwidth(3, 5), 8e9);
    }

    #[test]
    fn nodes_are_held_against_the_cluster() {
        let perlmutter = Cluster::preset("perlmutter").unwrap();
        assert_eq!((perlmutter.per_node(32), perlmutter.per_node(2)), (4, 2));
        assert_eq!(perlmutter.network_for(32, 4).unwrap(), perlmutter.network);
        assert_eq!(perlmutter.network_for(4, 4).unwrap(), None);
        let message = perlmutter.network_for(32, 8).unwrap_err().to_string();
        assert!(message.starts_with("per-node = 8: a node of perlmutter has 4 devices"), "{message}");
        let local = Cluster::preset("local").unwrap();
        assert_eq!((local.per_node(48), local.network_for(48, 48).unwrap()), (48, None));
        assert!(local.network_for(48, 8).unwrap_err().to_string().contains("inter_node_bandwidth"));
    }
}
