//! How far published runs like a planned one took more or less than was predicted of them, by numbers that were fitted without
//! their source.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use quadrille_cost::native::{Candidate, Framework};
use quadrille_spec::{Axis, Cluster, Model};
use serde::Serialize;

use crate::fit::{Crossed, Sample};

/// The table that comes with the program: every timed run, what it is like, and what was predicted of it. `quadrille validate
/// published --cross` makes it.
const TABLE: &str = include_str!("../data/crossed.csv");
/// Runs that are looked at.
const NEAREST: usize = 40;
/// Of one source at most.
const OF_SOURCE: usize = 12;
/// Runs that are farther than this in the mean are unlike the planned one.
const FAR: f64 = 2.5;
/// The part of runs that lie in a band, half of the others on each side.
const INSIDE: f64 = 0.8;

/// What runs are likened by.
#[derive(Debug, Clone, PartialEq)]
pub struct Likeness {
    /// The device's name.
    device: String,
    /// Whether parameters are sharded over ranks and gathered for each use (FSDP, ZeRO 3).
    sharded: bool,
    /// Whether operands of products have fewer than 16 bits.
    narrow: bool,
    /// Of the model.
    parameters: f64,
    /// Of the run.
    devices: f64,
    /// Of a sequence.
    tokens: f64,
    /// Sizes of x, context, expert and pipe.
    x: usize,
    context: usize,
    expert: usize,
    pipe: usize,
}

impl Likeness {
    /// Of a layout that a framework runs.
    pub fn of(model: &Model, cluster: &Cluster, framework: &Framework, candidate: &Candidate, seq_len: usize) -> Self {
        let size = |axis| candidate.size(axis);
        Self {
            device: cluster.device.as_ref().map_or(String::new(), |device| device.name.clone()),
            sharded: framework.gathers_blocks,
            narrow: framework.numbers.products.is_some(),
            parameters: model.parameters() as f64,
            devices: candidate.devices() as f64,
            tokens: seq_len as f64,
            x: size(Axis::X) * size(Axis::Y),
            context: size(Axis::Context),
            // Of a model without experts the axis is one of data like another.
            expert: if model.has_experts() { size(Axis::Expert) } else { 1 },
            pipe: size(Axis::Pipe),
        }
    }

    /// How unlike two are: 1 for a model of four times the size, for eight times the devices or the tokens of a sequence, and for
    /// another device; 1.5 where one of them shards parameters; half for narrow products and for each axis that one of them does
    /// not have.
    fn distance(&self, other: &Self) -> f64 {
        let apart = |a: f64, b: f64, factor: f64| (a / b).ln().abs() / factor.ln();
        let differs = |differs: bool, cost: f64| if differs { cost } else { 0.0 };
        let axis = |a: usize, b: usize| differs((a > 1) != (b > 1), 0.5);
        apart(self.parameters, other.parameters, 4.0)
            + apart(self.devices, other.devices, 8.0)
            + apart(self.tokens, other.tokens, 8.0)
            + differs(self.device != other.device, 1.0)
            + differs(self.sharded != other.sharded, 1.5)
            + differs(self.narrow != other.narrow, 0.5)
            + axis(self.x, other.x)
            + axis(self.context, other.context)
            + axis(self.expert, other.expert)
            + axis(self.pipe, other.pipe)
    }
}

/// A timed run of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// Its line in the file of rows.
    pub line: u64,
    /// The name of its source.
    pub source: String,
    like: Likeness,
    /// Predicted over measured seconds, by the numbers that come with the program.
    pub built_in: f64,
    /// The same by numbers that were fitted without its source.
    pub crossed: f64,
    /// The same by numbers that were fitted without its source's runs with models of its width, and some more; `None` where it has no
    /// other.
    pub familiar: Option<f64>,
}

impl Known {
    /// The table that comes with the program, read once.
    pub fn all() -> &'static [Self] {
        static ALL: LazyLock<Vec<Known>> = LazyLock::new(|| {
            let lines = csv::Reader::from_reader(TABLE.as_bytes()).into_deserialize::<Line>();
            lines.filter_map(|line| line.ok().map(Known::from)).collect()
        });
        &ALL
    }

    /// Samples with what was predicted of them.
    pub fn of(samples: &[Sample], crossed: &[Crossed]) -> Vec<Self> {
        let results: BTreeMap<u64, &Crossed> = crossed.iter().map(|it| (it.line, it)).collect();
        let known = samples.iter().filter_map(|sample| {
            let Crossed { built_in, crossed, familiar, .. } = **results.get(&sample.line)?;
            let run = &sample.run;
            let like = Likeness::of(&run.model, &run.cluster, &run.framework, &run.candidate, run.seq_len);
            Some(Self { line: sample.line, source: sample.source.to_owned(), like, built_in, crossed, familiar })
        });
        known.collect()
    }

    /// The lines of the table, its header first.
    pub fn rows(known: &[Self]) -> Vec<Vec<String>> {
        let row = |Self { line, source, like, built_in, crossed, familiar }: &Self| {
            let Likeness { device, sharded, narrow, parameters, devices, tokens, x, context, expert, pipe } = like;
            let sizes = [x, context, expert, pipe].map(ToString::to_string);
            let first = [line.to_string(), source.clone(), device.clone(), sharded.to_string(), narrow.to_string()];
            let numbers = [parameters, devices, tokens].map(ToString::to_string);
            let ratios = [Some(*built_in), Some(*crossed), *familiar];
            let ratios = ratios.map(|ratio| ratio.map_or(String::new(), |ratio| format!("{ratio:.4}")));
            first.into_iter().chain(numbers).chain(sizes).chain(ratios).collect()
        };
        std::iter::once(COLUMNS.map(str::to_owned).to_vec()).chain(known.iter().map(row)).collect()
    }
}

/// A line of the table, in the order of [`COLUMNS`].
type Line = (u64, String, String, bool, bool, f64, f64, f64, usize, usize, usize, usize, f64, f64, Option<f64>);

impl From<Line> for Known {
    fn from(line: Line) -> Self {
        let (
            line,
            source,
            device,
            sharded,
            narrow,
            parameters,
            devices,
            tokens,
            x,
            context,
            expert,
            pipe,
            built_in,
            crossed,
            familiar,
        ) = line;
        let like = Likeness { device, sharded, narrow, parameters, devices, tokens, x, context, expert, pipe };
        Self { line, source, like, built_in, crossed, familiar }
    }
}

const COLUMNS: [&str; 15] = [
    "line",
    "source",
    "device",
    "sharded",
    "narrow",
    "parameters",
    "devices",
    "tokens",
    "x",
    "context",
    "expert",
    "pipe",
    "built_in",
    "crossed",
    "familiar",
];

/// Between which measured times published runs lie that are like a planned one, over what was predicted of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Band {
    /// One run of ten took less than this times what was predicted.
    pub low: f64,
    /// Half of them took less.
    pub middle: f64,
    /// One of ten took more.
    pub high: f64,
    /// How many runs that are.
    pub runs: usize,
    /// Their sources, those with most runs first.
    pub sources: Vec<String>,
    /// How unlike they are, in the mean: see [`Likeness`].
    pub distance: f64,
}

impl Band {
    /// Of the runs that are most like this one; `None` of this program's engine, of which nobody has published runs, and where
    /// none are known.
    pub fn around(planned: &Likeness, framework: &Framework, known: &[Known]) -> Option<Self> {
        if framework.is_own() {
            return None;
        }
        let mut near: Vec<(f64, &Known)> = known.iter().map(|run| (planned.distance(&run.like), run)).collect();
        near.sort_by(|(a, first), (b, second)| a.total_cmp(b).then(first.line.cmp(&second.line)));
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        near.retain(|(_, run)| {
            let count = counts.entry(&run.source).or_default();
            *count += 1;
            *count <= OF_SOURCE
        });
        near.truncate(NEAREST);
        if near.is_empty() {
            return None;
        }
        let mut ratios: Vec<f64> = near.iter().map(|(_, run)| 1.0 / run.crossed).collect();
        ratios.sort_by(f64::total_cmp);
        let at = |part: f64| ratios.get(((ratios.len() - 1) as f64 * part).round() as usize).copied();
        let outside = (1.0 - INSIDE) / 2.0;
        let mut sources: BTreeMap<&str, usize> = BTreeMap::new();
        near.iter().for_each(|(_, run)| *sources.entry(&run.source).or_default() += 1);
        let mut sources: Vec<(&str, usize)> = sources.into_iter().collect();
        sources.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
        Some(Self {
            low: at(outside)?,
            middle: at(0.5)?,
            high: at(1.0 - outside)?,
            runs: near.len(),
            sources: sources.into_iter().map(|(name, _)| name.to_owned()).collect(),
            distance: near.iter().map(|(distance, _)| distance).sum::<f64>() / near.len() as f64,
        })
    }

    /// Whether the runs are unlike the planned one in the mean, so that the band says little.
    pub fn is_far(&self) -> bool {
        self.distance > FAR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(line: u64, source: &str, parameters: f64, crossed: f64) -> Known {
        Known {
            line,
            source: source.to_owned(),
            like: like(parameters),
            built_in: crossed,
            crossed,
            familiar: Some(crossed),
        }
    }

    fn like(parameters: f64) -> Likeness {
        let device = "h100".to_owned();
        let (sharded, narrow, devices, tokens) = (false, false, 64.0, 4096.0);
        Likeness { device, sharded, narrow, parameters, devices, tokens, x: 8, context: 1, expert: 1, pipe: 2 }
    }

    /// Runs of the same size took a tenth longer than predicted; those of another size half as long.
    #[test]
    fn the_nearest_runs_make_the_band() {
        let near = (0..40).map(|line| known(line, ["a", "b", "c", "d"][line as usize % 4], 7e9, 1.0 / 1.1));
        let far = (40..80).map(|line| known(line, ["e", "f", "g", "h"][line as usize % 4], 1e6, 2.0));
        let runs: Vec<Known> = near.chain(far).collect();
        let band = Band::around(&like(7e9), &Framework::MEGATRON, &runs).unwrap();
        assert!([band.low, band.middle, band.high].iter().all(|ratio| (ratio - 1.1).abs() < 1e-12), "{band:?}");
        assert_eq!((band.runs, band.sources.len(), band.is_far()), (40, 4, false));
        assert!(Band::around(&like(7e20), &Framework::MEGATRON, &runs).unwrap().is_far());
        assert_eq!(Band::around(&like(7e9), &Framework::QUADRILLE, &runs), None);
    }

    #[test]
    fn a_source_with_many_runs_is_not_all_of_a_band() {
        let runs: Vec<Known> = (0..100).map(|line| known(line, if line < 90 { "a" } else { "b" }, 7e9, 1.0)).collect();
        assert_eq!(Band::around(&like(7e9), &Framework::MEGATRON, &runs).unwrap().runs, OF_SOURCE + 10);
    }
}
