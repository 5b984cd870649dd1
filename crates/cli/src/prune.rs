//! `quadrille prune`: the smallest weights of a checkpoint become zero, or the checkpoint whose mask would be settled.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use quadrille_checkpoint::{Checkpoint, EarlyBird, Folder, Pruning, Scope};
use quadrille_report::checkpoint::{PruningReport, SettlingReport};
use quadrille_run::{carry_companions, check_companions_of};
use quadrille_spec::Sparsity;

use crate::failure::Failure;
use crate::output::{print_json, print_text};

const EXAMPLES: &str = "Examples:
  quadrille prune --from runs/a --sparsity 0.9 --out pruned          the newest checkpoint of a run
  quadrille prune --from runs/a --sparsity 0.9 --scope global --out pruned
  quadrille prune --from runs/a --sparsity 0.9 --rewind runs/a/checkpoints/step-000000000100 --out ticket
  quadrille prune --when runs/a --sparsity 0.9                       when masks have settled (train --keep 5 or more)
  quadrille eval --from pruned --data wiki.txt                       what it costs
  quadrille train --from pruned --steps 1000 --out sparse            kept weights learn, the others stay zero

A pruned checkpoint holds weights and masks, in the usual format: it is evaluated, continues text, is converted and
pruned again like any other. Moments are left out. A run that begins from it trains kept weights alone: gradients,
masters and moments of the others are neither computed with, sent nor held.
To remove old checkpoints see quadrille checkpoint prune.";

/// What is pruned, and where it goes.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PruneArguments {
    /// A checkpoint, a folder of checkpoints or a run's folder, of which the newest counts
    #[arg(long, value_name = "DIR", required_unless_present = "when", requires = "out")]
    pub from: Option<PathBuf>,
    /// The part of weights that becomes zero: the smallest, at least 0 and less than 1, e.g. 0.9
    #[arg(long, value_name = "PART")]
    pub sparsity: Sparsity,
    /// Among which weights magnitudes are compared
    #[arg(long, value_enum, default_value = "layer")]
    pub scope: Among,
    /// Prune embedding and head as well, beside the matrices of blocks
    #[arg(long)]
    pub tables: bool,
    /// Take the kept weights from this earlier checkpoint of the run: a lottery ticket
    #[arg(long, value_name = "DIR", requires = "from")]
    pub rewind: Option<PathBuf>,
    /// The folder to be written; it must not exist
    #[arg(long, value_name = "FOLDER", requires = "from")]
    pub out: Option<PathBuf>,
    /// Write nothing: print how far the masks of a run's checkpoints are from each other, and the first that has settled
    #[arg(long, value_name = "DIR", conflicts_with_all = ["from", "out", "rewind"])]
    pub when: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Among which weights magnitudes are compared.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Among {
    /// Those of one tensor: all of them are as sparse
    Layer,
    /// All that are pruned
    Global,
}

/// Prunes, or looks for the time to.
pub fn run(arguments: &PruneArguments) -> Result<(), Failure> {
    let scope = match arguments.scope {
        Among::Layer => Scope::Layer,
        Among::Global => Scope::Global,
    };
    let pruning = Pruning { sparsity: arguments.sparsity, scope, tables: arguments.tables };
    match (&arguments.when, &arguments.from, &arguments.out) {
        (Some(folder), ..) => when(folder, pruning, arguments.json),
        (None, Some(from), Some(out)) => prune(from, out, pruning, arguments),
        (None, ..) => {
            Err(Failure::usage("what is to be pruned, and where it goes, is not said; give --from and --out"))
        }
    }
}

fn prune(from: &Path, out: &Path, pruning: Pruning, arguments: &PruneArguments) -> Result<(), Failure> {
    if let Some(run) = out.parent().and_then(Path::parent).filter(|run| run.join("run.json").is_file()) {
        return Err(Failure::usage(format!(
            "--out {}: it is among the checkpoints of the run {}, which goes on from the newest of them; choose another place",
            out.display(),
            run.display()
        )));
    }
    let checkpoint = Checkpoint::find(from)?;
    let rewound = arguments.rewind.as_deref().map(Checkpoint::find).transpose()?;
    check_companions_of(&checkpoint, out)?;
    let (path, pruned) =
        quadrille_checkpoint::prune(&checkpoint, rewound.as_ref(), out, pruning).map_err(Failure::of_checkpoints)?;
    carry_companions(&checkpoint, &path)?;
    let report = PruningReport::new(&path, &checkpoint, rewound.as_ref(), pruning, pruned);
    if arguments.json { print_json(&report) } else { print_text(report.text()) }
}

/// Distances of the masks of all checkpoints of a folder, and the first at which they have settled.
fn when(folder: &Path, pruning: Pruning, as_json: bool) -> Result<(), Failure> {
    let newest_first = Folder::of(folder).open_all()?;
    let checkpoints = newest_first.iter().rev().map(|(step, checkpoint)| (*step, checkpoint));
    let steps = EarlyBird::look(checkpoints, pruning).map_err(Failure::of_checkpoints)?;
    let report = SettlingReport::new(steps);
    if as_json { print_json(&report) } else { print_text(report.text()) }
}
