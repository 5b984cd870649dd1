//! What nccl-tests print: a line of `#` for every rank, a header that names the columns, a line for every size with the
//! microseconds out of place and in place. Sizes are those of the whole buffer, also of gathers and exchanges.
//! <https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md>

use std::collections::BTreeMap;
use std::path::Path;

use quadrille_spec::CollectiveKind;

use super::log::{Log, Row, microseconds, second_run, size};
use crate::Refusal;

/// The tests that are read, without `_perf`.
const TESTS: [(&str, CollectiveKind); 6] = [
    ("all_reduce", CollectiveKind::AllReduce),
    ("all_gather", CollectiveKind::AllGather),
    ("reduce_scatter", CollectiveKind::ReduceScatter),
    ("broadcast", CollectiveKind::Broadcast),
    ("reduce", CollectiveKind::Reduce),
    ("alltoall", CollectiveKind::AllToAll),
];

/// Reads a log, whose file's name says which test it is where nothing in it does.
///
/// # Errors
/// A test that is unknown or not told, lines that do not fit their header, nodes with different numbers of ranks, several
/// runs.
pub fn parse(path: &Path, text: &str) -> Result<Log, Refusal> {
    let name = path.display().to_string();
    let mut header: Option<Vec<&str>> = None;
    let mut hosts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut said = None;
    let mut begun = false;
    let mut rows = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let words: Vec<&str> = line.trim_start().trim_start_matches('#').split_whitespace().collect();
        if !line.trim_start().starts_with('#') {
            if let Some((header, bytes)) = header.as_ref().zip(words.first().and_then(|word| word.parse::<u64>().ok()))
            {
                rows.extend(row(&name, number, header, &words, bytes)?);
            }
            continue;
        }
        let begins = words.first() == Some(&"nThread");
        let heads = words.first() == Some(&"size") && words.contains(&"time");
        if (begins && begun) || (heads && header.is_some()) {
            return Err(second_run(&name, number));
        }
        begun |= begins;
        if heads {
            header = Some(words);
        } else if words.first() == Some(&"Rank") {
            let host = words.iter().skip_while(|word| **word != "on").nth(1).copied().unwrap_or("");
            *hosts.entry(host).or_default() += 1;
        } else if let Some(at) = words.iter().position(|word| word.trim_end_matches(':') == "nranks") {
            said = words.get(at + 1).and_then(|count| count.parse().ok()).or(said);
        }
    }
    let (ranks, per_node) = places(&name, &hosts)?;
    Ok(Log { kind: kind(&name, path, text)?, ranks: ranks.or(said), per_node, rows })
}

/// The times of a size, of which those that were not taken are left out, as is a size that is too small for the ranks.
fn row(name: &str, line: usize, header: &[&str], words: &[&str], bytes: u64) -> Result<Vec<Row>, Refusal> {
    if words.len() < header.len() {
        let found = words.len();
        let wanted = header.len();
        return Err(Refusal::new(format!(
            "{name}, line {line}: {found} values under {wanted} columns; is it cut off?"
        )));
    }
    let bytes = size(name, line, bytes)?;
    let times = header.iter().zip(words).filter(|(column, value)| **column == "time" && **value != "N/A");
    let seconds: Vec<f64> = times.map(|(_, value)| microseconds(name, line, value)).collect::<Result<_, _>>()?;
    let timed = seconds.into_iter().filter(|seconds| *seconds > 0.0 && bytes > 0.0);
    Ok(timed.map(|seconds| Row { bytes, per_rank: false, seconds }).collect())
}

/// Ranks, and how many share a node.
fn places(name: &str, hosts: &BTreeMap<&str, usize>) -> Result<(Option<usize>, Option<usize>), Refusal> {
    let Some(first) = hosts.values().next() else { return Ok((None, None)) };
    if hosts.values().any(|ranks| ranks != first) {
        let counts: Vec<String> = hosts.iter().map(|(host, ranks)| format!("{ranks} on {host}")).collect();
        return Err(Refusal::new(format!(
            "{name}: nodes have different numbers of ranks ({}), which the model does not price",
            counts.join(", ")
        )));
    }
    Ok((Some(hosts.values().sum()), Some(*first)))
}

/// From a word that ends in `_perf`, else from the file's name.
fn kind(name: &str, path: &Path, text: &str) -> Result<CollectiveKind, Refusal> {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut words = text.split(|c: char| !is_letter(c)).filter_map(|word| word.strip_suffix("_perf"));
    let named: Option<&str> = words.rfind(|word| !word.is_empty());
    let file = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let known = || TESTS.map(|(test, _)| format!("{test}_perf")).join(", ");
    let found = match named {
        Some(named) => TESTS.iter().find(|(test, _)| *test == named),
        // The longest: all_reduce has reduce in it.
        None => TESTS.iter().filter(|(test, _)| file.contains(test)).max_by_key(|(test, _)| test.len()),
    };
    match (found, named) {
        (Some((_, kind)), _) => Ok(*kind),
        (None, Some(named)) => Err(Refusal::new(format!("{name}: {named}_perf is not read; read are {}", known()))),
        (None, None) => Err(Refusal::new(format!(
            "{name} does not say which test it is of; name the file after it, one of {}",
            known()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_NODES: &str = "\
# nThread 1 nGpus 1 minBytes 8 maxBytes 33554432 step: 8(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid  60210 on  gpu-a01 device  0 [0x07] NVIDIA A100-SXM4-80GB
#  Rank  1 Group  0 Pid  60211 on  gpu-a01 device  1 [0x0b] NVIDIA A100-SXM4-80GB
#  Rank  2 Group  0 Pid  41977 on  gpu-a02 device  0 [0x07] NVIDIA A100-SXM4-80GB
#  Rank  3 Group  0 Pid  41978 on  gpu-a02 device  1 [0x0b] NVIDIA A100-SXM4-80GB
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1    24.53    0.00    0.00      0    24.21    0.00    0.00      0
        4096          1024     float     sum      -1    31.08    0.13    0.20      0    30.95    0.13    0.20      0
    33554432       8388608     float     sum      -1   2310.4   14.52   21.78      0   2298.7   14.60   21.90    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 9.01234
#
# Collective test concluded: all_reduce_perf
";

    /// Without a column for the root, as older versions print it; nothing was run in place.
    const OLDER: &str = "\
# nThread 1 nGpus 8 minBytes 1024 maxBytes 2048 step: 2(factor) warmup iters: 5 iters: 20 validation: 0
#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error
           0             0   float     7.10    0.00    0.00    N/A      N/A     N/A     N/A    N/A
        2048            64   float    18.20    0.11    0.10    N/A      N/A     N/A     N/A    N/A
";

    fn message(path: &str, text: &str) -> String {
        parse(Path::new(path), text).unwrap_err().to_string()
    }

    #[test]
    fn a_log_says_its_test_its_ranks_and_both_times() {
        let log = parse(Path::new("job-17.out"), TWO_NODES).unwrap();
        assert_eq!((log.kind, log.ranks, log.per_node), (CollectiveKind::AllReduce, Some(4), Some(2)));
        assert_eq!(log.rows.len(), 6);
        let row = |at: usize| (log.rows[at].bytes, (1e7 * log.rows[at].seconds).round());
        assert_eq!((row(0), row(1), row(4)), ((8.0, 245.0), (8.0, 242.0), (33_554_432.0, 23104.0)));
        assert!(log.rows.iter().all(|row| !row.per_rank));
    }

    #[test]
    fn an_older_log_is_named_after_its_test() {
        let log = parse(Path::new("/runs/all_gather-8.txt"), OLDER).unwrap();
        assert_eq!((log.kind, log.ranks, log.per_node), (CollectiveKind::AllGather, None, None));
        assert_eq!(log.rows.len(), 1);
        assert!((log.rows[0].seconds - 18.2e-6).abs() < 1e-15);
        assert_eq!(parse(Path::new("reduce.log"), OLDER).unwrap().kind, CollectiveKind::Reduce);
        assert_eq!(parse(Path::new("alltoall.log"), OLDER).unwrap().kind, CollectiveKind::AllToAll);
        let ranks = OLDER.replace("nGpus 8", "nGpus 1 nranks 16");
        assert_eq!(parse(Path::new("broadcast.log"), &ranks).unwrap().ranks, Some(16));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        assert!(message("a.log", OLDER).contains("does not say which test it is of"));
        let other = TWO_NODES.replace("all_reduce_perf", "sendrecv_perf");
        assert!(message("a.log", &other).contains("sendrecv_perf is not read; read are all_reduce_perf"));
        let cut = TWO_NODES.replace("   14.52   21.78      0   2298.7   14.60   21.90    N/A", "");
        assert!(message("a.log", &cut).contains("line 14: 6 values under 13 columns"));
        let wrong = TWO_NODES.replace("2310.4", "fast");
        assert!(message("a.log", &wrong).contains("line 14: 'fast' is no time"));
        let uneven = TWO_NODES.replace("41977 on  gpu-a02", "41977 on  gpu-a01");
        assert!(message("a.log", &uneven).contains("3 on gpu-a01, 1 on gpu-a02"));
    }

    #[test]
    fn a_second_run_is_refused() {
        let gather = TWO_NODES.replace("all_reduce", "all_gather");
        let expected = "line 19: a second run begins; give one run per file";
        assert!(message("a.log", &format!("{TWO_NODES}{gather}")).contains(expected));
        // Only the second table is left of it.
        let (_, table) = gather.split_once("in-place\n").unwrap();
        assert!(message("a.log", &format!("{TWO_NODES}{table}")).contains(expected));
    }

    /// Wherever a log ends, and whatever stands in the place of a number, it is read or refused.
    #[test]
    fn damaged_logs_do_not_panic() {
        for (at, _) in TWO_NODES.char_indices() {
            let _ = parse(Path::new("a.log"), &TWO_NODES[..at]);
        }
        for wrong in ["", "#", "-1", "NaN", "1e999", "99999999999999999999", "N/A", "\u{fffd}"] {
            for word in TWO_NODES.split_whitespace() {
                let _ = parse(Path::new("a.log"), &TWO_NODES.replace(word, wrong));
            }
        }
    }
}
