//! TED: replicas, parameters, bytes of states, the spike of the update; orders of speed-ups and the largest models. What is
//! sent is in `step.rs`.

mod step;

use quadrille_spec::{Cluster, Grid, Model, SpecError};
use serde::Deserialize;

use crate::ted::{GRADIENT_BYTES, Mixture, Placed, largest_base};

use super::experts::{mixture, state_bytes};
use super::point::Point;
use super::printed::{Printed, read};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    replicas: Vec<Replicas>,
    weak_scaling: WeakScaling,
    strong_scaling: Vec<StrongScaling>,
    larger_bases: Vec<LargerBase>,
    spike: Spike,
    peak: Peak,
    step: step::Step,
    rows: step::Rows,
    largest: Largest,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Replicas {
    source: String,
    gpus: usize,
    tensor: usize,
    experts: usize,
    other: Printed,
    expert: Printed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WeakScaling {
    experts: usize,
    gpu_gigabytes: f64,
    experts_note: String,
    others_note: String,
    bytes_note: String,
    tensor_note: String,
    percent_note: String,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    base: String,
    billion: f64,
    gpus: usize,
    tensor: Printed,
    percent: f64,
    percent_in_text: Printed,
    speedup_percent: f64,
}

impl Row {
    /// GPUs of a tensor parallel group, as printed.
    fn tensor(&self) -> usize {
        self.tensor.nearest(0.0) as usize
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StrongScaling {
    tensor: usize,
    speedup_percent: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LargerBase {
    cluster: String,
    times: Printed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Spike {
    base: String,
    billion: f64,
    experts: usize,
    gpus: usize,
    tensor: usize,
    gigabytes: Printed,
    tile_million: f64,
    tiled_gigabytes: Printed,
    cap_gigabytes: Printed,
    saved_gigabytes: Printed,
    note: String,
    tiled_note: String,
    cap_note: String,
    saved_note: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Peak {
    billion: f64,
    experts: usize,
    gpus: usize,
    gpu_gigabytes: f64,
    gigabytes: Printed,
    without_tiles_gigabytes: Printed,
    percent_saved: Printed,
    note: String,
    without_tiles_note: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Largest {
    gpus: Vec<usize>,
    experts: Vec<usize>,
    most_tensor: usize,
    least_times: Printed,
    most_times: Printed,
    note: String,
}

pub fn points() -> Result<Vec<Point>, SpecError> {
    let file: File = read("ted.toml", include_str!("../../../published/ted.toml"))?;
    let mut points = Vec::new();
    for row in &file.replicas {
        points.extend(replicas(row)?);
    }
    for row in &file.weak_scaling.rows {
        points.extend(parameters(&file.weak_scaling, row)?);
        points.push(least_tensor(&file.weak_scaling, row));
    }
    for row in &file.larger_bases {
        points.push(larger_base(row)?);
    }
    points.extend(spike(&file.spike)?);
    points.extend(peak(&file.peak)?);
    points.extend(step::points(&file.step, &file.rows)?);
    points.extend(percents(&file.weak_scaling));
    points.extend(orders(&file));
    points.extend(largest(&file));
    Ok(points)
}

/// Equation 7.1 beside our grid, in which axis expert is a factor of the batch.
fn replicas(row: &Replicas) -> Result<[Point; 2], SpecError> {
    let Replicas { source, gpus, tensor, experts, other, expert } = row;
    let (gpus, tensor) = (*gpus, *tensor);
    let placed = Placed { mixture: Mixture { base: 1.0, experts: *experts }, gpus, tensor };
    let grid: Grid = grid(&placed).parse()?;
    let what = |what: &str| format!("{gpus} GPUs, {tensor} tensor parallel, {experts} experts: replicas of {what}");
    let others = Point::new(what("attention"), source, *other, grid.batch_shares() as f64, "GPUs");
    Ok([others, Point::new(what("an expert"), source, *expert, placed.expert_replicas(), "GPUs")])
}

/// TED's two topologies as one grid.
fn grid(placed: &Placed) -> String {
    let Placed { mixture, tensor, .. } = placed;
    format!("x={tensor},expert={},data={}", mixture.experts, placed.expert_replicas())
}

/// Equations 7.2, 7.3 and 7.5 beside exact counts; of the base model its exact parameters.
fn parameters(scaling: &WeakScaling, row: &Row) -> Result<[Point; 3], SpecError> {
    let Row { base, gpus, .. } = row;
    let experts = scaling.experts;
    let model = mixture(base, experts)?;
    let equations = Mixture { base: Model::preset(base)?.parameters() as f64, experts };
    let [all, of_experts] = [model.parameters(), model.expert_parameters()].map(|count| count as f64);
    let placed = Placed { mixture: equations, gpus: *gpus, tensor: row.tensor() };
    let bytes = state_bytes(&model, &grid(&placed))?;
    let point = |what: String, source: &str, by_equation: f64, ours: f64, unit, note: &str| {
        let published = Printed::rounded(by_equation / 1e9, 2)?;
        Ok(Point::new(what, source, published, ours / 1e9, unit).because(note))
    };
    let what = |what: &str| format!("{base}, {experts} experts: {what}");
    Ok([
        point(
            what("their parameters, eq. beside ours"),
            "eq. 7.2",
            equations.expert_parameters(),
            of_experts,
            "billion",
            &scaling.experts_note,
        )?,
        point(
            what("other parameters, eq. beside ours"),
            "eq. 7.3",
            equations.other_parameters(),
            all - of_experts,
            "billion",
            &scaling.others_note,
        )?,
        point(
            what(&format!("states on {gpus} GPUs, eq. beside ours")),
            "eq. 7.5",
            placed.least_bytes(),
            bytes,
            "GB",
            &scaling.bytes_note,
        )?,
    ])
}

/// The smallest tensor parallel groups with which a GPU has room for what equation 7.5 counts. 0: none.
fn least_tensor(scaling: &WeakScaling, row: &Row) -> Point {
    let mixture = Mixture { base: row.billion * 1e9, experts: scaling.experts };
    let placed = Placed::least_tensor(mixture, row.gpus, scaling.gpu_gigabytes * 1e9);
    let what = format!("{}, {} experts, {} GPUs: tensor parallel GPUs, least", row.base, scaling.experts, row.gpus);
    let ours = placed.map_or(0, |placed| placed.tensor) as f64;
    Point::new(what, "section 7.4.4", row.tensor, ours, "GPUs").because(&scaling.tensor_note)
}

fn larger_base(row: &LargerBase) -> Result<Point, SpecError> {
    let node = Cluster::preset(&row.cluster)?.network.map_or(1, |network| network.devices_per_node);
    let what = format!("{}: base models larger with tensor parallel nodes", row.cluster);
    Ok(Point::new(what, "eq. 7.6", row.times, largest_base(1.0, node) / largest_base(1.0, 1), "x"))
}

/// Gradients in f32 by the equations and by our count of parameters, whole and in tiles.
fn spike(spike: &Spike) -> Result<Vec<Point>, SpecError> {
    let Spike { base, billion, experts, gpus, tensor, tile_million, .. } = spike;
    let by_equations =
        Placed { mixture: Mixture { base: billion * 1e9, experts: *experts }, gpus: *gpus, tensor: *tensor };
    let tiled = by_equations.tiled_spike_bytes(tile_million * 1e6);
    let whole = by_equations.spike_bytes();
    // Each GPU updates as much as any other.
    let counted = GRADIENT_BYTES * mixture(base, *experts)?.parameters() as f64 / *gpus as f64;
    let saved = spike.gigabytes.nearest(0.0) - spike.tiled_gigabytes.nearest(0.0);
    let what = |what: &str| format!("{base}, {experts} experts, {gpus} GPUs: update's {what}");
    let point = |of: &str, source: &str, published: Printed, bytes: f64, note: &str| {
        Point::new(what(of), source, published, bytes / 1e9, "GB").because(note)
    };
    Ok(vec![
        point("spike", "figure 7.4", spike.gigabytes, whole, &spike.note),
        point("spike, by our count", "figure 7.4", spike.gigabytes, counted, &spike.note),
        point("spike with tiles", "figure 7.4", spike.tiled_gigabytes, tiled, &spike.tiled_note),
        point("spike with tiles, at most", "section 7.2", spike.cap_gigabytes, tiled, &spike.cap_note),
        point("bytes saved, by the figure", "section 7.2", spike.saved_gigabytes, saved * 1e9, ""),
        point("bytes saved, by formula", "section 7.2", spike.saved_gigabytes, whole - tiled, &spike.saved_note),
    ])
}

/// The second model of section 7.2, in the smallest tensor parallel groups that fit.
fn peak(peak: &Peak) -> Result<Vec<Point>, SpecError> {
    let Peak { billion, experts, gpus, gpu_gigabytes, gigabytes, .. } = peak;
    let (capacity, measured) = (gpu_gigabytes * 1e9, gigabytes.nearest(0.0) * 1e9);
    let mixture = Mixture { base: billion * 1e9, experts: *experts };
    let placed = Placed::least_tensor(mixture, *gpus, capacity).ok_or_else(|| {
        SpecError::invalid("gpus", gpus, "none has room for the model", "correct the published figures' file")
    })?;
    let what = |what: String| format!("{billion}B, {experts} experts, {gpus} GPUs: {what}");
    let point = |of: String, published: Printed, ours: f64, unit, note: &str| {
        Point::new(what(of), "section 7.2", published, ours, unit).because(note)
    };
    let states = format!("peak, states of {} tensor parallel GPUs", placed.tensor);
    Ok(vec![
        point(states, *gigabytes, placed.least_bytes() / 1e9, "GB", &peak.note),
        point(
            "peak without tiles".to_owned(),
            peak.without_tiles_gigabytes,
            (measured + placed.spike_bytes()) / 1e9,
            "GB",
            &peak.without_tiles_note,
        ),
        point("memory that is left".to_owned(), peak.percent_saved, 100.0 * (1.0 - measured / capacity), "%", ""),
    ])
}

/// What the text says of table 7.1.
fn percents(scaling: &WeakScaling) -> Vec<Point> {
    let point = |row: &Row| {
        let what = format!("{}, {} experts, {} GPUs: share of peak", row.base, scaling.experts, row.gpus);
        let note = &scaling.percent_note;
        Point::new(what, "section 7.4.4", row.percent_in_text, row.percent, "%").because(note)
    };
    scaling.rows.iter().map(point).collect()
}

/// Speed-ups are of time, so that their order alone is held against formulas: models whose place among speed-ups is that
/// among the parts of all-to-alls' elements that DTD and CAC save.
fn orders(File { weak_scaling, strong_scaling, .. }: &File) -> [Point; 2] {
    let weak = weak_scaling.rows.iter().map(|row| [step::saved_all_to_alls(row.tensor()), row.speedup_percent]);
    let strong = strong_scaling.iter().map(|row| [step::saved_all_to_alls(row.tensor), row.speedup_percent]);
    let point = |what: &str, source: &str, pairs: Vec<[f64; 2]>| {
        let what = format!("{what}: speed-ups in the order of elements saved (direction only)");
        Point::new(what, source, Printed::count(pairs.len()), in_order(&pairs) as f64, "models")
    };
    [point("weak scaling", "section 7.4.4", weak.collect()), point("strong scaling", "section 7.4.3", strong.collect())]
}

/// How many pairs have the same place by their first and by their second number.
fn in_order(pairs: &[[f64; 2]]) -> usize {
    let places = |of: usize| {
        let mut places: Vec<usize> = (0..pairs.len()).collect();
        places.sort_by(|a, b| pairs[*a][of].total_cmp(&pairs[*b][of]));
        places
    };
    places(0).into_iter().zip(places(1)).filter(|(first, second)| first == second).count()
}

/// How much larger the largest model is than with tensor parallel groups of one GPU, by equation 7.5.
fn largest(file: &File) -> [Point; 2] {
    let Largest { gpus, least_times, most_times, note, .. } = &file.largest;
    let times = |gpus: &usize| largest_model(file, *gpus, file.largest.most_tensor) / largest_model(file, *gpus, 1);
    let (least, most) = gpus
        .iter()
        .map(times)
        .fold((f64::INFINITY, 0.0_f64), |(least, most), times| (least.min(times), most.max(times)));
    let point = |end: &str, published: Printed, ours: f64| {
        Point::new(format!("largest models beside DeepSpeed-MoE's: {end}"), "figure 7.9", published, ours, "x")
            .because(note)
    };
    [point("least", *least_times, least), point("most", *most_times, most)]
}

/// Parameters of the largest mixture of the base models that GPUs of table 7.1 have room for. 0: there is none.
fn largest_model(file: &File, gpus: usize, most_tensor: usize) -> f64 {
    let scaling = &file.weak_scaling;
    let bases = || scaling.rows.iter().map(|row| row.billion * 1e9);
    let mixtures = file.largest.experts.iter().flat_map(|&experts| bases().map(move |base| Mixture { base, experts }));
    let fits = |mixture: &Mixture| {
        let tensors = (1..=most_tensor).filter(|tensor| gpus.is_multiple_of(tensor * mixture.experts));
        let mut bytes = tensors.map(|tensor| Placed { mixture: *mixture, gpus, tensor }.least_bytes());
        bytes.any(|bytes| bytes <= scaling.gpu_gigabytes * 1e9)
    };
    mixtures.filter(fits).map(|mixture| mixture.parameters()).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_by_hand() {
        assert_eq!(in_order(&[[0.3, 6.0], [0.8, 25.0], [0.6, 20.0]]), 3);
        assert_eq!(in_order(&[[0.3, 20.0], [0.6, 6.0], [0.8, 25.0]]), 1, "the first two change places");
        assert_eq!(in_order(&[]), 0);
    }
}
