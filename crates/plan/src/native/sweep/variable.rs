//! What a sweep varies.

use std::fmt;
use std::str::FromStr;

use quadrille_spec::quantities::{lengths, numbers, whole_numbers};
use quadrille_spec::{SpecError, sequences_of};

use super::super::{Question, hardware};

/// A number that is varied, by the name that users write.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Quantity {
    /// Devices.
    Devices,
    /// Nodes, whole ones.
    Nodes,
    /// Sequences in a step.
    Batch,
    /// Tokens in a sequence.
    SeqLen,
    /// A number of the cluster.
    Hardware(String),
}

/// A number that is varied, with its values in ascending order.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    quantity: Quantity,
    name: String,
    values: Vec<f64>,
}

impl FromStr for Variable {
    type Err = SpecError;

    /// Reads `gpus=64..4096`, `nvs=4,8,64` or `device.memory_bandwidth=1e12..8e12:5`.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let syntax = || SpecError::Syntax {
            what: "a variable",
            text: text.to_owned(),
            reason: "write it as name=values, e.g. gpus=64..4096 or nvs=4,8,64".to_owned(),
        };
        let (name, values) = text.split_once('=').ok_or_else(syntax)?;
        let name = name.trim();
        let quantity = match name {
            "gpus" => Quantity::Devices,
            "nodes" => Quantity::Nodes,
            "batch" | "global-batch" | "global_batch" => Quantity::Batch,
            "seq-len" | "seq_len" => Quantity::SeqLen,
            "nvs" => Quantity::Hardware("tiers.0.devices".to_owned()),
            name => Quantity::Hardware(name.to_owned()),
        };
        let is_whole = !matches!(quantity, Quantity::Hardware(_)) || name == "nvs";
        let values = if quantity == Quantity::SeqLen {
            lengths("values to vary over", values)?
        } else if is_whole {
            whole_numbers("values to vary over", values)?.into_iter().map(|value| value as f64).collect()
        } else {
            numbers("values to vary over", values)?
        };
        Ok(Self { quantity, name: name.to_owned(), values })
    }
}

impl Variable {
    /// Whether it is the number that another one is, by whatever name: nodes and devices are.
    pub(super) fn varies_as(&self, other: &Self) -> bool {
        self.quantity == other.quantity || self.is_devices() && other.is_devices()
    }
}

impl fmt::Display for Variable {
    /// Its name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Variable {
    /// Its values, ascending.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Whether it is the number of devices, or of nodes that are full of them.
    pub fn is_devices(&self) -> bool {
        matches!(self.quantity, Quantity::Devices | Quantity::Nodes)
    }

    /// Whether it is the number of sequences in a step.
    pub fn is_batch(&self) -> bool {
        self.quantity == Quantity::Batch
    }

    /// Whether it is the number of tokens in a sequence.
    pub fn is_length(&self) -> bool {
        self.quantity == Quantity::SeqLen
    }

    /// Whether it is the number of nodes: it follows from the size of a node, which may vary, too.
    pub fn is_nodes(&self) -> bool {
        self.quantity == Quantity::Nodes
    }

    /// The question with one of the values.
    ///
    /// # Errors
    /// More tokens than the model has positions; nodes without a size; a number that the cluster does not have, or that breaks its rules.
    pub fn set(&self, question: &Question, value: f64) -> Result<Question, SpecError> {
        let mut changed = question.clone();
        match &self.quantity {
            Quantity::Devices => changed.devices = value as usize,
            Quantity::Nodes => {
                changed.devices = question.devices_of_nodes(value as usize)?;
            }
            Quantity::Batch => {
                changed.global_batch = value as usize;
                changed.batch_tokens = None;
            }
            Quantity::SeqLen if value as usize > question.model.seq_len => {
                let rule = format!("the model has {} positions", question.model.seq_len);
                let remedy = format!("vary over at most {}, or give the model seq_len={value}", question.model.seq_len);
                return Err(SpecError::invalid("seq-len", value, rule, remedy));
            }
            Quantity::SeqLen => {
                changed.seq_len = value as usize;
                if let Some(tokens) = question.batch_tokens {
                    changed.global_batch = sequences_of(tokens, changed.seq_len)?;
                }
            }
            Quantity::Hardware(field) => {
                changed.cluster = hardware::with(&question.cluster, field, value).map_err(unknown)?;
            }
        }
        Ok(changed)
    }
}

/// What is no number of a cluster is no variable, either.
fn unknown(error: SpecError) -> SpecError {
    match error {
        SpecError::Unknown { name, known, .. } => {
            let own = ["gpus", "nodes", "nvs", "batch", "seq-len"].map(str::to_owned);
            SpecError::Unknown { what: "variable", name, known: own.into_iter().chain(known).collect() }
        }
        error => error,
    }
}
