//! The counted ledger: what a rank communicated, per group, layer and kind.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::Arc;

use crate::activity::Label;
use crate::call::{Call, Collective};
use crate::group::Group;
use crate::wire;

/// The key of a ledger's entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LedgerKey {
    /// The group's name: an axis key such as `x` or `y+z+data`.
    pub group: Arc<str>,
    /// The layer entered when the call was issued.
    pub layer: Label,
    /// The kind of communication.
    pub collective: Collective,
}

/// What was communicated under one key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Transfer {
    /// Number of calls.
    pub calls: u64,
    /// Bytes of the full logical buffer on this rank (all-gather: the output; else the input or buffer).
    pub payload_bytes: u64,
    /// Bytes that this rank sends under a ring (broadcast: chain; all-to-all: pairwise exchange).
    pub wire_bytes: u64,
}

impl AddAssign for Transfer {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.payload_bytes += other.payload_bytes;
        self.wire_bytes += other.wire_bytes;
    }
}

/// Everything a rank communicated.
pub type Ledger = BTreeMap<LedgerKey, Transfer>;

/// Enters one executed call with elements of `element_bytes`.
pub(crate) fn record(ledger: &mut Ledger, group: &Group, call: &Call, element_bytes: usize) {
    let elements = match call.operation {
        Collective::AllGather => call.output,
        _ => call.input,
    };
    let sent = wire::elements_sent(call, elements, group.size(), group.index());
    let key = LedgerKey { group: group.shared_name(), layer: call.activity.layer, collective: call.operation };
    *ledger.entry(key).or_default() += Transfer {
        calls: 1,
        payload_bytes: (elements * element_bytes) as u64,
        wire_bytes: (sent * element_bytes) as u64,
    };
}
