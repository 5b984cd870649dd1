//! Fits the efficiencies of a device and of its networks to published runs, and prints what is to be replaced in
//! `crates/spec/presets/devices/*.toml` and `clusters/*.toml`, and the constants of frameworks and networks.
//!
//! ```text
//! cargo run --release -p quadrille-evidence --example fit_devices -- DEVICE [hold=NAME]... SOURCE[/TABLE]...
//! ```
//!
//! `SOURCE` is a name of `quadrille validate published`, `TABLE` the beginning of one of its tables. Minimised is the mean
//! over these of the mean of |ln(predicted / measured)| of their step times, by the downhill simplex of Nelder and Mead
//! (1965) over the logarithms of the parameters, begun anew from its result until it stops improving. Nothing is random:
//! the same sources give the same numbers. Parameters that are held (those whose names begin so) keep their values.

use std::env::args;
use std::process::ExitCode;

use quadrille_evidence::{BUILT_IN, Measured, Run, evaluate, read};
use quadrille_spec::Efficiency;

/// A parameter: its name, its bounds, and where it is in a run that has it.
struct Parameter {
    name: String,
    least: f64,
    most: f64,
    place: Box<Place>,
}

type Place = dyn Fn(&mut Run) -> Option<&mut f64>;

fn parameter(name: &str, least: f64, most: f64, place: impl Fn(&mut Run) -> Option<&mut f64> + 'static) -> Parameter {
    Parameter { name: name.to_owned(), least, most, place: Box::new(place) }
}

/// One of the four numbers of a curve.
fn of_curve(curve: &mut Efficiency, at: usize) -> Option<&mut f64> {
    let Efficiency::Curve { ceiling, half_m, half_n, half_k } = curve else { return None };
    [ceiling, half_m, half_n, half_k].into_iter().nth(at)
}

fn products(name: &str, at: usize, least: f64, most: f64) -> Parameter {
    parameter(name, least, most, move |run| of_curve(&mut run.cluster.device.as_mut()?.products, at))
}

fn attention(name: &str, at: usize, least: f64, most: f64) -> Parameter {
    parameter(name, least, most, move |run| of_curve(&mut run.cluster.device.as_mut()?.attention, at))
}

/// All parameters; `networks` are the names of those between nodes.
fn parameters(networks: &[String]) -> Vec<Parameter> {
    let mut list = vec![
        products("products.ceiling", 0, 0.4, 1.0),
        products("products.half_m", 1, 1.0, 2000.0),
        products("products.half_n", 2, 1.0, 2000.0),
        products("products.half_k", 3, 1.0, 2000.0),
        attention("attention.ceiling", 0, 0.2, 1.0),
        attention("attention.half_m", 1, 1.0, 4000.0),
        parameter("memory_efficiency", 0.3, 1.0, |run| Some(&mut run.cluster.device.as_mut()?.memory_efficiency)),
        parameter("launch_seconds", 2e-6, 2e-5, |run| Some(&mut run.cluster.device.as_mut()?.launch_seconds)),
        parameter("host_seconds", 1e-5, 2e-4, |run| nonzero(&mut run.framework.host_seconds)),
        parameter("dispatch_seconds", 1e-6, 3e-4, |run| nonzero(&mut run.framework.dispatch_seconds)),
        parameter("tiers[0].efficiency", 0.3, 1.0, |run| Some(&mut run.cluster.tiers.get_mut(0)?.efficiency)),
        parameter("tiers[0].latency", 1e-6, 3e-5, |run| Some(&mut run.cluster.tiers.get_mut(0)?.latency)),
        parameter("tiers[0].half_bytes", 1e3, 1e8, |run| Some(&mut run.cluster.tiers.get_mut(0)?.half_bytes)),
        parameter("tiers[1].latency", 1e-6, 1e-3, |run| Some(&mut run.cluster.tiers.get_mut(1)?.latency)),
        parameter("tiers[1].half_bytes", 1e3, 1e9, |run| Some(&mut run.cluster.tiers.get_mut(1)?.half_bytes)),
    ];
    list.extend(networks.iter().map(|name| {
        let wanted = name.clone();
        parameter(&format!("efficiency of {name}"), 0.05, 1.0, move |run| {
            run.cluster.tiers.get_mut(1).filter(|tier| tier.name == wanted).map(|tier| &mut tier.efficiency)
        })
    }));
    list
}

/// A constant that only some frameworks have.
fn nonzero(value: &mut f64) -> Option<&mut f64> {
    if *value > 0.0 { Some(value) } else { None }
}

/// The runs of each wanted set with their seconds.
struct Problem {
    parameters: Vec<Parameter>,
    sets: Vec<(String, Vec<(Run, f64)>)>,
}

impl Problem {
    /// The value that a parameter has in the first run that has it.
    fn value(&self, parameter: &Parameter) -> Option<f64> {
        let mut runs = self.sets.iter().flat_map(|(_, runs)| runs);
        runs.find_map(|(run, _)| (parameter.place)(&mut run.clone()).map(|value| *value))
    }

    /// Of each set, the mean of |ln(predicted / measured)|.
    fn errors(&self, point: &[f64]) -> Vec<f64> {
        let error = |(run, seconds): &(Run, f64)| {
            let mut run = run.clone();
            for (parameter, value) in self.parameters.iter().zip(point) {
                if let Some(place) = (parameter.place)(&mut run) {
                    *place = value.exp().clamp(parameter.least, parameter.most);
                }
            }
            run.price().map_or(f64::INFINITY, |price| (price.seconds / seconds).ln().abs())
        };
        self.sets.iter().map(|(_, runs)| runs.iter().map(error).sum::<f64>() / runs.len() as f64).collect()
    }

    fn cost(&self, point: &[f64]) -> f64 {
        let errors = self.errors(point);
        // Outside the bounds the clamped value counts; a small slope leads back.
        let outside: f64 = self
            .parameters
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

/// The times of a device in each wanted set.
fn sets(device: &str, wanted: &[&String]) -> Vec<(String, Vec<(Run, f64)>)> {
    let rows = read(BUILT_IN).expect("the built-in rows are legal");
    let evaluation = evaluate(&rows).expect("the clusters of the rows are described");
    let mut sets: Vec<(String, Vec<(Run, f64)>)> =
        wanted.iter().map(|wanted| ((*wanted).clone(), Vec::new())).collect();
    for entry in &evaluation.entries {
        let Measured::Seconds(seconds) = entry.run.measured else { continue };
        let name = format!("{}/{}", entry.run.source.name, entry.row.table);
        let of_device = entry.run.cluster.device.as_ref().is_some_and(|of| of.name == device);
        for (_, runs) in sets.iter_mut().filter(|(wanted, _)| of_device && name.starts_with(wanted.as_str())) {
            runs.push((entry.run.clone(), seconds));
        }
    }
    sets
}

fn main() -> ExitCode {
    let words: Vec<String> = args().skip(1).collect();
    let (held, names): (Vec<&String>, Vec<&String>) = words.iter().partition(|word| word.starts_with("hold="));
    let held: Vec<&str> = held.iter().filter_map(|word| word.strip_prefix("hold=")).collect();
    let Some((device, wanted)) = names.split_first().filter(|(_, wanted)| !wanted.is_empty()) else {
        eprintln!("usage: fit_devices DEVICE [hold=NAME]... SOURCE[/TABLE]...  e.g. fit_devices a100-80 PTD-P");
        return ExitCode::from(2);
    };
    let sets = sets(device, wanted);
    if let Some((name, _)) = sets.iter().find(|(_, runs)| runs.is_empty()) {
        eprintln!("no times of {name} on {device}");
        return ExitCode::from(2);
    }
    let between = |(run, _): &(Run, f64)| {
        let [inner, outer] = run.cluster.tiers.as_slice() else { return None };
        let several = inner.devices.is_some_and(|devices| run.candidate.devices() > devices);
        several.then(|| outer.name.clone())
    };
    let mut networks: Vec<String> = sets.iter().flat_map(|(_, runs)| runs.iter().filter_map(between)).collect();
    networks.sort();
    networks.dedup();
    let mut problem = Problem { parameters: parameters(&networks), sets };
    let mut free = problem.parameters.split_off(0);
    free.retain(|parameter| {
        !held.iter().any(|name| parameter.name.starts_with(name)) && problem.value(parameter).is_some()
    });
    problem.parameters = free;
    let start = |parameter| problem.value(parameter).unwrap_or(1.0).clamp(parameter.least, parameter.most).ln();
    let mut point: Vec<f64> = problem.parameters.iter().map(start).collect();
    let mut cost = problem.cost(&point);
    eprintln!("{cost:.4} before");
    for round in 0..12 {
        let edge = if round % 2 == 0 { 0.3 } else { -0.1 };
        let (next, lower) = simplex(&|point| problem.cost(point), &point, edge, 150);
        eprintln!("{lower:.5} after round {round}");
        let gained = cost - lower;
        (point, cost) = (next, lower);
        if round > 2 && gained < 1e-4 {
            break;
        }
    }
    for ((name, runs), error) in problem.sets.iter().zip(problem.errors(&point)) {
        println!("# {name}: {} times, mean |ln(predicted / measured)| {error:.4}", runs.len());
    }
    for (parameter, value) in problem.parameters.iter().zip(&point) {
        println!("{} = {:.4e}", parameter.name, value.exp().clamp(parameter.least, parameter.most));
    }
    ExitCode::SUCCESS
}
