//! Measured runs as their CSV file says them: one [`Row`] a line, cells read and held against their columns' rules.

use quadrille_spec::csv_line;

use crate::CsvError;

/// One measured (or derived) number of one run of a public source. Empty cells are `None`: the source does not say it.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// In the file, counted from 1, the header included.
    pub line: u64,
    /// The paper or repository.
    pub source: String,
    /// Where in the source.
    pub table: String,
    /// What the source calls the model.
    pub model_name: String,
    /// Sizes of model, machine, layout and batch.
    pub sizes: Sizes,
    /// What the source calls the device.
    pub gpu: String,
    /// What the source says of the networks.
    pub interconnect: String,
    /// What the backward pass computes again.
    pub recompute: Option<Recomputed>,
    /// Whether Megatron's sequence parallelism was on.
    pub sequence_parallel: Option<bool>,
    /// The type of numbers, as the source says it.
    pub dtype: String,
    /// What was measured.
    pub metric: Metric,
    /// How much, in the unit of `metric`; of measured rows only.
    pub value: Option<f64>,
    /// How the source counts FLOPs where `metric` is a rate of them.
    pub flop_convention: String,
    /// Everything else.
    pub notes: String,
    /// Whether the number was measured, not computed.
    pub measured: bool,
    /// Seconds of a step that whoever collected the rows derived from `value`.
    pub derived_seconds: Option<f64>,
}

/// The whole numbers of a row, by column.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sizes {
    /// Transformer blocks.
    pub layers: Option<usize>,
    /// Width of the residual stream.
    pub hidden: Option<usize>,
    /// Attention heads.
    pub heads: Option<usize>,
    /// Heads of keys and values.
    pub kv_heads: Option<usize>,
    /// Width of the perceptron.
    pub ffn_hidden: Option<usize>,
    /// Tokens of a sequence.
    pub seq_len: Option<usize>,
    /// Token ids, before padding.
    pub vocab: Option<usize>,
    /// Devices of the run.
    pub n_gpus: Option<usize>,
    /// Devices of a node.
    pub gpus_per_node: Option<usize>,
    /// Tensor-parallel size.
    pub tp: Option<usize>,
    /// Pipeline stages.
    pub pp: Option<usize>,
    /// Data-parallel size.
    pub dp: Option<usize>,
    /// Context-parallel size.
    pub cp: Option<usize>,
    /// Expert-parallel size.
    pub ep: Option<usize>,
    /// Chunks of layers of a stage.
    pub vpp: Option<usize>,
    /// Sequences of a pass.
    pub microbatch: Option<usize>,
    /// Sequences of a step.
    pub global_batch: Option<usize>,
    /// ZeRO stage, 0 to 3.
    pub zero_stage: Option<usize>,
}

/// What a source says the backward pass computes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recomputed {
    /// Nothing.
    None,
    /// A part, by the source's rule.
    Selective,
    /// Every block.
    Full,
}

/// What was measured, with its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Seconds of a step.
    IterationSeconds,
    /// Tokens per second and device.
    TokensPerSecond,
    /// 10^12 FLOP per second and device, by the row's convention.
    Teraflops,
    /// Percent of the device's peak, by the row's convention.
    Utilization,
    /// Gigabytes of one device at the worst moment.
    PeakMemory,
    /// Gigabytes of one device between steps.
    RestMemory,
    /// The run ended for want of memory; 1.
    OutOfMemory,
    /// Milliseconds of a block's forward pass over one microbatch.
    LayerForward,
    /// Milliseconds of a block's backward pass over one microbatch.
    LayerBackward,
    /// Seconds of a phase of a step.
    PhaseSeconds,
    /// Activations in percent of another layout's.
    ActivationPercent,
    /// Percent by which another model was wrong.
    PredictionError,
    /// Nothing: a layout alone.
    Configuration,
}

impl Metric {
    /// Every metric by the name that the file uses.
    pub const ALL: [(&'static str, Self); 13] = [
        ("iter_time_s", Self::IterationSeconds),
        ("tokens_per_s_per_gpu", Self::TokensPerSecond),
        ("tflops_per_gpu", Self::Teraflops),
        ("mfu", Self::Utilization),
        ("memory_gb", Self::PeakMemory),
        ("memory_allocated_after_step_gb", Self::RestMemory),
        ("oom", Self::OutOfMemory),
        ("layer_fwd_ms", Self::LayerForward),
        ("layer_bwd_ms", Self::LayerBackward),
        ("phase_time_s", Self::PhaseSeconds),
        ("activation_memory_pct_of_tp_baseline", Self::ActivationPercent),
        ("prediction_error_pct", Self::PredictionError),
        ("config_only", Self::Configuration),
    ];

    /// The name that the file uses.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, metric)| *metric == self).map_or("", |(name, _)| name)
    }
}

/// The columns that are read; others are passed over.
const COLUMNS: [&str; 32] = [
    "source",
    "table",
    "model_name",
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "ffn_hidden",
    "seq_len",
    "vocab",
    "gpu",
    "n_gpus",
    "gpus_per_node",
    "interconnect",
    "tp",
    "pp",
    "dp",
    "cp",
    "ep",
    "vpp",
    "microbatch",
    "global_batch",
    "recompute",
    "sequence_parallel",
    "zero_stage",
    "dtype",
    "metric",
    "value",
    "flop_convention",
    "notes",
    "measured",
    "derived_iter_s",
];

/// The largest whole number of a cell: products of two of them are far from overflow; of more they are checked.
const MAX_SIZE: usize = 1 << 24;

/// Bounds of what is measured, in any unit: predictions over them stay numbers.
const LEAST: f64 = 1e-9;
const MOST: f64 = 1e15;

/// Reads the rows of a CSV file with a header, comma-separated, as in RFC 4180.
///
/// # Errors
/// A missing or doubled column, a line of other length than the header, a cell that breaks its column's rule.
pub fn read(text: &str) -> Result<Vec<Row>, CsvError> {
    let mut reader = csv::ReaderBuilder::new().from_reader(text.as_bytes());
    let places = places(reader.headers().map_err(|error| line_error(text, &error))?)?;
    reader
        .records()
        .map(|record| {
            let record = record.map_err(|error| line_error(text, &error))?;
            let line = line_of(text, record.position());
            Cells { record: &record, places: &places, line }.row()
        })
        .collect()
}

/// The line of a record that begins there.
fn line_of(text: &str, position: Option<&csv::Position>) -> u64 {
    position.map_or(1, |position| csv_line(text.as_bytes(), position.byte(), position.line()))
}

fn line_error(text: &str, error: &csv::Error) -> CsvError {
    let line = line_of(text, error.position());
    let reason = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("it has {len} cells, the header {expected_len}")
        }
        _ => error.to_string(),
    };
    CsvError::Line { line, reason }
}

/// Where each of [`COLUMNS`] is.
fn places(header: &csv::StringRecord) -> Result<[usize; COLUMNS.len()], CsvError> {
    let mut places = [0; COLUMNS.len()];
    for (place, column) in places.iter_mut().zip(COLUMNS) {
        let mut found = header.iter().enumerate().filter(|(_, name)| name.trim() == column);
        let Some((at, _)) = found.next() else {
            let remedy = format!("add it; the columns are {}", COLUMNS.join(","));
            return Err(CsvError::Header { column: column.to_owned(), rule: "is missing", remedy });
        };
        if found.next().is_some() {
            let remedy = "leave one of them out".to_owned();
            return Err(CsvError::Header { column: column.to_owned(), rule: "is there twice", remedy });
        }
        *place = at;
    }
    Ok(places)
}

/// The cells of a line.
struct Cells<'a> {
    record: &'a csv::StringRecord,
    places: &'a [usize; COLUMNS.len()],
    line: u64,
}

impl Cells<'_> {
    fn row(&self) -> Result<Row, CsvError> {
        let measured = self.choice("measured", &[("0", false), ("1", true)])?.unwrap_or(true);
        // What nobody measured may be a range or a word.
        let value = if measured { self.number("value")? } else { None };
        let metric = self.choice("metric", &Metric::ALL)?;
        let Some(metric) = metric else {
            return Err(self.error("metric", "every row names what was measured", names(&Metric::ALL)));
        };
        if value.is_some_and(|value| value < LEAST) && metric != Metric::ActivationPercent {
            return Err(self.error("value", "a measured quantity is at least 1e-9", "leave the row out"));
        }
        Ok(Row {
            line: self.line,
            source: self.required("source")?,
            table: self.text("table").to_owned(),
            model_name: self.text("model_name").to_owned(),
            sizes: self.sizes()?,
            gpu: self.text("gpu").to_owned(),
            interconnect: self.text("interconnect").to_owned(),
            recompute: self.choice(
                "recompute",
                &[("none", Recomputed::None), ("selective", Recomputed::Selective), ("full", Recomputed::Full)],
            )?,
            sequence_parallel: self.choice("sequence_parallel", &[("0", false), ("1", true)])?,
            dtype: self.text("dtype").to_owned(),
            metric,
            value,
            flop_convention: self.text("flop_convention").to_owned(),
            notes: self.text("notes").to_owned(),
            measured,
            derived_seconds: self.number("derived_iter_s")?,
        })
    }

    fn sizes(&self) -> Result<Sizes, CsvError> {
        Ok(Sizes {
            layers: self.size("layers")?,
            hidden: self.size("hidden")?,
            heads: self.size("heads")?,
            kv_heads: self.size("kv_heads")?,
            ffn_hidden: self.size("ffn_hidden")?,
            seq_len: self.size("seq_len")?,
            vocab: self.size("vocab")?,
            n_gpus: self.size("n_gpus")?,
            gpus_per_node: self.size("gpus_per_node")?,
            tp: self.size("tp")?,
            pp: self.size("pp")?,
            dp: self.size("dp")?,
            cp: self.size("cp")?,
            ep: self.size("ep")?,
            vpp: self.size("vpp")?,
            microbatch: self.size("microbatch")?,
            global_batch: self.size("global_batch")?,
            zero_stage: self.choice("zero_stage", &[("0", 0), ("1", 1), ("2", 2), ("3", 3)])?,
        })
    }

    /// A cell's text without spaces around it; empty: the source does not say it.
    fn text(&self, column: &'static str) -> &str {
        let at = COLUMNS.iter().position(|known| *known == column).map(|at| self.places[at]);
        at.and_then(|at| self.record.get(at)).unwrap_or_default().trim()
    }

    fn required(&self, column: &'static str) -> Result<String, CsvError> {
        match self.text(column) {
            "" => Err(self.error(column, "every row has one", "fill the cell")),
            text => Ok(text.to_owned()),
        }
    }

    fn size(&self, column: &'static str) -> Result<Option<usize>, CsvError> {
        match self.text(column) {
            "" => Ok(None),
            text => match text.parse() {
                Ok(size @ 1..=MAX_SIZE) => Ok(Some(size)),
                _ => {
                    let rule = "it is a whole number from 1 to 16777216";
                    Err(self.error(column, rule, "leave the cell empty where the source does not say it"))
                }
            },
        }
    }

    fn number(&self, column: &'static str) -> Result<Option<f64>, CsvError> {
        match self.text(column) {
            "" => Ok(None),
            text => match text.parse::<f64>() {
                Ok(number) if (0.0..=MOST).contains(&number) => Ok(Some(number)),
                _ => Err(self.error(column, "it is a number from 0 to 1e15", "write e.g. 12.5, or nothing")),
            },
        }
    }

    fn choice<T: Copy>(&self, column: &'static str, known: &[(&str, T)]) -> Result<Option<T>, CsvError> {
        match self.text(column) {
            "" => Ok(None),
            text => match known.iter().find(|(name, _)| *name == text) {
                Some((_, choice)) => Ok(Some(*choice)),
                None => Err(self.error(column, "it is one of the known words", names(known))),
            },
        }
    }

    fn error(&self, column: &'static str, rule: &'static str, remedy: impl Into<String>) -> CsvError {
        CsvError::Cell { line: self.line, column, value: self.text(column).to_owned(), rule, remedy: remedy.into() }
    }
}

fn names<T>(known: &[(&str, T)]) -> String {
    format!("use {}", known.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "s,t,m,24,2304,24,24,9216,2048,51200,A100,32,8,net,1,1,32,1,,,,512,full,0,0,fp16,tflops_per_gpu,137,eq.3,\"a, b\",1,3.528";

    fn file(line: &str) -> String {
        format!("{}\n{line}\n", COLUMNS.join(","))
    }

    /// The line with one cell replaced.
    fn with(column: &str, value: &str) -> String {
        let at = COLUMNS.iter().position(|known| *known == column).unwrap();
        let mut cells: Vec<&str> = LINE.split(',').collect();
        // The note's comma is inside quotes.
        let note = cells.iter().position(|cell| cell.starts_with('"')).unwrap();
        cells.remove(note + 1);
        cells[note] = "note";
        cells[at] = value;
        file(&cells.join(","))
    }

    fn message(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    #[test]
    fn cells_become_fields() {
        let rows = read(&file(LINE)).unwrap();
        let [row] = rows.as_slice() else { panic!("{rows:?}") };
        assert_eq!((row.line, row.sizes.layers, row.sizes.ep, row.sizes.zero_stage), (2, Some(24), None, Some(0)));
        assert_eq!((row.metric, row.value, row.measured), (Metric::Teraflops, Some(137.0), true));
        assert_eq!((row.recompute, row.sequence_parallel), (Some(Recomputed::Full), Some(false)));
        assert_eq!((row.notes.as_str(), row.derived_seconds), ("a, b", Some(3.528)));
    }

    #[test]
    fn bad_cells_are_named_with_line_column_value_rule_and_remedy() {
        let text = message(&with("layers", "many"));
        assert_eq!(
            text,
            "line 2, column 'layers': 'many' breaks the rule: it is a whole number from 1 to 16777216; leave the cell \
             empty where the source does not say it"
        );
        assert!(message(&with("tp", "0")).contains("column 'tp': '0'"));
        assert!(message(&with("tp", "99999999999999999999")).contains("column 'tp'"));
        assert!(message(&with("value", "inf")).contains("column 'value': 'inf'"));
        for value in ["0", "1e-308"] {
            assert!(message(&with("value", value)).contains("at least 1e-9"));
        }
        for value in ["1e308", "nan"] {
            assert!(message(&with("value", value)).contains("from 0 to 1e15"));
        }
        assert!(message(&with("value", "-1")).contains("column 'value'"));
        assert!(message(&with("recompute", "some")).contains("use none, selective, full"));
        assert!(message(&with("metric", "speed")).contains("use iter_time_s, tokens_per_s_per_gpu"));
        assert!(message(&with("metric", "")).contains("every row names what was measured"));
        assert!(message(&with("zero_stage", "4")).contains("use 0, 1, 2, 3"));
        assert!(message(&with("source", "")).contains("fill the cell"));
    }

    #[test]
    fn bad_headers_and_lines_are_named() {
        let missing = file(LINE).replacen("layers,", "", 1);
        assert!(message(&missing).starts_with("line 1: the column 'layers' is missing; add it"));
        let twice = file(LINE).replacen("hidden", "layers", 1);
        assert!(message(&twice).starts_with("line 1: the column 'layers' is there twice"));
        let short = file(&LINE[..LINE.len() - 6]);
        assert!(message(&short).starts_with("line 2: it has 31 cells, the header 32"), "{}", message(&short));
        assert!(message("").contains("is missing"));
        let [good, bad] = [file(LINE), with("tp", "0")].map(|text| text.lines().nth(1).unwrap().to_owned());
        let crlf = [COLUMNS.join(",").as_str(), &good, "", &bad, ""].join("\r\n");
        assert!(message(&crlf).starts_with("line 4, column 'tp'"), "{}", message(&crlf));
        assert!(message(&crlf.replace('\r', "")).starts_with("line 4, column 'tp'"));
    }

    #[test]
    fn names_of_metrics_round_trip() {
        assert!(Metric::ALL.iter().all(|(name, metric)| metric.name() == *name));
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,200}", cell in "\\PC{0,20}", column in 0..COLUMNS.len()) {
            let _ = read(&text);
            let _ = read(&with(COLUMNS[column], &cell.replace(['"', ','], "")));
        }
    }
}
