//! What the OSU micro-benchmarks print: a title, a header, and a line for every size with microseconds, or with MB/s.
//! `osu_allgather` and `osu_alltoall` count the bytes that a rank gives to another, the others those of the whole buffer.
//! <https://mvapich.cse.ohio-state.edu/benchmarks/>

use std::path::Path;

use quadrille_spec::CollectiveKind;

use super::log::{Log, Row, microseconds, second_run, size};
use crate::Refusal;

/// How the numbers of a test are meant.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Numbers {
    /// Sizes of whole buffers, microseconds.
    Whole,
    /// Sizes for each rank, microseconds.
    PerRank,
    /// Sizes of messages, microseconds one way between two ranks.
    Message,
    /// Sizes of messages, MB/s of many at once between two ranks.
    Bandwidth,
}

/// Titles of the tests that are read, between `OSU MPI` and `Test`.
const TESTS: [(&str, CollectiveKind, Numbers); 8] = [
    ("Allreduce Latency", CollectiveKind::AllReduce, Numbers::Whole),
    ("Allgather Latency", CollectiveKind::AllGather, Numbers::PerRank),
    ("Reduce_scatter Latency", CollectiveKind::ReduceScatter, Numbers::Whole),
    ("Broadcast Latency", CollectiveKind::Broadcast, Numbers::Whole),
    ("Reduce Latency", CollectiveKind::Reduce, Numbers::Whole),
    ("All-to-All Personalized Exchange Latency", CollectiveKind::AllToAll, Numbers::PerRank),
    ("Latency", CollectiveKind::Send, Numbers::Message),
    ("Bandwidth", CollectiveKind::Send, Numbers::Bandwidth),
];

/// Of `osu_bw` only messages from this size on count: many are under way at once, so that smaller ones hide their latency.
const LARGE: u64 = 1 << 20;

/// Reads a log.
///
/// # Errors
/// A test that is unknown or not told, lines that are no size and number, several runs.
pub fn parse(path: &Path, text: &str) -> Result<Log, Refusal> {
    let name = path.display().to_string();
    let (kind, numbers) = test(&name, text)?;
    if let Some((line, _)) = titles(text).nth(1) {
        return Err(second_run(&name, line));
    }
    let mut rows = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = line.split_whitespace();
        let Some(bytes) = words.next().and_then(|word| word.parse::<u64>().ok()) else { continue };
        let cut_off = || Refusal::new(format!("{name}, line {number}: a size without a number; is it cut off?"));
        let value = words.next().ok_or_else(cut_off)?;
        let whole = size(&name, number, bytes)?;
        let seconds = match numbers {
            Numbers::Bandwidth if bytes < LARGE => continue,
            Numbers::Bandwidth => whole / rate(&name, number, value)?,
            _ => microseconds(&name, number, value)?,
        };
        if seconds > 0.0 && bytes > 0 {
            rows.push(Row { bytes: whole, per_rank: numbers == Numbers::PerRank, seconds });
        }
    }
    let ranks = matches!(numbers, Numbers::Message | Numbers::Bandwidth).then_some(2);
    Ok(Log { kind, ranks, per_node: None, rows })
}

/// MB/s as bytes per second.
fn rate(name: &str, line: usize, text: &str) -> Result<f64, Refusal> {
    let rate = text.parse::<f64>().ok().filter(|rate| (1e-3..=1e9).contains(rate));
    rate.map(|rate| 1e6 * rate).ok_or_else(|| Refusal::new(format!("{name}, line {line}: '{text}' is no rate in MB/s")))
}

/// Titles, with their lines counted from 1.
fn titles(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = (1..).zip(text.lines());
    lines.filter_map(|(line, text)| {
        Some((line, text.trim_start().strip_prefix('#')?.trim_start().strip_prefix("OSU ")?))
    })
}

/// The test of the title.
fn test(name: &str, text: &str) -> Result<(CollectiveKind, Numbers), Refusal> {
    let known = || TESTS.map(|(title, ..)| format!("'{title}'")).join(", ");
    let title = titles(text).find_map(|(_, title)| {
        let title = title.strip_prefix("MPI")?;
        // Of `OSU MPI-CUDA`, too.
        let title = title.split_once(' ')?.1;
        Some(title.split(" Test").next().unwrap_or(title).trim())
    });
    let Some(title) = title else {
        return Err(Refusal::new(format!("{name} has no title '# OSU MPI ... Test'; give what a test printed")));
    };
    let found = TESTS.iter().find(|(known, ..)| *known == title);
    let unknown = || Refusal::new(format!("{name}: the test '{title}' is not read; read are {}", known()));
    found.map(|(_, kind, numbers)| (*kind, *numbers)).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL_REDUCE: &str = "\n\
# OSU MPI Allreduce Latency Test v7.4
# Datatype: MPI_INT.
# Size       Avg Latency(us)
4                       2.31
1024                    4.90
1048576               812.75
";
    /// With -f.
    const ALL_GATHER: &str = "\
# OSU MPI-CUDA Allgather Latency Test v5.9
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
1                       1.79              1.35              2.10        1000
65536                 150.20            149.10            151.90         100
";
    const BANDWIDTH: &str = "\
# OSU MPI Bandwidth Test v7.4
# Datatype: MPI_CHAR.
# Size      Bandwidth (MB/s)
1                       3.41
2097152             12000.00
4194304             12288.00
";

    fn parsed(text: &str) -> Log {
        parse(Path::new("osu.log"), text).unwrap()
    }

    fn message(text: &str) -> String {
        parse(Path::new("osu.log"), text).unwrap_err().to_string()
    }

    #[test]
    fn collectives_are_read() {
        let log = parsed(ALL_REDUCE);
        assert_eq!((log.kind, log.ranks, log.rows.len()), (CollectiveKind::AllReduce, None, 3));
        assert!(!log.rows[2].per_rank && (log.rows[2].seconds - 812.75e-6).abs() < 1e-15);
        let log = parsed(ALL_GATHER);
        assert_eq!((log.kind, log.rows.len()), (CollectiveKind::AllGather, 2));
        assert!(log.rows[1].per_rank && log.rows[1].bytes == 65536.0 && (log.rows[1].seconds - 150.2e-6).abs() < 1e-15);
        for (title, kind) in [
            ("Reduce_scatter", CollectiveKind::ReduceScatter),
            ("Broadcast", CollectiveKind::Broadcast),
            ("Reduce", CollectiveKind::Reduce),
            ("All-to-All Personalized Exchange", CollectiveKind::AllToAll),
        ] {
            let log = parsed(&ALL_REDUCE.replace("Allreduce", title));
            assert_eq!((log.kind, log.rows[0].per_rank), (kind, kind == CollectiveKind::AllToAll), "{title}");
        }
    }

    #[test]
    fn messages_are_read_one_way() {
        let log =
            parsed(&ALL_REDUCE.replace("Allreduce Latency", "Latency").replace("Avg Latency(us)", "Latency (us)"));
        assert_eq!((log.kind, log.ranks, log.rows.len()), (CollectiveKind::Send, Some(2), 3));
        let log = parsed(BANDWIDTH);
        assert_eq!((log.ranks, log.rows.len()), (Some(2), 2));
        assert!((log.rows[0].seconds - 2_097_152.0 / 12e9).abs() < 1e-15);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        assert!(message("4 2.31\n").contains("osu.log has no title"));
        let other = ALL_REDUCE.replace("Allreduce", "Alltoallv");
        assert!(message(&other).contains("'Alltoallv Latency' is not read; read are 'Allreduce Latency'"));
        assert!(message(&ALL_REDUCE.replace("812.75", "")).contains("line 7: a size without a number"));
        assert!(message(&ALL_REDUCE.replace("812.75", "-1")).contains("line 7: '-1' is no time"));
        assert!(message(&BANDWIDTH.replace("12000.00", "0")).contains("line 5: '0' is no rate"));
        let huge = ALL_REDUCE.replace("1048576 ", "18446744073709551615 ");
        assert!(message(&huge).contains("more than any buffer has"));
    }

    #[test]
    fn a_second_run_is_refused() {
        let two = format!("{ALL_REDUCE}{BANDWIDTH}");
        assert!(message(&two).contains("osu.log, line 8: a second run begins; give one run per file"));
        assert!(
            message(&format!("{ALL_GATHER}{}", ALL_GATHER.replace("MPI-CUDA", "NCCL"))).contains("line 5: a second")
        );
    }

    /// Wherever a log ends, and whatever stands in the place of a number, it is read or refused.
    #[test]
    fn damaged_logs_do_not_panic() {
        for (at, _) in ALL_GATHER.char_indices() {
            let _ = parse(Path::new("a.log"), &ALL_GATHER[..at]);
        }
        for wrong in ["", "#", "-1", "NaN", "1e999", "99999999999999999999", "N/A", "\u{fffd}"] {
            for word in ALL_GATHER.split_whitespace() {
                let _ = parse(Path::new("a.log"), &ALL_GATHER.replace(word, wrong));
            }
        }
    }
}
