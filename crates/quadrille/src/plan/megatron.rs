//! `quadrille plan --cost megatron`: the configuration that Megatron-LM's takeaways advise, and why.

use quadrille_papers::megatron::{Machine, Plan, known_device};
use quadrille_report::papers::megatron::MegatronReport;
use quadrille_run::described;
use quadrille_spec::{ElementType, Field};

use super::flags::{LayoutFlags, devices};
use crate::failure::Failure;
use crate::output::{print_json, print_text, write_rows};
use crate::paths;
use crate::plan::arguments::PlanArguments;

/// What to say of a flag that the takeaways choose.
const CHOSEN: &str = "the takeaways choose it; leave it out";

const FLAGS: LayoutFlags = LayoutFlags {
    model: "Megatron-LM's planner",
    taken: &["--ranks", "--per-node", "--global-batch"],
    instead: &[
        ("--seq-len", "with --cost megatron give --set seq_len=N"),
        ("--grid", CHOSEN),
        ("--microbatch", CHOSEN),
        ("--schedule", CHOSEN),
        ("--chunks", CHOSEN),
        ("--recompute", "the paper recomputes every layer; leave it out"),
    ],
};

/// Advises and prints.
pub fn run(arguments: &PlanArguments) -> Result<(), Failure> {
    let written = paths::asked([("--csv", &arguments.csv)]);
    paths::check_ready(&written, &arguments.model, &arguments.layout)?;
    let (plan, cluster) = plan(arguments)?;
    let report = MegatronReport { plan: &plan, cluster: &cluster };
    write_rows("--csv", arguments.csv.as_deref(), || report.rows())?;
    if arguments.json { print_json(&report.document()) } else { print_text(report.text()) }
}

/// What is advised for what flags say, and the name of the cluster.
fn plan(arguments: &PlanArguments) -> Result<(Plan, String), Failure> {
    FLAGS.check(&arguments.layout)?;
    if arguments.dtype.is_some_and(|dtype| dtype != ElementType::Bf16) {
        return Err(Failure::usage("--dtype: Megatron-LM's planner knows half precision only; leave it out"));
    }
    let needed =
        |flag: &str, example: &str| Failure::usage(format!("--cost megatron needs {flag}, e.g. {flag} {example}"));
    let gpus = devices(arguments)?.ok_or_else(|| needed("--gpus", "512"))?;
    let cluster = described::cluster(arguments.layout.cluster())?;
    let (device, device_memory) = known_device(&cluster)?;
    let per_node = arguments.layout.size(Field::PerNode).unwrap_or_else(|| cluster.per_node(gpus));
    cluster.network_for(gpus, per_node)?;
    let model = arguments.model.described("gpt3-175b")?;
    let batch = arguments.layout.batch(model.seq_len)?.ok_or_else(|| needed("--global-batch", "1536"))?;
    let machine = Machine { devices: gpus, per_node, device_memory };
    Ok((Plan::new(model, device, machine, batch)?, cluster.name))
}
