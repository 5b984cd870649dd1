//! TED: replicas, parameters, bytes of states, shares of the peak and orders of speed-ups. The memory of the update is in
//! `update.rs`, what is sent in `step.rs`.

mod step;
mod update;

use quadrille_spec::{Cluster, Grid, Model, SpecError};
use serde::Deserialize;

use crate::ted::{Mixture, Placed, largest_base};

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
    spike: update::Spike,
    peak: update::Peak,
    step: step::Step,
    rows: step::Rows,
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

pub fn points() -> Result<Vec<Point>, SpecError> {
    let file: File = read("ted.toml", include_str!("../../../published/ted.toml"))?;
    let mut points = Vec::new();
    for row in &file.replicas {
        points.extend(replicas(row)?);
    }
    for row in &file.weak_scaling.rows {
        points.extend(parameters(&file.weak_scaling, row)?);
        points.push(least_tensor(&file.weak_scaling, row)?);
    }
    for row in &file.larger_bases {
        points.push(larger_base(row)?);
    }
    points.extend(update::spike(&file.spike)?);
    points.extend(update::peak(&file.peak)?);
    points.extend(step::points(&file.step, &file.rows)?);
    points.extend(percents(&file.weak_scaling));
    points.extend(orders(&file));
    Ok(points)
}

/// Equation 7.1 beside our grid, in which axis expert is a factor of the batch.
fn replicas(row: &Replicas) -> Result<[Point; 2], SpecError> {
    let Replicas { source, gpus, tensor, experts, other, expert } = row;
    let gpus = *gpus;
    let tensor = *tensor;
    let placed = Placed { mixture: Mixture { base: 1.0, experts: *experts }, gpus, tensor };
    let text = grid(&placed);
    let grid: Grid = text.parse()?;
    let what = |what: &str| format!("{gpus} GPUs, {text}: replicas of {what}");
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
    let what = |what: &str| format!("{base}: {what}, eq. beside ours");
    Ok([
        point(
            what(&format!("{experts} experts' parameters")),
            "eq. 7.2",
            equations.expert_parameters(),
            of_experts,
            "billion",
            &scaling.experts_note,
        )?,
        point(
            what("other parameters"),
            "eq. 7.3",
            equations.other_parameters(),
            all - of_experts,
            "billion",
            &scaling.others_note,
        )?,
        point(
            what(&format!("states on {gpus} GPUs")),
            "eq. 7.5",
            placed.least_bytes(),
            bytes,
            "GB",
            &scaling.bytes_note,
        )?,
    ])
}

/// The smallest tensor parallel groups with which a GPU has room for what equation 7.5 counts.
fn least_tensor(scaling: &WeakScaling, row: &Row) -> Result<Point, SpecError> {
    let mixture = Mixture { base: row.billion * 1e9, experts: scaling.experts };
    let placed = least(mixture, row.gpus, scaling.gpu_gigabytes * 1e9)?;
    let left = scaling.gpu_gigabytes - placed.least_bytes() / 1e9;
    let note = format!("{}, to which it leaves {left:.1} GB here", scaling.tensor_note);
    let what = format!("{}, {} experts, {} GPUs: smallest tensor group", row.base, scaling.experts, row.gpus);
    Ok(Point::new(what, "section 7.4.4", row.tensor, placed.tensor as f64, "GPUs").because(&note))
}

/// [`Placed::least_tensor`]; that there is none is an error of the file.
fn least(mixture: Mixture, gpus: usize, bytes: f64) -> Result<Placed, SpecError> {
    Placed::least_tensor(mixture, gpus, bytes).ok_or_else(|| {
        SpecError::invalid("gpus", gpus, "none has room for the model", "correct the published figures' file")
    })
}

fn larger_base(row: &LargerBase) -> Result<Point, SpecError> {
    let node = Cluster::preset(&row.cluster)?.network.map_or(1, |network| network.devices_per_node);
    let what = format!("{}: larger bases with tensor parallel nodes", row.cluster);
    Ok(Point::new(what, "eq. 7.6", row.times, largest_base(1.0, node) / largest_base(1.0, 1), "x"))
}

/// What the text says of table 7.1.
fn percents(scaling: &WeakScaling) -> Vec<Point> {
    let point = |row: &Row| {
        let what = format!("{}, {} experts, {} GPUs: share of peak", row.base, scaling.experts, row.gpus);
        let note = format!("table 7.1 prints {:.1}", row.percent);
        Point::new(what, "section 7.4.4", row.percent_in_text, row.percent, "%").because(&note)
    };
    scaling.rows.iter().map(point).collect()
}

/// Speed-ups are of time, so that their order alone is held against formulas: models whose place among speed-ups is that
/// among the parts of all-to-alls' elements that DTD and CAC save.
fn orders(File { weak_scaling, strong_scaling, .. }: &File) -> [Point; 2] {
    let weak = weak_scaling.rows.iter().map(|row| [step::saved_all_to_alls(row.tensor()), row.speedup_percent]);
    let strong = strong_scaling.iter().map(|row| [step::saved_all_to_alls(row.tensor), row.speedup_percent]);
    let point = |what: &str, source: &str, pairs: Vec<[f64; 2]>| {
        let what = format!("{what}: speed-ups in the order of what is saved");
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

#[cfg(test)]
mod tests {
    use toml::Value;

    use super::*;

    /// The texts of all fields whose names end with `note`.
    fn notes(value: &Value) -> Vec<String> {
        match value {
            Value::Table(table) => {
                let own = table.iter().filter(|(name, _)| name.ends_with("note")).filter_map(|(_, it)| it.as_str());
                own.map(str::to_owned).chain(table.values().flat_map(notes)).collect()
            }
            Value::Array(values) => values.iter().flat_map(notes).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn every_note_is_told() {
        let file: Value = toml::from_str(include_str!("../../../published/ted.toml")).unwrap();
        let told: Vec<String> = points().unwrap().into_iter().filter_map(|point| point.note).collect();
        let known = notes(&file);
        assert!(known.len() > 9, "{known:?}");
        for note in known {
            assert!(told.iter().any(|told| told.contains(&note)), "{note}");
        }
    }

    #[test]
    fn places_are_counted_by_hand() {
        assert_eq!(in_order(&[[0.3, 6.0], [0.8, 25.0], [0.6, 20.0]]), 3);
        assert_eq!(in_order(&[[0.3, 20.0], [0.6, 6.0], [0.8, 25.0]]), 1, "the first two change places");
        assert_eq!(in_order(&[]), 0);
    }
}
