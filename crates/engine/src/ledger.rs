//! The counted ledger: what the communicator, the kernels' callers and the slots have seen, in the form of the
//! predicted one.

use std::borrow::Cow;
use std::collections::BTreeMap;

use quadrille_comm::Ledger as Counted;
use quadrille_spec::{AxesLedger, FlopsLedger, LayerLedger, MemoryLedger, RankLedger};
use quadrille_step::StageProgram;

/// A rank's counted ledger; `empty` has every key that its program can use.
pub(crate) fn counted(
    program: &StageProgram,
    empty: &AxesLedger,
    rank: usize,
    transfers: &Counted,
    flops: FlopsLedger,
    elements: BTreeMap<Cow<'static, str>, u64>,
    memory: MemoryLedger,
) -> RankLedger {
    let mut axes = empty.clone();
    let names: Vec<String> = program.layers().into_iter().map(|layer| layer.to_string()).collect();
    let mut by_layer: BTreeMap<&str, AxesLedger> = names.iter().map(|name| (name.as_str(), axes.clone())).collect();
    for (key, transfer) in transfers {
        let layer = key.layer.to_string();
        for ledger in [Some(&mut axes), by_layer.get_mut(layer.as_str())].into_iter().flatten() {
            *ledger.entry(key.group.to_string()).or_default().entry(key.collective).or_default() += *transfer;
        }
    }
    let layers = names
        .iter()
        .map(|name| LayerLedger { layer: name.clone(), axes: by_layer.remove(name.as_str()).unwrap_or_default() })
        .collect();
    RankLedger { rank, axes, layers, flops, elements, memory }
}
