//! A log of collectives, whichever tool wrote it.

use std::path::Path;

use quadrille_cost::native::{RankGroup, Sample};
use quadrille_spec::CollectiveKind;

use crate::failure::Failure;

/// What a log says.
#[derive(Debug, Clone, PartialEq)]
pub struct Log {
    /// The collective; `Send` for messages between two ranks.
    pub kind: CollectiveKind,
    /// Ranks, where the log says it.
    pub ranks: Option<usize>,
    /// Ranks that share a node, where the log says it.
    pub per_node: Option<usize>,
    /// What was timed.
    pub rows: Vec<Row>,
}

/// A line of a log.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// As the tool counts them: see `per_rank`.
    pub bytes: f64,
    /// Whether `bytes` are those that each rank gives, of which the whole buffer holds one for every rank.
    pub per_rank: bool,
    /// Above 0.
    pub seconds: f64,
}

/// A log with its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// The file.
    pub name: String,
    /// Ranks that share a node.
    pub per_node: usize,
    /// What was measured.
    pub samples: Vec<Sample>,
}

impl Log {
    /// The samples of the whole job's group; `ranks` and `per_node` are what the user says.
    ///
    /// # Errors
    /// Neither log nor user say how many ranks there are, or they say different numbers; nodes that are not full; no rows.
    pub fn place(&self, name: String, ranks: Option<usize>, per_node: Option<usize>) -> Result<Placed, Failure> {
        let message = self.kind == CollectiveKind::Send;
        // A ping-pong has two ranks, however many the other logs are of.
        let (ranks, per_node) =
            if message { (None, per_node.map(|per_node| per_node.min(2))) } else { (ranks, per_node) };
        let agreed = |flag: &str, said: Option<usize>, typed: Option<usize>| match (said, typed) {
            (Some(said), Some(typed)) if said != typed => {
                Err(Failure::usage(format!("{name}: {flag} {typed}, but the log says {said}; leave {flag} out")))
            }
            _ => Ok(said.or(typed)),
        };
        let Some(ranks) = agreed("--ranks", self.ranks, ranks)? else {
            return Err(Failure::usage(format!("{name} does not say how many ranks there were; give --ranks")));
        };
        let per_node = agreed("--per-node", self.per_node, per_node)?.unwrap_or(ranks);
        if ranks < 2 || per_node == 0 || per_node > ranks || !ranks.is_multiple_of(per_node) {
            return Err(Failure::usage(format!(
                "{name}: {ranks} ranks, {per_node} to a node: at least two ranks fill their nodes; give other --ranks and \
                 --per-node"
            )));
        }
        if self.rows.is_empty() {
            return Err(Failure::usage(format!("{name} has no timed sizes; give the log of a whole run")));
        }
        let group = RankGroup { inner: 1, size: ranks, ranks };
        let sample = |row: &Row| {
            let bytes = if row.per_rank { row.bytes * ranks as f64 } else { row.bytes };
            Sample { group, kind: self.kind, bytes, seconds: row.seconds }
        };
        Ok(Placed { samples: self.rows.iter().map(sample).collect(), name, per_node })
    }
}

/// The text of a log.
pub fn read(flag: &str, path: &Path) -> Result<String, Failure> {
    let cannot = |error: std::io::Error| Failure::usage(format!("cannot read {flag} {}: {error}", path.display()));
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).map_err(cannot)
}

/// A time in microseconds as seconds; refuses what is none. The line is counted from 1.
pub fn microseconds(name: &str, line: usize, text: &str) -> Result<f64, Failure> {
    let time = text.parse::<f64>().ok().filter(|time| time.is_finite() && (0.0..=1e10).contains(time));
    let wrong = || Failure::usage(format!("{name}, line {line}: '{text}' is no time in microseconds"));
    time.map(|time| 1e-6 * time).ok_or_else(wrong)
}

/// A size in bytes; refuses what no buffer has.
pub fn size(name: &str, line: usize, bytes: u64) -> Result<f64, Failure> {
    if bytes <= 1 << 50 {
        return Ok(bytes as f64);
    }
    Err(Failure::usage(format!("{name}, line {line}: {bytes} bytes are more than any buffer has")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(kind: CollectiveKind, ranks: Option<usize>, per_node: Option<usize>) -> Log {
        Log { kind, ranks, per_node, rows: vec![Row { bytes: 1024.0, per_rank: true, seconds: 1e-5 }] }
    }

    fn message(log: &Log, ranks: Option<usize>, per_node: Option<usize>) -> String {
        format!("{:?}", log.place("a.log".to_owned(), ranks, per_node).unwrap_err())
    }

    #[test]
    fn buffers_of_all_ranks_count() {
        let placed = log(CollectiveKind::AllGather, Some(8), Some(4)).place("a".to_owned(), None, None).unwrap();
        assert_eq!((placed.per_node, placed.samples[0].bytes), (4, 8192.0));
        assert_eq!(placed.samples[0].group, RankGroup { inner: 1, size: 8, ranks: 8 });
    }

    #[test]
    fn what_log_and_user_say_fits() {
        let unknown = log(CollectiveKind::AllReduce, None, None);
        assert!(
            message(&unknown, None, Some(4)).contains("a.log does not say how many ranks there were; give --ranks")
        );
        assert!(message(&unknown, Some(6), Some(4)).contains("6 ranks, 4 to a node"));
        assert!(message(&log(CollectiveKind::AllReduce, Some(8), None), Some(4), None).contains("the log says 8"));
        assert!(message(&log(CollectiveKind::AllReduce, Some(8), Some(8)), None, Some(4)).contains("--per-node 4"));
        let empty = Log { rows: Vec::new(), ..unknown };
        assert!(message(&empty, Some(4), None).contains("has no timed sizes"));
    }

    #[test]
    fn a_ping_pong_has_two_ranks() {
        let pair = log(CollectiveKind::Send, Some(2), None);
        assert_eq!(pair.place("a".to_owned(), Some(16), Some(4)).unwrap().per_node, 2);
        assert_eq!(pair.place("a".to_owned(), None, Some(1)).unwrap().per_node, 1);
    }
}
