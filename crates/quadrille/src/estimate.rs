//! `quadrille estimate`: the configurations of a table, priced as they stand, whether or not they fit.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use quadrille_papers::lbnl::{TableError, price_table};
use quadrille_report::papers::lbnl::{priced_rows, priced_table};

use crate::documents;
use crate::failure::Failure;
use crate::output::{self, print_text, write_file};
use crate::{paths, terminal};

/// Each line of a CSV table with its price, in the columns and units of the tables that LBNL's code writes: seconds,
/// GB of 1e9 bytes, TFLOP. A terminal gets a table with rounded numbers; a pipe, or the file of --out, comma-separated values.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct EstimateArguments {
    /// The cost model
    #[arg(long, value_enum)]
    pub cost: EstimateCost,
    /// Table to read: a header with strategy,model,gpu,nvs,dp,tp1,tp2,pp,microbatch,summa_nb,nvs_tp1,nvs_tp2,nvs_dp,nvs_pp
    /// in any order, then a configuration a line. A column global_batch counts [else: 4096], others do not
    #[arg(long, value_name = "FILE.csv")]
    pub csv: PathBuf,
    /// Write the priced table to this file, in place of what it holds [default: standard output]
    #[arg(long, value_name = "FILE.csv")]
    pub out: Option<PathBuf>,
}

const EXAMPLES: &str = "Example:
  quadrille plan --cost lbnl --strategy 2d --model gpt3-1t --cluster b200 --nvs 8 --gpus 1024 --csv best.csv
  quadrille estimate --cost lbnl --csv best.csv";

/// The cost models that price a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EstimateCost {
    /// LBNL's model of steps (arXiv 2410.00273), as its authors' code computes it.
    Lbnl,
}

/// Prices the table; nothing is written unless every line has a price.
pub fn run(arguments: &EstimateArguments) -> Result<(), Failure> {
    let EstimateArguments { cost: EstimateCost::Lbnl, csv, out } = arguments;
    paths::check(&paths::asked([("--out", out)]), &[("--csv", csv)])?;
    let priced = priced(csv)?;
    match out {
        Some(path) => write_file("--out", path, output::csv(priced)?.as_bytes()),
        None if terminal::is_for_people() => print_text(priced_table(&priced)),
        None => print_text(output::csv(priced)?),
    }
}

/// The priced table, its header first.
fn priced(path: &Path) -> Result<Vec<Vec<String>>, Failure> {
    let name = path.display();
    let lines = price_table(&documents::TABLE.bytes(path)?).map_err(|error| {
        Failure::usage(match error {
            TableError::Unreadable(reason) => format!("cannot read {name}: {reason}"),
            TableError::Line { .. } => format!("{name}, {error}"),
        })
    })?;
    Ok(priced_rows(&lines))
}
