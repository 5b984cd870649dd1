//! How the ranks of a communicator find each other: each tells the first what device it has, by a letter of the job; the first
//! answers with the library's id.

use std::sync::Arc;

use quadrille_comm::transport::{Job, Occasion};
use quadrille_comm::{Aborted, CollectiveError};

use super::communicator::Communicator;
use super::functions::UniqueId;
use crate::driver::{Driver, Fault};

/// Words of a device's identity.
const IDENTITY: usize = 2;
/// Words of an id.
const ID: usize = 16;
/// No rank.
const NOBODY: u64 = u64::MAX;

/// Joins the members of the call's group with these indices in a new communicator, whose ranks they are in this order; the call's
/// own member among them. `tag` is that of its letters.
///
/// # Errors
/// The job was aborted: also by this, if two of the ranks have one device, or the library cannot join them in time.
pub fn found(
    job: &Arc<Job>,
    at: Occasion<'_>,
    driver: &dyn Driver,
    members: &[usize],
    tag: u32,
) -> Result<Communicator, Aborted> {
    let told = |fault: Fault| job.abort_carried(&at, fault.to_string());
    let functions = driver.device().collectives().map_err(told)?;
    let own = members.iter().position(|member| *member == at.group.index()).expect("the caller is a member");
    let identity = driver.device().identity().map_err(told)?;
    let answer = if own == 0 {
        first(job, at, identity, members, tag, || Communicator::id(functions).map_err(told))?
    } else {
        job.send_letter(at.group, members[0], tag, &identity);
        job.receive_letter(at, members[0], tag, 2 + ID)?
    };
    let (pair, id) = answer.split_at(2);
    if pair[0] != NOBODY {
        return Err(refused(job, at, [pair[0] as usize, pair[1] as usize]));
    }
    let mut bytes = [0; 8 * ID];
    bytes.chunks_exact_mut(8).zip(id).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_le_bytes()));
    driver.device().enter().map_err(told)?;
    let communicator = Communicator::begin(functions, members.len(), UniqueId(bytes), own).map_err(told)?;
    job.watch(at, &mut || communicator.is_ready().map_err(|fault| fault.to_string()))?;
    Ok(communicator)
}

/// The part of the first: reads what devices the others have, and answers them all alike.
fn first(
    job: &Arc<Job>,
    at: Occasion<'_>,
    identity: [u64; IDENTITY],
    members: &[usize],
    tag: u32,
    id: impl FnOnce() -> Result<UniqueId, Aborted>,
) -> Result<Vec<u64>, Aborted> {
    let mut identities = vec![identity.to_vec()];
    for member in &members[1..] {
        identities.push(job.receive_letter(at, *member, tag, IDENTITY)?);
    }
    let rank = |position: usize| at.group.members()[members[position]] as u64;
    let answer = match same(&identities) {
        Some([a, b]) => [rank(a), rank(b)].into_iter().chain([0; ID]).collect(),
        None => {
            let words = id()?.0;
            let words = words.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("they are 8")));
            [NOBODY; 2].into_iter().chain(words).collect::<Vec<u64>>()
        }
    };
    members[1..].iter().for_each(|member| job.send_letter(at.group, *member, tag, &answer));
    Ok(answer)
}

/// The first two positions of one device.
fn same(identities: &[Vec<u64>]) -> Option<[usize; 2]> {
    let before = |b: usize| identities[..b].iter().position(|other| *other == identities[b]);
    (0..identities.len()).find_map(|b| before(b).map(|a| [a, b]))
}

/// Aborts because two ranks have one device.
fn refused(job: &Job, at: Occasion<'_>, [a, b]: [usize; 2]) -> Aborted {
    let rule = format!(
        "ranks {a} and {b} compute on one device, and NCCL joins no two ranks there: start on each machine at most as many \
         processes as it has devices, of consecutive ranks, or one process without a launcher, whose ranks are threads and may \
         share devices"
    );
    let group = at.group.shared_name();
    let call = Box::new(*at.call);
    let error = CollectiveError::Arguments { rank: at.group.rank(), group, ranks: at.group.size(), call, rule };
    job.abort_collective(at.group.rank(), at.call.activity, error)
}
