//! AxoNN: derived columns of tables II and III, scaling, time to solution, bandwidths and volumes of its examples; of the
//! dissertation's chapter 3 its memory and phases.

mod hybrid;

use crate::axonn::{Equation, linears};
use crate::megatron::{parameters, training_seconds_by_flops};
use quadrille_spec::{Axis, Cluster, Grid, Model, SpecError};
use serde::Deserialize;

use super::point::Point;
use super::printed::{Printed, read};

const SECONDS_PER_DAY: f64 = 86_400.0;
const DAYS_PER_MONTH: f64 = 365.25 / 12.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    table_ii: TableTwo,
    machines: Vec<Machine>,
    sustained: Vec<Sustained>,
    weak_scaling: Vec<WeakScaling>,
    time_to_solution: TimeToSolution,
    strong_scaling: Vec<StrongScaling>,
    groups: Groups,
    rings: Vec<Ring>,
    megatron: Megatron,
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
    model: String,
    parameters_billion: Printed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Machine {
    name: String,
    advertised_tflops: f64,
    empirical_tflops: f64,
    percent: Printed,
    #[serde(default)]
    advertised_note: String,
    #[serde(default)]
    empirical_note: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sustained {
    machine: String,
    devices: usize,
    model: String,
    pflops: f64,
    advertised_percent: Printed,
    empirical_percent: Printed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WeakScaling {
    machine: String,
    devices: usize,
    first: usize,
    percent: Printed,
    #[serde(default)]
    note: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeToSolution {
    tokens_billion: f64,
    model: String,
    machine: String,
    devices: usize,
    days: Printed,
    fewer: Fewer,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fewer {
    devices: usize,
    months: Printed,
    note: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StrongScaling {
    model: String,
    fewer: Trained,
    more: Trained,
    times_faster: Option<Printed>,
    efficiency_percent: Printed,
    note: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Trained {
    devices: usize,
    days: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Groups {
    grid: String,
    x: Printed,
    y: Printed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ring {
    figure: String,
    grid: String,
    axis: String,
    share: Printed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Megatron {
    model: String,
    tensor: usize,
    elements: Printed,
}

impl File {
    fn machine(&self, name: &str) -> Result<&Machine, SpecError> {
        self.machines.iter().find(|machine| machine.name == name).ok_or_else(|| SpecError::Unknown {
            what: "machine",
            name: name.to_owned(),
            known: self.machines.iter().map(|machine| machine.name.clone()).collect(),
        })
    }

    /// Table III's PFLOP/s of a machine on that many devices.
    fn pflops(&self, machine: &str, devices: usize) -> Result<f64, SpecError> {
        let mut runs = self.sustained.iter();
        let run = runs.find(|run| run.machine == machine && run.devices == devices);
        run.map(|run| run.pflops).ok_or_else(|| {
            SpecError::invalid("devices", devices, format!("table III has no such run on {machine}"), "name another")
        })
    }
}

pub fn points() -> Result<Vec<Point>, SpecError> {
    let file: File = read("axonn.toml", include_str!("../../../published/axonn.toml"))?;
    let parts = [
        examples(&file)?,
        table_ii(&file.table_ii)?,
        peaks(&file),
        table_iii(&file)?,
        weak_scaling(&file)?,
        time_to_solution(&file)?,
        strong_scaling(&file),
        hybrid::points()?,
    ];
    Ok(parts.concat())
}

/// Bandwidths and volumes of sections V-A and V-B.
fn examples(file: &File) -> Result<Vec<Point>, SpecError> {
    let Megatron { model: name, tensor, elements } = &file.megatron;
    let model = Model::preset(name)?;
    let grid = Grid::new(*tensor, 1, 1, 1)?;
    let sent =
        |equation: Equation| linears(&model).iter().map(|l| equation.elements(l, &grid, model.seq_len)).sum::<f64>();
    let what = format!("{name}, x={tensor}: a layer sends by eqs. 1-5 what Megatron-LM sends");
    let volume = Equation::ALL.into_iter().map(sent).sum();
    let mut points = vec![Point::new(what, "section V-A", *elements, volume, "elements")];

    let grid: Grid = file.groups.grid.parse()?;
    for (axis, next) in [(Axis::X, file.groups.x), (Axis::Y, file.groups.y)] {
        let second = grid.group(0, axis.only()).get(1).copied().unwrap_or_default();
        let what = format!("{}: next to rank 0 in its {axis} group", file.groups.grid);
        points.push(Point::new(what, "section V-B", next, second as f64, "rank"));
    }
    let nodes_of_four = Cluster::preset("perlmutter")?;
    let between = nodes_of_four.network.map_or(f64::NAN, |network| network.bandwidth);
    for Ring { figure, grid, axis, share } in &file.rings {
        let sizes: Grid = grid.parse()?;
        let axis: Axis = axis.parse()?;
        let bandwidth = nodes_of_four.ring_bandwidths(&sizes, nodes_of_four.per_node(sizes.ranks()))?[axis as usize];
        let what = format!("{grid} on two nodes of four: bandwidth of {axis} by eq. 7");
        points.push(Point::new(what, figure.as_str(), *share, bandwidth / between, "of a node's"));
    }
    Ok(points)
}

fn table_ii(table: &TableTwo) -> Result<Vec<Point>, SpecError> {
    let point = |size: &Size| {
        let billions = parameters(&Model::preset(&size.model)?) / 1e9;
        let what = format!("{}: parameters", size.model);
        Ok(Point::new(what, "table II", size.parameters_billion, billions, "billion").because(&table.note))
    };
    table.models.iter().map(point).collect()
}

fn peaks(file: &File) -> Vec<Point> {
    let point = |machine: &Machine| {
        let percent = 100.0 * machine.empirical_tflops / machine.advertised_tflops;
        let what = format!("{}: measured share of the advertised peak", machine.name);
        Point::new(what, "section VI-C", machine.percent, percent, "%")
    };
    file.machines.iter().map(point).collect()
}

fn table_iii(file: &File) -> Result<Vec<Point>, SpecError> {
    let mut points = Vec::new();
    for run in &file.sustained {
        let machine = file.machine(&run.machine)?;
        let per_device = run.pflops * 1e3 / run.devices as f64;
        let mut add = |name: &str, peak: f64, published, note: &str| {
            let what = format!("{} {}, {}: share of the {name} peak", run.machine, run.devices, run.model);
            points.push(Point::new(what, "table III", published, 100.0 * per_device / peak, "%").because(note));
        };
        add("advertised", machine.advertised_tflops, run.advertised_percent, &machine.advertised_note);
        add("measured", machine.empirical_tflops, run.empirical_percent, &machine.empirical_note);
    }
    Ok(points)
}

fn weak_scaling(file: &File) -> Result<Vec<Point>, SpecError> {
    let point = |scaling: &WeakScaling| {
        let per_device = |devices: usize| Ok(file.pflops(&scaling.machine, devices)? / devices as f64);
        let percent = 100.0 * per_device(scaling.devices)? / per_device(scaling.first)?;
        let what = format!("{} {}: weak scaling from {}", scaling.machine, scaling.devices, scaling.first);
        Ok(Point::new(what, "section VII-A", scaling.percent, percent, "%").because(&scaling.note))
    };
    file.weak_scaling.iter().map(point).collect()
}

/// Days by Megatron-LM's equation 3 at the FLOP/s of table III; months at the same FLOP/s of a device.
fn time_to_solution(file: &File) -> Result<Vec<Point>, SpecError> {
    let TimeToSolution { tokens_billion, model, machine, devices, days, fewer } = &file.time_to_solution;
    let rate = file.pflops(machine, *devices)? * 1e15;
    let ours = training_seconds_by_flops(&Model::preset(model)?, tokens_billion * 1e9, rate) / SECONDS_PER_DAY;
    let what =
        |devices| format!("{model} on {devices} devices of {machine}: training on {tokens_billion} billion tokens");
    let months = ours * *devices as f64 / fewer.devices as f64 / DAYS_PER_MONTH;
    Ok(vec![
        Point::new(what(*devices), "section VII-C", *days, ours, "days"),
        Point::new(what(fewer.devices), "section VII-C", fewer.months, months, "months").because(&fewer.note),
    ])
}

fn strong_scaling(file: &File) -> Vec<Point> {
    let points = |entry: &StrongScaling| {
        let StrongScaling { model, fewer, more, .. } = entry;
        let faster = fewer.days / more.days;
        let efficiency = 100.0 * faster * fewer.devices as f64 / more.devices as f64;
        let what = |what: &str| format!("{model}, {} to {} devices: {what}", fewer.devices, more.devices);
        let times = entry.times_faster.map(|printed| Point::new(what("faster"), "section VII-C", printed, faster, "x"));
        let percent = Point::new(what("strong scaling"), "section VII-C", entry.efficiency_percent, efficiency, "%")
            .because(&entry.note);
        times.into_iter().chain([percent]).collect::<Vec<_>>()
    };
    file.strong_scaling.iter().flat_map(points).collect()
}
