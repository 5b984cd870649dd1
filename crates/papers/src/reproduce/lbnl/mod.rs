//! LBNL: what the paper states about the results of its model, and the configurations that its authors saved.

mod case;
mod saved;

use std::collections::BTreeMap;

use quadrille_spec::SpecError;
use serde::Deserialize;

use self::case::{Case, Sizes, days};
use super::point::Point;
use super::printed::{Printed, read};
use crate::lbnl::{Cut, Group, Layer, PUBLISHED_BATCH, Shape, Strategy, System, layers};

/// Layers of the perceptron in [`layers`]; those of attention follow.
const PERCEPTRON_LAYERS: usize = 8;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    flop_ratios: Vec<FlopRatio>,
    parameters: Parameters,
    choices: Choices,
    memory: Memory,
    optima: Vec<Optimum>,
    days: Days,
    speedups: Speedups,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlopRatio {
    model: String,
    ratio: Printed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    model: String,
    trillion: Printed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Choices {
    times_best: Printed,
    stated: Vec<Choice>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Choice {
    source: String,
    what: String,
    case: Case,
    #[serde(default)]
    among: Vec<Sizes>,
    fastest: Sizes,
    #[serde(default)]
    note: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Memory {
    source: String,
    case: Case,
    shape: Sizes,
    gigabytes: Printed,
    note: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Optimum {
    source: String,
    case: Case,
    sizes: BTreeMap<String, Printed>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Days {
    source: String,
    strategy: String,
    model: String,
    gpus: u64,
    nvs: Vec<u64>,
    note: String,
    stated: Vec<StatedDays>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatedDays {
    gpu: String,
    days: Printed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Speedups {
    source: String,
    model: String,
    gpus: Vec<String>,
    nvs: Vec<u64>,
    strategies: Vec<String>,
    percent: Printed,
    note: String,
}

pub fn points() -> Result<Vec<Point>, SpecError> {
    let file: File = read("lbnl.toml", include_str!("../../../published/lbnl.toml"))?;
    let parts = [
        block(&file)?,
        file.choices.stated.iter().map(|choice| choice.point(file.choices.times_best)).collect::<Result<_, _>>()?,
        vec![file.memory.point()?],
        optima(&file.optima)?,
        file.days.points()?,
        file.speedups.points()?,
        saved::points()?,
    ];
    Ok(parts.concat())
}

/// FLOPs of one block, forward, and parameters of all.
fn block(file: &File) -> Result<Vec<Point>, SpecError> {
    // Neither depends on the system but for the vector work of fused attention, a thousandth.
    let layers_of = |name: &str| -> Result<(Shape, [Layer; 14]), SpecError> {
        let whole =
            Cut { strategy: Strategy::OneD, hidden: Group::ONE, sequence: Group::ONE, microbatch: 1, panels: 0 };
        let shape = Shape::named(name)?;
        Ok((shape, layers(&shape, &System::named("b200")?, &whole)))
    };
    let mut points = Vec::new();
    for FlopRatio { model, ratio } in &file.flop_ratios {
        let (_, layers) = layers_of(model)?;
        let flops = |layers: &[Layer]| layers.iter().map(|layer| layer.forward.flops).sum::<f64>();
        let (perceptron, attention) = layers.split_at(PERCEPTRON_LAYERS);
        let ours = flops(perceptron) / flops(attention);
        let what = format!("{model}: FLOPs of the perceptron over those of attention");
        points.push(Point::new(what, "section III-B", *ratio, ours, "x"));
    }
    let Parameters { model, trillion } = &file.parameters;
    let (shape, layers) = layers_of(model)?;
    // Weights have two bytes.
    let weights = shape.depth as f64 * layers.iter().map(|layer| layer.weight_bytes).sum::<f64>() / 2.0;
    points.push(Point::new(format!("{model}: parameters"), "section I", *trillion, weights / 1e12, "trillion"));
    Ok(points)
}

impl Choice {
    /// How much longer the stated configuration takes than the best: 1 where it is the best.
    fn point(&self, times_best: Printed) -> Result<Point, SpecError> {
        let Self { source, what, case, among, fastest, note } = self;
        let stated = case.fastest(*fastest)?;
        let best = match among.as_slice() {
            [] => case.best()?,
            sizes => sizes.iter().try_fold(stated, |best, sizes| Ok(best.min(case.fastest(*sizes)?)))?,
        };
        let of = format!("{case}: step of {} over the best {what}", sizes_text(*fastest));
        Ok(Point::new(of, source, times_best, stated.price.seconds / best.price.seconds, "x").because(note))
    }
}

impl Memory {
    fn point(&self) -> Result<Point, SpecError> {
        let price = self.case.fastest(self.shape)?.price;
        let what = format!("{}: memory of {}", self.case, sizes_text(self.shape));
        let point = Point::new(what, &self.source, self.gigabytes, price.memory_bytes() / 1e9, "GB");
        Ok(point.because(&self.note))
    }
}

/// `tp1=8 pp=64`: the sizes above 1.
fn sizes_text(sizes: Sizes) -> String {
    let named = ["tp1", "tp2", "pp", "b"].into_iter().zip(sizes).filter(|(_, size)| *size > 1);
    named.map(|(name, size)| format!("{name}={size}")).collect::<Vec<_>>().join(" ")
}

/// Sizes of the best configurations.
fn optima(optima: &[Optimum]) -> Result<Vec<Point>, SpecError> {
    let mut points = Vec::new();
    for Optimum { source, case, sizes } in optima {
        let [dp, tp1, tp2, pp, microbatch, _, nvs_tp1, nvs_tp2, nvs_dp, nvs_pp] = case.best()?.configuration.numbers();
        let known = [
            ("dp", dp),
            ("tp1", tp1),
            ("tp2", tp2),
            ("pp", pp),
            ("microbatch", microbatch),
            ("nvs_tp1", nvs_tp1),
            ("nvs_tp2", nvs_tp2),
            ("nvs_dp", nvs_dp),
            ("nvs_pp", nvs_pp),
        ];
        for (name, printed) in sizes {
            let (_, ours) = known.into_iter().find(|(known, _)| known == name).ok_or_else(|| SpecError::Unknown {
                what: "size",
                name: name.clone(),
                known: known.map(|(name, _)| name.to_owned()).to_vec(),
            })?;
            points.push(Point::new(format!("{case}: {name} of the best"), source, *printed, ours as f64, "GPUs"));
        }
    }
    Ok(points)
}

impl Days {
    fn points(&self) -> Result<Vec<Point>, SpecError> {
        let mut points = Vec::new();
        for StatedDays { gpu, days: printed } in &self.stated {
            for nvs in &self.nvs {
                let strategy = self.strategy.clone();
                let model = self.model.clone();
                let case =
                    Case { strategy, model, gpu: gpu.clone(), nvs: *nvs, gpus: self.gpus, batch: PUBLISHED_BATCH };
                let ours = days(&case, case.best()?.price.seconds)?;
                let what = format!("{case}: training, in words");
                points.push(Point::new(what, &self.source, *printed, ours, "days").because(&self.note));
            }
        }
        Ok(points)
    }
}

impl Speedups {
    fn points(&self) -> Result<Vec<Point>, SpecError> {
        let mut speedups: Vec<Vec<f64>> = vec![Vec::new(); self.strategies.len()];
        for (gpu, nvs) in self.gpus.iter().flat_map(|gpu| self.nvs.iter().map(move |nvs| (gpu, *nvs))) {
            for gpus in (2..=14).map(|power| 1 << power) {
                let best = |strategy: &str| -> Result<Option<f64>, SpecError> {
                    let strategy = strategy.to_owned();
                    let model = self.model.clone();
                    let case = Case { strategy, model, gpu: gpu.clone(), nvs, gpus, batch: PUBLISHED_BATCH };
                    Ok(case.search()?.run(1).ranked.first().map(|best| best.price.seconds))
                };
                let Some(one_dimension) = best("1d")? else { continue };
                for (strategy, speedups) in self.strategies.iter().zip(&mut speedups) {
                    speedups.extend(best(strategy)?.map(|seconds| 100.0 * (one_dimension / seconds - 1.0)));
                }
            }
        }
        let point = |(strategy, mut speedups): (&String, Vec<f64>)| {
            speedups.sort_by(f64::total_cmp);
            let median = speedups.get(speedups.len() / 2).copied().unwrap_or(f64::NAN);
            let what = format!("{strategy}, {}: speed-up over 1d, median of {} cases", self.model, speedups.len());
            Point::new(what, &self.source, self.percent, median, "%").because(&self.note)
        };
        Ok(self.strategies.iter().zip(speedups).map(point).collect())
    }
}
