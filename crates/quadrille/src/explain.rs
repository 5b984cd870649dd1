//! `quadrille explain`: what a layout does, without running it.

use quadrille_cost::native::Framework;
use quadrille_cost::simulation::Simulation;
use quadrille_engine::Hyper;
use quadrille_report::recomputation::Recomputation;
use quadrille_report::summary::summary;
use quadrille_run::layout_json;
use quadrille_spec::{Axis, CollectiveKind, Grid, MemoryClass, RankLedger};
use quadrille_step::{StepProgram, predict, predict_rank, print_program};
use serde_json::{Map, Value, json};

use crate::arguments::ExplainArguments;
use crate::failure::Failure;
use crate::output::{bytes, decimal, print_json, print_text, table};
use crate::plan::native::priced;
use crate::plan::native::question::framework;
use crate::{paths, settings, timeline};

/// Prints the summary, the program, the ledger, as asked.
pub fn run(arguments: &ExplainArguments) -> Result<(), Failure> {
    if arguments.price.price {
        return priced::run(arguments);
    }
    let settings = settings::settings(&arguments.model, "gpt-demo", Hyper::default())?;
    let usual = &settings::Defaults::USUAL;
    let typed = settings::typed(&arguments.layout, arguments.dtype, usual)?;
    let layout = settings::resolve(&typed, &settings.model)?;
    let name = arguments.price.framework.as_deref().or(Some(Framework::QUADRILLE.name));
    let framework = framework(name, arguments.dtype, &typed.said)?.in_types_of(&layout);
    let program = framework.program(&settings.model, &layout)?;
    let grid = &layout.grid;
    let ranks = grid.ranks();
    if let Some(rank) = arguments.rank.filter(|rank| *rank >= ranks) {
        return Err(Failure::usage(format!("--rank {rank}: the ranks of {grid} are 0 to {}", ranks - 1)));
    }
    let machine = &arguments.machine;
    let described = paths::described(&arguments.model, &arguments.layout).collect::<Vec<_>>();
    paths::check(&machine.trace.iter().map(|path| ("--trace", path.as_path())).collect::<Vec<_>>(), &described)?;
    let simulation = machine.is_asked().then(|| machine.simulate(&program, &typed.cluster, framework)).transpose()?;
    if arguments.json {
        return print_json(&document(arguments, &program, &framework, simulation.as_ref())?);
    }
    print_parts(arguments, &program, &framework)?;
    match simulation {
        Some(simulation) => print_text(&timeline::text(&simulation)),
        None => Ok(()),
    }
}

/// The parts for people.
fn print_parts(arguments: &ExplainArguments, program: &StepProgram, framework: &Framework) -> Result<(), Failure> {
    let grid = &program.layout.grid;
    if arguments.program {
        print_text(&print_program(program))?;
    }
    if arguments.ledger {
        let all = 0..grid.ranks();
        let chosen = arguments.rank.map_or(all, |rank| rank..rank + 1);
        chosen.into_iter().try_for_each(|rank| print_text(&ledger_text(grid, &predict_rank(program, rank))))?;
    }
    if !arguments.program && !arguments.ledger {
        let rank = arguments.rank.unwrap_or(0);
        let recomputation = match framework.is_own() {
            true => Recomputation::of(program, rank)?.map_or(String::new(), |memory| memory.text()),
            false => String::new(),
        };
        print_text(&(summary(program) + &ledger_text(grid, &predict_rank(program, rank)) + &recomputation))?;
    }
    Ok(())
}

fn document(
    arguments: &ExplainArguments,
    program: &StepProgram,
    framework: &Framework,
    simulation: Option<&Simulation>,
) -> Result<Value, Failure> {
    let mut document = Map::new();
    document.insert("model".to_owned(), json!(program.model));
    document.insert("layout".to_owned(), layout_json(&program.layout));
    if arguments.program {
        document.insert("program".to_owned(), json!(print_program(program).lines().collect::<Vec<_>>()));
    }
    if arguments.ledger || !arguments.program {
        let ranks = match arguments.rank {
            Some(rank) => vec![predict_rank(program, rank)],
            None => predict(program).ranks,
        };
        let stages: Vec<usize> = ranks.iter().map(|rank| program.of_rank(rank.rank).stage).collect();
        document.insert("ranks".to_owned(), json!(ranks));
        document.insert("stages".to_owned(), json!(stages));
        if framework.is_own()
            && let Some(recomputation) = Recomputation::of(program, arguments.rank.unwrap_or(0))?
        {
            document.insert("recomputation".to_owned(), json!(recomputation));
        }
    }
    if let Some(simulation) = simulation {
        document.insert("simulation".to_owned(), timeline::document(simulation));
    }
    Ok(Value::Object(document))
}

/// The rank, and in a pipeline its stage, counted from 0.
fn rank_name(grid: &Grid, rank: usize) -> String {
    let stage = grid.coordinate(rank).on(Axis::Pipe);
    match grid.size(Axis::Pipe) {
        1 => format!("rank {rank}"),
        stages => format!("rank {rank} in stage {stage} of {stages}"),
    }
}

/// A rank's ledger for people.
pub fn ledger_text(grid: &Grid, rank: &RankLedger) -> String {
    let mut rows = Vec::new();
    for (axes, kinds) in &rank.axes {
        for (kind, transfer) in kinds {
            rows.push(vec![
                axes.clone(),
                CollectiveKind::name(*kind).to_owned(),
                transfer.calls.to_string(),
                bytes(transfer.payload_bytes),
                bytes(transfer.wire_bytes),
            ]);
        }
    }
    let mut text = format!("\n{}, one step\n", rank_name(grid, rank.rank));
    if rows.is_empty() {
        text += "no communication\n";
    } else {
        text += &table(&["axes", "collective", "calls", "payload", "on the wire"], &rows);
    }
    let flops = &rank.flops;
    text += &format!(
        "work: {} (forward {}, input gradients {}, weight gradients {}, attention {} + {})\n",
        decimal(flops.total() as f64, "FLOP"),
        decimal(flops.gemm_forward as f64, ""),
        decimal(flops.gemm_input_gradient as f64, ""),
        decimal(flops.gemm_weight_gradient as f64, ""),
        decimal(flops.attention_forward as f64, ""),
        decimal(flops.attention_backward as f64, ""),
    );
    let told = |class: MemoryClass| {
        let name = match class {
            MemoryClass::Parameters => "parameters",
            MemoryClass::Gradients => "gradients",
            MemoryClass::Optimizer => "optimizer",
            MemoryClass::Activations => "activations",
            MemoryClass::GatheredWeights => "gathered weights",
            MemoryClass::Buffers => "buffers",
            MemoryClass::Host => "beside it in the host's memory",
        };
        format!("{name} {}", bytes(rank.memory.peak_of.get(&class).copied().unwrap_or(0)))
    };
    let classes = MemoryClass::ALL.map(told);
    let in_host = rank.memory.peak_of.contains_key(&MemoryClass::Host);
    let host = if in_host { format!("  {}\n", told(MemoryClass::Host)) } else { String::new() };
    let (states, values) = classes.split_at(3);
    text + &format!(
        "memory: {} at peak, in buffers of {}\n  {}\n  {}\n{host}",
        bytes(rank.memory.peak),
        bytes(rank.memory.allocated),
        states.join(", "),
        values.join(", ")
    )
}
