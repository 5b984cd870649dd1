//! A log of collectives, whichever tool wrote it.

use quadrille_cost::native::{RankGroup, Sample};
use quadrille_spec::CollectiveKind;

use crate::{Refusal, Setting};

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
    /// Bytes as the tool counts them: see `per_rank`.
    pub bytes: f64,
    /// Whether `bytes` are those that each rank gives, of which the whole buffer holds one for every rank.
    pub per_rank: bool,
    /// Seconds, above 0.
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
    /// The samples of the whole job's group; `name` is the file's. `job` is for what the log does not say itself; `tiers` is how
    /// many the cluster has.
    ///
    /// # Errors
    /// Neither the log nor `job` say how many ranks there are, or whether a pair shares a node where that matters; nodes that are
    /// not full; no rows.
    pub fn place(&self, name: String, job: Job, tiers: usize) -> Result<Placed, Refusal> {
        let Some(ranks) = self.ranks.or(job.ranks) else {
            return Err(
                Refusal::new(format!("{name} does not say how many ranks there were; give ")).name(Setting::Ranks)
            );
        };
        let per_node = match self.per_node.or(job.per_node) {
            // A pair inside the only domain, whatever the other logs are of.
            Some(per_node) if self.kind == CollectiveKind::Send && tiers < 2 => per_node.min(ranks),
            None if self.kind != CollectiveKind::Send || tiers < 2 => ranks,
            Some(per_node) if self.kind != CollectiveKind::Send || per_node <= ranks => per_node,
            _ => {
                let refusal =
                    Refusal::new(format!("{name} does not say where its two ranks were; give ")).name(Setting::PerNode);
                let rest = "and read logs for which it is another in a run of their own";
                return Err(refusal.text(format!(" 1 (between nodes) or 2 (inside one), {rest}")));
            }
        };
        if ranks < 2 || per_node == 0 || per_node > ranks || !ranks.is_multiple_of(per_node) {
            let rule = "at least two ranks fill their nodes; give other ";
            let refusal = Refusal::new(format!("{name}: {ranks} ranks, {per_node} to a node: {rule}"));
            return Err(refusal.name(Setting::Ranks).text(" and ").name(Setting::PerNode));
        }
        if self.rows.is_empty() {
            return Err(Refusal::new(format!("{name} has no timed sizes; give the log of a whole run")));
        }
        let group = RankGroup { inner: 1, size: ranks, ranks };
        let sample = |row: &Row| {
            let bytes = if row.per_rank { row.bytes * ranks as f64 } else { row.bytes };
            Sample { group, kind: self.kind, bytes, seconds: row.seconds }
        };
        Ok(Placed { samples: self.rows.iter().map(sample).collect(), name, per_node })
    }
}

/// The job of logs that do not say it themselves.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Job {
    /// Ranks.
    pub ranks: Option<usize>,
    /// Ranks that share a node.
    pub per_node: Option<usize>,
}

impl Job {
    /// Refuses a number that is for none of the logs, by their names, because each of them says another.
    ///
    /// # Errors
    /// See above.
    pub fn check(&self, logs: &[(String, Log)]) -> Result<(), Refusal> {
        type Said = fn(&Log) -> Option<usize>;
        let numbers: [(Setting, Option<usize>, Said); 2] =
            [(Setting::Ranks, self.ranks, |log| log.ranks), (Setting::PerNode, self.per_node, |log| log.per_node)];
        for (number, given, said) in numbers {
            let (Some(given), Some((name, first))) = (given, logs.first()) else { continue };
            let other = |(_, log): &(String, Log)| said(log).is_some_and(|said| said != given);
            if let Some(said) = said(first).filter(|_| logs.iter().all(other)) {
                let rule = format!(" {given}: all logs say it themselves, {name} {said}; leave ");
                return Err(Refusal::of(number).text(rule).name(number).text(" out"));
            }
        }
        Ok(())
    }
}

impl Placed {
    /// Whether the job had more than one node.
    pub fn over_nodes(&self) -> bool {
        self.samples.iter().any(|sample| sample.group.ranks > self.per_node)
    }
}

/// Of a file with more than one run, whose ranks and times would be taken for those of one.
pub fn second_run(name: &str, line: usize) -> Refusal {
    Refusal::new(format!("{name}, line {line}: a second run begins; give one run per file"))
}

/// A time in microseconds as seconds; refuses what is none. The line is counted from 1.
pub fn microseconds(name: &str, line: usize, text: &str) -> Result<f64, Refusal> {
    let time = text.parse::<f64>().ok().filter(|time| time.is_finite() && (0.0..=1e10).contains(time));
    let wrong = || Refusal::new(format!("{name}, line {line}: '{text}' is no time in microseconds"));
    time.map(|time| 1e-6 * time).ok_or_else(wrong)
}

/// A size in bytes; refuses what no buffer has.
pub fn size(name: &str, line: usize, bytes: u64) -> Result<f64, Refusal> {
    if bytes <= 1 << 50 {
        return Ok(bytes as f64);
    }
    Err(Refusal::new(format!("{name}, line {line}: {bytes} bytes are more than any buffer has")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(kind: CollectiveKind, ranks: Option<usize>, per_node: Option<usize>) -> Log {
        Log { kind, ranks, per_node, rows: vec![Row { bytes: 1024.0, per_rank: true, seconds: 1e-5 }] }
    }

    fn place(log: &Log, ranks: Option<usize>, per_node: Option<usize>, tiers: usize) -> Result<Placed, Refusal> {
        log.place("a.log".to_owned(), Job { ranks, per_node }, tiers)
    }

    fn message(log: &Log, ranks: Option<usize>, per_node: Option<usize>) -> String {
        place(log, ranks, per_node, 2).unwrap_err().to_string()
    }

    #[test]
    fn buffers_of_all_ranks_count() {
        let placed = place(&log(CollectiveKind::AllGather, Some(8), Some(4)), None, None, 2).unwrap();
        assert_eq!((placed.per_node, placed.samples[0].bytes), (4, 8192.0));
        assert_eq!(placed.samples[0].group, RankGroup { inner: 1, size: 8, ranks: 8 });
    }

    #[test]
    fn what_log_and_user_say_fits() {
        let unknown = log(CollectiveKind::AllReduce, None, None);
        assert!(
            message(&unknown, None, Some(4)).contains("a.log does not say how many ranks there were; give `ranks`")
        );
        assert!(message(&unknown, Some(6), Some(4)).contains("6 ranks, 4 to a node"));
        let empty = Log { rows: Vec::new(), ..unknown };
        assert!(message(&empty, Some(4), None).contains("has no timed sizes"));
    }

    #[test]
    fn what_the_user_says_is_for_logs_that_do_not_say_it() {
        let says = log(CollectiveKind::AllReduce, Some(8), Some(4));
        let silent = log(CollectiveKind::AllReduce, None, None);
        let group = |log: &Log| {
            let placed = place(log, Some(16), Some(2), 2).unwrap();
            (placed.samples[0].group.ranks, placed.per_node)
        };
        assert_eq!((group(&says), group(&silent)), ((8, 4), (16, 2)));
        let named = |logs: &[&Log]| logs.iter().map(|log| ("a.log".to_owned(), (*log).clone())).collect::<Vec<_>>();
        let job = |ranks, per_node| Job { ranks: Some(ranks), per_node: Some(per_node) };
        job(16, 2).check(&named(&[&says, &silent])).unwrap();
        job(8, 4).check(&named(&[&says])).unwrap();
        let refusal = |job: Job| job.check(&named(&[&says, &says])).unwrap_err().to_string();
        assert!(refusal(job(16, 4)).contains("`ranks` 16: all logs say it themselves, a.log 8; leave `ranks` out"));
        assert!(refusal(job(8, 2)).contains("`per_node` 2: all logs say it themselves, a.log 4"));
    }

    #[test]
    fn a_ping_pong_has_two_ranks_inside_a_node_or_between_nodes() {
        let pair = log(CollectiveKind::Send, Some(2), None);
        let per_node = |typed: usize| place(&pair, Some(16), Some(typed), 2).unwrap().per_node;
        assert_eq!((per_node(1), per_node(2)), (1, 2));
        for typed in [None, Some(4)] {
            let message = message(&pair, None, typed);
            assert!(message.contains("give `per_node` 1 (between nodes) or 2 (inside one)"), "{message}");
            // There is only one place for it.
            assert_eq!(place(&pair, None, typed, 1).unwrap().per_node, 2);
        }
    }
}
