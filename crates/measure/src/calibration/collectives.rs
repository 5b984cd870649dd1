//! The collectives that are measured, in all groups at once.

use quadrille_comm::{Group, RankContext};
use quadrille_cost::native::RankGroup;
use quadrille_spec::CollectiveKind;
use quadrille_tensor::Buffer;

use super::clock::Clock;
use crate::collectives::{Buffers, Run, all_gather, all_reduce, all_to_all, broadcast, reduce_scatter};
use crate::timing::Fault;

/// Seconds in every run of a collective with a whole buffer of so many bytes, as far as its elements divide into equal
/// parts for the members; of a message one way.
pub fn time(clock: &Clock, kind: CollectiveKind, group: RankGroup, bytes: usize) -> Result<Vec<f64>, Fault> {
    let context = clock.context;
    let members = members(group, context.rank());
    let handle = context.group(&format!("{} apart", group.inner), &members)?;
    let part = bytes / size_of::<f32>() / group.size;
    let full = part * group.size;
    let (run, second): (Run, usize) = match kind {
        CollectiveKind::AllGather => (all_gather, part),
        CollectiveKind::ReduceScatter => (reduce_scatter, part),
        CollectiveKind::AllToAll => (all_to_all, full),
        CollectiveKind::Broadcast => (broadcast, 0),
        CollectiveKind::Send => (ping_pong, 0),
        _ => (all_reduce, 0),
    };
    let mut buffers = [full, second].map(Buffer::<f32>::without_pattern);
    // Sums of zeros stay what they are, however often they are taken.
    if kind == CollectiveKind::AllReduce {
        buffers[0].fill(0.0);
    }
    let mut runs = clock.try_repeat(|| {
        buffers = run(context, &handle, std::mem::take(&mut buffers))?;
        Ok(())
    })?;
    if kind == CollectiveKind::Send {
        runs.iter_mut().for_each(|seconds| *seconds /= 2.0);
    }
    Ok(runs)
}

/// The ranks of the group that holds `rank`.
fn members(group: RankGroup, rank: usize) -> Vec<usize> {
    let extent = group.inner * group.size;
    let first = rank / extent * extent + rank % group.inner;
    (0..group.size).map(|member| first + member * group.inner).collect()
}

/// There and back.
fn ping_pong(context: &RankContext, group: &Group, [buffer, rest]: Buffers) -> Result<Buffers, Fault> {
    let other = 1 - group.index();
    let buffer = if group.index() == 0 {
        let buffer = context.send(group, other, 0, buffer).wait()?;
        context.receive(group, other, 1, buffer).wait()?
    } else {
        let buffer = context.receive(group, other, 0, buffer).wait()?;
        context.send(group, other, 1, buffer).wait()?
    };
    Ok([buffer, rest])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_their_group_apart() {
        let group = RankGroup { inner: 2, size: 2, ranks: 8 };
        assert_eq!([members(group, 0), members(group, 3), members(group, 4)], [[0, 2], [1, 3], [4, 6]]);
        assert_eq!(members(RankGroup { inner: 1, size: 8, ranks: 8 }, 5), (0..8).collect::<Vec<_>>());
    }
}
