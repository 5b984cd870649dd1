//! Fits the efficiencies of a device and of its networks to published runs, and prints the fields of
//! `crates/spec/presets/devices/*.toml` and `clusters/*.toml` to be replaced.
//!
//! ```text
//! cargo run --release -p quadrille-plan --example fit_devices -- DEVICE SOURCE...
//! ```
//!
//! `SOURCE` is a name of `quadrille validate published`, or `all`. Minimised is the mean over sources of the mean of
//! |ln(predicted / measured)| of their step times, by the downhill simplex of Nelder and Mead (1965) over the logarithms
//! of the parameters, begun anew from its result until it stops improving. Nothing is random: the same sources give the
//! same numbers.

use std::env::args;
use std::process::ExitCode;

use quadrille_plan::published::{BUILT_IN, Measured, Run, evaluate, read};
use quadrille_spec::{Cluster, Device, Efficiency};

/// A parameter: its name, its bounds, and where it is.
struct Parameter {
    name: &'static str,
    least: f64,
    most: f64,
    get: fn(&Machine) -> f64,
    set: fn(&mut Machine, f64),
}

/// What is fitted: a device and the two networks around it.
#[derive(Clone)]
struct Machine {
    device: Device,
    efficiency: [f64; 2],
    latency: [f64; 2],
    half_bytes: [f64; 2],
}

impl Machine {
    fn of(cluster: &Cluster) -> Option<Self> {
        let [inner, outer] = cluster.tiers.as_slice() else { return None };
        Some(Self {
            device: cluster.device.clone()?,
            efficiency: [inner.efficiency, outer.efficiency],
            latency: [inner.latency, outer.latency],
            half_bytes: [inner.half_bytes, outer.half_bytes],
        })
    }

    /// The cluster of a run with these parameters; sizes and rated bandwidths are the run's.
    fn apply(&self, cluster: &mut Cluster) {
        if let Some(device) = &mut cluster.device {
            device.memory_efficiency = self.device.memory_efficiency;
            device.launch_seconds = self.device.launch_seconds;
            device.products = self.device.products.clone();
            device.attention = self.device.attention.clone();
        }
        for (at, tier) in cluster.tiers.iter_mut().enumerate() {
            tier.efficiency = self.efficiency[at];
            tier.latency = self.latency[at];
            tier.half_bytes = self.half_bytes[at];
        }
    }
}

/// The four numbers of a curve; other kinds are no parameters.
fn curve(efficiency: &Efficiency) -> [f64; 4] {
    match efficiency {
        Efficiency::Curve { ceiling, half_m, half_n, half_k } => [*ceiling, *half_m, *half_n, *half_k],
        Efficiency::Constant { fraction } => [*fraction, 0.0, 0.0, 0.0],
        Efficiency::Table { .. } => [1.0, 0.0, 0.0, 0.0],
    }
}

fn with(efficiency: &mut Efficiency, at: usize, value: f64) {
    let mut numbers = curve(efficiency);
    numbers[at] = value;
    let [ceiling, half_m, half_n, half_k] = numbers;
    *efficiency = Efficiency::Curve { ceiling, half_m, half_n, half_k };
}

macro_rules! parameter {
    ($name:literal, $least:expr, $most:expr, $machine:ident => $get:expr, $value:ident => $set:expr) => {
        Parameter { name: $name, least: $least, most: $most, get: |$machine| $get, set: |$machine, $value| $set }
    };
}

const PARAMETERS: [Parameter; 16] = [
    parameter!("products.ceiling", 0.3, 1.0, m => curve(&m.device.products)[0], v => with(&mut m.device.products, 0, v)),
    parameter!("products.half_m", 1.0, 2000.0, m => curve(&m.device.products)[1], v => with(&mut m.device.products, 1, v)),
    parameter!("products.half_n", 1.0, 2000.0, m => curve(&m.device.products)[2], v => with(&mut m.device.products, 2, v)),
    parameter!("products.half_k", 1.0, 2000.0, m => curve(&m.device.products)[3], v => with(&mut m.device.products, 3, v)),
    parameter!("attention.ceiling", 0.1, 1.0, m => curve(&m.device.attention)[0], v => with(&mut m.device.attention, 0, v)),
    parameter!("attention.half_m", 1.0, 5000.0, m => curve(&m.device.attention)[1], v => with(&mut m.device.attention, 1, v)),
    parameter!("attention.half_n", 1e-2, 500.0, m => curve(&m.device.attention)[2], v => with(&mut m.device.attention, 2, v)),
    parameter!("attention.half_k", 1e-2, 500.0, m => curve(&m.device.attention)[3], v => with(&mut m.device.attention, 3, v)),
    parameter!("memory_efficiency", 0.3, 1.0, m => m.device.memory_efficiency, v => m.device.memory_efficiency = v),
    parameter!("launch_seconds", 1e-6, 1e-4, m => m.device.launch_seconds, v => m.device.launch_seconds = v),
    parameter!("tiers[0].efficiency", 0.2, 1.0, m => m.efficiency[0], v => m.efficiency[0] = v),
    parameter!("tiers[0].latency", 1e-7, 1e-4, m => m.latency[0], v => m.latency[0] = v),
    parameter!("tiers[0].half_bytes", 1.0, 1e8, m => m.half_bytes[0], v => m.half_bytes[0] = v),
    parameter!("tiers[1].efficiency", 0.1, 1.0, m => m.efficiency[1], v => m.efficiency[1] = v),
    parameter!("tiers[1].latency", 1e-7, 1e-3, m => m.latency[1], v => m.latency[1] = v),
    parameter!("tiers[1].half_bytes", 1.0, 1e9, m => m.half_bytes[1], v => m.half_bytes[1] = v),
];

/// The runs of each source with their seconds.
struct Problem {
    machine: Machine,
    sources: Vec<(&'static str, Vec<(Run, f64)>)>,
}

impl Problem {
    fn machine(&self, point: &[f64]) -> Machine {
        let mut machine = self.machine.clone();
        for (parameter, value) in PARAMETERS.iter().zip(point) {
            (parameter.set)(&mut machine, value.exp().clamp(parameter.least, parameter.most));
        }
        machine
    }

    /// Of each source, the mean of |ln(predicted / measured)|.
    fn errors(&self, point: &[f64]) -> Vec<f64> {
        let machine = self.machine(point);
        let error = |(run, seconds): &(Run, f64)| {
            let mut run = run.clone();
            machine.apply(&mut run.cluster);
            run.price().map_or(f64::INFINITY, |price| (price.seconds / seconds).ln().abs())
        };
        self.sources.iter().map(|(_, runs)| runs.iter().map(error).sum::<f64>() / runs.len() as f64).collect()
    }

    fn cost(&self, point: &[f64]) -> f64 {
        let errors = self.errors(point);
        // Outside the bounds the clamped value counts; a small slope leads back.
        let outside: f64 = PARAMETERS
            .iter()
            .zip(point)
            .map(|(parameter, value)| (value - parameter.most.ln()).max(0.0) + (parameter.least.ln() - value).max(0.0))
            .sum();
        errors.iter().sum::<f64>() / errors.len() as f64 + 1e-2 * outside
    }
}

/// The downhill simplex of Nelder and Mead from `start` with edges of `edge`.
fn simplex(cost: &impl Fn(&[f64]) -> f64, start: &[f64], edge: f64, steps: usize) -> (Vec<f64>, f64) {
    let mut corners: Vec<(Vec<f64>, f64)> = (0..=start.len())
        .map(|at| {
            let mut corner = start.to_vec();
            if let Some(value) = at.checked_sub(1).map(|at| &mut corner[at]) {
                *value += edge;
            }
            let value = cost(&corner);
            (corner, value)
        })
        .collect();
    for _ in 0..steps {
        corners.sort_by(|a, b| a.1.total_cmp(&b.1));
        let Some((worst, worst_cost)) = corners.pop() else { break };
        let count = corners.len() as f64;
        let centre: Vec<f64> =
            (0..worst.len()).map(|at| corners.iter().map(|(corner, _)| corner[at]).sum::<f64>() / count).collect();
        let along = |factor: f64| -> (Vec<f64>, f64) {
            let point: Vec<f64> = centre.iter().zip(&worst).map(|(c, w)| c + factor * (c - w)).collect();
            let value = cost(&point);
            (point, value)
        };
        let (best_cost, second) = (corners[0].1, corners[corners.len() - 1].1);
        let reflected = along(1.0);
        let next = if reflected.1 < best_cost {
            let further = along(2.0);
            if further.1 < reflected.1 { further } else { reflected }
        } else if reflected.1 < second {
            reflected
        } else {
            let nearer = along(if reflected.1 < worst_cost { 0.5 } else { -0.5 });
            if nearer.1 < worst_cost.min(reflected.1) {
                nearer
            } else {
                let best = corners[0].0.clone();
                for (corner, value) in corners.iter_mut().skip(1) {
                    corner.iter_mut().zip(&best).for_each(|(x, b)| *x = (*x + b) / 2.0);
                    *value = cost(corner);
                }
                let point: Vec<f64> = worst.iter().zip(&best).map(|(w, b)| (w + b) / 2.0).collect();
                let value = cost(&point);
                (point, value)
            }
        };
        corners.push(next);
    }
    corners.sort_by(|a, b| a.1.total_cmp(&b.1));
    corners.swap_remove(0)
}

fn main() -> ExitCode {
    let names: Vec<String> = args().skip(1).collect();
    let Some((device, wanted)) = names.split_first().filter(|(_, wanted)| !wanted.is_empty()) else {
        eprintln!("usage: fit_devices DEVICE SOURCE...  e.g. fit_devices a100-80 'vTrain single-node' Korthikanti");
        return ExitCode::from(2);
    };
    let rows = read(BUILT_IN).expect("the built-in rows are legal");
    let evaluation = evaluate(&rows).expect("the clusters of the rows are described");
    let mut sources: Vec<(&'static str, Vec<(Run, f64)>)> = Vec::new();
    for entry in &evaluation.entries {
        let Measured::Seconds(seconds) = entry.run.measured else { continue };
        let name = entry.run.source.name;
        let of_device = entry.run.cluster.device.as_ref().is_some_and(|of| of.name == *device);
        if !of_device || !wanted.iter().any(|wanted| wanted == name || wanted == "all") {
            continue;
        }
        match sources.iter_mut().find(|(known, _)| *known == name) {
            Some((_, runs)) => runs.push((entry.run.clone(), seconds)),
            None => sources.push((name, vec![(entry.run.clone(), seconds)])),
        }
    }
    let Some(machine) = sources.first().and_then(|(_, runs)| Machine::of(&runs[0].0.cluster)) else {
        eprintln!("no times of {wanted:?} on {device}");
        return ExitCode::from(2);
    };
    let problem = Problem { machine, sources };
    let mut point: Vec<f64> = PARAMETERS
        .iter()
        .map(|parameter| (parameter.get)(&problem.machine).clamp(parameter.least, parameter.most).ln())
        .collect();
    let mut cost = problem.cost(&point);
    eprintln!("{cost:.4} before");
    for round in 0..12 {
        let edge = if round % 2 == 0 { 0.3 } else { -0.1 };
        let (next, lower) = simplex(&|point| problem.cost(point), &point, edge, 600);
        eprintln!("{lower:.5} after round {round}");
        let gained = cost - lower;
        (point, cost) = (next, lower);
        if round > 3 && gained < 1e-5 {
            break;
        }
    }
    for ((name, runs), error) in problem.sources.iter().zip(problem.errors(&point)) {
        println!("# {name}: {} times, mean |ln(predicted / measured)| {error:.4}", runs.len());
    }
    let machine = problem.machine(&point);
    for parameter in &PARAMETERS {
        println!("{} = {:.4e}", parameter.name, (parameter.get)(&machine));
    }
    ExitCode::SUCCESS
}
