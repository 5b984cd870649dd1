//! Flags of the native search, and what its document holds.

use std::path::PathBuf;

use clap::Args;
use quadrille_plan::native::{Reserve, Space, part_of};
use quadrille_spec::quantities::amount;
use quadrille_spec::{FlopsConvention, Sparsity};

use crate::numbers::NumberArguments;
use crate::parse::{real, whole};
use crate::quantities::reserve;

/// What is searched, and what it is for.
#[derive(Debug, Args)]
pub struct QuestionArguments {
    /// What trains: megatron (16-bit weights, f32 gradients, flash attention), megatron-stored (without flash attention),
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
    #[arg(long, value_name = "PRICE", requires = "tokens", value_parser = real)]
    pub price_per_hour: Option<f64>,
    /// What --price-per-hour is in, by its code of three letters [default: USD]
    #[arg(long, value_name = "CODE")]
    pub currency: Option<String>,
    /// Leave out what does not train on --tokens within so many days; of several numbers of GPUs the smallest is planned that
    /// does
    #[arg(long, value_name = "DAYS", value_parser = real)]
    pub days: Option<f64>,
    /// Reckon with devices that fail: tell the best interval of checkpoints, the share of useful time, and what days and cost
    /// are with it. Without --mtbf as often as in the training of Llama 3 405B on 16,384 H100
    #[arg(long)]
    pub goodput: bool,
    /// The same, with so many device-hours between failures of one device in the mean [default with --goodput: 50677]
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

/// A flag, and whether it was typed.
type Typed = (&'static str, bool);

impl QuestionArguments {
    /// Which of these flags were typed.
    pub fn typed(&self) -> [Typed; 21] {
        let Self { framework, sparsity, imbalance, any_layout, fix, max, min, .. } = self;
        let Self { memory_reserve, search_limit, tokens, price_per_hour, currency, days, .. } = self;
        let Self { goodput, mtbf, checkpoint_bandwidth, checkpoint_seconds, restart_seconds, .. } = self;
        let Self { flops_convention, .. } = self;
        let [products, moments] = self.numbers.typed();
        [
            ("--framework", framework.is_some()),
            ("--sparsity", sparsity.is_some()),
            products,
            moments,
            ("--imbalance", imbalance.is_some()),
            ("--any-layout", *any_layout),
            ("--fix", !fix.is_empty()),
            ("--max", !max.is_empty()),
            ("--min", !min.is_empty()),
            ("--memory-reserve", memory_reserve.is_some()),
            ("--search-limit", search_limit.is_some()),
            ("--tokens", tokens.is_some()),
            ("--price-per-hour", price_per_hour.is_some()),
            ("--currency", currency.is_some()),
            ("--days", days.is_some()),
            ("--goodput", *goodput),
            ("--mtbf", mtbf.is_some()),
            ("--checkpoint-bandwidth", checkpoint_bandwidth.is_some()),
            ("--checkpoint-seconds", checkpoint_seconds.is_some()),
            ("--restart-seconds", restart_seconds.is_some()),
            ("--flops-convention", flops_convention.is_some()),
        ]
    }
}

/// What is told of the layouts that were found.
#[derive(Debug, Args)]
pub struct ResultArguments {
    /// Show variants of a layout too, which differ in neither its grid nor the spreading of experts; else the best of them alone,
    /// and how many there are
    #[arg(long)]
    pub variants: bool,
    /// Show the layouts than which none has fewer devices, less time and less memory, in steps of a 32nd of a device: over all
    /// divisors of --gpus, or over a list or range of them
    #[arg(long)]
    pub pareto: bool,
    /// Advise the fastest layout, however unusual; else the simplest of those whose predicted times do not differ from it by
    /// more than 3%
    #[arg(long)]
    pub exotic: bool,
    /// How much slower than the fastest a recommended simpler layout may be [default: 3%]
    #[arg(long, value_name = "PERCENT", value_parser = tolerance, conflicts_with = "exotic")]
    pub tolerance: Option<f64>,
    /// Explain the advised layout: what binds, what faster hardware or another choice would give, why the next one lost, and
    /// what was refused by which rule
    #[arg(long)]
    pub explain: bool,
    /// Write the advised layout to this file, in place of what it holds; --layout of every command reads it
    #[arg(long, value_name = "FILE.toml")]
    pub out: Option<PathBuf>,
    /// Write a page of all this to this file, with charts, explanations and the flags of each framework; it opens in a browser
    /// without a network; of one number of GPUs
    #[arg(long, value_name = "FILE.html", conflicts_with = "pareto")]
    pub html: Option<PathBuf>,
}

impl ResultArguments {
    /// Which of these flags were typed.
    pub fn typed(&self) -> [Typed; 7] {
        let Self { variants, pareto, exotic, tolerance, explain, out, html } = self;
        [
            ("--variants", *variants),
            ("--pareto", *pareto),
            ("--exotic", *exotic),
            ("--tolerance", tolerance.is_some()),
            ("--explain", *explain),
            ("--out", out.is_some()),
            ("--html", html.is_some()),
        ]
    }
}

/// Reads a part of a time in per cent.
fn tolerance(text: &str) -> Result<f64, String> {
    part_of(text).map_err(str::to_owned)
}

/// The fields of `plan --json`, and examples.
pub const DOCUMENT: &str = "Examples:
  quadrille plan --model gpt3-175b --gpus 1024 --cluster selene --global-batch 1536
  quadrille plan --gpus 512 --fix pipe=8,schedule=interleaved --memory-reserve 5% --explain
  quadrille plan --model llama2-7b --gpus 64 --framework fsdp --fix x=1,y=1,pipe=1 --out layout.toml
  quadrille plan --model llama3-70b --gpus 64 --cluster dgx-h100 --products fp8 --gradients bf16
  quadrille plan --model mixtral-8x7b --gpus 64 --imbalance 1.3
  quadrille plan --model llama3-8b --gpus 64 --cluster dgx-h100 --html plan.html
  quadrille plan --model llama3-8b --gpus 64 --cluster dgx-h100 --flops-convention megatron
  quadrille plan --gpus 64..1024 --pareto --global-batch 1536 --tokens 300e9 --price-per-hour 2
  quadrille plan --cost lbnl --strategy 2d --model gpt3-1t --gpus 16384 --cluster b200 --nvs 8
  quadrille plan --cost megatron --gpus 1024 --cluster selene --global-batch 1536
  quadrille plan --cost atp --interconnect ic2 --model gpt3-175b

Fields of --json (times in seconds, sizes in bytes):
  model, cluster, cost, framework, sparsity (null: not pruned), gpus, global_batch, seq_len
  planned       the table [planned] of layout files: framework, and of its numbers the types that
                were asked for
  imbalance     how many times the mean of the rows of experts the fullest rank has that is priced;
                of a run by how many ranks share experts
  device_memory_bytes, reserved_bytes
                of a device (null: not known), and what --memory-reserve keeps free
  counts        grids, legal_grids; configurations (of legal grids), legal, priced, fitting, and
                those left out by bounds: too_large (memory), too_slow (time);
                legal = priced + too_large + too_slow unless stopped
  refusals      rule, grids, configurations, example
  seconds       of the search; stopped: whether --search-limit ended it; too_long: layouts that it
                left without a price, for they have so many passes or blocks
  plans         fastest first: notation, layout (the fields of a layout file), devices, time_s, parts_s,
                memory_bytes, memory (of the rank that needs most, by class, and its stage),
                flops_convention (of model_flops, tflops_per_device and mfu), model_flops (of a step),
                executed_flops, tflops_per_device (10^12 a second), mfu, hfu, tokens_per_s; with
                --imbalance that of
                the layout; fitting_runs (the part of published runs that would fit, by what they
                took beside their tensors); variants (legal layouts of its grid and spreading
                of experts; not with --variants); with --goodput or --mtbf goodput (share of useful time, checkpoint_s,
                interval_steps, interval_s, failures_per_day); with --tokens days, device_hours,
                expected ones with goodput, and with --price-per-hour cost, currency
  failures      with goodput: mtbf_hours, checkpoint_bandwidth or checkpoint_s, restart_s
  within_days   with --days; with --pareto fewest_gpus that do
  advised       plan, the layout to run: the simplest of all that take at most the part tolerance
                longer than the fastest (0 with --exotic), without --memory-reserve among those that
                95% of runs fit into if there are any; gain_of_fastest: how much less the fastest of
                all takes; index of plan in plans (null: not among them)
  called_too_large
                ran, called_too_large: published runs of this device and kind of framework that ran,
                and those that this program calls too large (null: there are none)
  framework_differences
                parts of the advised layout that the framework has in another way or lacks, each
                with what it does instead
  error_band    of the advised plan, as of each of plans: low, middle, high (measured over predicted
                time of 1 of 10, of half, and of 9 of 10 published runs most like it), runs,
                runs_of_kind, sources, distance; null where fewer than two published runs are of its
                kind: generation of the device, framework, dense or experts, products, length;
                error_band_reason then says what there are no runs of
  origins       where each number of the hardware is from: measured, fitted, data_sheet or assumed
  assumed       fields that are, and gained_share: what a tenth more of them all is worth of a step;
                null with --search-limit where its prices take long
  pareto        with --pareto, likewise; stopped_gpus: the numbers of GPUs that --search-limit left
                incomplete
  explanation   with --explain: binding, sensitivities, changes, runner_up";
