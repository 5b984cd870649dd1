//! Options of a search, which `plan` and `sweep` share.

use clap::Args;
use quadrille_plan::native::{Reserve, Space};
use quadrille_spec::quantities::amount;
use quadrille_spec::{FlopsConvention, Sparsity};

use crate::numbers::NumberArguments;
use crate::parse::{real, whole};
use crate::quantities::reserve;

/// Options of the search space and of its objective.
#[derive(Debug, Args)]
pub struct QuestionArguments {
    /// Framework: megatron (16-bit weights, f32 gradients, flash attention), megatron-stored (without flash attention),
    /// fsdp, or quadrille (this program, f32) [default: megatron]
    #[arg(long, value_name = "NAME")]
    pub framework: Option<String>,
    /// Prune this part of the matrices of blocks, as SAMO does, of --framework quadrille; what ranks keep of them is estimated
    #[arg(long, value_name = "PART")]
    pub sparsity: Option<Sparsity>,
    #[command(flatten)]
    pub numbers: NumberArguments,
    /// Price the fullest rank, with so many times the mean of the rows of experts that drop nothing, or as often as experts were
    /// chosen in a run, which has ended [default: 1]
    #[arg(long, value_name = "TIMES|RUN")]
    pub imbalance: Option<String>,
    /// Search layouts and types of numbers, too, that the framework lacks; else such a layout only where --fix, --max, --min or
    /// the layout ask for it, with a note, and no such type
    #[arg(long)]
    pub any_layout: bool,
    /// Constraints that leave one value.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', help = fix_help())]
    pub fix: Vec<String>,
    /// Bound a size from above, e.g. --max pipe=16
    #[arg(long, value_name = "KEY=N", value_delimiter = ',')]
    pub max: Vec<String>,
    /// Bound a size from below, e.g. --min data=2
    #[arg(long, value_name = "KEY=N", value_delimiter = ',')]
    pub min: Vec<String>,
    /// Memory of a device that stays free, e.g. 10%, 4GB or 0, or runs:97%: so much that 97 of 100 published runs would fit
    /// [default: runs:65%, of --framework quadrille 5%]
    #[arg(long, value_name = "SIZE|PERCENT|runs:PERCENT", value_parser = reserve)]
    pub memory_reserve: Option<Reserve>,
    /// Stop each search after so many looks at layouts, 1 for a bound and at least 64 for a price, with the best so far: as many as
    /// are typed, so that the same limit gives the same layouts on every machine [default: look at everything]
    #[arg(long, value_name = "LOOKS", value_parser = whole::<u64>(1..))]
    pub search_limit: Option<u64>,
    /// Tokens to train on: adds days and device-hours, e.g. --tokens 300e9 or --tokens 15T
    #[arg(long, value_name = "N", value_parser = amount)]
    pub tokens: Option<f64>,
    /// Price of a device for an hour: with --tokens adds the cost
    #[arg(long, value_name = "PRICE", value_parser = real)]
    pub price_per_hour: Option<f64>,
    /// Currency of --price-per-hour, by its code of three letters [default: USD]
    #[arg(long, value_name = "CODE")]
    pub currency: Option<String>,
    /// Leave out layouts that do not train on --tokens within this number of days; of several numbers of GPUs the smallest is planned that
    /// does
    #[arg(long, value_name = "DAYS", value_parser = real)]
    pub days: Option<f64>,
    /// Reckon with devices that fail: tell the best interval of checkpoints, the share of useful time, and what days and cost
    /// are with it. Without --mtbf as often as in the training of Llama 3 405B on 16,384 H100
    #[arg(long)]
    pub goodput: bool,
    /// Mean device-hours between failures of one device; implies --goodput [default with --goodput: 50677]
    #[arg(long, value_name = "HOURS", value_parser = real)]
    pub mtbf: Option<f64>,
    /// Bytes per second at which each device writes its states into a checkpoint [default with --goodput: 122e6, that of the
    /// same training]
    #[arg(long, value_name = "BYTES/S", value_parser = real)]
    pub checkpoint_bandwidth: Option<f64>,
    /// Seconds that a checkpoint takes, in place of --checkpoint-bandwidth
    #[arg(long, value_name = "SECONDS", value_parser = real)]
    pub checkpoint_seconds: Option<f64>,
    /// Seconds from a failure until training goes on [default with --goodput: 600, assumed]
    #[arg(long, value_name = "SECONDS", value_parser = real)]
    pub restart_seconds: Option<f64>,
    /// Count the FLOPs of TFLOP/s and MFU as native (products and attention without causal discount), megatron (as Megatron-LM's
    /// log: half of attention, padded vocabulary) or torchtitan (as its log: 6 a parameter, attention without discount)
    /// [default: native]
    #[arg(long, value_name = "NAME")]
    pub flops_convention: Option<FlopsConvention>,
}

fn fix_help() -> String {
    format!(
        "Fix a choice: the size of an axis, {} (passes joined by +), e.g. --fix x=8,schedule=1f1b or --fix overlap=oar+ors. \
         Flags of the layout fix theirs",
        Space::keys()
    )
}
