//! What Megatron-LM's takeaways advise: for people, as a document, as a row.

use quadrille_papers::megatron::{Advice, Configuration, Plan, Quantities, parameters};
use quadrille_run::units::shortest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::columns;
use crate::{ReportVersion, Text, table};

/// What is advised, and for what.
pub struct MegatronReport<'a> {
    /// What is advised.
    pub plan: &'a Plan,
    /// The name of the cluster.
    pub cluster: &'a str,
}

/// The configuration of Megatron-LM's takeaways.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MegatronDocument {
    /// Version of the document.
    pub version: ReportVersion,
    /// Name of the model.
    pub model: String,
    /// Parameters of the model.
    pub parameters: f64,
    /// Name of the cluster.
    pub cluster: String,
    /// Cost model: `megatron`.
    pub cost: String,
    /// Number of devices.
    pub gpus: usize,
    /// Devices of a node.
    pub per_node: usize,
    /// Sequences in a step.
    pub global_batch: usize,
    /// Bytes of a device.
    pub device_memory_bytes: f64,
    /// The configuration.
    pub plans: Vec<MegatronEntry>,
}

/// A configuration with its quantities.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MegatronEntry {
    /// The configuration.
    pub layout: MegatronLayout,
    /// Microbatches of a step.
    pub microbatches: usize,
    /// Seconds of a forward and backward pass.
    pub pass_s: f64,
    /// Bubble as a part of the other time.
    pub bubble: f64,
    /// Seconds of a step without communication.
    pub time_s: f64,
    /// FLOP/s of a device.
    pub flop_per_s: f64,
    /// Bytes of a device of the first stage.
    pub memory_bytes: f64,
    /// Bytes by class.
    pub memory: MegatronMemory,
    /// Bytes that a device sends for a microbatch.
    pub sent_bytes: MegatronSent,
    /// Reasons for each choice.
    pub reasons: MegatronReasons,
}

/// A configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MegatronLayout {
    /// Tensor-parallel ranks.
    pub tensor: usize,
    /// Stages of the pipeline.
    pub pipeline: usize,
    /// Data-parallel ranks.
    pub data: usize,
    /// Sequences of a microbatch.
    pub microbatch: usize,
    /// Chunks of a stage.
    pub chunks: usize,
    /// The configuration in this program's axes.
    pub grid: String,
}

/// Bytes of a device by class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MegatronMemory {
    /// Parameters, gradients and states of the optimizer.
    pub states: f64,
    /// Inputs of layers.
    pub inputs: f64,
    /// One layer's values.
    pub intermediate: f64,
    /// Logits.
    pub logits: f64,
}

/// Bytes that a device sends for a microbatch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MegatronSent {
    /// Between tensor-parallel ranks.
    pub tensor: f64,
    /// To the next stage.
    pub stage: f64,
    /// To the next stage, with scatter and gather.
    pub stage_scattered: f64,
}

/// Reasons for each choice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MegatronReasons {
    /// For the tensor-parallel ranks.
    pub tensor: String,
    /// For the stages.
    pub pipeline: String,
    /// For the data-parallel ranks.
    pub data: String,
    /// For the microbatch.
    pub microbatch: String,
    /// For the chunks.
    pub chunks: String,
}

impl MegatronReport<'_> {
    /// The report as a document.
    pub fn document(&self) -> MegatronDocument {
        let Self { plan, cluster } = self;
        let Plan { model, machine, batch, advice, quantities } = plan;
        let Advice { configuration, chunks, memory, reasons } = advice;
        let [tensor, pipeline, data, microbatch, chunking] = reasons.clone();
        let [stage, stage_scattered] = quantities.stage_bytes;
        let entry = MegatronEntry {
            layout: MegatronLayout {
                tensor: configuration.tensor(),
                pipeline: configuration.pipeline(),
                data: configuration.data(),
                microbatch: configuration.microbatch(),
                chunks: *chunks,
                grid: grid(configuration),
            },
            microbatches: quantities.microbatches,
            pass_s: quantities.pass_seconds,
            bubble: quantities.bubble,
            time_s: quantities.seconds,
            flop_per_s: quantities.flop_per_s,
            memory_bytes: memory.total(),
            memory: MegatronMemory {
                states: memory.states,
                inputs: memory.inputs,
                intermediate: memory.intermediate,
                logits: memory.logits,
            },
            sent_bytes: MegatronSent { tensor: quantities.tensor_bytes, stage, stage_scattered },
            reasons: MegatronReasons { tensor, pipeline, data, microbatch, chunks: chunking },
        };
        MegatronDocument {
            version: ReportVersion::CURRENT,
            model: model.name.clone(),
            parameters: parameters(model),
            cluster: (*cluster).to_owned(),
            cost: "megatron".to_owned(),
            gpus: machine.devices,
            per_node: machine.per_node,
            global_batch: *batch,
            device_memory_bytes: machine.device_memory,
            plans: vec![entry],
        }
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
