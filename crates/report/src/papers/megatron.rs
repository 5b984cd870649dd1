//! What Megatron-LM's takeaways advise: for people, as a document, as a row.

use quadrille_papers::megatron::{Advice, Configuration, Plan, Quantities, parameters};
use quadrille_run::units::shortest;
use serde_json::{Value, json};

use super::columns;
use crate::{Text, table};

/// What is advised, and for what.
pub struct MegatronReport<'a> {
    /// What is advised.
    pub plan: &'a Plan,
    /// The name of the cluster.
    pub cluster: &'a str,
}

impl MegatronReport<'_> {
    /// All of it, as `paper megatron plan --json` prints it.
    pub fn document(&self) -> Value {
        let Self { plan, cluster } = self;
        let Plan { model, machine, batch, advice, quantities } = plan;
        let Advice { configuration, chunks, memory, reasons: [tensor, pipeline, data, microbatch, chunking] } = advice;
        let [stage, scattered] = quantities.stage_bytes;
        let entry = json!({
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
            "plans": [entry],
        })
    }

    /// For people.
    pub fn text(&self) -> Text {
        let Self { plan, cluster } = self;
        let Plan { model, machine, batch, advice, quantities } = plan;
        let Advice { configuration, chunks, memory, reasons } = advice;
        let gigabytes = |bytes: f64| format!("{:.1} GB", bytes / 1e9);
        let megabytes = |bytes: f64| format!("{:.1} MB", bytes / 1e6);
        let mut text = Text::from(format!(
            "{}, {:.1} billion parameters, on {} GPUs of {cluster} in nodes of {}, batch {batch}, by Megatron-LM's takeaways\n\
             passes are modelled by the device's rate in products, with recomputation; communication is not in a step\n\n",
            model.name,
            parameters(model) / 1e9,
            machine.devices,
            machine.per_node,
        ));
        let sizes = [configuration.tensor(), configuration.pipeline(), configuration.data()].into_iter();
        let sizes = sizes.chain([configuration.microbatch(), *chunks, quantities.microbatches]);
        let row = sizes.map(|size| size.to_string()).chain([
            format!("{:.4} s", quantities.seconds),
            format!("{:.1}%", 100.0 * quantities.bubble),
            format!("{:.1}", quantities.flop_per_s / 1e12),
            gigabytes(memory.total()),
        ]);
        let header = "tensor,pipeline,data,microbatch,chunks,microbatches,step,bubble,TFLOP/s,holds";
        text += table(&header.split(',').collect::<Vec<_>>(), &[row.collect()]);
        text += "\n";
        reasons.iter().for_each(|reason| text += format!("{reason}\n"));
        let [stage, scattered] = quantities.stage_bytes;
        text += format!(
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

    /// For comma-separated values: a header and a row.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let Plan { advice: Advice { configuration, chunks, memory, .. }, quantities, .. } = self.plan;
        let header = "tensor,pipeline,data,microbatch,chunks,microbatches,pass_s,bubble,time_s,flop_per_s,memory_bytes,\
                      states,inputs,intermediate,logits";
        let sizes = [configuration.tensor(), configuration.pipeline(), configuration.data()].into_iter();
        let sizes = sizes.chain([configuration.microbatch(), *chunks, quantities.microbatches]);
        let Quantities { pass_seconds, bubble, seconds, flop_per_s, .. } = *quantities;
        let numbers = [pass_seconds, bubble, seconds, flop_per_s, memory.total()].into_iter();
        let numbers = numbers.chain([memory.states, memory.inputs, memory.intermediate, memory.logits]).map(shortest);
        let row = sizes.map(|size| size.to_string()).chain(numbers).collect();
        vec![columns(header), row]
    }
}

/// The configuration in this program's axes.
fn grid(configuration: &Configuration) -> String {
    format!("x={},data={},pipe={}", configuration.tensor(), configuration.data(), configuration.pipeline())
}
