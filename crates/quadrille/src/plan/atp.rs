//! `quadrille plan --cost atp`: the meshes of an interconnect's devices, ranked by ATP's communication time.

use clap::Args;
use quadrille_engine::Hyper;
use quadrille_papers::atp::{
    AllReduce, Candidate, Counts, Interconnect, KnownBandwidths, Mesh, Workload, check_described,
};
use quadrille_spec::{ElementType, Field, Model, SpecError};
use serde_json::{Value, json};

use super::flags::{LayoutFlags, devices};
use crate::arguments::PlanArguments;
use crate::failure::Failure;
use crate::output::{bytes, csv, print_json, print_text, shortest, table, write_file};
use crate::{paths, settings};

/// Sequences of a step in the paper's experiments (section 5).
const PUBLISHED_BATCH: usize = 4;

const FLAGS: LayoutFlags = LayoutFlags {
    model: "ATP's model",
    taken: &["--ranks", "--global-batch"],
    instead: &[
        ("--per-node", "with --cost atp the interconnect says which devices are near each other; give --interconnect"),
        ("--seq-len", "with --cost atp give --set seq_len=N"),
        ("--grid", "ATP tries all meshes; leave it out"),
        ("--activations", "ATP replicates activations; leave it out"),
    ],
};

/// What only this model asks for.
#[derive(Debug, Args)]
pub struct AtpArguments {
    /// The interconnect: figure-7a or ic1 to ic6 of the paper, or a TOML file of name, source and tables `layers` from the
    /// outermost to that of devices, each with the matrix p2p and the list group in bytes/s
    #[arg(long, value_name = "NAME|FILE")]
    pub interconnect: Option<String>,
    /// Elements of equation 2: paper (14h/d1 and 4h/d2, as published) or exact (12h/d1 and 4h/d2: a backward pass reduces
    /// over the other dimension) [default: paper]
    #[arg(long, value_name = "NAME")]
    pub counts: Option<Counts>,
    /// What an all-reduce makes of a link's bandwidth: rabenseifner (equation 4) or links (all of it, as section 5.3
    /// argues) [default: rabenseifner]
    #[arg(long, value_name = "NAME")]
    pub all_reduce: Option<AllReduce>,
}

impl AtpArguments {
    /// Which of these flags were typed.
    pub fn typed(&self) -> [(&'static str, bool); 3] {
        let Self { interconnect, counts, all_reduce } = self;
        [
            ("--interconnect", interconnect.is_some()),
            ("--counts", counts.is_some()),
            ("--all-reduce", all_reduce.is_some()),
        ]
    }
}

/// What is ranked.
struct Case {
    model: Model,
    interconnect: Interconnect,
    batch: usize,
    element_bytes: u64,
    counts: Counts,
    /// `None` where bandwidths were measured.
    all_reduce: Option<AllReduce>,
}

/// The meshes that the model allows, fastest first, and why it does not allow the others.
struct Found {
    devices: usize,
    ranked: Vec<Candidate>,
    refusals: Vec<(Mesh, SpecError)>,
}

/// Ranks meshes and prints the best.
pub fn run(arguments: &PlanArguments) -> Result<(), Failure> {
    let case = Case::new(arguments)?;
    let written: Vec<_> = arguments.csv.iter().map(|path| ("--csv", path.as_path())).collect();
    let interconnect = arguments.atp.interconnect.iter().map(|name| ("--interconnect", name.as_ref()));
    let read: Vec<_> = paths::described(&arguments.model, &arguments.layout).chain(interconnect).collect();
    paths::check(&written, &read)?;
    let mut found = case.search(devices(arguments)?)?;
    let feasible = found.ranked.len();
    found.ranked.truncate(arguments.top as usize);
    if let Some(path) = &arguments.csv {
        write_file("--csv", path, case.csv(&found)?.as_bytes())?;
    }
    if arguments.json { print_json(&case.document(&found, feasible)) } else { print_text(&case.text(&found, feasible)) }
}

impl Case {
    fn new(arguments: &PlanArguments) -> Result<Self, Failure> {
        FLAGS.check(&arguments.layout)?;
        if arguments.layout.cluster.is_some() {
            return Err(Failure::usage("--cluster: with --cost atp give --interconnect, e.g. --interconnect ic2"));
        }
        let names = || Interconnect::names().collect::<Vec<_>>().join(", ");
        let name = arguments.atp.interconnect.as_deref().ok_or_else(|| {
            Failure::usage(format!("--cost atp needs --interconnect, one of {} or a TOML file", names()))
        })?;
        let interconnect = settings::interconnect(name)?;
        let all_reduce = match (&interconnect.bandwidths, arguments.atp.all_reduce) {
            (KnownBandwidths::Matrix(_), typed) => Some(typed.unwrap_or(AllReduce::Rabenseifner)),
            (KnownBandwidths::Calibrated(_), None) => None,
            (KnownBandwidths::Calibrated(_), Some(_)) => {
                return Err(Failure::usage(format!(
                    "--all-reduce: the bandwidths of {name} were measured with all-reduces; leave it out"
                )));
            }
        };
        let model = settings::settings(&arguments.model, "gpt3-175b", Hyper::default())?.model;
        check_described(&model)?;
        let batch = arguments.layout.size(Field::GlobalBatch).unwrap_or(PUBLISHED_BATCH);
        if !(1..=1 << 24).contains(&batch) {
            return Err(Failure::usage(format!("--global-batch {batch}: it is 1 to 2^24; give a number in between")));
        }
        let element_bytes = arguments.dtype.unwrap_or(ElementType::Bf16).bytes();
        let counts = arguments.atp.counts.unwrap_or(Counts::Paper);
        Ok(Self { model, interconnect, batch, element_bytes, counts, all_reduce })
    }

    fn workload(&self) -> Workload<'_> {
        let Self { model, batch, element_bytes, counts, .. } = self;
        let (batch, element_bytes, counts) = (*batch, *element_bytes, *counts);
        Workload { model, batch, seq_len: model.seq_len, element_bytes, counts }
    }

    fn search(&self, asked: Option<usize>) -> Result<Found, Failure> {
        // Bandwidths that were measured already are those of all-reduces.
        let all = self.interconnect.rank(&self.workload(), self.all_reduce.unwrap_or(AllReduce::Links));
        let devices = all.first().map_or(0, |candidate| candidate.mesh.d1 * candidate.mesh.d2);
        if let Some(asked) = asked.filter(|asked| *asked != devices) {
            return Err(Failure::usage(format!(
                "--gpus {asked}: the interconnect {} has {devices} devices; leave --gpus out, or describe another \
                 interconnect in a file",
                self.interconnect.name
            )));
        }
        let (mut ranked, mut refusals) = (Vec::new(), Vec::new());
        for candidate in all {
            match candidate.mesh.check(&self.model) {
                Ok(()) => ranked.push(candidate),
                Err(error) => refusals.push((candidate.mesh, error)),
            }
        }
        match (ranked.is_empty(), refusals.pop()) {
            (true, Some((mesh, error))) => Err(Failure::usage(format!(
                "{} cannot be cut by any mesh of {}, e.g. {mesh}: {error}",
                self.model.name, self.interconnect.name
            ))),
            (_, last) => {
                refusals.extend(last);
                Ok(Found { devices, ranked, refusals })
            }
        }
    }

    /// Bytes that a device reduces over each dimension in a step, and the seconds of it; nothing over one device.
    fn dimensions(&self, candidate: &Candidate) -> [(usize, f64, f64); 2] {
        let Candidate { mesh, bandwidths: [first, second], .. } = *candidate;
        let only = [|bandwidth| [bandwidth, f64::INFINITY], |bandwidth| [f64::INFINITY, bandwidth]];
        let workload = self.workload();
        let of = |size: usize, alone: fn(f64) -> [f64; 2], bandwidth: f64| {
            let bytes = if size == 1 { 0.0 } else { workload.seconds(mesh, alone(1.0)) };
            (size, bytes, workload.seconds(mesh, alone(bandwidth)))
        };
        [of(mesh.d1, only[0], first), of(mesh.d2, only[1], second)]
    }

    fn document(&self, found: &Found, feasible: usize) -> Value {
        let Self { model, interconnect, batch, element_bytes, counts, all_reduce } = self;
        let refusal = |(mesh, error): &(Mesh, SpecError)| json!({ "layout": { "d1": mesh.d1, "d2": mesh.d2, "grid": grid(*mesh) }, "rule": error.to_string() });
        json!({
            "model": model.name,
            "interconnect": interconnect.name,
            "source": interconnect.source,
            "cost": "atp",
            "counts": counts.name(),
            "all_reduce": all_reduce.map(AllReduce::name),
            "gpus": found.devices,
            "global_batch": batch,
            "seq_len": model.seq_len,
            "element_bytes": element_bytes,
            "candidates": feasible + found.refusals.len(),
            "feasible": feasible,
            "refusals": found.refusals.iter().map(refusal).collect::<Vec<_>>(),
            "plans": found.ranked.iter().map(|candidate| self.entry(candidate)).collect::<Vec<_>>(),
        })
    }

    fn entry(&self, candidate: &Candidate) -> Value {
        let Candidate { mesh, bandwidths, seconds } = candidate;
        let dimensions = self.dimensions(candidate);
        // A dimension of one device sends nothing and has no bandwidth.
        let dimension = |at: usize| {
            let (size, bytes, seconds) = dimensions[at];
            let bandwidth = Some(bandwidths[at]).filter(|bandwidth| bandwidth.is_finite());
            json!({ "size": size, "bandwidth": bandwidth, "bytes": bytes, "time_s": seconds })
        };
        json!({
            "layout": { "d1": mesh.d1, "d2": mesh.d2, "grid": grid(*mesh) },
            "time_s": seconds,
            "dimensions": [dimension(0), dimension(1)],
        })
    }

    fn text(&self, found: &Found, feasible: usize) -> String {
        let Self { model, interconnect, batch, element_bytes, counts, all_reduce } = self;
        let by = match all_reduce {
            Some(AllReduce::Rabenseifner) => "equations 2-4",
            Some(AllReduce::Links) => "equations 2 and 3",
            None => "equation 2 from measured bandwidths",
        };
        let elements = match counts {
            Counts::Paper => "14h/d1 and 4h/d2 elements a token and layer, as published",
            Counts::Exact => "12h/d1 and 4h/d2 elements a token and layer, a backward pass over the other dimension",
        };
        let mut text = format!(
            "{} on the {} devices of {}, batch {batch}, {} tokens, values of {element_bytes} bytes, by ATP's model\n\
             {}\n\
             communication time per step by {by}; computation is not in it\n\
             {elements}\n\
             {feasible} of {} meshes are legal; d1 is the axis x, d2 the axis y\n\n",
            model.name,
            found.devices,
            interconnect.name,
            model.seq_len,
            interconnect.source.trim_end(),
            feasible + found.refusals.len(),
        );
        let header = ["mesh", "grid", "time", "over d1", "over d2", "B1", "B2", "reduced over d1", "reduced over d2"];
        let rows: Vec<_> = found.ranked.iter().map(|candidate| self.row(candidate)).collect();
        text += &table(&header, &rows);
        for (mesh, error) in &found.refusals {
            text += &format!("\nnot legal: {mesh}: {error}");
        }
        if !found.refusals.is_empty() {
            text += "\n";
        }
        text
    }

    fn row(&self, candidate: &Candidate) -> Vec<String> {
        let milliseconds = |seconds: f64| format!("{:.3} ms", 1e3 * seconds);
        let bandwidth = |bandwidth: f64| {
            if bandwidth.is_finite() { format!("{:.2} GB/s", bandwidth / 1e9) } else { "-".to_owned() }
        };
        let [first, second] = self.dimensions(candidate);
        let mut row = vec![candidate.mesh.to_string(), grid(candidate.mesh), milliseconds(candidate.seconds)];
        row.extend([first, second].map(|(.., seconds)| milliseconds(seconds)));
        row.extend(candidate.bandwidths.map(bandwidth));
        row.extend([first, second].map(|(_, reduced, _)| bytes(reduced as u64)));
        row
    }

    fn csv(&self, found: &Found) -> Result<String, Failure> {
        let header = "rank,d1,d2,time_s,time_1_s,time_2_s,b1_bytes_per_s,b2_bytes_per_s,bytes_1,bytes_2";
        let row = |(candidate, rank): (&Candidate, usize)| {
            let Candidate { mesh, bandwidths, seconds } = candidate;
            let [(_, bytes_1, seconds_1), (_, bytes_2, seconds_2)] = self.dimensions(candidate);
            let bandwidths = bandwidths.map(|value| if value.is_finite() { shortest(value) } else { String::new() });
            let sizes = [rank, mesh.d1, mesh.d2].map(|size| size.to_string()).into_iter();
            let times = [*seconds, seconds_1, seconds_2].map(shortest);
            sizes.chain(times).chain(bandwidths).chain([bytes_1, bytes_2].map(shortest)).collect()
        };
        let header = header.split(',').map(str::to_owned).collect();
        csv([header].into_iter().chain(found.ranked.iter().zip(1..).map(row)))
    }
}

/// The mesh in this program's axes.
fn grid(mesh: Mesh) -> String {
    format!("x={},y={}", mesh.d1, mesh.d2)
}
