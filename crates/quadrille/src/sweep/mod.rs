//! `quadrille sweep`: the best layout for every value of one or two numbers.

mod variable;

use std::path::PathBuf;

use clap::{Args, value_parser};
use quadrille_plan::native::{Question, Ranked, stop_at};
use quadrille_report::plan::columns;
use quadrille_report::sweep;

use self::variable::Variable;
use crate::arguments::ModelArguments;
use crate::failure::Failure;
use crate::layout_arguments::LayoutArguments;
use crate::output::{csv, print_text, write_file};
use crate::paths;
use crate::plan::native::arguments::QuestionArguments;
use crate::plan::native::question::question;

/// Searches the best layout, as `plan` does, for every value of one number, or every pair of values of two, and writes a
/// table of comma-separated values with the fields of `plan --json`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true, after_help = EXAMPLES)]
pub struct SweepArguments {
    #[command(flatten)]
    pub model: ModelArguments,
    /// What to vary: gpus, nvs (GPUs of a fast domain), batch, seq-len or a number of the cluster (device.memory_bandwidth,
    /// device.peak.half, tiers.1.bandwidth, ...); values as a list, a range that doubles (64..4096) or a range with so many
    /// values (1e12..8e12:5). Once or twice
    #[arg(long, value_name = "NAME=VALUES", required = true)]
    pub vary: Vec<String>,
    /// Number of GPUs, unless it varies [default: --ranks, or 1024]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1 << 24))]
    pub gpus: Option<u32>,
    /// GPUs of a fast domain, unless they vary [default: the cluster's own]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1 << 24))]
    pub nvs: Option<u32>,
    /// Write the table to this file, in place of what it holds [default: standard output]
    #[arg(long, value_name = "FILE.csv")]
    pub out: Option<PathBuf>,
    /// Draw the sweep into this file, in place of what it holds: the parts of a step as stacked bars, or with two variables
    /// lines. A page (.html) holds the table, too
    #[arg(long, value_name = "FILE.svg|FILE.html")]
    pub plot: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Search")]
    pub question: QuestionArguments,
    #[command(flatten, next_help_heading = "Layout")]
    pub layout: LayoutArguments,
}

const EXAMPLES: &str = "Examples:
  quadrille sweep --vary gpus=64..4096 --model gpt3-175b --cluster selene --global-batch 1536 --plot scaling.svg
  quadrille sweep --vary gpus=1024..16384 --vary nvs=4,8,64 --tokens 1e12 --global-batch 4096 --plot domains.html
  quadrille sweep --vary device.memory_bandwidth=1e12..8e12:5 --gpus 256 --out bandwidth.csv";

/// What was found.
pub struct Sweep<'a> {
    question: &'a Question,
    first: &'a Variable,
    second: Option<&'a Variable>,
    /// The second variable varies fastest.
    points: Vec<Point>,
}

/// A value of every variable, with the best layout or why there is none.
struct Point {
    /// Of the first, and of the second if there is one.
    values: [f64; 2],
    question: Question,
    best: Result<Ranked, String>,
    stopped: bool,
}

/// Searches all points and writes what was found.
pub fn run(arguments: &SweepArguments) -> Result<(), Failure> {
    let variables = arguments.vary.iter().map(|text| text.parse()).collect::<Result<Vec<Variable>, _>>()?;
    let (first, second) = match variables.as_slice() {
        [first] => (first, None),
        [first, second] => (first, Some(second)),
        _ => return Err(Failure::usage("--vary: at most two numbers vary; fix the others")),
    };
    if second.is_some_and(|second| first.to_string() == second.to_string()) {
        return Err(Failure::usage(format!("--vary {first}: it varies twice; leave one of them out")));
    }
    let drawn = arguments.plot.as_deref().map(|path| Ok::<_, Failure>((path, Format::of(path)?))).transpose()?;
    let written = [("--out", arguments.out.as_deref()), ("--plot", arguments.plot.as_deref())];
    let written: Vec<_> = written.into_iter().filter_map(|(flag, path)| Some((flag, path?))).collect();
    paths::check(&written, &paths::described(&arguments.model, &arguments.layout).collect::<Vec<_>>())?;
    let question = fixed(arguments, &variables)?;
    let sweep = Sweep::new(&question, first, second)?;
    let rows = sweep.rows()?;
    if let Some((path, format)) = drawn {
        let content = match format {
            Format::Svg => sweep.picture().plot(),
            Format::Html => sweep.picture().page(&rows),
        };
        write_file("--plot", path, content.as_bytes())?;
    }
    let table = csv(rows)?;
    match &arguments.out {
        Some(path) => write_file("--out", path, table.as_bytes()),
        None => print_text(&table),
    }
}

/// How a plot is written.
enum Format {
    Svg,
    Html,
}

impl Format {
    fn of(path: &std::path::Path) -> Result<Self, Failure> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("svg") => Ok(Self::Svg),
            Some("html" | "htm") => Ok(Self::Html),
            _ => {
                Err(Failure::usage(format!("--plot {}: a plot is an .svg or an .html file; name one", path.display())))
            }
        }
    }
}

/// What does not vary. Numbers of GPUs that vary are known first, since the default batch follows from the largest.
fn fixed(arguments: &SweepArguments, variables: &[Variable]) -> Result<Question, Failure> {
    let SweepArguments { model, layout, .. } = arguments;
    let varied = variables.iter().find(|variable| variable.is_gpus());
    let typed = arguments.gpus.map(|gpus| vec![gpus as usize]);
    if varied.is_some() && (typed.is_some() || layout.ranks.is_some()) {
        return Err(Failure::usage("--vary gpus: their number is varied; leave --gpus and --ranks out"));
    }
    let gpus = varied.map(|variable| variable.values.iter().map(|value| *value as usize).collect::<Vec<_>>()).or(typed);
    question(model, layout, &arguments.question, None, gpus.as_deref(), arguments.nvs.map(|nvs| nvs as usize))
}

impl<'a> Sweep<'a> {
    fn new(question: &'a Question, first: &'a Variable, second: Option<&'a Variable>) -> Result<Self, Failure> {
        let others = second.map_or([0.0].as_slice(), |second| &second.values);
        let pairs = first.values.iter().flat_map(|value| others.iter().map(|other| [*value, *other]));
        // Everything is read before the first search begins.
        let questions = pairs.map(|[value, other]| {
            let changed = first.set(question, value)?;
            let changed = second.map_or(Ok(changed.clone()), |second| second.set(&changed, other))?;
            Ok(([value, other], changed))
        });
        let questions = questions.collect::<Result<Vec<_>, Failure>>()?;
        let points = questions.into_iter().map(|(values, question)| Point::new(values, question));
        Ok(Self { question, first, second, points: points.collect::<Result<_, _>>()? })
    }

    /// What pictures show of it.
    fn picture(&self) -> sweep::Sweep {
        let variable = |variable: &Variable| sweep::Variable {
            name: variable.to_string(),
            values: variable.values.clone(),
            is_devices: variable.is_gpus(),
        };
        let point = |point: &Point| sweep::Point {
            values: point.values,
            step_tokens: point.question.global_batch * point.question.seq_len,
            best: point.best.as_ref().ok().copied(),
        };
        sweep::Sweep {
            name: format!("{} on {}", self.question.model.name, self.question.cluster.name),
            first: variable(self.first),
            second: self.second.map(variable),
            tokens: self.question.tokens,
            points: self.points.iter().map(point).collect(),
        }
    }

    /// A header and a row for every point: the variables, the fields of a plan, and why there is none.
    fn rows(&self) -> Result<Vec<Vec<String>>, Failure> {
        let columns = |point: &Point| match &point.best {
            Ok(best) => Ok(columns(&point.question, &point.question.setting()?, best)?),
            Err(_) => Ok(Vec::new()),
        };
        let priced = self.points.iter().map(columns).collect::<Result<Vec<_>, Failure>>()?;
        // Layouts with SUMMA have a field more.
        let mut names: Vec<String> = Vec::new();
        for (name, _) in priced.iter().flatten() {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        let variables = std::iter::once(self.first).chain(self.second).map(|variable| format!("vary_{variable}"));
        let header =
            variables.chain(names.iter().cloned()).chain(["stopped".to_owned(), "reason".to_owned()]).collect();
        let variables = 1 + usize::from(self.second.is_some());
        let row = |(point, columns): (&Point, &Vec<(String, String)>)| {
            let cell = |name: &String| {
                columns.iter().find(|(known, _)| known == name).map_or_else(String::new, |(_, value)| value.clone())
            };
            let values = point.values.iter().take(variables).map(ToString::to_string);
            let last = [point.stopped.to_string(), point.best.as_ref().err().cloned().unwrap_or_default()];
            values.chain(names.iter().map(cell)).chain(last).collect()
        };
        Ok(std::iter::once(header).chain(self.points.iter().zip(&priced).map(row)).collect())
    }
}

impl Point {
    fn new(values: [f64; 2], question: Question) -> Result<Self, Failure> {
        let (search, stop) = (question.search(1)?, stop_at(question.end()));
        let found = search.run(&stop)?;
        let best = found.ranked.first().copied().ok_or_else(|| search.why_nothing(&found, &stop).to_string());
        Ok(Self { values, best, stopped: found.stopped, question })
    }
}
