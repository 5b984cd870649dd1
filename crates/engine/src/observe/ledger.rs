//! The counted ledger: records of the communicator, the kernels' callers and the storages, in the form of the predicted one.

use std::borrow::Cow;
use std::collections::BTreeMap;

use quadrille_comm::{Ledger as Counted, LedgerKey};
use quadrille_spec::{AxesLedger, CollectiveKind, FlopsLedger, HOST, LayerLedger, MemoryLedger, RankLedger, Transfer};
use quadrille_step::{GemmPass, Layer, StageProgram, empty_axes};

use crate::communicators::label;

/// Counts of a rank since its last ledger.
pub(crate) struct LedgerCounts {
    /// A ledger of transfers with every key that the program can use.
    empty: AxesLedger,
    /// Transfers of the next ledger beside those that the communicator has counted.
    set_aside: Counted,
    pub flops: FlopsLedger,
    /// Elements swept over by element-wise operations.
    elements: BTreeMap<Cow<'static, str>, u64>,
}

impl LedgerCounts {
    pub fn new(program: &StageProgram) -> Self {
        let empty = empty_axes(program);
        Self { empty, set_aside: Counted::new(), flops: FlopsLedger::default(), elements: BTreeMap::new() }
    }

    /// Begins the counts of a step.
    pub fn begin_step(&mut self) {
        self.flops = FlopsLedger::default();
        self.elements.clear();
    }

    /// Adds the FLOPs of a product.
    pub fn add_product(&mut self, pass: GemmPass, flops: u64) {
        match pass {
            GemmPass::Forward => self.flops.gemm_forward += flops,
            GemmPass::InputGradient => self.flops.gemm_input_gradient += flops,
            GemmPass::WeightGradient => self.flops.gemm_weight_gradient += flops,
        }
    }

    /// Adds the elements of an element-wise operation.
    pub fn add_elements(&mut self, operation: &'static str, elements: usize) {
        *self.elements.entry(operation.into()).or_default() += elements as u64;
    }

    /// Keeps transfers for the next ledger, while the communicator counts those of another program.
    pub fn set_aside(&mut self, transfers: Counted) {
        for (key, transfer) in transfers {
            *self.set_aside.entry(key).or_default() += transfer;
        }
    }

    /// Forgets the transfers that were set aside.
    pub fn forget_transfers(&mut self) {
        self.set_aside.clear();
    }

    /// A rank's ledger, of these transfers, states moved and memory beside the counts.
    pub fn take(
        &mut self,
        program: &StageProgram,
        rank: usize,
        transfers: Counted,
        moved: BTreeMap<CollectiveKind, Transfer>,
        memory: MemoryLedger,
    ) -> RankLedger {
        self.set_aside(transfers);
        let host = |(collective, transfer)| {
            (LedgerKey { group: HOST.into(), layer: label(Layer::Step), collective }, transfer)
        };
        self.set_aside(moved.into_iter().map(host).collect());
        let transfers = std::mem::take(&mut self.set_aside);
        let mut axes = self.empty.clone();
        let names: Vec<String> = program.layers().into_iter().map(|layer| layer.to_string()).collect();
        let mut by_layer: BTreeMap<&str, AxesLedger> = names.iter().map(|name| (name.as_str(), axes.clone())).collect();
        for (key, transfer) in transfers {
            let layer = key.layer.to_string();
            for ledger in [Some(&mut axes), by_layer.get_mut(layer.as_str())].into_iter().flatten() {
                *ledger.entry(key.group.to_string()).or_default().entry(key.collective).or_default() += transfer;
            }
        }
        let layers = names
            .iter()
            .map(|name| LayerLedger { layer: name.clone(), axes: by_layer.remove(name.as_str()).unwrap_or_default() })
            .collect();
        RankLedger { rank, axes, layers, flops: self.flops, elements: self.elements.clone(), memory }
    }
}
