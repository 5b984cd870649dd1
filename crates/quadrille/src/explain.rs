//! `quadrille explain`: what a layout does, without running it.

use quadrille_engine::Hyper;
use quadrille_spec::{CollectiveKind, Layout, MemoryClass, RankLedger};
use quadrille_step::{StepProgram, predict, predict_rank, print_program};
use serde_json::{Map, Value, json};

use crate::arguments::ExplainArguments;
use crate::failure::Failure;
use crate::output::{bytes, decimal, print_json, print_text, table};
use crate::settings;

/// Prints the summary, the program, the ledger, as asked.
pub fn run(arguments: &ExplainArguments) -> Result<(), Failure> {
    let settings = settings::settings(&arguments.model, "gpt-demo", Hyper::default())?;
    let layout = settings::layout(&arguments.layout, &settings.model, arguments.dtype, 8)?;
    let program = StepProgram::new(&settings.model, &layout)?;
    let ranks = layout.grid.ranks();
    if let Some(rank) = arguments.rank.filter(|rank| *rank >= ranks) {
        return Err(Failure::usage(format!("--rank {rank}: the ranks of {} are 0 to {}", layout.grid, ranks - 1)));
    }
    if arguments.json {
        return print_json(&document(arguments, &program));
    }
    if arguments.program {
        print_text(&print_program(&program))?;
    }
    if arguments.ledger {
        let all = 0..ranks;
        let chosen = arguments.rank.map_or(all, |rank| rank..rank + 1);
        chosen.into_iter().try_for_each(|rank| print_text(&ledger_text(&predict_rank(&program, rank))))?;
    }
    if !arguments.program && !arguments.ledger {
        let rank = arguments.rank.unwrap_or(0);
        print_text(&(summary(&program) + &ledger_text(&predict_rank(&program, rank))))?;
    }
    Ok(())
}

fn document(arguments: &ExplainArguments, program: &StepProgram) -> Value {
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
        document.insert("ranks".to_owned(), json!(ranks));
    }
    Value::Object(document)
}

/// The fields of a layout as documents show them.
pub fn layout_json(layout: &Layout) -> Value {
    json!({
        "grid": layout.grid.to_string(),
        "order": layout.grid.order().to_string(),
        "per_node": layout.per_node,
        "activations": layout.activations,
        "overlap": layout.overlap.to_string(),
        "global_batch": layout.global_batch,
        "microbatch": layout.microbatch,
        "seq_len": layout.seq_len,
        "dtype": layout.dtype,
    })
}

/// Model and layout in a few lines.
pub fn summary(program: &StepProgram) -> String {
    let (model, layout) = (&program.model, &program.layout);
    let rows = vec![
        vec![
            "model".to_owned(),
            format!(
                "{}: {} layers, hidden {}, {} heads, ffn {}, vocab {}, {} parameters",
                model.name,
                model.layers,
                model.hidden,
                model.heads,
                model.ffn,
                model.vocab,
                decimal(model.parameters() as f64, "")
            ),
        ],
        vec![
            "grid".to_owned(),
            format!(
                "{} ({} ranks, order {}, {} per node)",
                layout.grid,
                layout.grid.ranks(),
                layout.grid.order(),
                layout.per_node
            ),
        ],
        vec![
            "batch".to_owned(),
            format!(
                "{} sequences of {} tokens a step, {} microbatch(es) of {} per data rank",
                layout.global_batch,
                layout.seq_len,
                layout.microbatches(),
                layout.microbatch
            ),
        ],
        vec![
            "layout".to_owned(),
            format!("{} activations, overlap {}, {}", layout.activations, layout.overlap, layout.dtype),
        ],
    ];
    rows.into_iter().map(|row| format!("{:<8}{}\n", row[0], row[1])).collect()
}

/// A rank's ledger for people.
pub fn ledger_text(rank: &RankLedger) -> String {
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
    let mut text = format!("\nrank {}, one step\n", rank.rank);
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
    let classes = MemoryClass::ALL.map(|class| {
        let name = match class {
            MemoryClass::Parameters => "parameters",
            MemoryClass::Gradients => "gradients",
            MemoryClass::Optimizer => "optimizer",
            MemoryClass::Activations => "activations",
            MemoryClass::GatheredWeights => "gathered weights",
            MemoryClass::Buffers => "buffers",
        };
        format!("{name} {}", bytes(rank.memory.peak_of.get(&class).copied().unwrap_or(0)))
    });
    let (states, values) = classes.split_at(3);
    text + &format!(
        "memory: {} at peak, in buffers of {}\n  {}\n  {}\n",
        bytes(rank.memory.peak),
        bytes(rank.memory.allocated),
        states.join(", "),
        values.join(", ")
    )
}
