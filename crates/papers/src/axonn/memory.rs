//! Whether the states of training fit into a device.

use quadrille_spec::{Axis, Cluster, Grid, Model};

/// Bytes of a parameter's states in mixed precision: weight and gradient in bf16 (2 + 2), master weight and two moments
/// in f32 (4 + 4 + 4).
const BYTES_PER_PARAMETER: u64 = 16;

/// Bytes of the states that a rank of `grid` holds: 16 bytes a parameter (bf16 weights and gradients; master weights
/// and both moments in f32), sharded over x, y and z and replicated over data. Activations, gathered weights and
/// buffers are not in it.
pub fn state_bytes(model: &Model, grid: &Grid) -> u64 {
    (BYTES_PER_PARAMETER * model.parameters()).div_ceil(shards(grid))
}

/// Whether a device of the cluster holds the states of a rank of `grid`.
pub(super) fn fits(model: &Model, cluster: &Cluster, grid: &Grid) -> bool {
    cluster.device_memory.is_none_or(|memory| state_bytes(model, grid) <= memory)
}

fn shards(grid: &Grid) -> u64 {
    [Axis::X, Axis::Y, Axis::Z].map(|axis| grid.size(axis) as u64).iter().product()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_sharded_over_tensor_axes_only() {
        let model = Model::preset("gpt2-124m").unwrap();
        let bytes = |grid: &str| state_bytes(&model, &grid.parse().unwrap());
        // 124,439,808 parameters.
        assert_eq!((bytes("data=8"), bytes("x=2,y=2,z=2,data=4")), (1_991_036_928, 248_879_616));
        assert_eq!(bytes("x=7"), 284_433_847, "rounded up");
    }

    #[test]
    fn the_device_is_the_limit_to_the_byte() {
        let model = Model::preset("gpt2-124m").unwrap();
        let grid = "x=2,data=2".parse().unwrap();
        let with = |device_memory| Cluster { device_memory, ..Cluster::preset("local").unwrap() };
        assert!(fits(&model, &with(None), &grid));
        assert!(fits(&model, &with(Some(995_518_464)), &grid));
        assert!(!fits(&model, &with(Some(995_518_463)), &grid));
    }
}
