//! Flags of `bench collectives` and their help.

use std::path::PathBuf;

use clap::Args;
use quadrille_measure::collectives::{Sizes, kind};
use quadrille_spec::{Algorithm, CollectiveKind, SpecError};

use crate::flags::called;
use crate::parse::whole;

/// Collectives between ranks, by every algorithm of this program, beside what the transport brings (native: shared memory
/// between threads, the library's own collectives under mpirun) and beside a plain copy, all of the same run. Bandwidths as nccl-tests define them; the copy is that of
/// one thread while as many threads as there are ranks copy.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true, after_help = EXAMPLES)]
pub struct BenchCollectivesArguments {
    /// all-reduce, all-gather, reduce-scatter, broadcast (from rank 0) or all-to-all
    #[arg(
        long, value_name = "NAME", value_delimiter = ',', value_parser = kind,
        default_values = ["all-reduce", "all-gather", "reduce-scatter"]
    )]
    pub collective: Vec<CollectiveKind>,
    /// ring, recursive, hierarchical (where ranks lie on several nodes with several each) or native, which is always
    /// measured: the others are held against it
    #[arg(
        long, value_name = "NAME", value_delimiter = ',',
        default_values = ["ring", "recursive", "hierarchical", "native"]
    )]
    pub algorithms: Vec<Algorithm>,
    /// Numbers of ranks [default: 2,4; under mpirun the processes, and no other]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = whole::<u16>(2..=1024))]
    pub ranks: Vec<u16>,
    /// Ranks that count as one node, for the hierarchical algorithm and for predictions [default: under mpirun
    /// as they are, else the --cluster's, or all]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..))]
    pub per_node: Option<u16>,
    /// Sizes of the full buffer of a rank (input of a reduce-scatter, output of an all-gather): a list (64KiB,1MiB), a
    /// range in factors of 4 (4KiB..256MiB), or both. Numbers without a unit are MiB
    #[arg(long, value_name = "SIZES", default_value = "4KiB..64MiB", value_parser = sizes)]
    pub sizes: Sizes,
    /// Measured runs of each, after one that warms up; the median counts [default: as many as 0.25 seconds hold, 5 to 21]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=1_000_000))]
    pub runs: Option<u32>,
    /// Cluster preset or TOML file with tiers: print what the algorithms would take there by their formulas, and the
    /// error of that against what was measured
    #[arg(long, value_name = "NAME|FILE")]
    pub cluster: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Write a row for every collective, number of ranks, size and algorithm to this file, in place of what it holds
    #[arg(long, value_name = "FILE.csv")]
    pub csv: Option<PathBuf>,
    /// Write a page to this file, in place of what it holds: how much faster than native each algorithm is, by size and number of
    /// ranks, bandwidths, the table. It opens in any browser, without a network
    #[arg(long, value_name = "FILE.html")]
    pub html: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  quadrille bench collectives                                          about a minute: 2 and 4 ranks, 4 KiB to 64 MiB
  quadrille bench collectives --ranks 8 --per-node 4 --sizes 1,16,64   two nodes of four ranks; 1, 16 and 64 MiB
  quadrille bench collectives --ranks 2,4,8 --csv times.csv --html speedups.html
  quadrille bench collectives --ranks 8 --cluster cluster.toml         predicted beside measured";

fn sizes(text: &str) -> Result<Sizes, SpecError> {
    text.parse().map_err(|error| called("--sizes", error))
}
