//! `quadrille explain --price`: one layout, priced and explained.

use clap::Args;
use quadrille_cost::native::Framework;
use quadrille_plan::native::{Question, Reserve};
use quadrille_report::plan::PriceReport;
use quadrille_run::imbalance;
use quadrille_spec::{FlopsConvention, Imbalance};
use serde_json::Value;

use crate::explain::{self, Asked, ExplainArguments};
use crate::failure::Failure;
use crate::numbers::NumberArguments;
use crate::output::{json_value, print_json, print_text};
use crate::quantities::reserve;

/// What else `explain` tells, without a price. A flag that only requires --price would be taken beside them.
const OTHERS: [&str; 7] = ["program", "ledger", "rank", "layer", "html", "timeline", "trace"];

/// What a layout costs.
#[derive(Debug, Args)]
pub struct PriceArguments {
    /// Price the layout on --cluster by the native model and explain it: what binds, what faster hardware or another choice
    /// would give
    #[arg(long, conflicts_with_all = OTHERS)]
    pub price: bool,
    /// What trains, as in `plan` [default: what the layout file was planned for, else megatron with --price and quadrille without
    /// and of runs]
    #[arg(long, value_name = "NAME")]
    pub framework: Option<String>,
    #[command(flatten)]
    pub numbers: NumberArguments,
    /// Price the fullest rank, with so many times the mean of the rows of experts that drop nothing, or as often as experts were
    /// chosen in a run, which has ended [default: 1]
    #[arg(long, value_name = "TIMES|RUN", requires = "price", conflicts_with_all = OTHERS)]
    pub imbalance: Option<String>,
    /// Memory of a device that stays free, e.g. 10%, 4GB, or runs:97%: so much that 97 of 100 published runs would fit
    /// [default: runs:65%, of --framework quadrille 5%]
    #[arg(long, value_name = "SIZE|PERCENT", value_parser = reserve, requires = "price", conflicts_with_all = OTHERS)]
    pub memory_reserve: Option<Reserve>,
    /// Count the FLOPs of TFLOP/s and MFU as native (products and attention without causal discount), megatron (as Megatron-LM's
    /// log) or torchtitan (as its log) [default: native]
    #[arg(long, value_name = "NAME", requires = "price", conflicts_with_all = OTHERS)]
    pub flops_convention: Option<FlopsConvention>,
    /// Price a layout, too, that the framework does not start, and types of numbers that it lacks, as `plan --any-layout` does
    #[arg(long, requires = "price", conflicts_with_all = OTHERS)]
    pub any_layout: bool,
}

/// Prices, explains and prints.
pub fn run(arguments: &ExplainArguments) -> Result<(), Failure> {
    let (report, seq_len) = report(arguments)?;
    if arguments.json {
        return print_json(&report);
    }
    arguments.layout.note_length(&arguments.model, seq_len)?;
    print_text(report.text())
}

/// The report as a document.
pub fn document(arguments: &ExplainArguments) -> Result<Value, Failure> {
    json_value(&report(arguments)?.0)
}

/// The layout's price and the reasons for it, and the tokens of its sequences.
fn report(arguments: &ExplainArguments) -> Result<(PriceReport, usize), Failure> {
    let Asked { model, layout, cluster, framework, kept, .. } = explain::asked(arguments, Framework::MEGATRON.name)?;
    if !kept.is_empty() {
        return Err(Failure::usage(
            "--price: prices of pruned models are estimated; say which part is, e.g. --sparsity 0.9",
        ));
    }
    let price = &arguments.price;
    let reserve = price.memory_reserve.unwrap_or_else(|| Reserve::usual(&framework));
    let imbalance = price.imbalance.as_deref().map_or(Ok(Imbalance::EQUAL), imbalance)?;
    let flops_convention = price.flops_convention.unwrap_or_default();
    let question =
        Question { imbalance, flops_convention, ..Question::of(model, cluster, framework, &layout, reserve)? };
    if !price.any_layout {
        question.check_runs(&layout)?;
    }
    let explanation = question.explain(&layout)?;
    Ok((PriceReport::new(&question, &layout, &explanation)?, question.seq_len))
}
