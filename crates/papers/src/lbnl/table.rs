//! Tables of configurations, in the columns of the tables that LBNL's code writes, and what each line costs.

use std::collections::HashMap;

use csv::{ErrorKind, ReaderBuilder, StringRecord, Trim};
use quadrille_spec::{SpecError, csv_line};

use super::{Configuration, Cut, Group, PUBLISHED_BATCH, Price, Shape, System, price};

/// The columns that are read, as published; they may stand in any order, and others between them.
pub const INPUTS: [&str; 14] = [
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
/// What may be read as well: sequences in a step, else [`PUBLISHED_BATCH`].
const GLOBAL_BATCH: &str = "global_batch";

/// A line of a table with its price.
#[derive(Debug, Clone)]
pub struct PricedLine {
    /// What the line says in the columns [`INPUTS`].
    pub inputs: [String; INPUTS.len()],
    /// What it costs, whether or not it fits.
    pub price: Price,
}

/// Why a table has no prices.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TableError {
    /// It is no table.
    #[error("{0}")]
    Unreadable(String),
    /// A line that has no price; the header is line 1.
    #[error("line {line}: {error}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong with it.
        error: SpecError,
    },
}

/// Prices every line of a table of comma-separated values, the header first.
///
/// ```
/// use quadrille_papers::lbnl::price_table;
///
/// let table = "strategy,model,gpu,nvs,dp,tp1,tp2,pp,microbatch,summa_nb,nvs_tp1,nvs_tp2,nvs_dp,nvs_pp\n\
///              2d,gpt3_1T,B200,8,16,8,4,16,1,0,8,1,1,1\n";
/// let priced = price_table(table.as_bytes())?;
/// assert!(priced[0].inputs[0] == "2d" && priced[0].price.seconds > 0.0);
/// # Ok::<(), quadrille_papers::lbnl::TableError>(())
/// ```
///
/// # Errors
/// What is no such table; the first line that has no price.
pub fn price_table(table: &[u8]) -> Result<Vec<PricedLine>, TableError> {
    let mut reader = ReaderBuilder::new().trim(Trim::All).from_reader(table);
    let header = reader.headers().map_err(|error| unreadable(table, &error))?.clone();
    let columns = Columns::new(&header).map_err(|error| TableError::Line { line: 1, error })?;
    let mut shapes = HashMap::new();
    let mut priced = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| unreadable(table, &error))?;
        let row = Row { columns: &columns, record: &record };
        let price = row
            .price(&mut shapes)
            .map_err(|error| TableError::Line { line: line_of(table, record.position()), error })?;
        priced.push(PricedLine { inputs: INPUTS.map(|column| row.text(column).to_owned()), price });
    }
    Ok(priced)
}

/// The line of a record that begins there.
fn line_of(table: &[u8], position: Option<&csv::Position>) -> u64 {
    position.map_or(0, |position| csv_line(table, position.byte(), position.line()))
}

/// Why the reader stopped, with the line.
fn unreadable(table: &[u8], error: &csv::Error) -> TableError {
    let line = line_of(table, error.position());
    TableError::Unreadable(match error.kind() {
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("line {line} has {len} cells, the header {expected_len}; give every line a cell for every column")
        }
        ErrorKind::Utf8 { .. } => format!("line {line} is no UTF-8 text; write the table as UTF-8"),
        _ => error.to_string(),
    })
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
    fn price(&self, shapes: &mut HashMap<String, Shape>) -> Result<Price, SpecError> {
        let model = self.text("model");
        let shape = match shapes.get(model) {
            Some(shape) => *shape,
            None => *shapes.entry(model.to_owned()).or_insert(Shape::named(model)?),
        };
        let system = System::named(self.text("gpu"))?.with_fast_domain(self.size("nvs")?)?;
        let has_batch = self.columns.0.contains_key(GLOBAL_BATCH);
        let global_batch = if has_batch { self.size(GLOBAL_BATCH)? } else { PUBLISHED_BATCH };
        price(&shape, &system, &self.configuration()?, global_batch)
    }
}
