//! Which neighbours along an axis share a node: the placements that an order of the axes can express.

use quadrille_spec::{Axis, Cluster, SpecError};

/// Devices that share a domain of the innermost tier, at most `per_node` of every node, where `devices` are used.
pub(super) fn domain(cluster: &Cluster, per_node: Option<usize>, devices: usize) -> usize {
    cluster.used_domain(per_node).unwrap_or(devices).min(devices)
}

/// Devices of so many nodes (hosts), of which at most `per_node` devices each are used.
///
/// # Errors
/// A cluster whose nodes have no size, or of which nothing says which of several tiers they are.
pub fn devices_of_nodes(cluster: &Cluster, per_node: Option<usize>, nodes: usize) -> Result<usize, SpecError> {
    let refused = |rule: String, remedy: &str| Err(SpecError::invalid("`search.nodes`", nodes, rule, remedy));
    let Some(devices) = cluster.node_devices() else {
        let rule = format!("nodes of {} have no size", cluster.name);
        return refused(
            rule,
            "give `search.devices`, or the cluster devices_per_node, or the innermost of its tiers its devices",
        );
    };
    let sizes: Vec<String> =
        cluster.tiers.iter().rev().skip(1).rev().filter_map(|tier| tier.devices).map(|size| size.to_string()).collect();
    if cluster.devices_per_node.is_none() && sizes.len() > 1 {
        let rule = format!("tiers of {} join {} devices, and a node may be each", cluster.name, sizes.join(" and "));
        return refused(rule, "give `search.devices`, or the cluster devices_per_node");
    }
    Ok(nodes.saturating_mul(devices.min(per_node.unwrap_or(devices))))
}

/// Refuses more ranks of a node than the nodes of a cluster have devices; `works` names a number that nodes can have.
///
/// # Errors
/// The number that is asked for, the devices of a node, and the remedy.
pub fn check_node(
    cluster: &Cluster,
    per_node: Option<usize>,
    ranks: usize,
    works: impl FnOnce(usize) -> String,
) -> Result<(), SpecError> {
    match (per_node, cluster.node_devices()) {
        (Some(asked), Some(devices)) if asked.min(ranks) > devices => {
            let rule = format!("a node of {} has {devices} devices", cluster.name);
            Err(SpecError::invalid("per-node", asked, rule, format!("use `layout.per_node` {}", works(devices))))
        }
        _ => Ok(()),
    }
}

/// Every way to fill nodes with ranks of a grid of `sizes` (in the order of `Axis::ALL`) that an order of the axes
/// expresses, as the number of neighbours on every axis that share a node. `domain` is the number of devices that the
/// innermost network joins.
///
/// With ranks numbered along an order of the axes and `n` consecutive ranks in a node, the innermost axes lie wholly in a
/// node, the next one by an equal part, and the others not at all. A node takes as many ranks as it has devices and the
/// grid allows: the number divides the ranks, and its parts divide their axes.
pub(super) fn placements(sizes: [usize; Axis::COUNT], domain: usize) -> Vec<[usize; Axis::COUNT]> {
    placements_in(sizes, domain, |_| true)
}

/// The same of those orders that a framework has.
pub(super) fn placements_in(
    sizes: [usize; Axis::COUNT],
    domain: usize,
    has_order: impl Fn(&[usize; Axis::COUNT]) -> bool,
) -> Vec<[usize; Axis::COUNT]> {
    let ranks: usize = sizes.iter().product();
    let several =
        Axis::ALL.iter().filter(|axis| sizes[**axis as usize] > 1).fold(0, |set, axis| set | 1 << *axis as u32);
    let mut found = Vec::new();
    for per_node in (1..=domain.min(ranks)).rev().filter(|per_node| ranks.is_multiple_of(*per_node)) {
        for whole in (0_u32..1 << Axis::COUNT).filter(|whole| whole & !several == 0) {
            add(sizes, per_node, |axis| whole >> axis & 1 == 1, &mut found);
        }
        found.retain(&has_order);
        if !found.is_empty() {
            break;
        }
    }
    found
}

/// Adds the placements in which exactly the axes that are `whole`, all of them larger than 1, lie wholly in a node.
fn add(
    sizes: [usize; Axis::COUNT],
    per_node: usize,
    whole: impl Fn(usize) -> bool,
    found: &mut Vec<[usize; Axis::COUNT]>,
) {
    let mut inside = [1; Axis::COUNT];
    for axis in (0..Axis::COUNT).filter(|axis| whole(*axis)) {
        inside[axis] = sizes[axis];
    }
    let filled: usize = inside.iter().product();
    if filled > per_node || !per_node.is_multiple_of(filled) {
        return;
    }
    let part = per_node / filled;
    if part == 1 {
        found.push(inside);
        return;
    }
    for axis in (0..Axis::COUNT).filter(|axis| !whole(*axis)) {
        if sizes[axis] > part && sizes[axis].is_multiple_of(part) {
            let mut placed = inside;
            placed[axis] = part;
            found.push(placed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use quadrille_spec::{Axis, AxisOrder, Grid};

    use super::*;

    /// The placement of an order of the axes by counting the ranks of the first node, if all nodes are alike.
    fn by_counting(sizes: [usize; Axis::COUNT], order: AxisOrder, per_node: usize) -> Option<[usize; Axis::COUNT]> {
        let grid = Grid::of_sizes(sizes).unwrap().with_order(order);
        let inside = Axis::ALL.map(|axis| {
            let places = (0..per_node).map(|rank| grid.coordinate(rank).on(axis));
            places.collect::<HashSet<_>>().len()
        });
        let node_of = |rank: usize| rank / per_node;
        let alike = (0..grid.ranks()).all(|rank| {
            Axis::ALL.iter().zip(inside).all(|(axis, inside)| {
                let group = grid.group(rank, axis.only());
                group.iter().filter(|member| node_of(**member) == node_of(rank)).count() == inside
            })
        });
        alike.then_some(inside)
    }

    fn orders() -> Vec<AxisOrder> {
        let mut orders = vec![Vec::new()];
        for _ in 0..Axis::COUNT {
            let longer = |order: Vec<&'static str>| {
                let rest =
                    Axis::ALL.map(Axis::name).into_iter().filter(|name| !order.contains(name)).collect::<Vec<_>>();
                rest.into_iter().map(move |name| order.iter().copied().chain([name]).collect::<Vec<_>>())
            };
            orders = orders.into_iter().flat_map(longer).collect();
        }
        orders.into_iter().map(|order| order.join(",").parse().unwrap()).collect()
    }

    #[test]
    fn placements_are_exactly_those_of_all_orders() {
        let orders = orders();
        assert_eq!(orders.len(), 5040);
        for (sizes, domain) in [
            ([2, 2, 1, 1, 2, 2, 1], 4),
            ([4, 1, 1, 1, 1, 4, 2], 8),
            ([3, 1, 1, 1, 1, 4, 1], 4),
            ([2, 1, 6, 1, 1, 1, 2], 4),
        ] {
            let counted: HashSet<_> = orders.iter().filter_map(|order| by_counting(sizes, *order, domain)).collect();
            let listed = placements(sizes, domain);
            assert_eq!(listed.len(), listed.iter().collect::<HashSet<_>>().len(), "each once");
            assert_eq!(listed.into_iter().collect::<HashSet<_>>(), counted, "{sizes:?} in nodes of {domain}");
        }
    }

    #[test]
    fn nodes_are_as_full_as_the_grid_allows() {
        assert_eq!(placements([2, 1, 1, 1, 1, 3, 1], 8), [[2, 1, 1, 1, 1, 3, 1]], "one node holds all");
        assert_eq!(placements([13, 1, 1, 1, 1, 1, 1], 8), [[1; Axis::COUNT]], "13 ranks in whole nodes: one each");
        // Four of 36 ranks would cut either axis unevenly.
        assert_eq!(placements([6, 1, 1, 1, 1, 6, 1], 5), [[3, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 3, 1]]);
    }
}
