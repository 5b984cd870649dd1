//! `quadrille estimate`: the configurations of a table, priced as they stand, whether or not they fit.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use csv::{ErrorKind, ReaderBuilder, StringRecord, Trim};
use quadrille_papers::lbnl::{self, Configuration, Cut, Group, PUBLISHED_BATCH, Shape, System};
use quadrille_report::papers::lbnl::published_units;
use quadrille_spec::SpecError;

use crate::documents;
use crate::failure::Failure;
use crate::output::{self, print_text, shortest, write_file};
use crate::paths;

/// Each line of a CSV table with its price, in the columns and units of the tables that LBNL's code writes: seconds,
/// GB of 1e9 bytes, TFLOP.
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

/// What is read and written again, as published.
const INPUTS: [&str; 14] = [
    "strategy",
    "model",
    "gpu",
    "nvs",
    "dp",
    "tp1",
    "tp2",
    "pp",
    "microbatch",
    "summa_nb",
    "nvs_tp1",
    "nvs_tp2",
    "nvs_dp",
    "nvs_pp",
];
/// What may be read as well.
const GLOBAL_BATCH: &str = "global_batch";
/// What is computed.
const OUTPUTS: [&str; 13] = [
    "t",
    "mem",
    "t_comp",
    "t_mem",
    "t_tp_comm",
    "t_dp_comm",
    "t_pp_comm",
    "t_bubble",
    "flops_per_gpu",
    "wts_mem",
    "wts_grad_mem",
    "wts_optimizer_states_mem",
    "acts_mem",
];

/// Prices the table; nothing is written unless every line has a price.
pub fn run(arguments: &EstimateArguments) -> Result<(), Failure> {
    let EstimateArguments { cost: EstimateCost::Lbnl, csv, out } = arguments;
    let written: Vec<_> = out.iter().map(|path| ("--out", path.as_path())).collect();
    paths::check(&written, &[("--csv", csv)])?;
    let priced = priced(csv)?;
    match out {
        Some(path) => write_file("--out", path, priced.as_bytes()),
        None => print_text(&priced),
    }
}

fn priced(path: &Path) -> Result<String, Failure> {
    let name = path.display();
    let unreadable = |reason: String| Failure::usage(format!("cannot read {name}: {reason}"));
    let table = documents::TABLE.bytes(path)?;
    let mut reader = ReaderBuilder::new().trim(Trim::All).from_reader(table.as_slice());
    let header = reader.headers().map_err(|error| unreadable(reason(&error)))?.clone();
    let columns = Columns::new(&header).map_err(|error| Failure::usage(format!("{name}, line 1: {error}")))?;
    let mut shapes = HashMap::new();
    let mut rows = vec![INPUTS.iter().chain(&OUTPUTS).map(|column| (*column).to_owned()).collect()];
    for record in reader.records() {
        let record = record.map_err(|error| unreadable(reason(&error)))?;
        let row = Row { columns: &columns, record: &record };
        let price = row.price(&mut shapes).map_err(|error| {
            let line = record.position().map_or(0, csv::Position::line);
            Failure::usage(format!("{name}, line {line}: {error}"))
        })?;
        let inputs = INPUTS.iter().map(|column| row.text(column).to_owned());
        let (times, memory) = published_units(&price);
        let outputs = times.into_iter().chain([price.flops / 1e12]).chain(memory);
        rows.push(inputs.chain(outputs.map(shortest)).collect());
    }
    output::csv(rows)
}

/// Why the reader stopped, with the line.
fn reason(error: &csv::Error) -> String {
    let line = error.position().map_or(0, csv::Position::line);
    match error.kind() {
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("line {line} has {len} cells, the header {expected_len}; give every line a cell for every column")
        }
        ErrorKind::Utf8 { .. } => format!("line {line} is no UTF-8 text; write the table as UTF-8"),
        _ => error.to_string(),
    }
}

/// Where the columns are.
struct Columns(HashMap<String, usize>);

impl Columns {
    fn new(header: &StringRecord) -> Result<Self, SpecError> {
        let mut columns = HashMap::new();
        for (at, name) in header.iter().enumerate() {
            let known = INPUTS.contains(&name) || name == GLOBAL_BATCH;
            if known && columns.insert(name.to_owned(), at).is_some() {
                let rule = "a column stands once in the header";
                return Err(SpecError::invalid("header", name, rule, "leave one of the columns out"));
            }
        }
        match INPUTS.iter().find(|name| !columns.contains_key(**name)) {
            None => Ok(Self(columns)),
            Some(missing) => {
                let rule = format!("there is no column '{missing}'");
                let remedy = format!("begin the table with a line that names {}", INPUTS.join(","));
                Err(SpecError::invalid("header", header.iter().collect::<Vec<_>>().join(","), rule, remedy))
            }
        }
    }
}

/// A line of the table.
struct Row<'a> {
    columns: &'a Columns,
    record: &'a StringRecord,
}

impl Row<'_> {
    fn text(&self, column: &str) -> &str {
        self.columns.0.get(column).and_then(|at| self.record.get(*at)).unwrap_or_default()
    }

    fn size(&self, column: &str) -> Result<u64, SpecError> {
        let text = self.text(column);
        text.parse().map_err(|_| SpecError::invalid(column, text, "it is a whole number", "write e.g. 8"))
    }

    fn group(&self, name: &str) -> Result<Group, SpecError> {
        Ok(Group { size: self.size(name)?, fast: self.size(&format!("nvs_{name}"))? })
    }

    fn configuration(&self) -> Result<Configuration, SpecError> {
        let cut = Cut {
            strategy: self.text("strategy").parse()?,
            hidden: self.group("tp1")?,
            sequence: self.group("tp2")?,
            microbatch: self.size("microbatch")?,
            panels: self.size("summa_nb")?,
        };
        Ok(Configuration { cut, data: self.group("dp")?, pipe: self.group("pp")? })
    }

    /// `shapes` keeps the models of earlier lines.
    fn price(&self, shapes: &mut HashMap<String, Shape>) -> Result<lbnl::Price, SpecError> {
        let model = self.text("model");
        let shape = match shapes.get(model) {
            Some(shape) => *shape,
            None => *shapes.entry(model.to_owned()).or_insert(Shape::named(model)?),
        };
        let system = System::named(self.text("gpu"))?.with_fast_domain(self.size("nvs")?)?;
        let has_batch = self.columns.0.contains_key(GLOBAL_BATCH);
        let global_batch = if has_batch { self.size(GLOBAL_BATCH)? } else { PUBLISHED_BATCH };
        lbnl::price(&shape, &system, &self.configuration()?, global_batch)
    }
}
