//! `quadrille plan --cost atp`: the meshes of an interconnect's devices, ranked by ATP's communication time.

use std::path::Path;

use clap::Args;
use quadrille_papers::atp::{
    AllReduce, Counts, Interconnect, KnownBandwidths, PUBLISHED_BATCH, Search, check_described,
};
use quadrille_report::papers::atp::AtpReport;
use quadrille_run::described;
use quadrille_spec::ElementType;

use super::flags::{LayoutFlags, devices};
use crate::failure::Failure;
use crate::output::{check_writable, print_json, print_text, write_rows};
use crate::plan::arguments::PlanArguments;
use crate::{documents, paths};

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

/// Ranks meshes and prints the best.
pub fn run(arguments: &PlanArguments) -> Result<(), Failure> {
    let search = search(arguments)?;
    let written = paths::asked([("--csv", &arguments.csv)]);
    let interconnect = arguments.atp.interconnect.iter().map(|name| ("--interconnect", name.as_ref()));
    let read: Vec<_> = paths::described(&arguments.model, &arguments.layout).chain(interconnect).collect();
    paths::check(&written, &read)?;
    written.iter().try_for_each(|(flag, path)| check_writable(flag, path))?;
    let has = search.devices();
    if let Some(asked) = devices(arguments)?.filter(|asked| *asked != has) {
        return Err(Failure::usage(format!(
            "--gpus {asked}: the interconnect {} has {has} devices; leave --gpus out, or describe another interconnect in a \
             file",
            search.interconnect.name
        )));
    }
    let found = search.run(arguments.top.unwrap_or(10) as usize).map_err(|error| Failure::Usage(error.into()))?;
    let report = AtpReport { search: &search, found: &found };
    write_rows("--csv", arguments.csv.as_deref(), || report.rows())?;
    if arguments.json { print_json(&report.document()) } else { print_text(report.text()) }
}

/// The interconnect of a preset or a file.
fn interconnect(name: &str) -> Result<Interconnect, Failure> {
    if !described::names_file(name) {
        return Ok(Interconnect::preset(name)?);
    }
    let text = documents::INTERCONNECT.text(Path::new(name))?;
    Interconnect::from_toml(&text).map_err(|error| Failure::usage(format!("{name}: {error}")))
}

/// What flags say.
fn search(arguments: &PlanArguments) -> Result<Search, Failure> {
    FLAGS.check(&arguments.layout)?;
    if arguments.layout.cluster.is_some() {
        return Err(Failure::usage("--cluster: with --cost atp give --interconnect, e.g. --interconnect ic2"));
    }
    let names = || Interconnect::names().collect::<Vec<_>>().join(", ");
    let name =
        arguments.atp.interconnect.as_deref().ok_or_else(|| {
            Failure::usage(format!("--cost atp needs --interconnect, one of {} or a TOML file", names()))
        })?;
    let interconnect = interconnect(name)?;
    let all_reduce = match (&interconnect.bandwidths, arguments.atp.all_reduce) {
        (KnownBandwidths::Matrix(_), typed) => Some(typed.unwrap_or(AllReduce::Rabenseifner)),
        (KnownBandwidths::Calibrated(_), None) => None,
        (KnownBandwidths::Calibrated(_), Some(_)) => {
            return Err(Failure::usage(format!(
                "--all-reduce: the bandwidths of {name} were measured with all-reduces; leave it out"
            )));
        }
    };
    let model = arguments.model.described("gpt3-175b")?;
    check_described(&model)?;
    let batch = arguments.layout.batch(model.seq_len)?.unwrap_or(PUBLISHED_BATCH);
    if !(1..=1 << 24).contains(&batch) {
        return Err(Failure::usage(format!("--global-batch {batch}: it is 1 to 2^24; give a number in between")));
    }
    let element_bytes = arguments.dtype.unwrap_or(ElementType::Bf16).bytes();
    let counts = arguments.atp.counts.unwrap_or(Counts::Paper);
    Ok(Search { model, interconnect, batch, element_bytes, counts, all_reduce })
}
