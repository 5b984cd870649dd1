//! Holds the bandwidths of rings against the examples of AxoNN's paper and numbers worked out by hand.

use quadrille_spec::{Axis, Cluster, Grid};

const NODES_OF_FOUR: &str = r#"
    name = "nodes of four"
    source = "figures 3 and 4"
    devices_per_node = 4
    inter_node_bandwidth = 100e9
    intra_node_bandwidth = 7e9
    group_bandwidths = [{ inner = 1, group = 2, bandwidth = 50e9 }, { inner = 2, group = 2, bandwidth = 40e9 }]
"#;

/// By axis of [`Axis::AXONN`].
fn ring_bandwidths(grid: &str, order: &str, per_node: usize) -> [f64; 4] {
    let grid = grid.parse::<Grid>().unwrap().with_order(order.parse().unwrap());
    let all = Cluster::from_toml(NODES_OF_FOUR).unwrap().ring_bandwidths(&grid, per_node).unwrap();
    Axis::AXONN.map(|axis| all[axis as usize])
}

const PAPER_ORDER: &str = "x,y,z,data";

#[test]
fn figure_3_one_ring_over_two_nodes_gets_the_whole_network() {
    assert_eq!(ring_bandwidths("x=8", PAPER_ORDER, 4)[Axis::X as usize], 100e9);
    // Groups of one before it do not count, wherever the axis stands.
    assert_eq!(ring_bandwidths("data=8", PAPER_ORDER, 4)[3], 100e9);
}

#[test]
fn figure_4_two_rings_over_two_nodes_share_the_network() {
    let [x, y, z, data] = ring_bandwidths("x=2,y=4", PAPER_ORDER, 4);
    assert_eq!((x, y), (50e9, 50e9));
    assert!(z.is_infinite() && data.is_infinite(), "axes of size 1 send nothing");
}

#[test]
fn no_more_rings_leave_a_node_than_it_has_devices() {
    assert_eq!(ring_bandwidths("x=8,y=4", PAPER_ORDER, 4)[Axis::Y as usize], 25e9);
    assert_eq!(ring_bandwidths("x=2,y=2,z=2,data=2", PAPER_ORDER, 4), [50e9, 40e9, 25e9, 25e9]);
}

#[test]
fn groups_inside_a_node_use_the_table_then_the_general_bandwidth() {
    let [x, y, ..] = ring_bandwidths("x=2,y=2", PAPER_ORDER, 4);
    assert_eq!((x, y), (50e9, 40e9));
    assert_eq!(ring_bandwidths("x=4", PAPER_ORDER, 4)[Axis::X as usize], 7e9);
    // Two ranks in each node: the second axis leaves it.
    assert_eq!(ring_bandwidths("x=2,y=2", PAPER_ORDER, 2)[Axis::Y as usize], 50e9);
}

#[test]
fn the_order_of_axes_decides_who_is_near() {
    let [x, _, _, data] = ring_bandwidths("x=4,data=2", "data,x,y,z", 4);
    assert_eq!((data, x), (50e9, 50e9));
    let [x, _, _, data] = ring_bandwidths("x=4,data=2", PAPER_ORDER, 4);
    assert_eq!((data, x), (25e9, 7e9));
}

#[test]
fn impossible_nodes_are_refused() {
    let cluster = Cluster::from_toml(NODES_OF_FOUR).unwrap();
    let grid = "x=16".parse().unwrap();
    assert!(cluster.ring_bandwidths(&grid, 8).unwrap_err().to_string().contains("has 4 devices"));
    let message = Cluster::preset("local").unwrap().ring_bandwidths(&grid, 8).unwrap_err().to_string();
    assert!(message.contains("single node"), "{message}");
}
