//! TED's update: the spike of memory, what tiles save of it, and the peak of a second model.

use quadrille_spec::SpecError;
use serde::Deserialize;

use crate::reproduce::experts::mixture;
use crate::reproduce::point::Point;
use crate::reproduce::printed::Printed;
use crate::ted::{GRADIENT_BYTES, Mixture, Placed};

use super::least;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spike {
    base: String,
    billion: f64,
    experts: usize,
    gpus: usize,
    tensor: usize,
    gigabytes: Printed,
    tile_million: f64,
    tiled_gigabytes: Printed,
    cap_gigabytes: Printed,
    saved_gigabytes: Printed,
    note: String,
    tiled_note: String,
    saved_note: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peak {
    billion: f64,
    experts: usize,
    gpus: usize,
    gpu_gigabytes: f64,
    gigabytes: Printed,
    without_tiles_gigabytes: Printed,
    percent_saved: Printed,
    note: String,
    without_tiles_note: String,
}

/// Gradients in f32 by the equations and by our count of parameters, whole and in tiles.
pub fn spike(spike: &Spike) -> Result<Vec<Point>, SpecError> {
    let Spike { base, billion, experts, gpus, tensor, .. } = spike;
    let mixed = Mixture { base: billion * 1e9, experts: *experts };
    let whole = Placed { mixture: mixed, gpus: *gpus, tensor: *tensor }.spike_bytes();
    // Each GPU updates as much as any other.
    let counted = GRADIENT_BYTES * mixture(base, *experts)?.parameters() as f64 / *gpus as f64;
    let tiled = Placed { mixture: mixed, gpus: *gpus, tensor: *tensor }.tiled_spike_bytes(spike.tile_million * 1e6);
    let by_figure = spike.gigabytes.nearest(0.0) - spike.tiled_gigabytes.nearest(0.0);
    let point = |of: &str, source: &str, published: Printed, gigabytes: f64, note: &str| {
        Point::new(spike.what(of), source, published, gigabytes, "GB").because(note)
    };
    let mut points = vec![
        point("update's spike", "figure 7.4", spike.gigabytes, whole / 1e9, &spike.note),
        point("update's spike, by our count", "figure 7.4", spike.gigabytes, counted / 1e9, &spike.note),
        point("tiles save, by the figure", "section 7.2", spike.saved_gigabytes, by_figure, ""),
        point("tiles save", "section 7.2", spike.saved_gigabytes, (whole - tiled) / 1e9, &spike.saved_note),
    ];
    points.extend(tiles(spike, tiled)?);
    Ok(points)
}

impl Spike {
    fn what(&self, of: &str) -> String {
        format!("{}B, {} experts, {} GPUs: {of}", self.billion, self.experts, self.gpus)
    }
}

/// What the spike is with tiles and what caps it, in MB since ours has no digits in GB.
fn tiles(spike: &Spike, tiled: f64) -> Result<[Point; 2], SpecError> {
    let cap = spike.cap_gigabytes.nearest(0.0) * 1e9;
    let of_cap = format!(
        "{} bytes for each of the {} million parameters of a tile; the printed cap is for {} million",
        GRADIENT_BYTES,
        spike.tile_million,
        cap / GRADIENT_BYTES / 1e6,
    );
    let point = |of: &str, source: &str, gigabytes: Printed, note: &str| {
        let published = Printed::rounded(1e3 * gigabytes.nearest(0.0), 0)?;
        Ok(Point::new(spike.what(of), source, published, tiled / 1e6, "MB").because(note))
    };
    Ok([
        point("spike with tiles", "figure 7.4", spike.tiled_gigabytes, &spike.tiled_note)?,
        point("spike with tiles, at most", "section 7.2", spike.cap_gigabytes, &of_cap)?,
    ])
}

/// The second model of section 7.2, in the smallest tensor parallel groups that fit.
pub fn peak(peak: &Peak) -> Result<Vec<Point>, SpecError> {
    let Peak { billion, experts, gpus, gpu_gigabytes, gigabytes, .. } = peak;
    let capacity = gpu_gigabytes * 1e9;
    let measured = gigabytes.nearest(0.0) * 1e9;
    let placed = least(Mixture { base: billion * 1e9, experts: *experts }, *gpus, capacity)?;
    let alone = Placed { tensor: 1, ..placed }.least_bytes() / 1e9;
    let note = format!("{}; {alone:.1} GB in tensor parallel groups of one", peak.note);
    let point = |of: &str, published: Printed, ours: f64, unit, note: &str| {
        let what = format!("{billion}B, {experts} experts, {gpus} GPUs: {of}");
        Point::new(what, "section 7.2", published, ours, unit).because(note)
    };
    let tiles_less = (measured + placed.spike_bytes()) / 1e9;
    Ok(vec![
        point(&format!("peak, states at x={}", placed.tensor), *gigabytes, placed.least_bytes() / 1e9, "GB", &note),
        point("peak without tiles", peak.without_tiles_gigabytes, tiles_less, "GB", &peak.without_tiles_note),
        point("memory that is left", peak.percent_saved, 100.0 * (1.0 - measured / capacity), "%", ""),
    ])
}
