//! Closed forms of what a rank transfers, and the same from a ledger.

use std::collections::BTreeMap;

use quadrille_spec::{AxesLedger, Axis, CollectiveKind, Grid, RankLedger};

/// Calls and payload elements of one rank, by the key of the axes and by kind; nothing that is zero.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Traffic(BTreeMap<(String, CollectiveKind), [u64; 2]>);

impl Traffic {
    /// What a ledger says, in elements of `element_bytes`.
    ///
    /// # Panics
    /// If a payload is no whole number of elements.
    pub fn of(ledger: &AxesLedger, element_bytes: u64) -> Self {
        let mut traffic = Self::default();
        for (key, transfers) in ledger {
            for (kind, transfer) in transfers {
                assert_eq!(transfer.payload_bytes % element_bytes, 0, "{key}");
                traffic.put(key.clone(), *kind, [transfer.calls, transfer.payload_bytes / element_bytes]);
            }
        }
        traffic
    }

    /// What a ledger says of one layer.
    ///
    /// # Panics
    /// If there is no such layer, or a payload is no whole number of elements.
    pub fn of_layer(ledger: &RankLedger, layer: &str, element_bytes: u64) -> Self {
        let found = ledger.layers.iter().find(|each| each.layer == layer);
        Self::of(&found.unwrap_or_else(|| panic!("no layer {layer}")).axes, element_bytes)
    }

    /// Adds `calls` collectives over `axis` of `elements` payload elements together, if the axis is above 1.
    pub fn add(&mut self, grid: &Grid, axis: Axis, kind: CollectiveKind, calls: usize, elements: usize) {
        if grid.size(axis) > 1 {
            self.put(axis.name().to_owned(), kind, [calls as u64, elements as u64]);
        }
    }

    fn put(&mut self, key: String, kind: CollectiveKind, [calls, elements]: [u64; 2]) {
        let [total_calls, total] = self.0.entry((key, kind)).or_default();
        (*total_calls, *total) = (*total_calls + calls, *total + elements);
    }

    /// Both together.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        for ((key, kind), counts) in &other.0 {
            self.put(key.clone(), *kind, *counts);
        }
        self
    }

    /// What this has more than `other`.
    ///
    /// # Panics
    /// If `other` has more of anything.
    #[must_use]
    pub fn minus(mut self, other: &Self) -> Self {
        for (key, [calls, elements]) in &other.0 {
            let mine = self.0.get_mut(key).unwrap_or_else(|| panic!("only the other has {key:?}"));
            let left = [(mine[0], calls), (mine[1], elements)].map(|(mine, other)| mine.checked_sub(*other));
            *mine = left.map(|count| count.unwrap_or_else(|| panic!("the other has more of {key:?}")));
        }
        self.0.retain(|_, counts| *counts != [0, 0]);
        self
    }

    /// `n` times as much.
    #[must_use]
    pub fn times(mut self, n: usize) -> Self {
        self.0.values_mut().flatten().for_each(|count| *count *= n as u64);
        self
    }

    /// Only what goes over exactly this axis.
    #[must_use]
    pub fn over(mut self, axis: Axis) -> Self {
        self.0.retain(|(key, _), _| key == axis.name());
        self
    }

    /// Calls and payload elements of one kind over one axis.
    pub fn get(&self, axis: Axis, kind: CollectiveKind) -> [u64; 2] {
        self.0.get(&(axis.name().to_owned(), kind)).copied().unwrap_or_default()
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
