//! Tiers of a cluster, fitted again to what logs say.

use std::collections::BTreeSet;

use quadrille_cost::native::{Deviation, Sample, fit_tier};
use quadrille_spec::{Cluster, Tier};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::log::Placed;
use crate::{MeasureError, Refusal, Setting};

/// A tier before and after.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Refit {
    /// As the cluster had it.
    pub before: Tier,
    /// What that is away from the logs.
    pub error_before: Deviation,
    /// As it is fitted.
    pub after: Tier,
    /// What that is away from the logs.
    pub error: Deviation,
}

/// Fits every tier that is the outermost of a log's ranks, from the innermost on, and keeps the others: first the innermost
/// to the logs of one node, however many of its devices have a rank, then the others to those of several nodes.
///
/// # Errors
/// Logs of jobs that do not lie in the cluster as its tiers say.
pub fn refit(cluster: &mut Cluster, logs: &[Placed]) -> Result<Vec<Refit>, MeasureError> {
    let width = width(cluster, logs)?;
    let (between, inside): (Vec<&Placed>, Vec<&Placed>) = logs.iter().partition(|log| log.over_nodes());
    let mut refits = Vec::new();
    for (logs, width) in [(inside, None), (between, width)] {
        let samples: Vec<Sample> = logs.iter().flat_map(|log| log.samples.iter().copied()).collect();
        for which in 0..cluster.tiers.len() {
            let mut tiers = width.map_or_else(|| cluster.tiers.clone(), |width| cluster.with_used(width).tiers);
            let over: Vec<Sample> =
                samples.iter().filter(|sample| sample.group.tier(&tiers) == Some(which)).copied().collect();
            let Some(error_before) = Deviation::of(&tiers, &over)? else { continue };
            let before = cluster.tiers[which].clone();
            let fitted = fit_tier(&tiers, which, &over)?;
            tiers[which] = fitted.clone();
            let Some(error) = Deviation::of(&tiers, &over)? else { continue };
            let after = Tier { devices: before.devices, ..fitted };
            cluster.tiers[which] = after.clone();
            refits.push(Refit { before, error_before, after, error });
        }
    }
    Ok(refits)
}

/// Ranks to a node of the logs of several nodes; `None`: there are no such logs.
fn width(cluster: &Cluster, logs: &[Placed]) -> Result<Option<usize>, Refusal> {
    let name = &cluster.name;
    if cluster.tiers.is_empty() {
        let rule = format!(" {name} has no [[tiers]] to fit; name one that has, e.g. dgx-a100");
        return Err(Refusal::of(Setting::Cluster).text(rule));
    }
    let node = cluster.node_devices().unwrap_or(usize::MAX);
    for log in logs {
        if log.per_node > node {
            let Placed { name: log, per_node, .. } = log;
            let rule =
                format!("{log}: {per_node} ranks to a node, but a node of {name} has {node} devices; give another ");
            return Err(Refusal::new(rule).name(Setting::PerNode).text(" or ").name(Setting::Cluster));
        }
    }
    let widths: BTreeSet<usize> = logs.iter().filter(|log| log.over_nodes()).map(|log| log.per_node).collect();
    if !widths.is_empty() && cluster.tiers.len() == 1 {
        let rule = "has a single tier, but logs are of several nodes; add [[tiers]] for what joins nodes";
        return Err(Refusal::of(Setting::Cluster).text(format!(" {name} {rule}")));
    }
    if widths.len() > 1 {
        let widths: Vec<String> = widths.iter().map(usize::to_string).collect();
        return Err(Refusal::new(format!(
            "logs of several nodes have {} ranks to a node; fit those of one number after the other",
            widths.join(" and ")
        )));
    }
    Ok(widths.first().copied())
}

#[cfg(test)]
mod tests {
    use quadrille_cost::native::RankGroup;
    use quadrille_spec::CollectiveKind;

    use super::*;

    /// What a cluster's own tiers give for so many ranks.
    fn log(cluster: &Cluster, ranks: usize, per_node: usize) -> Placed {
        let group = RankGroup { inner: 1, size: ranks, ranks };
        let kinds = [CollectiveKind::AllReduce, CollectiveKind::Broadcast];
        let tiers = &if ranks > per_node { cluster.with_used(per_node) } else { cluster.clone() }.tiers;
        let sample = |(kind, power)| {
            let bytes = f64::from(1 << power);
            Sample { group, kind, bytes, seconds: group.seconds(tiers, kind, bytes).unwrap() }
        };
        let samples = kinds.into_iter().flat_map(|kind| (10..30).step_by(2).map(move |power| (kind, power)));
        Placed { name: "a.log".to_owned(), per_node, samples: samples.map(sample).collect() }
    }

    #[test]
    fn the_tier_that_the_ranks_span_is_found_again_and_the_others_stay() {
        let known = Cluster::preset("perlmutter").unwrap();
        let mut cluster = known.clone();
        cluster.tiers[1].efficiency = 0.2;
        cluster.tiers[1].latency = 1e-3;
        let refits = refit(&mut cluster, &[log(&known, 16, 4)]).unwrap();
        assert_eq!((refits.len(), &cluster.tiers[0]), (1, &known.tiers[0]));
        let found = &cluster.tiers[1];
        let wanted = &known.tiers[1];
        assert!((found.efficiency / wanted.efficiency - 1.0).abs() < 1e-3, "{found:?}");
        assert!((found.latency / wanted.latency - 1.0).abs() < 1e-2, "{found:?}");
        assert!(refits[0].error.mean < 1e-3 && refits[0].error_before.mean > 0.5, "{refits:?}");
        assert_eq!((found.bandwidth, found.links, found.devices), (wanted.bandwidth, wanted.links, None));
    }

    #[test]
    fn ranks_of_one_node_fit_its_links() {
        let known = Cluster::preset("selene").unwrap();
        let mut cluster = known.clone();
        cluster.tiers[0].bandwidth = 1e12;
        refit(&mut cluster, &[log(&known, 8, 8)]).unwrap();
        let rate = |tier: &Tier| tier.links as f64 * tier.bandwidth * tier.efficiency;
        assert!((rate(&cluster.tiers[0]) / rate(&known.tiers[0]) - 1.0).abs() < 1e-3, "{:?}", cluster.tiers[0]);
        assert_eq!(cluster.tiers[1], known.tiers[1]);
    }

    /// Half of every node's devices have a rank in one log, all of one node's in the other.
    #[test]
    fn every_log_is_held_against_its_own_nodes() {
        let known = Cluster::preset("dgx-a100").unwrap();
        let mut cluster = known.clone();
        cluster.tiers.iter_mut().for_each(|tier| (tier.efficiency, tier.latency) = (0.1, 1e-3));
        let refits = refit(&mut cluster, &[log(&known, 8, 4), log(&known, 8, 8)]).unwrap();
        let fitted: Vec<&str> = refits.iter().map(|refit| refit.after.name.as_str()).collect();
        assert_eq!(fitted, [&known.tiers[0].name, &known.tiers[1].name]);
        let rate = |tier: &Tier| tier.links as f64 * tier.bandwidth * tier.efficiency;
        for (found, wanted) in cluster.tiers.iter().zip(&known.tiers) {
            assert!((rate(found) / rate(wanted) - 1.0).abs() < 1e-3, "{found:?} {wanted:?}");
            assert_eq!(found.devices, wanted.devices);
        }
        assert!(refits.iter().all(|refit| refit.error.mean < 1e-3), "{refits:?}");
        // What two of a node's ranks measure says what its links give, too.
        let refits = refit(&mut cluster, &[log(&known, 8, 4), log(&known, 2, 2)]).unwrap();
        assert_eq!((refits.len(), &refits[0].after.name), (2, &known.tiers[0].name));
    }

    #[test]
    fn jobs_that_do_not_lie_in_the_cluster_are_refused() {
        let selene = Cluster::preset("selene").unwrap();
        let message = |mut cluster: Cluster, logs: &[Placed]| refit(&mut cluster, logs).unwrap_err().to_string();
        assert!(message(Cluster::preset("local").unwrap(), &[log(&selene, 8, 8)]).contains("has no [[tiers]]"));
        assert!(message(selene.clone(), &[log(&selene, 32, 16)]).contains("a node of selene has 8 devices"));
        let two = [log(&selene, 16, 8), log(&selene, 16, 4)];
        assert!(message(selene.clone(), &two).contains("4 and 8 ranks to a node"));
        let mut single = selene.clone();
        single.tiers.truncate(1);
        assert!(message(single, &[log(&selene, 16, 8)]).contains("has a single tier"));
    }
}
