//! What a search of ATP's meshes has found: for people, as a document, as rows.

use quadrille_papers::atp::{AllReduce, Candidate, Counts, Dimension, Found, Mesh, Search};
use quadrille_run::units::{bytes, shortest};
use quadrille_spec::SpecError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::columns;
use crate::{ReportVersion, Text, table};

/// What was searched, and what was found.
pub struct AtpReport<'a> {
    /// What was searched.
    pub search: &'a Search,
    /// What was found.
    pub found: &'a Found,
}

/// Meshes of ATP, fastest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AtpDocument {
    /// Version of the document.
    pub version: ReportVersion,
    /// Name of the model.
    pub model: String,
    /// Name of the interconnect.
    pub interconnect: String,
    /// Source of its numbers.
    pub source: String,
    /// Cost model: `atp`.
    pub cost: String,
    /// Counts of elements.
    pub counts: String,
    /// Algorithm of all-reduces; null by measured bandwidths.
    pub all_reduce: Option<String>,
    /// Number of devices.
    pub gpus: usize,
    /// Sequences in a step.
    pub global_batch: usize,
    /// Tokens in a sequence.
    pub seq_len: usize,
    /// Bytes of an element.
    pub element_bytes: u64,
    /// Number of meshes.
    pub candidates: usize,
    /// Number of meshes that break no rule.
    pub feasible: usize,
    /// The other meshes.
    pub refusals: Vec<RefusedMesh>,
    /// The meshes, fastest first.
    pub plans: Vec<AtpEntry>,
}

/// A mesh of two dimensions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AtpMesh {
    /// First dimension.
    pub d1: usize,
    /// Second dimension.
    pub d2: usize,
    /// The mesh in this program's axes.
    pub grid: String,
}

/// A mesh that breaks a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedMesh {
    /// The mesh.
    pub layout: AtpMesh,
    /// The rule.
    pub rule: String,
}

/// A mesh with its communication.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AtpEntry {
    /// The mesh.
    pub layout: AtpMesh,
    /// Seconds of communication in a step.
    pub time_s: f64,
    /// Both dimensions.
    pub dimensions: [AtpDimension; 2],
}

/// Communication along a dimension.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AtpDimension {
    /// Number of devices.
    pub size: usize,
    /// Bytes a second; null of one device, which sends nothing.
    pub bandwidth: Option<f64>,
    /// Bytes in a step.
    pub bytes: f64,
    /// Seconds in a step.
    pub time_s: f64,
}

impl AtpMesh {
    fn new(mesh: Mesh) -> Self {
        Self { d1: mesh.d1, d2: mesh.d2, grid: grid(mesh) }
    }
}

impl AtpReport<'_> {
    /// The report as a document.
    pub fn document(&self) -> AtpDocument {
        let Self { search, found } = self;
        let Search { model, interconnect, batch, element_bytes, counts, all_reduce } = search;
        let refusal =
            |(mesh, error): &(Mesh, SpecError)| RefusedMesh { layout: AtpMesh::new(*mesh), rule: error.to_string() };
        AtpDocument {
            version: ReportVersion::CURRENT,
            model: model.name.clone(),
            interconnect: interconnect.name.clone(),
            source: interconnect.source.clone(),
            cost: "atp".to_owned(),
            counts: counts.name().to_owned(),
            all_reduce: all_reduce.map(|it| it.name().to_owned()),
            gpus: found.devices,
            global_batch: *batch,
            seq_len: model.seq_len,
            element_bytes: *element_bytes,
            candidates: found.feasible + found.refusals.len(),
            feasible: found.feasible,
            refusals: found.refusals.iter().map(refusal).collect(),
            plans: found.ranked.iter().map(|candidate| self.entry(candidate)).collect(),
        }
    }

    fn entry(&self, candidate: &Candidate) -> AtpEntry {
        let Candidate { mesh, bandwidths, seconds } = candidate;
        let dimensions = self.search.dimensions(candidate);
        let dimension = |at: usize| {
            let Dimension { size, bytes, seconds } = dimensions[at];
            let bandwidth = Some(bandwidths[at]).filter(|bandwidth| bandwidth.is_finite());
            AtpDimension { size, bandwidth, bytes, time_s: seconds }
        };
        AtpEntry { layout: AtpMesh::new(*mesh), time_s: *seconds, dimensions: [dimension(0), dimension(1)] }
    }

    /// For people.
    pub fn text(&self) -> Text {
        let Self { search, found } = self;
        let Search { model, interconnect, batch, element_bytes, counts, all_reduce } = search;
        let by = match all_reduce {
            Some(AllReduce::Rabenseifner) => "equations 2-4",
            Some(AllReduce::Links) => "equations 2 and 3",
            None => "equation 2 from measured bandwidths",
        };
        let elements = match counts {
            Counts::Paper => "14h/d1 and 4h/d2 elements a token and layer, as published",
            Counts::Exact => "12h/d1 and 4h/d2 elements a token and layer, a backward pass over the other dimension",
        };
        let mut text = Text::from(format!(
            "{} on the {} devices of {}, batch {batch}, {} tokens, values of {element_bytes} bytes, by ATP's model\n\
             {}\n\
             communication time per step by {by}; computation is not in it\n\
             {elements}\n\
             {} of {} meshes are legal; d1 is the axis x, d2 the axis y\n\n",
            model.name,
            found.devices,
            interconnect.name,
            model.seq_len,
            interconnect.source.trim_end(),
            found.feasible,
            found.feasible + found.refusals.len(),
        ));
        let header = ["mesh", "grid", "time", "over d1", "over d2", "B1", "B2", "reduced over d1", "reduced over d2"];
        let rows: Vec<_> = found.ranked.iter().map(|candidate| self.row(candidate)).collect();
        text += table(&header, &rows).spare(&["reduced over d2", "reduced over d1", "B2", "B1"]);
        for (mesh, error) in &found.refusals {
            text += format!("\nnot legal: {mesh}: {error}");
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
        let [first, second] = self.search.dimensions(candidate);
        let mut row = vec![candidate.mesh.to_string(), grid(candidate.mesh), milliseconds(candidate.seconds)];
        row.extend([first, second].map(|dimension| milliseconds(dimension.seconds)));
        row.extend(candidate.bandwidths.map(bandwidth));
        row.extend([first, second].map(|dimension| bytes(dimension.bytes as u64)));
        row
    }

    /// For comma-separated values: a header and a row for every mesh.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let header = "rank,d1,d2,time_s,time_1_s,time_2_s,b1_bytes_per_s,b2_bytes_per_s,bytes_1,bytes_2";
        let row = |(candidate, rank): (&Candidate, usize)| {
            let Candidate { mesh, bandwidths, seconds } = candidate;
            let [first, second] = self.search.dimensions(candidate);
            let bandwidths = bandwidths.map(|value| if value.is_finite() { shortest(value) } else { String::new() });
            let sizes = [rank, mesh.d1, mesh.d2].map(|size| size.to_string()).into_iter();
            let times = [*seconds, first.seconds, second.seconds].map(shortest);
            sizes.chain(times).chain(bandwidths).chain([first.bytes, second.bytes].map(shortest)).collect()
        };
        std::iter::once(columns(header)).chain(self.found.ranked.iter().zip(1..).map(row)).collect()
    }
}

/// The mesh in this program's axes.
fn grid(mesh: Mesh) -> String {
    format!("x={},y={}", mesh.d1, mesh.d2)
}
