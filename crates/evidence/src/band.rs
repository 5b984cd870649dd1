//! How far published runs like a planned one took more or less than was predicted of them, by numbers that were fitted without
//! their source.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use quadrille_cost::native::{Candidate, Framework};
use quadrille_spec::{Axis, Cluster, Model};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fit::{Crossed, Sample};
use crate::kind::{Kind, MissingRuns};

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
    /// What runs must share to say anything about it.
    kind: Kind,
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
            kind: Kind::of(model, cluster.device.as_ref(), framework, seq_len),
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
            let Likeness { device, sharded, narrow, parameters, devices, tokens, x, context, expert, pipe, .. } = like;
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
        let kind = Kind::published(&device, sharded, narrow, tokens, expert);
        let like = Likeness { device, sharded, narrow, parameters, devices, tokens, x, context, expert, pipe, kind };
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Band {
    /// One run of ten took less than this times what was predicted.
    pub low: f64,
    /// Half of them took less.
    pub middle: f64,
    /// One of ten took more.
    pub high: f64,
    /// How many runs that are.
    pub runs: usize,
    /// Runs of the planned one's kind that there are: of a device of its generation, by such a program, of such a model, in such
    /// products, of such a length.
    pub runs_of_kind: usize,
    /// Their sources, those with most runs first.
    pub sources: Vec<String>,
    /// How unlike they are, in the mean: see [`Likeness`].
    pub distance: f64,
}

impl Band {
    /// Band of the runs that are most like this one.
    ///
    /// # Errors
    /// Too few published runs of its kind; none are of this program's engine.
    pub fn around(planned: &Likeness, framework: &Framework, known: &[Known]) -> Result<Self, MissingRuns> {
        if framework.is_own() {
            return Err(MissingRuns::of_engine());
        }
        let kinds = known.iter().map(|run| &run.like.kind);
        let runs_of_kind = planned.kind.count(&planned.device, framework, kinds)?;
        let mut near: Vec<(f64, &Known)> = known.iter().map(|run| (planned.distance(&run.like), run)).collect();
        near.sort_by(|(a, first), (b, second)| a.total_cmp(b).then(first.line.cmp(&second.line)));
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        near.retain(|(_, run)| {
            let count = counts.entry(&run.source).or_default();
            *count += 1;
            *count <= OF_SOURCE
        });
        near.truncate(NEAREST);
        let mut ratios: Vec<f64> = near.iter().map(|(_, run)| 1.0 / run.crossed).collect();
        ratios.sort_by(f64::total_cmp);
        // As many as the kind needs at least: never none.
        let at = |part: f64| ratios[((ratios.len() - 1) as f64 * part).round() as usize];
        let outside = (1.0 - INSIDE) / 2.0;
        let mut sources: BTreeMap<&str, usize> = BTreeMap::new();
        near.iter().for_each(|(_, run)| *sources.entry(&run.source).or_default() += 1);
        let mut sources: Vec<(&str, usize)> = sources.into_iter().collect();
        sources.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
        Ok(Self {
            low: at(outside),
            middle: at(0.5),
            high: at(1.0 - outside),
            runs: near.len(),
            runs_of_kind,
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
    use quadrille_cost::native::{NarrowFormat, Numbers};

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
        let sharded = false;
        let narrow = false;
        let devices = 64.0;
        let tokens = 4096.0;
        let kind = Kind::published(&device, sharded, narrow, tokens, 1);
        Likeness { device, sharded, narrow, parameters, devices, tokens, x: 8, context: 1, expert: 1, pipe: 2, kind }
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
        let own = Band::around(&like(7e9), &Framework::QUADRILLE, &runs).unwrap_err();
        assert_eq!(own.to_string(), "no published runs of this kind: none by quadrille");
    }

    #[test]
    fn a_source_with_many_runs_is_not_all_of_a_band() {
        let runs: Vec<Known> = (0..100).map(|line| known(line, if line < 90 { "a" } else { "b" }, 7e9, 1.0)).collect();
        assert_eq!(Band::around(&like(7e9), &Framework::MEGATRON, &runs).unwrap().runs, OF_SOURCE + 10);
    }

    /// Likeness of a layout of this model, on one device.
    fn planned(model: &str, cluster: &Cluster, framework: &Framework, seq_len: usize) -> Likeness {
        let model = Model::preset(model).unwrap();
        Likeness::of(&model, cluster, framework, &Candidate::PLAIN, seq_len)
    }

    fn reason(model: &str, cluster: &str, framework: &Framework, seq_len: usize) -> Option<String> {
        let planned = planned(model, &Cluster::preset(cluster).unwrap(), framework, seq_len);
        Band::around(&planned, framework, Known::all()).err().map(|missing| missing.to_string())
    }

    /// A framework whose products are in 8 bits.
    fn in_8_bits(framework: Framework) -> Framework {
        framework.in_formats(Numbers { products: Some(NarrowFormat::Fp8), ..Numbers::default() })
    }

    #[test]
    fn runs_of_a_kind_make_a_band() {
        let megatron = Framework::MEGATRON;
        let fsdp = Framework::FSDP;
        for (model, cluster, framework, seq_len) in [
            ("llama3-8b", "dgx-h100", megatron, 8192),
            ("llama3-8b", "dgx-h100", in_8_bits(megatron), 8192),
            ("llama3-8b", "dgx-h200", megatron, 4096),
            ("llama3-8b", "dgx-h100", fsdp, 4096),
            ("llama3-8b", "dgx-h100", fsdp, 65_536),
            ("gpt3-175b", "selene", megatron, 2048),
            ("gpt2-124m", "dgx-a100", fsdp, 1024),
            ("mixtral-8x7b", "dgx-h100", megatron, 4096),
            ("llama3-70b", "dgx-b200", in_8_bits(megatron), 8192),
        ] {
            let found = reason(model, cluster, &framework, seq_len);
            assert_eq!(found, None, "{model} on {cluster} by {} at {seq_len}", framework.name);
        }
    }

    /// Counted by hand in the table: A100s ran no experts, Hopper none by FSDP, Blackwell dense models in 8 and 4 bits only, and
    /// nobody more than 65,536 tokens.
    #[test]
    fn kinds_without_runs_have_no_band_and_a_reason() {
        let megatron = Framework::MEGATRON;
        let fsdp = Framework::FSDP;
        for (model, cluster, framework, seq_len, part) in [
            ("mixtral-8x7b", "selene", megatron, 4096, "none of mixtures of experts by megatron on a100-80"),
            (
                "mixtral-8x7b",
                "dgx-h100",
                fsdp,
                4096,
                "none of mixtures of experts by fsdp on h100 or another Hopper device",
            ),
            ("deepseek-v3", "dgx-h100", megatron, 4096, "none of models with latent attention by megatron on h100"),
            ("llama3-8b", "dgx-b200", megatron, 8192, "on b200 or another Blackwell device, products in 16 bits"),
            ("llama3-8b", "dgx-h100", megatron, 1 << 20, "of more than 131072 tokens a sequence"),
            ("llama3-8b", "dgx-h100", fsdp, 1 << 20, "of more than 131072 tokens a sequence"),
            ("llama3-8b", "dgx-h100", megatron, 131_072, "of 16384 to 131072 tokens a sequence"),
            ("llama3-8b", "pcie-8x-l40s", megatron, 4096, "none on l40s or a device of its generation"),
            ("gpt2-124m", "summit", megatron, 1024, "none on v100-16"),
            ("gpt2-124m", "frontier", fsdp, 1024, "none on mi250x"),
        ] {
            let found = reason(model, cluster, &framework, seq_len).unwrap_or_else(|| panic!("{model} on {cluster}"));
            assert!(found.starts_with("no published runs of this kind: ") && found.contains(part), "{found}");
        }
    }

    /// A device of a user's file has the runs of a generation if its name and its numbers say so.
    #[test]
    fn described_devices_are_of_the_generation_that_they_name() {
        let described = |name: &str, times: f64| {
            let mut cluster = Cluster::preset("dgx-h100").unwrap();
            let device = cluster.device.as_mut().unwrap();
            name.clone_into(&mut device.name);
            device.peak.half = device.peak.half.map(|peak| peak * times);
            device.memory_bandwidth *= times;
            let planned = planned("llama3-8b", &cluster, &Framework::MEGATRON, 8192);
            Band::around(&planned, &Framework::MEGATRON, Known::all()).map_err(|missing| missing.to_string())
        };
        let band = described("h100", 1.0).unwrap();
        for (name, times) in [("NVIDIA H100 80GB HBM3", 1.0), ("h200-nvl", 1.2), ("measured: H100-SXM", 0.7)] {
            assert!(described(name, times).is_ok(), "{name}");
        }
        for (name, times) in [("TPU v5p", 0.46), ("MI300X", 1.3), ("h1000", 1.0), ("H100", 4.0), ("a100-80", 1.0)] {
            let reason = described(name, times).unwrap_err();
            assert_eq!(reason, format!("no published runs of this kind: none on {name} or a device of its generation"));
        }
        assert_eq!(band.runs, NEAREST);
        assert!(band.runs_of_kind >= 18, "{band:?}");
    }

    #[test]
    fn one_run_alone_is_no_band() {
        let runs = |count| (0..count).map(|line| known(line, "a", 7e9, 1.0)).collect::<Vec<_>>();
        let around = |count| Band::around(&like(7e9), &Framework::MEGATRON, &runs(count));
        assert_eq!(around(2).map(|band| (band.runs, band.runs_of_kind)), Ok((2, 2)));
        let told = around(1).unwrap_err().to_string();
        assert_eq!(told, "too few published runs of this kind: 1 on h100 or another Hopper device, fewer than 2");
    }
}
