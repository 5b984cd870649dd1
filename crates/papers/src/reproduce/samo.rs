//! SAMO: bytes of states, savings, the bubble and messages, columns that follow from tables 4.1 and 4.2, sums of the
//! step's parts.

use crate::megatron::parameters;
use crate::samo::{SINGLE_PRECISION_BYTES, Storage, bubble_seconds};
use quadrille_spec::{Model, Schedule, SpecError};
use serde::Deserialize;

use super::bubble;
use super::memory;
use super::point::Point;
use super::printed::{Printed, read};

/// Bytes of an index: positions in a shard are of 32 bits, as the dissertation's.
const INDEX_BYTES: f64 = 4.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    states: States,
    savings: Savings,
    bubble: Bubble,
    messages: Messages,
    models: Models,
    throughput: Vec<Throughput>,
    speedups: Speedups,
    parts: Vec<Parts>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct States {
    unpruned_bytes: Printed,
    kept_bytes: Printed,
    gpt3: String,
    gpt3_terabytes: Printed,
    percent_over_single_precision: Printed,
    percent_compressed: Printed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Savings {
    break_even: Printed,
    note: String,
    points: Vec<Saving>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Saving {
    sparsity: f64,
    percent: Printed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bubble {
    stages: usize,
    microbatches: usize,
    stage_seconds: [f64; 2],
    idle: Printed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Messages {
    stages: usize,
    of_microbatch: Printed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Models {
    most_a_gpu: Printed,
    least_a_gpu: Printed,
    note: String,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    model: String,
    parameters_billion: Printed,
    batch: usize,
    gpus: [usize; 2],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Throughput {
    gpus: usize,
    sputnik: f64,
    deepspeed: f64,
    axonn: f64,
    samo: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Speedups {
    axonn_percent: [Printed; 2],
    deepspeed_percent: [Printed; 2],
    deepspeed_note: String,
    sputnik_times: Printed,
    sputnik_note: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts {
    gpus: usize,
    point_to_point: f64,
    bubble: f64,
    collectives: f64,
    compression: f64,
    communication: Option<Printed>,
    saved: Printed,
    #[serde(default)]
    note: String,
}

pub fn points() -> Result<Vec<Point>, SpecError> {
    let file: File = read("samo.toml", include_str!("../../published/samo.toml"))?;
    let parts = [
        states(&file.states)?,
        savings(&file.savings),
        pipeline(&file)?,
        models(&file.models)?,
        speedups(&file),
        file.parts.iter().flat_map(parts_of_step).collect(),
    ];
    Ok(parts.concat())
}

fn states(states: &States) -> Result<Vec<Point>, SpecError> {
    let storage = Storage::PUBLISHED;
    let unpruned = storage.unpruned_bytes(1.0);
    let gpt3 = storage.unpruned_bytes(parameters(&Model::preset(&states.gpt3)?));
    let wider = unpruned / SINGLE_PRECISION_BYTES - 1.0;
    let compressed = storage.compressed / unpruned;
    let what = format!("{}: states before pruning", states.gpt3);
    Ok(vec![
        Point::new("states before pruning", "section 4.1.4", states.unpruned_bytes, unpruned, "bytes a parameter"),
        Point::new(
            "states of a kept parameter",
            "eq. 4.2",
            states.kept_bytes,
            storage.kept_bytes(),
            "bytes a parameter",
        ),
        Point::new(what, "section 4.1", states.gpt3_terabytes, gpt3 / 1e12, "TB"),
        Point::new(
            "states more than in single precision",
            "section 4.1",
            states.percent_over_single_precision,
            100.0 * wider,
            "%",
        ),
        Point::new(
            "share of states that are compressed",
            "section 4.1.1",
            states.percent_compressed,
            100.0 * compressed,
            "%",
        ),
    ])
}

/// What our engine keeps of a parameter with values and gradients in 16 bits, were it pruned: the master is expanded into
/// the weight in place.
fn our_storage() -> Storage {
    let [dense, compressed] = memory::state_bytes();
    Storage { dense, compressed, index: INDEX_BYTES, copy: 0.0 }
}

/// Each saving by the dissertation's states and by ours.
fn savings(savings: &Savings) -> Vec<Point> {
    let storages = [("", Storage::PUBLISHED), (", with our states", our_storage())];
    let of = |(whose, storage): (&str, Storage)| {
        let saved = savings.points.iter().map(move |Saving { sparsity, percent }| {
            let what = format!("sparsity {sparsity}: bytes of states saved{whose}");
            Point::new(what, "figure 4.2", *percent, 100.0 * storage.saved(*sparsity), "%").because(&savings.note)
        });
        let what = format!("sparsity that saves nothing{whose}");
        let even = Point::new(what, "section 4.1.4", savings.break_even, storage.break_even(), "of parameters");
        [even.because(&savings.note)].into_iter().chain(saved).collect::<Vec<_>>()
    };
    storages.into_iter().flat_map(of).collect()
}

/// The bubble by equation 4.6 and that of our schedule; messages of our middle stage.
fn pipeline(file: &File) -> Result<Vec<Point>, SpecError> {
    let Bubble { stages, microbatches, stage_seconds: [forward, backward], idle } = file.bubble;
    let by_equation = bubble_seconds(forward * stages as f64, backward * stages as f64, stages);
    let ideal = microbatches as f64 * (forward + backward);
    let simulated = ideal * bubble::simulated(Schedule::OneForwardOneBackward, stages, 1, microbatches)?;
    let what = |how: &str| format!("{stages} stages, {microbatches} microbatches: bubble {how}");
    let messages = bubble::messages(file.messages.stages, 1)?;
    Ok(vec![
        Point::new(what("by eq. 4.6"), "figure 4.3", idle, by_equation, "units"),
        Point::new(what("of our 1f1b, simulated"), "figure 4.3", idle, simulated, "units"),
        Point::new(
            "messages of our middle stage for a microbatch",
            "section 4.2.2",
            file.messages.of_microbatch,
            messages as f64,
            "messages",
        ),
    ])
}

fn models(models: &Models) -> Result<Vec<Point>, SpecError> {
    let mut points = Vec::new();
    for Row { model, parameters_billion, batch, gpus: [fewest, most] } in &models.rows {
        let billions = parameters(&Model::preset(model)?) / 1e9;
        let a_gpu = |gpus: usize| *batch as f64 / gpus as f64;
        let what = |gpus: usize| format!("{model}: batch on {gpus} GPUs");
        points.extend([
            Point::new(format!("{model}: parameters"), "table 4.1", *parameters_billion, billions, "billion"),
            Point::new(what(*fewest), "table 4.1", models.most_a_gpu, a_gpu(*fewest), "sequences a GPU")
                .because(&models.note),
            Point::new(what(*most), "table 4.1", models.least_a_gpu, a_gpu(*most), "sequences a GPU"),
        ]);
    }
    Ok(points)
}

/// Time saved and speed-ups by the shares of the peak: a step's time is inverse to them.
fn speedups(file: &File) -> Vec<Point> {
    let Speedups { axonn_percent, deepspeed_percent, deepspeed_note, sputnik_times, sputnik_note } = &file.speedups;
    let saved = |share: f64, samo: f64| 100.0 * (1.0 - share / samo);
    let points = |what: &str, unit, published: &[Printed; 2], ours: [(f64, usize); 2], note: &str| {
        let point = |at: usize, end: &str| {
            let (ours, gpus) = ours[at];
            Point::new(format!("13B, {gpus} GPUs: {what}, {end}"), "table 4.2", published[at], ours, unit).because(note)
        };
        [point(0, "least"), point(1, "most")]
    };
    let axonn = ends(&file.throughput, |row| saved(row.axonn, row.samo));
    let deepspeed = ends(&file.throughput, |row| saved(row.deepspeed, row.samo));
    let sputnik = ends(&file.throughput, |row| row.samo / row.sputnik);
    let parts = [
        points("time saved beside AxoNN", "%", axonn_percent, axonn, ""),
        points("time saved beside DeepSpeed-3D", "%", deepspeed_percent, deepspeed, deepspeed_note),
        points("faster than Sputnik", "x", &[*sputnik_times; 2], sputnik, sputnik_note),
    ];
    parts.concat()
}

/// The least and the most of the rows, each with its number of GPUs.
fn ends(rows: &[Throughput], of: impl Fn(&Throughput) -> f64) -> [(f64, usize); 2] {
    let mut all: Vec<(f64, usize)> = rows.iter().map(|row| (of(row), row.gpus)).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    [all.first(), all.last()].map(|end| end.copied().unwrap_or((f64::NAN, 0)))
}

/// Sums of the printed parts: of communication, and of all.
fn parts_of_step(parts: &Parts) -> Vec<Point> {
    let communication = parts.point_to_point + parts.bubble + parts.collectives;
    let what = |what: &str| format!("2.7B, {} GPUs: {what}", parts.gpus);
    let sum = parts.communication.map(|printed| {
        Point::new(what("communication saved, of the batch"), "section 4.3.3", printed, communication, "%")
    });
    let saved = communication - parts.compression;
    let whole = Point::new(what("time saved, by the sum of the parts"), "section 4.3.2", parts.saved, saved, "%");
    sum.into_iter().chain([whole.because(&parts.note)]).collect()
}
