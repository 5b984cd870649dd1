//! The interconnects that ATP's paper looks at, and own ones from files.

use quadrille_spec::{SpecError, check_name, read_toml};
use serde::Deserialize;

use super::matrix::{HierarchicalMatrix, MatrixLayer};
use super::mesh::Mesh;
use super::workload::{AllReduce, Candidate, Workload};

/// An interconnect: one that the paper looks at, or of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Interconnect {
    /// One of [`Interconnect::names`], or the file's.
    pub name: String,
    /// Where its bandwidths are from, and which are assumed.
    pub source: String,
    /// Its bandwidths.
    pub bandwidths: KnownBandwidths,
}

/// How the bandwidths of an interconnect are known.
#[derive(Debug, Clone, PartialEq)]
pub enum KnownBandwidths {
    /// By its hierarchical communication matrix.
    Matrix(HierarchicalMatrix),
    /// By measured `[B1, B2]` of some meshes.
    Calibrated(Vec<(Mesh, [f64; 2])>),
}

/// Bytes per second of a device's NVLink-v3 connections, section 2.2.
const NVLINK: f64 = 600e9;
/// Of a PCIe 4.0 connection, section 2.2.
const PCIE: f64 = 64e9;
/// Of InfiniBand of 200 Gb/s, sections 3.4 and 5.
const INFINIBAND: f64 = 25e9;

/// Name and source of every interconnect.
const INTERCONNECTS: [(&str, &str); 7] = [
    (
        "figure-7a",
        "section 3.4: 4 nodes joined by 200 Gb/s, in each 4 GPUs of which every two have 4 NVLinks of 50 GB/s",
    ),
    ("ic1", "section 5.3: 8 GPUs on PCIe; bandwidths measured, since the matrix does not evaluate them accurately"),
    (
        "ic2",
        "section 5.3: 4 pairs of GPUs, PCIe between pairs, NVLink in them; bandwidths of section 2.2; assumed: a pair \
         shares one PCIe connection",
    ),
    ("ic3", "section 5.3: 8 GPUs on NVSwitch, one layer; bandwidth of section 2.2"),
    ("ic4", "section 5.3: 16 GPUs on InfiniBand of 200 Gb/s, one layer"),
    (
        "ic5",
        "section 5.4: GPUs on an NVLink-Network switch, one layer; assumed: 16 of them, with the bandwidth of section \
         2.2, on which no choice depends",
    ),
    ("ic6", "sections 3.4 and 5.4: a torus of 4 x 4 devices, links of 25 GB/s"),
];

impl Interconnect {
    /// The names of all interconnects.
    pub fn names() -> impl Iterator<Item = &'static str> {
        INTERCONNECTS.iter().map(|(name, _)| *name)
    }

    /// The interconnect of that name.
    ///
    /// # Errors
    /// A name that is not among [`Interconnect::names`].
    pub fn preset(name: &str) -> Result<Self, SpecError> {
        let unknown = || SpecError::Unknown {
            what: "interconnect",
            name: name.to_owned(),
            known: Self::names().map(str::to_owned).collect(),
        };
        let (name, source) = *INTERCONNECTS.iter().find(|(known, _)| *known == name).ok_or_else(unknown)?;
        let layer = MatrixLayer::fully_connected;
        let matrix = match name {
            "figure-7a" => HierarchicalMatrix::new(vec![layer(4, INFINIBAND, INFINIBAND)?, layer(4, 200e9, NVLINK)?])?,
            "ic1" => {
                let by_mesh =
                    vec![(Mesh { d1: 2, d2: 4 }, [1.20e9, 4.95e9]), (Mesh { d1: 8, d2: 1 }, [0.97e9, f64::INFINITY])];
                return Ok(Self::of(name, source, KnownBandwidths::Calibrated(by_mesh)));
            }
            "ic2" => HierarchicalMatrix::new(vec![layer(4, PCIE, PCIE)?, layer(2, NVLINK, NVLINK)?])?,
            "ic3" => HierarchicalMatrix::flat(8, NVLINK)?,
            "ic4" => HierarchicalMatrix::flat(16, INFINIBAND)?,
            "ic5" => HierarchicalMatrix::flat(16, NVLINK)?,
            _ => HierarchicalMatrix::torus(4, 4, 25e9)?,
        };
        Ok(Self::of(name, source, KnownBandwidths::Matrix(matrix)))
    }

    /// Reads and validates an interconnect file: `name`, `source` and `[[layers]]`, the outermost first, each with the
    /// matrix `p2p` and the list `group` of [`MatrixLayer::new`], bytes per second.
    ///
    /// # Errors
    /// Text that is no TOML, missing or unknown fields, those of [`MatrixLayer::new`] and [`HierarchicalMatrix::new`];
    /// they name the layer and the entry.
    pub fn from_toml(text: &str) -> Result<Self, SpecError> {
        let InterconnectFile { name, source, layers } = read_toml("an interconnect", text)?;
        check_name(&name)?;
        let layer = |(index, file): (usize, LayerFile)| {
            MatrixLayer::new(file.p2p, file.group).map_err(|error| match error {
                SpecError::Invalid { field, value, rule, remedy } => {
                    SpecError::Invalid { field: format!("layers[{index}].{field}"), value, rule, remedy }
                }
                other => other,
            })
        };
        let layers = layers.into_iter().enumerate().map(layer).collect::<Result<_, _>>()?;
        Ok(Self::of(&name, &source, KnownBandwidths::Matrix(HierarchicalMatrix::new(layers)?)))
    }

    fn of(name: &str, source: &str, bandwidths: KnownBandwidths) -> Self {
        Self { name: name.to_owned(), source: source.to_owned(), bandwidths }
    }

    /// The meshes whose bandwidths are known, as [`Workload::rank`] ranks them; measured bandwidths are those of
    /// all-reduces already.
    pub fn rank(&self, workload: &Workload, all_reduce: AllReduce) -> Vec<Candidate> {
        match &self.bandwidths {
            KnownBandwidths::Matrix(matrix) => workload.rank(matrix, all_reduce),
            KnownBandwidths::Calibrated(known) => workload.rank_known(known.iter().copied()),
        }
    }
}

/// The fields of an interconnect file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InterconnectFile {
    name: String,
    source: String,
    layers: Vec<LayerFile>,
}

/// The fields of one of its layers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LayerFile {
    p2p: Vec<Vec<f64>>,
    group: Vec<f64>,
}
