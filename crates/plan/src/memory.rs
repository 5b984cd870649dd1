//! Whether the states of training fit into a device.

use quadrille_spec::{Axis, Cluster, Grid, Model, SpecError};

/// Bytes of a parameter's states in mixed precision: weight and gradient in bf16 (2 + 2), master weight and two moments
/// in f32 (4 + 4 + 4).
const BYTES_PER_PARAMETER: u64 = 16;

/// Bytes of the states that a rank of `grid` holds: 16 bytes a parameter (bf16 weights and gradients; master weights
/// and both moments in f32), sharded over x, y and z and replicated over data. Activations, gathered weights and
/// buffers are not in it.
pub fn state_bytes(model: &Model, grid: &Grid) -> u64 {
    (BYTES_PER_PARAMETER * model.parameters()).div_ceil(shards(grid))
}

/// The fewest ranks whose memory together holds the states; 1 where the cluster does not bound memory.
pub(crate) fn least_ranks(model: &Model, cluster: &Cluster) -> usize {
    let all = BYTES_PER_PARAMETER * model.parameters();
    // At most 2^62 ranks: parameters in bytes fit in 64 bits.
    cluster.device_memory.map_or(1, |memory| all.div_ceil(memory) as usize)
}

/// Refuses a grid whose states alone exceed the memory of a device.
pub(crate) fn check(model: &Model, cluster: &Cluster, grid: &Grid) -> Result<(), SpecError> {
    let needed = state_bytes(model, grid);
    let Some(memory) = cluster.device_memory.filter(|memory| needed > *memory) else { return Ok(()) };
    let rule = format!(
        "the states of {} parameters, {BYTES_PER_PARAMETER} bytes each, over x*y*z = {} shards take {needed} bytes of it",
        model.parameters(),
        shards(grid)
    );
    let remedy = format!("use x*y*z of at least {}", least_ranks(model, cluster));
    Err(SpecError::invalid("device_memory", memory, rule, remedy))
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
        assert_eq!(check(&model, &with(None), &grid), Ok(()));
        assert_eq!(check(&model, &with(Some(995_518_464)), &grid), Ok(()));
        let message = check(&model, &with(Some(995_518_463)), &grid).unwrap_err().to_string();
        assert_eq!(
            message,
            "device_memory = 995518463: the states of 124439808 parameters, 16 bytes each, over x*y*z = 2 shards take \
             995518464 bytes of it; use x*y*z of at least 3"
        );
    }
}
