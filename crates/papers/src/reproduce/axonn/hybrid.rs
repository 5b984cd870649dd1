//! AxoNN's hybrid, chapter 3 of the dissertation: bytes of states, times of phases, intervals of kept activations.

use quadrille_spec::{Model, SpecError};
use serde::Deserialize;

use crate::axonn::{bucketed_bytes, data_parallel_bytes, kept_interval, mixed_precision_bytes};
use crate::reproduce::memory;
use crate::reproduce::point::Point;
use crate::reproduce::printed::{Printed, read};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    parameters_billion: f64,
    gpus: usize,
    bucket_million: f64,
    bytes: Bytes,
    few_stages: FewStages,
    many_stages: ManyStages,
    phases: Phases,
    intervals: Intervals,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bytes {
    mixed_precision: Printed,
    on_gpu: Printed,
    bucket_element: Printed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FewStages {
    stages: usize,
    gpu_gigabytes: f64,
    gigabytes: Printed,
    gpu_memories: Printed,
    times_less: Printed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ManyStages {
    stages: usize,
    gigabytes: Printed,
    gigabytes_with_buckets: Printed,
    times_less: Printed,
    note: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Phases {
    pipelining_seconds: [f64; 2],
    data_parallel_seconds_before: f64,
    data_parallel_seconds: Printed,
    data_times: Printed,
    replicas_times: Printed,
    all_reduce_over_optimizer: f64,
    percent_saved: Printed,
    data_parallel_note: String,
    without_optimizer_note: String,
    with_optimizer_note: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Intervals {
    sequence: usize,
    note: String,
    examples: Vec<Example>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Example {
    layers: usize,
    hidden: usize,
    heads: usize,
    stages: usize,
}

impl File {
    fn parameters(&self) -> f64 {
        self.parameters_billion * 1e9
    }

    fn bucket(&self) -> f64 {
        self.bucket_million * 1e6
    }

    /// Parameters of a GPU, and GPUs that have the same.
    fn share(&self, stages: usize) -> (f64, usize) {
        (self.parameters() / stages as f64, self.gpus / stages)
    }
}

pub fn points() -> Result<Vec<Point>, SpecError> {
    let file: File = read("axonn_hybrid.toml", include_str!("../../../published/axonn_hybrid.toml"))?;
    Ok([states(&file), totals(&file), phases(&file), kept(&file.intervals)?].concat())
}

/// A point of section 3.3.2.
fn point(what: impl Into<String>, published: Printed, ours: f64, unit: &'static str) -> Point {
    Point::new(what, "dissertation 3.3.2", published, ours, unit)
}

fn states(file: &File) -> Vec<Point> {
    let Bytes { mixed_precision, on_gpu, bucket_element } = &file.bytes;
    let few = &file.few_stages;
    let (own, _) = file.share(few.stages);
    let all = mixed_precision_bytes(own);
    let rest = bucketed_bytes(own, file.bucket());
    let what = |what: &str| format!("{} billion on {} stages: {what}", file.parameters_billion, few.stages);
    vec![
        point("states in mixed precision", *mixed_precision, mixed_precision_bytes(1.0), "bytes a parameter"),
        point("states that stay on the GPU", *on_gpu, bucketed_bytes(1.0, 0.0), "bytes a parameter"),
        point("a bucket on the GPU", *bucket_element, bucketed_bytes(0.0, 1.0), "bytes an element"),
        point(what("states of a GPU"), few.gigabytes, all / 1e9, "GB"),
        point(what("states over a GPU's memory"), few.gpu_memories, all / (few.gpu_gigabytes * 1e9), "x"),
        point(what("states less with buckets"), few.times_less, all / rest, "x"),
    ]
}

fn totals(file: &File) -> Vec<Point> {
    let ManyStages { stages, gigabytes, gigabytes_with_buckets, times_less, note } = &file.many_stages;
    let (own, _) = file.share(*stages);
    let all_gpus = |bytes: f64| bytes * file.gpus as f64 / 1e9;
    let what = |what: &str| format!("{} GPUs, {stages} stages: {what}", file.gpus);
    let all = mixed_precision_bytes(own);
    let rest = bucketed_bytes(own, file.bucket());
    let less = gigabytes.nearest(0.0) / gigabytes_with_buckets.nearest(0.0);
    vec![
        point(what("memory"), *gigabytes, all_gpus(all), "GB").because(note),
        point(what("memory with buckets"), *gigabytes_with_buckets, all_gpus(rest), "GB").because(note),
        point(what("less with buckets, of the printed memory"), *times_less, less, "x"),
        point(what("less with buckets, of states"), *times_less, all / rest, "x").because(note),
    ]
}

fn phases(file: &File) -> Vec<Point> {
    let phases = &file.phases;
    let [many, few] = phases.pipelining_seconds;
    let [own_many, own_few] = [&file.many_stages.stages, &file.few_stages.stages].map(|stages| file.share(*stages));
    let bytes = |(parameters, replicas): (f64, usize)| data_parallel_bytes(parameters, replicas);
    let reduce_before = phases.data_parallel_seconds_before;
    let reduce = phases.data_parallel_seconds.nearest(0.0);
    let by_bytes = reduce_before * bytes(own_few) / bytes(own_many);
    let optimizer = reduce / phases.all_reduce_over_optimizer;
    let saved = |after: f64| 100.0 * (1.0 - after / (many + reduce_before));
    let from = format!("{} to {} stages", file.many_stages.stages, file.few_stages.stages);
    let what = |what: &str| format!("{from}: {what}");
    vec![
        point(what("gradients that a GPU reduces"), phases.data_times, own_few.0 / own_many.0, "x"),
        point(what("GPUs that reduce them"), phases.replicas_times, own_few.1 as f64 / own_many.1 as f64, "x"),
        point(what("data-parallel phase by bytes"), phases.data_parallel_seconds, by_bytes, "s")
            .because(&phases.data_parallel_note),
        point(what("time saved, of both phases"), phases.percent_saved, saved(few + reduce), "%")
            .because(&phases.without_optimizer_note),
        point(what("time saved, with the optimizer"), phases.percent_saved, saved(few + reduce + optimizer), "%")
            .because(&phases.with_optimizer_note),
    ]
}

/// Equation 3.1's intervals beside those of least activations by our programs.
fn kept(intervals: &Intervals) -> Result<Vec<Point>, SpecError> {
    let point = |example: &Example| {
        let Example { layers, hidden, heads, stages } = *example;
        let text = format!(
            "name = \"n{layers}\"\nlayers = {layers}\nhidden = {hidden}\nheads = {heads}\nvocab = 50257\nseq_len = {}",
            intervals.sequence
        );
        let by_equation = Printed::count(kept_interval(layers, stages));
        let ours = memory::least_interval(&Model::from_toml(&text, &[])?, stages)?;
        let what =
            format!("{layers} layers on {stages} stages: blocks between kept inputs, eq. 3.1 beside our programs");
        Ok(Point::new(what, "dissertation 3.3.1", by_equation, ours as f64, "blocks").because(&intervals.note))
    };
    intervals.examples.iter().map(point).collect()
}
