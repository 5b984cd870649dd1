//! Flags that say how a step is spread over ranks, and the layout file beneath them.

use std::path::PathBuf;

use clap::{Arg, Args};
use quadrille_run::{LayoutSpec, RunError, SaidLayout, StatesSpec};
use quadrille_spec::{ElementType, Field};

use crate::arguments::ModelArguments;
use crate::failure::Failure;
use crate::layout_flags::LayoutFlags;
use crate::output::remark;
use crate::parse::whole;

/// How a step is spread over ranks.
#[derive(Debug, Args)]
pub struct LayoutArguments {
    /// A whole layout as a TOML file, a line per flag of the layout, e.g. grid = "x=2,pipe=2" and stage_blocks = [3, 5];
    /// flags win over it
    #[arg(long, value_name = "FILE.toml")]
    pub layout: Option<PathBuf>,
    /// Sizes of the axes x, y, z, context, expert, data, pipe, e.g. "x=2,y=2,data=2" or "x=2,context=2,pipe=2" (axes left out
    /// are 1), or "auto": the best of x, y, z, data by the prices of their programs [default: auto]
    #[arg(long, value_name = "GRID")]
    pub grid: Option<String>,
    /// Number of ranks; with a grid it must be the product of its sizes [default: the grid's, or 8]
    #[arg(long, value_name = "N", value_parser = whole::<usize>(..))]
    pub ranks: Option<usize>,
    /// What was typed of the other fields.
    #[command(flatten)]
    pub flags: LayoutFlags,
    /// Cluster preset or TOML file: what a grid is chosen for [default: local]
    #[arg(long, value_name = "NAME|FILE")]
    pub cluster: Option<String>,
}

/// The cluster where none is named.
pub const DEFAULT_CLUSTER: &str = LayoutSpec::CLUSTER;

/// Tokens of the sequences that most of a model's training has, at most: longer ones come at its end, as in Llama 3's, whose
/// configurations allow 131,072.
const USUAL_LENGTH: usize = 8192;

impl LayoutArguments {
    /// The cluster's preset or file.
    pub fn cluster(&self) -> &str {
        self.cluster.as_deref().unwrap_or(DEFAULT_CLUSTER)
    }

    /// What was typed, and the type of values beside it.
    pub fn said(&self, dtype: Option<ElementType>) -> SaidLayout {
        SaidLayout {
            file: self.layout.clone(),
            grid: self.grid.clone(),
            ranks: self.ranks,
            dtype,
            choices: self.flags.said.clone(),
            cluster: self.cluster.clone(),
        }
    }

    /// What came of holding the layout against a model, `usual` where none is named: why a file of another model's layout is
    /// refused begins with that.
    pub fn held<T>(&self, model: &ModelArguments, usual: &str, held: Result<T, RunError>) -> Result<T, Failure> {
        let is_named = model.model.is_some() || model.from_hf.is_some();
        held.map_err(|error| {
            if self.layout.is_some() && !is_named {
                Failure::from(error).within(format!("no --model is given, so it is {usual}"))
            } else {
                error.into()
            }
        })
    }

    /// Notes that sequences are as long as a configuration allows, where that is much and nobody has said it.
    pub fn note_length(&self, model: &ModelArguments, seq_len: usize) -> Result<(), Failure> {
        let said = self.flags.said.over(&self.said(None).read()?);
        if model.from_hf.is_some() && seq_len > USUAL_LENGTH && said.get(Field::SeqLen).is_none() {
            let most = format!("sequences have {seq_len} tokens, the most of the configuration");
            let usual = format!("models are mostly trained with fewer, e.g. --seq-len {USUAL_LENGTH}");
            remark("note", &format!("{most}; {usual}"));
        }
        Ok(())
    }

    /// Where offloaded states lie.
    pub fn states(&self) -> StatesSpec {
        self.flags.states.clone().unwrap_or_default()
    }
}

/// The help of `--ranks` where one rank is usual.
pub fn one_rank_help(argument: Arg) -> Arg {
    argument.help("Number of ranks; with a grid it must be the product of its sizes [default: the grid's, or 1]")
}
