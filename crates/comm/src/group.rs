//! Groups: the ordered ranks that communicate together.

use std::any::Any;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use quadrille_spec::Formation;

/// A rank's handle of a group; cheap to clone.
#[derive(Clone)]
pub struct Group {
    pub(crate) shared: Arc<Shared>,
    index: usize,
}

impl Group {
    pub(crate) fn new(shared: Arc<Shared>, index: usize) -> Self {
        Self { shared, index }
    }

    /// The group's name: an axis key such as `x`, `y+z+data`, `world`.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The members' ranks, in the order of their indices.
    pub fn members(&self) -> &[usize] {
        &self.shared.members
    }

    /// Number of members.
    pub fn size(&self) -> usize {
        self.shared.members.len()
    }

    /// This rank's position among the members.
    pub fn index(&self) -> usize {
        self.index
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.shared.members[self.index]
    }

    /// A hash of name and members: the same in every process.
    pub fn key(&self) -> u64 {
        self.shared.key
    }

    /// The members, to keep.
    pub fn shared_members(&self) -> Arc<[usize]> {
        self.shared.members.clone()
    }

    /// The name, to keep.
    pub fn shared_name(&self) -> Arc<str> {
        self.shared.name.clone()
    }
}

/// What the members that are in one process share.
pub struct Shared {
    pub(crate) name: Arc<str>,
    pub(crate) members: Arc<[usize]>,
    /// Where the members lie.
    pub(crate) formation: Formation,
    /// Collectives issued so far, by member.
    pub(crate) issued: Vec<AtomicU64>,
    key: u64,
    state: Box<dyn Any + Send + Sync>,
}

impl Shared {
    pub(crate) fn new(
        name: Arc<str>,
        members: Arc<[usize]>,
        formation: Formation,
        state: Box<dyn Any + Send + Sync>,
    ) -> Self {
        Self {
            formation,
            issued: members.iter().map(|_| AtomicU64::new(0)).collect(),
            key: BuildHasherDefault::<DefaultHasher>::default().hash_one((&name, &members)),
            state,
            name,
            members,
        }
    }

    pub(crate) fn key(&self) -> u64 {
        self.key
    }

    /// What the transport keeps with the group: as its [`Transport::group`](crate::transport::Transport::group) made it.
    pub fn state(&self) -> &(dyn Any + Send + Sync) {
        &*self.state
    }
}

/// The index of `rank` among `members`, or the rule that the group breaks; `known` are the groups of its name.
pub(crate) fn member_index<'a>(
    rank: usize,
    members: &[usize],
    ranks: usize,
    mut known: impl Iterator<Item = &'a [usize]>,
) -> Result<usize, String> {
    let sorted = |members: &[usize]| {
        let mut members = members.to_vec();
        members.sort_unstable();
        members
    };
    let ascending = sorted(members);
    let Some(index) = members.iter().position(|&member| member == rank) else {
        return Err(format!("rank {rank} asks for it but is not a member"));
    };
    if let Some(member) = members.iter().find(|&&member| member >= ranks) {
        return Err(format!("rank {member} does not exist among {ranks} ranks"));
    }
    if ascending.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err("a rank is listed twice".into());
    }
    match known.find(|&other| other != members && sorted(other) == ascending) {
        Some(other) => Err(format!("another member lists them as {other:?}; all members must use one order")),
        None => Ok(index),
    }
}
