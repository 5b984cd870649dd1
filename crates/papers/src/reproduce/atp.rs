//! ATP: bandwidths of its examples, table 2, stated choices of meshes, figure 12.

use crate::atp::{
    AllReduce, Candidate, Counts, HierarchicalMatrix, Interconnect, KnownBandwidths, MatrixLayer, Mesh, Workload,
};
use crate::megatron::{Recomputation, layer_flops};
use quadrille_spec::{Model, SpecError};
use serde::Deserialize;

use super::point::Point;
use super::printed::{Printed, read};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    batch: usize,
    sequence: usize,
    table_2: TableTwo,
    figure_7a: FigureSevenA,
    figure_7b: FigureSevenB,
    ic1: Calibrated,
    choices: Choices,
    figure_12: FigureTwelve,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableTwo {
    note: String,
    models: Vec<Size>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Size {
    name: String,
    hidden: usize,
    parameters_billion: Printed,
    tebiflop: Printed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FigureSevenA {
    mesh: [usize; 2],
    b1_gb_s: Printed,
    b2_gb_s: Printed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FigureSevenB {
    ring_link_gb_s: Printed,
    ring_group_gb_s: Printed,
    outer_link_gb_s: Printed,
    outer_group_gb_s: Printed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Calibrated {
    better: [usize; 2],
    worse: [usize; 2],
    percent_less: Printed,
    note: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Choices {
    times_best: Printed,
    note: String,
    stated: Vec<Choice>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Choice {
    interconnect: Option<String>,
    flat: Option<usize>,
    mesh: [usize; 2],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FigureTwelve {
    note: String,
    ic5: Vec<Timed>,
    ic6: Vec<Timed>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Timed {
    mesh: [usize; 2],
    time: Printed,
}

fn mesh([d1, d2]: [usize; 2]) -> Mesh {
    Mesh { d1, d2 }
}

pub fn points() -> Result<Vec<Point>, SpecError> {
    let file: File = read("atp.toml", include_str!("../../published/atp.toml"))?;
    // Ratios of times do not depend on the model, as long as its perceptron is four times as wide as its stream.
    let model = Model::preset("gpt3-175b")?;
    let workload =
        Workload { model: &model, batch: file.batch, seq_len: file.sequence, element_bytes: 2, counts: Counts::Paper };
    let parts = [
        table_2(&file),
        figure_7(&file)?,
        vec![calibrated(&file.ic1, &workload)?],
        choices(&file.choices, &workload, AllReduce::Rabenseifner, "eqs. 2-4")?,
        choices(&file.choices, &workload, AllReduce::Links, "eqs. 2-3")?,
        figure_12(&file.figure_12, &workload)?,
    ];
    Ok(parts.concat())
}

fn table_2(file: &File) -> Vec<Point> {
    let points = |size: &Size| {
        let billions = 12.0 * (size.hidden as f64).powi(2) / 1e9;
        let flops = layer_flops(file.batch, file.sequence, size.hidden, Recomputation::None);
        let what = |what: &str| format!("{}: {what} of a layer", size.name);
        [
            Point::new(what("parameters"), "table 2", size.parameters_billion, billions, "billion")
                .because(&file.table_2.note),
            // Printed as TFLOPs, which they are with a prefix of 2^40.
            Point::new(what("FLOPs"), "table 2", size.tebiflop, flops / 2_f64.powi(40), "TiFLOP"),
        ]
    };
    file.table_2.models.iter().flat_map(points).collect()
}

fn matrix(name: &str) -> Result<HierarchicalMatrix, SpecError> {
    match Interconnect::preset(name)?.bandwidths {
        KnownBandwidths::Matrix(matrix) => Ok(matrix),
        KnownBandwidths::Calibrated(_) => {
            Err(SpecError::invalid("interconnect", name, "it has measured bandwidths, not a matrix", "name another"))
        }
    }
}

fn figure_7(file: &File) -> Result<Vec<Point>, SpecError> {
    let FigureSevenA { mesh: sizes, b1_gb_s, b2_gb_s } = file.figure_7a;
    let mesh = mesh(sizes);
    let links = matrix("figure-7a")?.link_bandwidths(mesh)?;
    let mut points: Vec<Point> = [("B1'", b1_gb_s, links[0]), ("B2'", b2_gb_s, links[1])]
        .map(|(name, printed, ours)| {
            Point::new(format!("figure 7a, {mesh}: {name} by eq. 3"), "section 3.5", printed, ours / 1e9, "GB/s")
        })
        .to_vec();
    let figure = &file.figure_7b;
    let printed = [(figure.outer_link_gb_s, figure.outer_group_gb_s), (figure.ring_link_gb_s, figure.ring_group_gb_s)];
    let torus = matrix("ic6")?;
    for ((layer, (link, group)), ranks) in torus.layers().iter().zip(printed).zip(["rings", "devices of a ring"]) {
        let first = |of: fn(&MatrixLayer) -> Option<f64>| of(layer).unwrap_or(f64::NAN) / 1e9;
        let point = |what, printed, ours| {
            Point::new(format!("figure 7b, {ranks}: {what} bandwidth"), "section 3.4", printed, ours, "GB/s")
        };
        points.push(point("P2P", link, first(|layer| layer.link(0, 1))));
        points.push(point("group", group, first(|layer| layer.group(0))));
    }
    Ok(points)
}

/// The seconds of a mesh among ranked ones.
fn seconds(ranked: &[Candidate], wanted: Mesh) -> Result<f64, SpecError> {
    let found = ranked.iter().find(|candidate| candidate.mesh == wanted).map(|candidate| candidate.seconds);
    found.ok_or_else(|| SpecError::invalid("mesh", wanted, "its bandwidths are not known", "name another"))
}

fn calibrated(entry: &Calibrated, workload: &Workload) -> Result<Point, SpecError> {
    let ranked = Interconnect::preset("ic1")?.rank(workload, AllReduce::Rabenseifner);
    let better = mesh(entry.better);
    let worse = mesh(entry.worse);
    let less = 100.0 * (1.0 - seconds(&ranked, better)? / seconds(&ranked, worse)?);
    let what = format!("ic1: communication less on {better} than on {worse}, by eq. 2");
    Ok(Point::new(what, "section 5.3", entry.percent_less, less, "%").because(&entry.note))
}

/// How much longer the stated mesh communicates than the best one: 1 where it is the best one.
fn choices(choices: &Choices, workload: &Workload, all_reduce: AllReduce, by: &str) -> Result<Vec<Point>, SpecError> {
    let point = |choice: &Choice| {
        let (name, ranked) = match (&choice.interconnect, choice.flat) {
            (Some(name), _) => (name.clone(), Interconnect::preset(name)?.rank(workload, all_reduce)),
            (None, devices) => {
                let devices = devices.unwrap_or_default();
                let matrix = HierarchicalMatrix::flat(devices, 1e9)?;
                (format!("{devices} devices, flat"), workload.rank(&matrix, all_reduce))
            }
        };
        let stated = mesh(choice.mesh);
        let best = ranked.first().map_or(stated, |candidate| candidate.mesh);
        let ratio = seconds(&ranked, stated)? / seconds(&ranked, best)?;
        let what = format!("{name}, {by}: communication on {stated} over that on the best mesh");
        let reason = format!("{best} is best: {}", choices.note);
        Ok(Point::new(what, "section 5.3", choices.times_best, ratio, "x").because(&reason))
    };
    choices.stated.iter().map(point).collect()
}

/// Times in units of `2 L b s h/GroupBW`, `GroupBW` of a device.
fn figure_12(figure: &FigureTwelve, workload: &Workload) -> Result<Vec<Point>, SpecError> {
    let unit = |group: f64| {
        let elements =
            2.0 * (workload.model.layers() * workload.batch * workload.seq_len * workload.model.hidden) as f64;
        elements * workload.element_bytes as f64 / group
    };
    let point = |name: &str, timed: &Timed, matrix: &HierarchicalMatrix| {
        let mesh = mesh(timed.mesh);
        let group = matrix.layers().last().and_then(|layer| layer.group(0)).unwrap_or(f64::NAN);
        let time = seconds(&workload.rank(matrix, AllReduce::Rabenseifner), mesh)? / unit(group);
        let what = format!("{name}, {mesh}: communication by the matrix and eqs. 2-4");
        Ok(Point::new(what, "figure 12", timed.time, time, "2Lbsh/GroupBW").because(&figure.note))
    };
    let switch = |timed: &Timed| HierarchicalMatrix::flat(timed.mesh.iter().product(), 1e9);
    let ic5 = figure.ic5.iter().map(|timed| point("ic5", timed, &switch(timed)?));
    let torus = matrix("ic6")?;
    let ic6 = figure.ic6.iter().map(|timed| point("ic6", timed, &torus));
    ic5.chain(ic6).collect()
}
