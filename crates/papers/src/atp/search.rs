//! The search: all meshes of an interconnect's devices, ranked by the time of communication.

use quadrille_spec::{Model, SpecError};

use super::interconnect::Interconnect;
use super::mesh::Mesh;
use super::workload::{AllReduce, Candidate, Counts, Workload};

/// Sequences of a step in the paper's experiments (section 5).
pub const PUBLISHED_BATCH: usize = 4;

/// What is ranked.
#[derive(Debug, Clone)]
pub struct Search {
    /// What is trained; one that [`super::check_described`] accepts.
    pub model: Model,
    /// What connects the devices.
    pub interconnect: Interconnect,
    /// Sequences of a step.
    pub batch: usize,
    /// Bytes of a value that is sent.
    pub element_bytes: u64,
    /// Elements of equation 2.
    pub counts: Counts,
    /// What an all-reduce makes of a link's bandwidth; `None` where bandwidths were measured with all-reduces.
    pub all_reduce: Option<AllReduce>,
}

/// The meshes that the model allows, fastest first, and why it does not allow the others.
#[derive(Debug, Clone)]
pub struct Found {
    /// Devices of the interconnect.
    pub devices: usize,
    /// Meshes that are legal.
    pub feasible: usize,
    /// The fastest of them.
    pub ranked: Vec<Candidate>,
    /// The other meshes, each with the rule that it breaks.
    pub refusals: Vec<(Mesh, SpecError)>,
}

/// No mesh is legal.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{model} cannot be cut by any mesh of {interconnect}, e.g. {mesh}: {reason}")]
pub struct NoMesh {
    /// The model.
    pub model: String,
    /// The interconnect.
    pub interconnect: String,
    /// One of the meshes.
    pub mesh: Mesh,
    /// The rule that it breaks.
    pub reason: Box<SpecError>,
}

/// What a mesh sends over one of its dimensions in a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dimension {
    /// Devices of it.
    pub size: usize,
    /// Bytes that a device reduces; nothing over one device.
    pub bytes: f64,
    /// Seconds of that.
    pub seconds: f64,
}

/// Devices of any of the meshes.
fn devices(all: &[Candidate]) -> usize {
    all.first().map_or(0, |candidate| candidate.mesh.d1 * candidate.mesh.d2)
}

impl Search {
    /// Every mesh, fastest first, whether or not the model allows it.
    fn all(&self) -> Vec<Candidate> {
        // Bandwidths that were measured already are those of all-reduces.
        self.interconnect.rank(&self.workload(), self.all_reduce.unwrap_or(AllReduce::Links))
    }

    /// Devices of the interconnect.
    pub fn devices(&self) -> usize {
        devices(&self.all())
    }

    /// The `top` fastest meshes.
    ///
    /// # Errors
    /// None of the meshes is legal.
    pub fn run(&self, top: usize) -> Result<Found, NoMesh> {
        let mut ranked = Vec::new();
        let mut refusals = Vec::new();
        let all = self.all();
        let devices = devices(&all);
        for candidate in all {
            match candidate.mesh.check(&self.model) {
                Ok(()) => ranked.push(candidate),
                Err(error) => refusals.push((candidate.mesh, error)),
            }
        }
        match (ranked.is_empty(), refusals.pop()) {
            (true, Some((mesh, error))) => {
                let model = self.model.name.clone();
                let interconnect = self.interconnect.name.clone();
                Err(NoMesh { model, interconnect, mesh, reason: Box::new(error) })
            }
            (_, last) => {
                refusals.extend(last);
                let feasible = ranked.len();
                ranked.truncate(top);
                Ok(Found { devices, feasible, ranked, refusals })
            }
        }
    }

    /// What a mesh sends over its two dimensions.
    pub fn dimensions(&self, candidate: &Candidate) -> [Dimension; 2] {
        let Candidate { mesh, bandwidths: [first, second], .. } = *candidate;
        let only = [|bandwidth| [bandwidth, f64::INFINITY], |bandwidth| [f64::INFINITY, bandwidth]];
        let workload = self.workload();
        let of = |size: usize, alone: fn(f64) -> [f64; 2], bandwidth: f64| {
            let bytes = if size == 1 { 0.0 } else { workload.seconds(mesh, alone(1.0)) };
            Dimension { size, bytes, seconds: workload.seconds(mesh, alone(bandwidth)) }
        };
        [of(mesh.d1, only[0], first), of(mesh.d2, only[1], second)]
    }

    fn workload(&self) -> Workload<'_> {
        let Self { model, batch, element_bytes, counts, .. } = self;
        let batch = *batch;
        let element_bytes = *element_bytes;
        let counts = *counts;
        Workload { model, batch, seq_len: model.seq_len, element_bytes, counts }
    }
}
