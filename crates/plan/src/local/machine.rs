//! The machine that steps are predicted for.

use quadrille_cost::simulation::{LOCAL_GFLOPS, LOCAL_LATENCY_US, LOCAL_MEMORY_GB_S};
use quadrille_spec::{Cluster, Device, Efficiency, Origins, Peaks, Tier, counted};

/// What a cluster's own memory bound is where nobody said it: the largest that a device may have. The memory of this machine
/// is held against each program before it runs.
const UNBOUNDED: u64 = 1 << 50;

/// Describes this machine, which has so many `cores`, where `cluster` is the preset of it, which says nothing of its device:
/// by rates that are assumed. Returns the cluster and, in words, what was assumed.
pub fn described(cluster: Cluster, ranks: usize, threads: usize, cores: usize) -> (Cluster, Option<String>) {
    if cluster.name != "local" || cluster.device.is_some() || !cluster.tiers.is_empty() {
        return (cluster, None);
    }
    // Ranks that share cores get their share of everything.
    let crowding = ((ranks * threads) as f64 / cores as f64).max(1.0);
    let note = format!(
        "assumed, not measured: {LOCAL_GFLOPS} GFLOP/s, {LOCAL_MEMORY_GB_S} GB/s of memory, {} GB/s to other ranks and \
         {LOCAL_LATENCY_US} us of latency for a rank, divided by {crowding:.2} ({} of {} on \
         {}); the file of a cluster takes measured rates",
        cluster.intra_node_bandwidth / 1e9,
        counted(ranks, "rank"),
        counted(threads, "thread"),
        counted(cores, "core"),
    );
    let bandwidth = cluster.intra_node_bandwidth / crowding;
    (Cluster { device: Some(device(crowding)), tiers: vec![tier(bandwidth, crowding)], ..cluster }, Some(note))
}

fn device(crowding: f64) -> Device {
    let rate = LOCAL_GFLOPS * 1e9 / crowding;
    Device {
        name: "a rank of this machine".to_owned(),
        source: "assumed".to_owned(),
        memory: UNBOUNDED,
        memory_bandwidth: LOCAL_MEMORY_GB_S * 1e9 / crowding,
        memory_efficiency: 1.0,
        // What is copied is read from and written to the same memory.
        host_bandwidth: Some(LOCAL_MEMORY_GB_S * 1e9 / crowding / 2.0),
        host_memory: None,
        peak: Peaks::wide(rate, rate, rate),
        vector_rate: rate,
        launch_seconds: LOCAL_LATENCY_US * 1e-6 * crowding,
        products: Efficiency::Constant { fraction: 1.0 },
        half_products: None,
        narrow_products: None,
        attention: Efficiency::Constant { fraction: 1.0 },
        half_attention: None,
        // Nobody measured them.
        origins: Origins::default(),
    }
}

fn tier(bandwidth: f64, crowding: f64) -> Tier {
    Tier {
        name: "memory".to_owned(),
        devices: None,
        links: 1,
        bandwidth,
        efficiency: 1.0,
        latency: LOCAL_LATENCY_US * 1e-6 * crowding,
        half_bytes: 0.0,
        origins: Origins::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_machine_that_nobody_described_is_assumed() {
        let local = Cluster::preset("local").unwrap();
        let (described_local, note) = described(local.clone(), 1, 1, 8);
        assert!(note.is_some_and(|note| note.contains("assumed") && note.contains("the file of a cluster")));
        described_local.check().unwrap();
        let device = described_local.device.clone().unwrap();
        assert_eq!((device.peak.single, described_local.tiers.len()), (LOCAL_GFLOPS * 1e9, 1));
        assert_eq!(described(described_local.clone(), 1, 1, 8), (described_local, None));
        let selene = Cluster::preset("selene").unwrap();
        assert_eq!(described(selene.clone(), 1, 1, 8), (selene, None));
    }

    #[test]
    fn ranks_share_cores() {
        let (crowded, _) = described(Cluster::preset("local").unwrap(), 32, 1, 8);
        let device = crowded.device.unwrap();
        assert_eq!((device.peak.single, crowded.tiers[0].bandwidth), (LOCAL_GFLOPS * 1e9 / 4.0, 2e9));
    }
}
