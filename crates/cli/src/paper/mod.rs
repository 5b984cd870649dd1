//! `quadrille paper`: the planners of published works, each by its own formulas, and the figures that the works print.

mod atp;
mod axonn;
mod lbnl;
mod megatron;
mod reproduce;

use clap::{Args, Subcommand};
use quadrille_papers::reproduce::{PARTS, SAMO, TED};
use quadrille_spec::quantities::BatchSize;
use quadrille_spec::{SpecError, sequences_of};

use self::atp::AtpCommand;
use self::axonn::AxonnCommand;
use self::lbnl::LbnlCommand;
use self::megatron::MegatronCommand;
use self::reproduce::ReproduceCommand;
use crate::failure::Failure;

const EXAMPLES: &str = "Examples:
  quadrille paper lbnl plan --strategy 2d --cluster b200 --nvs 8 --gpus 1024 --csv best.csv
  quadrille paper lbnl estimate --csv best.csv
  quadrille paper axonn plan --model gpt-20b --cluster perlmutter --gpus 32
  quadrille paper atp plan --interconnect ic2 --counts exact
  quadrille paper megatron plan --cluster selene --gpus 1024 --global-batch 1536
  quadrille paper samo reproduce
  quadrille paper all reproduce --csv figures.csv";

/// Planners of published works, each as it was printed, and the figures that the works print. They share nothing with the
/// model of `plan`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PaperArguments {
    #[command(subcommand)]
    pub paper: Paper,
}

/// The works.
#[derive(Debug, Subcommand)]
pub enum Paper {
    /// LBNL's model of steps (arXiv 2410.00273), as its authors' code computes it
    #[command(subcommand)]
    Lbnl(LbnlCommand),
    /// AxoNN's communication model (SC 2024, section V-B, equations 1-7)
    #[command(subcommand)]
    Axonn(AxonnCommand),
    /// ATP's communication time of two-dimensional meshes on an interconnect (Cheng et al., equations 2-4)
    #[command(subcommand)]
    Atp(AtpCommand),
    /// Megatron-LM's takeaways (SC 2021, sections 3.2-3.4)
    #[command(subcommand)]
    Megatron(MegatronCommand),
    /// SAMO: memory, messages and bubbles of the training of pruned models (Singh's dissertation, chapter 4)
    #[command(subcommand)]
    Samo(ReproduceCommand),
    /// TED: memory and messages of the training of mixtures of experts (Singh's dissertation, chapter 7)
    #[command(subcommand)]
    Ted(ReproduceCommand),
    /// All of these works
    #[command(subcommand)]
    All(ReproduceCommand),
}

/// Runs the command of a work.
pub fn run(arguments: &PaperArguments) -> Result<(), Failure> {
    match &arguments.paper {
        Paper::Lbnl(command) => lbnl::run(command),
        Paper::Axonn(command) => axonn::run(command),
        Paper::Atp(command) => atp::run(command),
        Paper::Megatron(command) => megatron::run(command),
        Paper::Samo(ReproduceCommand::Reproduce(arguments)) => reproduce::run(&[SAMO], arguments),
        Paper::Ted(ReproduceCommand::Reproduce(arguments)) => reproduce::run(&[TED], arguments),
        Paper::All(ReproduceCommand::Reproduce(arguments)) => reproduce::run(&PARTS, arguments),
    }
}

/// Sequences in a step, of which each has `seq_len` tokens.
///
/// # Errors
/// Tokens that are no whole sequences.
fn sequences(batch: BatchSize, seq_len: usize) -> Result<usize, SpecError> {
    match batch {
        BatchSize::Sequences(sequences) => Ok(sequences),
        BatchSize::Tokens(tokens) => sequences_of(tokens, seq_len),
    }
}
