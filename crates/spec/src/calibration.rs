//! What a cluster file keeps of the measurements that its numbers were fitted to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::device::{check_rate, check_seconds};
use crate::toml_text::{check_name, check_size};
use crate::{Algorithm, CollectiveKind, ElementType, SpecError};

const MAX_RANKS: usize = 1 << 24;
const MAX_RUNS: usize = 1 << 20;
const MAX_BYTES: u64 = 1 << 50;
const MAX_DIMENSIONS: usize = 4;
/// A quarter of the runs may be this many medians away from another quarter; beyond, the clock is broken.
const MAX_SPREAD: f64 = 1e6;

/// The `[calibration]` section of a cluster file: measured collectives and operations beside how they were measured.
/// All ranks work at once in every measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Ranks that took part.
    pub ranks: usize,
    /// Ranks that share a node.
    pub per_node: usize,
    /// Threads of each rank.
    pub threads: usize,
    /// Runs of each measurement; medians count.
    pub runs: usize,
    /// Type of what collectives move.
    pub dtype: ElementType,
    /// Measured collectives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collectives: Vec<MeasuredCollective>,
    /// Measured operations of a rank.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<MeasuredOperation>,
}

/// A collective of one size, while all groups like this one run it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeasuredCollective {
    /// Which; `send` is a message one way, half of a ping-pong.
    pub collective: CollectiveKind,
    /// How it was carried out.
    pub algorithm: Algorithm,
    /// `G0`: ranks between two neighbours of a group.
    pub inner: usize,
    /// `G1`: ranks in a group.
    pub group: usize,
    /// The whole buffer: the output of an all-gather, the input of a reduce-scatter, the message of a send.
    pub bytes: u64,
    /// Median over runs of the slowest rank's seconds.
    pub seconds: f64,
    /// Interquartile range of the runs over their median.
    pub spread: f64,
}

/// An operation of one shape on every rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeasuredOperation {
    /// Which: `product nn`, `attention`, `residual`, `host-copy` to a device's memory and back.
    pub operation: String,
    /// Type of its operands.
    pub dtype: ElementType,
    /// `[m, n, k]` of products, `[sequence, width of a head, heads]` of attention, `[elements]` of element-wise work, `[bytes]`
    /// of copies.
    pub shape: Vec<usize>,
    /// What a rank reaches, in `unit`.
    pub rate: f64,
    /// Of `rate`.
    pub unit: RateUnit,
    /// Interquartile range of the runs over their median.
    pub spread: f64,
}

/// What a rate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RateUnit {
    /// Arithmetic operations as the native model counts them.
    #[serde(rename = "FLOP/s")]
    Flops,
    /// Bytes read and written.
    #[serde(rename = "B/s")]
    Bytes,
    /// Operations.
    #[serde(rename = "1/s")]
    Operations,
}

impl Calibration {
    /// Holds every number against its rule.
    ///
    /// # Errors
    /// The first value outside its rule.
    pub fn check(&self) -> Result<(), SpecError> {
        check_size("calibration.ranks", self.ranks, MAX_RANKS)?;
        check_size("calibration.per_node", self.per_node, self.ranks)?;
        check_size("calibration.threads", self.threads, MAX_RANKS)?;
        check_size("calibration.runs", self.runs, MAX_RUNS)?;
        for (index, row) in self.collectives.iter().enumerate() {
            row.check(&format!("calibration.collectives[{index}]"), self.ranks)?;
        }
        let rows = self.operations.iter().enumerate();
        rows.into_iter().try_for_each(|(index, row)| row.check(&format!("calibration.operations[{index}]")))
    }
}

impl MeasuredCollective {
    fn check(&self, field: &str, ranks: usize) -> Result<(), SpecError> {
        let fits = self.inner.checked_mul(self.group).is_some_and(|all| (2..=ranks).contains(&all));
        if self.inner == 0 || self.group < 2 || !fits {
            let value = format!("inner {}, group {}", self.inner, self.group);
            let rule = format!("inner * group lies in 2..={ranks}, the ranks, with at least two of them in a group");
            return Err(SpecError::invalid(field, value, rule, "leave it out"));
        }
        if self.bytes > MAX_BYTES {
            let rule = format!("a buffer has at most {MAX_BYTES} bytes");
            return Err(SpecError::invalid(format!("{field}.bytes"), self.bytes, rule, "give bytes"));
        }
        if self.seconds <= 0.0 {
            let rule = "what was measured took some time";
            return Err(SpecError::invalid(format!("{field}.seconds"), self.seconds, rule, "leave the row out"));
        }
        // A collective may take long on a slow network, but not hours.
        check_seconds(&format!("{field}.seconds"), self.seconds / 1e4)
            .map_err(|_| too_long(format!("{field}.seconds"), self.seconds))?;
        check_spread(field, self.spread)
    }
}

impl MeasuredOperation {
    fn check(&self, field: &str) -> Result<(), SpecError> {
        check_name(&self.operation)?;
        if !(1..=MAX_DIMENSIONS).contains(&self.shape.len()) || self.shape.contains(&0) {
            let rule = format!("a shape has 1 to {MAX_DIMENSIONS} sizes of at least 1");
            let value = format!("{:?}", self.shape);
            return Err(SpecError::invalid(format!("{field}.shape"), value, rule, "use e.g. [64, 64, 64]"));
        }
        check_rate(&format!("{field}.rate"), self.rate)?;
        check_spread(field, self.spread)
    }
}

fn too_long(field: String, seconds: f64) -> SpecError {
    SpecError::invalid(field, seconds, "a collective takes at most 10000 seconds", "give seconds")
}

fn check_spread(field: &str, spread: f64) -> Result<(), SpecError> {
    if (0.0..=MAX_SPREAD).contains(&spread) {
        return Ok(());
    }
    let rule = format!("a spread lies in 0..={MAX_SPREAD}");
    Err(SpecError::invalid(format!("{field}.spread"), spread, rule, "give the interquartile range over the median"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub fn calibration() -> Calibration {
        let collective = MeasuredCollective {
            collective: CollectiveKind::AllReduce,
            algorithm: Algorithm::Native,
            inner: 1,
            group: 2,
            bytes: 4096,
            seconds: 1.25e-5,
            spread: 0.1,
        };
        let operation = MeasuredOperation {
            operation: "product nn".to_owned(),
            dtype: ElementType::F32,
            shape: vec![16, 64, 256],
            rate: 3.5e9,
            unit: RateUnit::Flops,
            spread: 0.0,
        };
        Calibration {
            ranks: 4,
            per_node: 2,
            threads: 1,
            runs: 5,
            dtype: ElementType::F32,
            collectives: vec![collective],
            operations: vec![operation],
        }
    }

    #[test]
    fn what_was_measured_is_legal() {
        assert_eq!(calibration().check(), Ok(()));
    }

    /// Changes one thing of a legal section and reads the refusal.
    fn refusal(change: impl FnOnce(&mut Calibration)) -> String {
        let mut changed = calibration();
        change(&mut changed);
        changed.check().unwrap_err().to_string()
    }

    #[test]
    fn refusals_name_the_row_and_its_rule() {
        assert!(refusal(|c| c.per_node = 5).starts_with("calibration.per_node = 5: it must lie in 1..=4"));
        assert!(refusal(|c| c.runs = 0).starts_with("calibration.runs = 0"));
        let row = refusal(|c| c.collectives[0].group = 5);
        assert!(row.starts_with("calibration.collectives[0] = inner 1, group 5") && row.contains("2..=4"), "{row}");
        assert!(refusal(|c| c.collectives[0].inner = usize::MAX).contains("leave it out"));
        assert!(refusal(|c| c.collectives[0].seconds = 0.0).contains("took some time"));
        assert!(refusal(|c| c.collectives[0].seconds = f64::NAN).contains("calibration.collectives[0].seconds"));
        assert!(refusal(|c| c.collectives[0].spread = -1.0).contains("collectives[0].spread = -1"));
        assert!(refusal(|c| c.operations[0].shape.clear()).contains("calibration.operations[0].shape = []"));
        assert!(refusal(|c| c.operations[0].rate = f64::INFINITY).contains("operations[0].rate = inf"));
        assert!(refusal(|c| c.operations[0].operation = "a\nb".to_owned()).starts_with("name = "));
    }

    proptest! {
        #[test]
        fn no_numbers_panic(sizes in any::<[usize; 6]>(), bytes in any::<u64>(), numbers in any::<[f64; 4]>()) {
            let mut changed = calibration();
            [changed.ranks, changed.per_node, changed.threads, changed.runs] = [sizes[0], sizes[1], sizes[2], sizes[3]];
            (changed.collectives[0].inner, changed.collectives[0].group) = (sizes[4], sizes[5]);
            changed.collectives[0].bytes = bytes;
            (changed.collectives[0].seconds, changed.collectives[0].spread) = (numbers[0], numbers[1]);
            (changed.operations[0].rate, changed.operations[0].spread) = (numbers[2], numbers[3]);
            changed.operations[0].shape = sizes.to_vec();
            let _ = changed.check();
        }
    }
}
