//! `quadrille plan --cost megatron`: the configuration that Megatron-LM's takeaways advise, and why.

use quadrille_engine::Hyper;
use quadrille_papers::megatron::{
    Advice, Configuration, Machine, Recomputation, advise, check_described, layer_flops, modelled_pass_seconds,
    parameters,
};
use quadrille_spec::{Cluster, Device, ElementType, Field, Model};
use serde_json::{Value, json};

use super::flags::{LayoutFlags, devices};
use crate::arguments::PlanArguments;
use crate::failure::Failure;
use crate::output::{csv, print_json, print_text, shortest, table, write_file};
use crate::{paths, settings};

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

/// Bytes of a value that is sent, half precision.
const VALUE_BYTES: f64 = 2.0;

/// What is planned for, and what is advised.
struct Case {
    model: Model,
    cluster: String,
    machine: Machine,
    batch: usize,
    advice: Advice,
    quantities: Quantities,
}

/// What follows from the configuration, in SI units.
struct Quantities {
    microbatches: usize,
    /// A forward and a backward pass of a microbatch on a stage, modelled.
    pass_seconds: f64,
    /// Idle time over the ideal time.
    bubble: f64,
    /// A step, without communication.
    seconds: f64,
    /// FLOP/s that a device then reaches in layers, recomputation counted.
    flop_per_s: f64,
    /// Bytes that a device sends for each microbatch: for tensor parallelism, and to the next stage without and with
    /// scatter/gather.
    tensor_bytes: f64,
    stage_bytes: [f64; 2],
}

/// Advises and prints.
pub fn run(arguments: &PlanArguments) -> Result<(), Failure> {
    let written: Vec<_> = arguments.csv.iter().map(|path| ("--csv", path.as_path())).collect();
    paths::check(&written, &paths::described(&arguments.model, &arguments.layout).collect::<Vec<_>>())?;
    let case = Case::new(arguments)?;
    if let Some(path) = &arguments.csv {
        write_file("--csv", path, case.csv()?.as_bytes())?;
    }
    if arguments.json { print_json(&case.document()) } else { print_text(&case.text()) }
}

impl Case {
    fn new(arguments: &PlanArguments) -> Result<Self, Failure> {
        FLAGS.check(&arguments.layout)?;
        if arguments.dtype.is_some_and(|dtype| dtype != ElementType::Bf16) {
            return Err(Failure::usage("--dtype: Megatron-LM's planner knows half precision only; leave it out"));
        }
        let needed =
            |flag: &str, example: &str| Failure::usage(format!("--cost megatron needs {flag}, e.g. {flag} {example}"));
        let gpus = devices(arguments)?.ok_or_else(|| needed("--gpus", "512"))?;
        let batch = arguments.layout.size(Field::GlobalBatch).ok_or_else(|| needed("--global-batch", "1536"))?;
        let cluster = settings::cluster(arguments.layout.cluster())?;
        let (device, device_memory) = device(&cluster)?;
        let per_node = arguments.layout.size(Field::PerNode).unwrap_or_else(|| cluster.per_node(gpus));
        cluster.network_for(gpus, per_node)?;
        let model = settings::settings(&arguments.model, "gpt3-175b", Hyper::default())?.model;
        check_described(&model)?;
        let machine = Machine { devices: gpus, per_node, device_memory };
        let pass = |configuration: &Configuration| modelled_pass_seconds(&model, configuration, device);
        let advice = advise(&model, &machine, batch, pass)?;
        let quantities = Quantities::new(&model, &advice, batch, pass(&advice.configuration))?;
        Ok(Self { model, cluster: cluster.name, machine, batch, advice, quantities })
    }

    fn document(&self) -> Value {
        let Self { model, cluster, machine, batch, advice, quantities } = self;
        let Advice { configuration, chunks, memory, reasons: [tensor, pipeline, data, microbatch, chunking] } = advice;
        let [stage, scattered] = quantities.stage_bytes;
        let plan = json!({
            "layout": {
                "tensor": configuration.tensor(),
                "pipeline": configuration.pipeline(),
                "data": configuration.data(),
                "microbatch": configuration.microbatch(),
                "chunks": chunks,
                "grid": grid(configuration),
            },
            "microbatches": quantities.microbatches,
            "pass_s": quantities.pass_seconds,
            "bubble": quantities.bubble,
            "time_s": quantities.seconds,
            "flop_per_s": quantities.flop_per_s,
            "memory_bytes": memory.total(),
            "memory": {
                "states": memory.states,
                "inputs": memory.inputs,
                "intermediate": memory.intermediate,
                "logits": memory.logits,
            },
            "sent_bytes": { "tensor": quantities.tensor_bytes, "stage": stage, "stage_scattered": scattered },
            "reasons": {
                "tensor": tensor,
                "pipeline": pipeline,
                "data": data,
                "microbatch": microbatch,
                "chunks": chunking,
            },
        });
        json!({
            "model": model.name,
            "parameters": parameters(model),
            "cluster": cluster,
            "cost": "megatron",
            "gpus": machine.devices,
            "per_node": machine.per_node,
            "global_batch": batch,
            "device_memory_bytes": machine.device_memory,
            "plans": [plan],
        })
    }

    fn text(&self) -> String {
        let Self { model, cluster, machine, batch, advice, quantities } = self;
        let Advice { configuration, chunks, memory, reasons } = advice;
        let gigabytes = |bytes: f64| format!("{:.1} GB", bytes / 1e9);
        let megabytes = |bytes: f64| format!("{:.1} MB", bytes / 1e6);
        let mut text = format!(
            "{}, {:.1} billion parameters, on {} GPUs of {cluster} in nodes of {}, batch {batch}, by Megatron-LM's takeaways\n\
             passes are modelled by the device's rate in products, with recomputation; communication is not in a step\n\n",
            model.name,
            parameters(model) / 1e9,
            machine.devices,
            machine.per_node,
        );
        let sizes = [configuration.tensor(), configuration.pipeline(), configuration.data()].into_iter();
        let sizes = sizes.chain([configuration.microbatch(), *chunks, quantities.microbatches]);
        let row = sizes.map(|size| size.to_string()).chain([
            format!("{:.4} s", quantities.seconds),
            format!("{:.1}%", 100.0 * quantities.bubble),
            format!("{:.1}", quantities.flop_per_s / 1e12),
            gigabytes(memory.total()),
        ]);
        let header = "tensor,pipeline,data,microbatch,chunks,microbatches,step,bubble,TFLOP/s,holds";
        text += &table(&header.split(',').collect::<Vec<_>>(), &[row.collect()]);
        text += "\n";
        reasons.iter().for_each(|reason| text += &format!("{reason}\n"));
        let [stage, scattered] = quantities.stage_bytes;
        text += &format!(
            "\nmemory of a device of the first stage: states {}, inputs of layers {}, one layer's values {}, logits {}; of {}\n\
             sent by a device for a microbatch: {} between tensor-parallel ranks; to the next stage {} in either direction, \
             {} with scatter/gather\n",
            gigabytes(memory.states),
            gigabytes(memory.inputs),
            gigabytes(memory.intermediate),
            gigabytes(memory.logits),
            gigabytes(machine.device_memory),
            megabytes(quantities.tensor_bytes),
            megabytes(stage),
            megabytes(scattered),
        );
        text
    }

    fn csv(&self) -> Result<String, Failure> {
        let Self { advice: Advice { configuration, chunks, memory, .. }, quantities, .. } = self;
        let header = "tensor,pipeline,data,microbatch,chunks,microbatches,pass_s,bubble,time_s,flop_per_s,memory_bytes,\
                      states,inputs,intermediate,logits";
        let sizes = [configuration.tensor(), configuration.pipeline(), configuration.data()].into_iter();
        let sizes = sizes.chain([configuration.microbatch(), *chunks, quantities.microbatches]);
        let Quantities { pass_seconds, bubble, seconds, flop_per_s, .. } = *quantities;
        let numbers = [pass_seconds, bubble, seconds, flop_per_s, memory.total()].into_iter();
        let numbers = numbers.chain([memory.states, memory.inputs, memory.intermediate, memory.logits]).map(shortest);
        let row = sizes.map(|size| size.to_string()).chain(numbers).collect();
        csv([header.split(',').map(str::to_owned).collect(), row])
    }
}

impl Quantities {
    fn new(model: &Model, advice: &Advice, batch: usize, pass_seconds: f64) -> Result<Self, Failure> {
        let Advice { configuration, chunks, .. } = advice;
        let microbatches = configuration.microbatches(batch)?;
        let bubble = match chunks {
            1 => configuration.bubble(batch)?,
            chunks => configuration.interleaved_bubble(batch, *chunks)?,
        };
        let seconds = microbatches as f64 * pass_seconds * (1.0 + bubble);
        let flops = model.layers() as f64 * layer_flops(batch, model.seq_len, model.hidden, Recomputation::Full);
        let last = configuration.pipeline() == 1;
        let stage = |elements: f64| if last { 0.0 } else { VALUE_BYTES * elements };
        Ok(Self {
            microbatches,
            pass_seconds,
            bubble,
            seconds,
            flop_per_s: flops / (configuration.devices() as f64 * seconds),
            tensor_bytes: VALUE_BYTES * configuration.tensor_elements(model),
            stage_bytes: [
                stage(configuration.boundary_elements(model, *chunks)),
                stage(configuration.scattered_boundary_elements(model, *chunks)),
            ],
        })
    }
}

/// The cluster's device and its bytes of memory.
fn device(cluster: &Cluster) -> Result<(&Device, f64), Failure> {
    match (&cluster.device, cluster.device_memory) {
        (Some(device), Some(bytes)) => Ok((device, bytes as f64)),
        _ => Err(Failure::usage(format!(
            "--cluster {}: the takeaways need the speed and the memory of its devices, which it does not tell; use selene \
             or another that names its device, or write device = \"a100-80\" into a file",
            cluster.name
        ))),
    }
}

/// The configuration in this program's axes.
fn grid(configuration: &Configuration) -> String {
    format!("x={},data={},pipe={}", configuration.tensor(), configuration.data(), configuration.pipeline())
}
