//! The machine of a row: a device that comes with the program, and networks of the bandwidth that the source names.

use quadrille_spec::{Cluster, Device};

use crate::row::Row;
use crate::sources::Facts;
use crate::unmapped::Unmapped;

/// How the column `gpu` begins, the device and the cluster whose networks inside nodes and whose efficiencies it has.
const DEVICES: [(&str, &str, &str); 10] = [
    ("A100-40GB", "a100-40", "dgx-a100"),
    ("A100", "a100-80", "dgx-a100"),
    ("H100-80GB", "h100", "dgx-h100"),
    ("H100-96GB", "h100", "dgx-h100"),
    ("H200", "h200", "dgx-h200"),
    ("GB200", "gb200", "gb200-nvl72"),
    ("GB300", "gb300", "gb300-nvl72"),
    ("B200", "b200", "dgx-b200"),
    ("B300", "b300", "dgx-b300"),
    ("V100-16GB", "v100-16", "summit"),
];

/// How the column `gpu` begins of a device with more memory than the one that it is taken for, and its bytes, as torchtitan's page of
/// results has them.
const WIDE: (&str, u64) = ("H100-96GB", 95 << 30);

/// A network between nodes.
struct Between {
    /// What a source says of it.
    name: &'static str,
    /// Links of a node.
    links: usize,
    /// Bytes per second of each.
    bandwidth: f64,
    /// Fraction of them that collectives reach.
    efficiency: f64,
}

/// A network of which nobody's step times were fitted: the 70 % that Subramanian et al. (arXiv 2410.00273) measured.
const fn between(name: &'static str, links: usize, bandwidth: f64) -> Between {
    Between { name, links, bandwidth, efficiency: 0.7 }
}

/// Networks that sources name. Those with an efficiency of their own have it from the fit of all rows that `validate published
/// --cross` prints. Of Hagemann et al. the text says InfiniBand alone; the runs reach what one or two adapters of a node would give.
/// Of MosaicML's H100 nodes nobody says it: an adapter of 400 Gb/s for each device is assumed, as DGX H100 has them.
const NETWORKS: [Between; 13] = [
    Between { efficiency: 0.981, ..between("Selene", 8, 25e9) },
    Between { efficiency: 0.230, ..between("DGX A100", 8, 25e9) },
    Between { efficiency: 0.621, ..between("Jean Zay", 4, 12.5e9) },
    Between { efficiency: 0.717, ..between("1600 Gb", 8, 25e9) },
    Between { efficiency: 0.494, ..between("H100 80GB BF16", 8, 50e9) },
    Between { efficiency: 0.520, ..between("4x100 Gb/s RoCE", 4, 12.5e9) },
    Between { efficiency: 0.831, ..between("800 Gb/s per node", 4, 25e9) },
    Between { efficiency: 1.0, ..between("400 Gb/s per node", 4, 12.5e9) },
    Between { efficiency: 0.757, ..between("400 Gb/s NDR IB per GPU", 8, 50e9) },
    between("400 Gb/s RDMA per GPU", 8, 50e9),
    between("400 Gb/s CX-7 per GPU", 8, 50e9),
    Between { efficiency: 0.691, ..between("NVL72", 72, 50e9) },
    between("CX-8", 8, 100e9),
];

/// Whether the fast domains of the row's machine are racks of several nodes.
pub fn is_rack(row: &Row) -> bool {
    row.interconnect.contains("NVL72")
}

/// The cluster of a row. Runs on one node need no network between nodes.
///
/// # Errors
/// A device or a network that is not described.
pub fn cluster(row: &Row, facts: &Facts) -> Result<Cluster, Unmapped> {
    let (_, device, cluster) =
        DEVICES.iter().find(|(prefix, ..)| row.gpu.starts_with(prefix)).ok_or(Unmapped::Device)?;
    let mut cluster = Cluster::preset(cluster).map_err(|_| Unmapped::Device)?;
    let device = Device::preset(device).map_err(|_| Unmapped::Device)?;
    cluster.device_memory = Some(if row.gpu.starts_with(WIDE.0) { WIDE.1 } else { device.memory });
    cluster.device = Some(device);
    let node = row.sizes.gpus_per_node.ok_or(Unmapped::Missing("gpus_per_node"))?;
    let devices = row.sizes.n_gpus.ok_or(Unmapped::Missing("n_gpus"))?;
    let [inner, outer] = cluster.tiers.as_mut_slice() else { return Err(Unmapped::Network) };
    if inner.devices.is_none_or(|domain| domain < node) {
        return Err(Unmapped::Network);
    }
    if devices > node {
        let said = |name: &str| row.interconnect.contains(name) || row.table.contains(name);
        let network = NETWORKS.iter().find(|network| said(network.name)).ok_or(Unmapped::Network)?;
        outer.name = network.name.to_owned();
        outer.links = facts.adapters.unwrap_or(network.links);
        outer.bandwidth = network.bandwidth;
        outer.efficiency = network.efficiency;
    }
    Ok(cluster)
}
