//! Published runs that ran, and those of them that a plan calls too large: how often memory that is said to be missing is not.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use quadrille_cost::native::Framework;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::evaluate::Entry;

/// The table that comes with the program: of every device and kind of framework with published runs that ran. `quadrille validate
/// published` counts them anew.
const TABLE: &str = include_str!("../data/oversized.csv");

/// Runs of a device and a kind of framework.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Oversized {
    /// The device's name.
    pub device: String,
    /// `fsdp` if parameters are sharded and gathered for each use, else `megatron`.
    pub framework: String,
    /// Runs that ran.
    pub ran: usize,
    /// Those of them that a plan calls too large.
    pub called_too_large: usize,
}

/// The kind of a framework.
fn kind(framework: &Framework) -> &'static str {
    if framework.gathers_blocks { Framework::FSDP.name } else { Framework::MEGATRON.name }
}

impl Oversized {
    /// Counts the runs with measured seconds.
    pub fn of(entries: &[Entry]) -> Vec<Self> {
        let mut counts: BTreeMap<(String, &str), [usize; 2]> = BTreeMap::new();
        for entry in entries.iter().filter(|entry| entry.is_time()) {
            let Some(device) = &entry.run.cluster.device else { continue };
            let [ran, too_large] = counts.entry((device.name.clone(), kind(&entry.run.framework))).or_default();
            *ran += 1;
            *too_large += usize::from(entry.run.is_called_too_large(&entry.price));
        }
        let of = |((device, framework), [ran, called_too_large]): ((String, &str), [usize; 2])| Self {
            device,
            framework: framework.to_owned(),
            ran,
            called_too_large,
        };
        counts.into_iter().map(of).collect()
    }

    /// The table that comes with the program, read once.
    pub fn all() -> &'static [Self] {
        static ALL: LazyLock<Vec<Oversized>> = LazyLock::new(|| {
            let lines = csv::Reader::from_reader(TABLE.as_bytes()).into_deserialize::<Oversized>();
            lines.filter_map(Result::ok).collect()
        });
        &ALL
    }

    /// Those of a device by frameworks of this one's kind; `None` of this program's engine, and without published runs.
    pub fn on(device: &str, framework: &Framework) -> Option<&'static Self> {
        let is_like = |known: &&Self| known.device == device && known.framework == kind(framework);
        Self::all().iter().filter(|_| !framework.is_own()).find(is_like)
    }

    /// The table as a file.
    pub fn to_csv(table: &[Self]) -> String {
        let line = |Self { device, framework, ran, called_too_large }: &Self| {
            format!("{device},{framework},{ran},{called_too_large}\n")
        };
        std::iter::once("device,framework,ran,called_too_large\n".to_owned()).chain(table.iter().map(line)).collect()
    }
}
