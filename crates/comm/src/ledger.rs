//! The counted ledger: what a rank communicated, per group, layer and kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::activity::Label;
use quadrille_spec::{CollectiveKind, Transfer};

use crate::call::Call;
use crate::group::Group;

/// The key of a ledger's entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LedgerKey {
    /// The group's name: an axis key such as `x` or `y+z+data`.
    pub group: Arc<str>,
    /// The layer entered when the call was issued.
    pub layer: Label,
    /// The kind of communication.
    pub collective: CollectiveKind,
}

/// Everything a rank communicated.
pub type Ledger = BTreeMap<LedgerKey, Transfer>;

/// Enters one issued call that sends so many elements.
pub(crate) fn record(ledger: &mut Ledger, group: &Group, call: &Call, sent: usize) {
    let key = LedgerKey { group: group.shared_name(), layer: call.activity.layer, collective: call.operation };
    *ledger.entry(key).or_default() +=
        Transfer { calls: 1, payload_bytes: call.payload_bytes(), wire_bytes: call.bytes(sent) };
}
