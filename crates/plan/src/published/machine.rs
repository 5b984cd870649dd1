//! The machine of a row: a device that comes with the program, and networks of the bandwidth that the source names.

use quadrille_spec::{Cluster, Device};

use super::row::Row;
use super::unmapped::Unmapped;

/// How the column `gpu` begins, the device and the cluster whose networks inside nodes and whose efficiencies it has.
const DEVICES: [(&str, &str, &str); 7] = [
    ("A100-40GB", "a100-40", "dgx-a100"),
    ("A100", "a100-80", "dgx-a100"),
    ("H100-80GB", "h100", "dgx-h100"),
    ("H100-96GB", "h100", "dgx-h100"),
    ("H200", "h200", "dgx-h200"),
    ("GB200", "gb200", "gb200-nvl72"),
    ("V100-16GB", "v100-16", "summit"),
];

/// What a source says of the network between nodes: links of a node and bytes per second of each.
const NETWORKS: [(&str, usize, f64); 11] = [
    ("Selene", 8, 25e9),
    ("DGX A100", 8, 25e9),
    ("Jean Zay", 4, 12.5e9),
    ("1600 Gb", 8, 25e9),
    ("4x100 Gb/s RoCE", 4, 12.5e9),
    ("800 Gb/s per node", 4, 25e9),
    ("400 Gb/s per node", 4, 12.5e9),
    ("400 Gb/s NDR IB per GPU", 8, 50e9),
    ("400 Gb/s RDMA per GPU", 8, 50e9),
    ("400 Gb/s CX-7 per GPU", 8, 50e9),
    ("NVL72", 1, 50e9),
];

/// The cluster of a row. Runs on one node need no network between nodes.
///
/// # Errors
/// A device or a network that is not described.
pub fn cluster(row: &Row) -> Result<Cluster, Unmapped> {
    let (_, device, cluster) =
        DEVICES.iter().find(|(prefix, ..)| row.gpu.starts_with(prefix)).ok_or(Unmapped::Device)?;
    let mut cluster = Cluster::preset(cluster).map_err(|_| Unmapped::Device)?;
    let device = Device::preset(device).map_err(|_| Unmapped::Device)?;
    cluster.device_memory = Some(device.memory);
    cluster.device = Some(device);
    let node = row.sizes.gpus_per_node.ok_or(Unmapped::Missing("gpus_per_node"))?;
    let devices = row.sizes.n_gpus.ok_or(Unmapped::Missing("n_gpus"))?;
    let [inner, outer] = cluster.tiers.as_mut_slice() else { return Err(Unmapped::Network) };
    if inner.devices.is_none_or(|domain| domain < node) {
        return Err(Unmapped::Network);
    }
    if devices > node {
        let said = |name: &str| row.interconnect.contains(name) || row.table.contains(name);
        let (_, links, bandwidth) = NETWORKS.iter().find(|(name, ..)| said(name)).ok_or(Unmapped::Network)?;
        outer.links = *links;
        outer.bandwidth = *bandwidth;
    }
    Ok(cluster)
}
