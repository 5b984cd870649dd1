//! Every row predicted, or the reason why not.

use std::collections::{BTreeMap, HashSet};

use quadrille_cost::native::{Price, PriceError};
use quadrille_plan::statistics::Pair;

use crate::row::Row;
use crate::run::{Measured, Run};
use crate::unmapped::Unmapped;

/// A predicted row.
#[derive(Debug, Clone)]
pub struct Entry<'a> {
    /// As the file says it.
    pub row: &'a Row,
    /// As the model sees it.
    pub run: Run,
    /// What the model says.
    pub price: Price,
}

/// All rows of a file.
#[derive(Debug, Clone)]
pub struct Evaluation<'a> {
    /// Those that are predicted, in the file's order.
    pub entries: Vec<Entry<'a>>,
    /// The others.
    pub unmapped: Vec<(&'a Row, Unmapped)>,
}

impl Entry<'_> {
    /// Predicted and measured, in seconds or bytes; `None` of a run out of memory.
    pub fn pair(&self) -> Option<Pair> {
        let predicted = self.run.predicted(&self.price)?;
        let measured = match self.run.measured {
            Measured::Seconds(value) | Measured::PeakBytes(value, _) | Measured::RestBytes(value) => value,
            Measured::OutOfMemory => return None,
        };
        Some(Pair { predicted, measured })
    }

    /// Whether seconds were measured.
    pub fn is_time(&self) -> bool {
        matches!(self.run.measured, Measured::Seconds(_))
    }

    /// Whether the model says that the run fits into the device.
    pub fn fits(&self) -> bool {
        self.run.fits(&self.price)
    }
}

impl Evaluation<'_> {
    /// Rows by the reason why they are not predicted.
    pub fn reasons(&self) -> BTreeMap<Unmapped, usize> {
        let mut reasons = BTreeMap::new();
        for (_, reason) in &self.unmapped {
            *reasons.entry(*reason).or_default() += 1;
        }
        reasons
    }
}

/// Predicts every row. A row that tells the seconds of the same run as an earlier one in another unit counts once.
///
/// # Errors
/// A program that cannot be simulated.
pub fn evaluate(rows: &[Row]) -> Result<Evaluation<'_>, PriceError> {
    let mut told = HashSet::new();
    let mut entries = Vec::new();
    let mut unmapped = Vec::new();
    for row in rows {
        match Run::of(row) {
            Ok(run) if matches!(run.measured, Measured::Seconds(_)) && !told.insert(identity(row)) => {
                unmapped.push((row, Unmapped::Repeated));
            }
            Ok(run) => match run.price() {
                Ok(price) => entries.push(Entry { row, price, run }),
                Err(PriceError::Step(_) | PriceError::Spec(_)) => unmapped.push((row, Unmapped::Layout)),
                Err(error) => return Err(error),
            },
            Err(reason) => unmapped.push((row, reason)),
        }
    }
    Ok(Evaluation { entries, unmapped })
}

/// Equal for rows that tell of one run: equal sizes, and equal seconds where they are derived; without them a row is
/// a run of its own.
fn identity(row: &Row) -> String {
    let seconds = row.derived_seconds.map_or(format!("line {}", row.line), |seconds| seconds.to_string());
    format!("{:?} {:?} {:?} {seconds}", row.sizes, row.recompute, row.sequence_parallel)
}
