//! Latency, bandwidth and `half_bytes` of a tier from measured collectives.
//!
//! What the model takes for a collective is, piece by piece, linear in a tier's latency, in the seconds of a byte
//! `1 / rate`, and in `half_bytes / rate`; the pieces are the ways that it chooses from (`network.rs`). So the squares of
//! the errors are made least by solving the linear problem of the present pieces, with no unknown below 0, and
//! going on from there until nothing improves. Errors are logarithms of predicted over measured seconds: relative errors
//! where they are small, and twice as long weighs as much as half as long where they are not.

use quadrille_spec::{CollectiveKind, Origin, SpecError, Tier};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RankGroup;

/// Steps from one set of pieces to the next; a few are enough.
const MOST_STEPS: usize = 60;
/// Most `half_bytes` that a cluster file takes, and most seconds of a latency.
const LIMITS: [f64; 2] = [1e12, 1.0];
/// The unknowns: latency, seconds of a byte, seconds of `half_bytes`.
type Unknowns = [f64; 3];

/// A measured collective or message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The groups that ran it at once.
    pub group: RankGroup,
    /// Which.
    pub kind: CollectiveKind,
    /// Bytes of the whole buffer, or of the message.
    pub bytes: f64,
    /// How long it took, above 0.
    pub seconds: f64,
}

/// How far the model is from what was measured, relative to that.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Deviation {
    /// Samples.
    pub samples: usize,
    /// Mean of the errors' sizes.
    pub mean: f64,
    /// The largest.
    pub largest: f64,
    /// The typical ratio of the longer to the shorter of predicted and measured seconds (geometric mean).
    pub factor: f64,
}

impl Deviation {
    /// Of the tiers as they are, over the samples; `None` of none.
    ///
    /// # Errors
    /// As [`RankGroup::seconds`].
    pub fn of(tiers: &[Tier], samples: &[Sample]) -> Result<Option<Self>, SpecError> {
        let errors = logarithms(tiers, samples)?;
        let sizes = || errors.iter().map(|error| error.exp_m1().abs());
        let mean = sizes().sum::<f64>() / errors.len() as f64;
        let factor = (errors.iter().map(|error| error.abs()).sum::<f64>() / errors.len() as f64).exp();
        let deviation = Self { samples: errors.len(), mean, largest: sizes().fold(0.0, f64::max), factor };
        Ok((!errors.is_empty()).then_some(deviation))
    }
}

/// The tier `tiers[which]` with the latency, bandwidth and `half_bytes` that make the sum of the squared logarithms of
/// predicted over measured seconds least on `samples`, the other tiers as they are. Its number of links stays; `efficiency` becomes the fitted rate over the
/// tier's bandwidth where that is above it, else 1 with the fitted bandwidth.
///
/// # Errors
/// No samples, such as no tier `which` serves, samples that took no time; as [`RankGroup::seconds`].
pub fn fit_tier(tiers: &[Tier], which: usize, samples: &[Sample]) -> Result<Tier, SpecError> {
    let usable = |sample: &&Sample| sample.seconds > 0.0 && sample.seconds.is_finite() && sample.bytes >= 0.0;
    if samples.is_empty() || samples.iter().filter(usable).count() < samples.len() || which >= tiers.len() {
        let rule = "a tier is fitted to measured collectives that took some time";
        return Err(SpecError::invalid("samples", samples.len(), rule, "measure groups that reach over this tier"));
    }
    let mut fit = Fit { tiers: tiers.to_vec(), which, samples };
    let mut unknowns = fit.start();
    let mut least = fit.squares(unknowns)?;
    for _ in 0..MOST_STEPS {
        let wanted = fit.solve(unknowns)?;
        let mut part = 1.0;
        let better = loop {
            let at: Unknowns = [0, 1, 2].map(|i| unknowns[i] + part * (wanted[i] - unknowns[i]));
            let squares = fit.squares(at)?;
            if squares < least * (1.0 - 1e-10) {
                break Some((at, squares));
            }
            part /= 2.0;
            if part < 1e-3 {
                break None;
            }
        };
        let Some(better) = better else { break };
        (unknowns, least) = better;
    }
    Ok(within(&tiers[which], unknowns))
}

/// The fitted numbers in the terms of the tier: its own bandwidth, where that is not exceeded.
fn within(tier: &Tier, unknowns: Unknowns) -> Tier {
    let fitted = with(tier, unknowns);
    let efficiency = fitted.bandwidth / tier.bandwidth;
    let reaches = efficiency <= 1.0;
    let mut within = if reaches { Tier { bandwidth: tier.bandwidth, efficiency, ..fitted } } else { fitted };
    let measured = ["latency", "efficiency", "half_bytes"].into_iter().chain((!reaches).then_some("bandwidth"));
    measured.for_each(|number| within.origins.set(number, Origin::Measured));
    within
}

/// The tier with these numbers, at an efficiency of 1.
fn with(tier: &Tier, [latency, byte, half]: Unknowns) -> Tier {
    let bandwidth = 1.0 / byte / tier.links as f64;
    Tier { bandwidth, efficiency: 1.0, latency, half_bytes: half / byte, ..tier.clone() }
}

/// Logarithms of predicted over measured seconds.
fn logarithms(tiers: &[Tier], samples: &[Sample]) -> Result<Vec<f64>, SpecError> {
    samples
        .iter()
        .map(|sample| Ok((sample.group.seconds(tiers, sample.kind, sample.bytes)? / sample.seconds).ln()))
        .collect()
}

struct Fit<'a> {
    tiers: Vec<Tier>,
    which: usize,
    samples: &'a [Sample],
}

impl Fit<'_> {
    /// The shortest time as latency, the best rate that any sample seems to have.
    fn start(&self) -> Unknowns {
        let latency = self.samples.iter().map(|sample| sample.seconds).fold(LIMITS[1], f64::min);
        let byte = self.samples.iter().map(|sample| sample.seconds / sample.bytes.max(1.0)).fold(1.0, f64::min);
        [latency, byte, 0.0]
    }

    fn errors(&mut self, unknowns: Unknowns) -> Result<Vec<f64>, SpecError> {
        self.tiers[self.which] = with(&self.tiers[self.which], unknowns);
        logarithms(&self.tiers, self.samples)
    }

    fn squares(&mut self, unknowns: Unknowns) -> Result<f64, SpecError> {
        Ok(self.errors(unknowns)?.iter().map(|error| error * error).sum())
    }

    /// The least squares of the pieces at `unknowns`.
    fn solve(&mut self, unknowns: Unknowns) -> Result<Unknowns, SpecError> {
        let here = self.errors(unknowns)?;
        // Small against each unknown, or against what it would be beside the others.
        let typical = self.samples.iter().map(|sample| sample.seconds).fold(f64::INFINITY, f64::min);
        let mut slopes = [const { Vec::new() }; 3];
        for (at, slopes) in slopes.iter_mut().enumerate() {
            let scale = if at == 1 { unknowns[1] } else { unknowns[at].max(1e-3 * typical) };
            let step = 1e-5 * scale;
            let mut moved = unknowns;
            moved[at] += step;
            let there = self.errors(moved)?;
            *slopes = there.iter().zip(&here).map(|(there, here)| (there - here) / step).collect();
        }
        // What the unknowns have to make up for: the error with all of them at 0.
        let target: Vec<f64> = (0..here.len())
            .map(|row| (0..3).map(|at| slopes[at][row] * unknowns[at]).sum::<f64>() - here[row])
            .collect();
        Ok(non_negative(&slopes, &target).unwrap_or(unknowns))
    }
}

/// The `x >= 0` with the least `|slopes x - target|^2` and `x[1] > 0`: the best of the four problems in which the first
/// and the third unknown are free or 0.
fn non_negative(slopes: &[Vec<f64>; 3], target: &[f64]) -> Option<Unknowns> {
    let sets: [&[usize]; 4] = [&[1], &[0, 1], &[1, 2], &[0, 1, 2]];
    let solutions = sets.into_iter().filter_map(|free| {
        let x = least_squares(slopes, target, free)?;
        let legal = x[0] >= 0.0 && x[1] > 0.0 && x[2] >= 0.0 && x[0] <= LIMITS[1] && x[2] / x[1] <= LIMITS[0];
        let error = |row: usize| (0..3).map(|at| slopes[at][row] * x[at]).sum::<f64>() - target[row];
        let squares: f64 = (0..target.len()).map(|row| error(row).powi(2)).sum();
        legal.then_some((x, squares))
    });
    solutions.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(x, _)| x)
}

/// The normal equations of the free unknowns, each scaled by the length of its column; `None`: they do not determine it.
fn least_squares(slopes: &[Vec<f64>; 3], target: &[f64], free: &[usize]) -> Option<Unknowns> {
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let lengths: Vec<f64> = free.iter().map(|at| product(&slopes[*at], &slopes[*at]).sqrt()).collect();
    if lengths.iter().any(|length| !length.is_normal()) {
        return None;
    }
    let n = free.len();
    let mut rows: Vec<Vec<f64>> = (0..n)
        .map(|i| {
            let row = (0..n).map(|j| product(&slopes[free[i]], &slopes[free[j]]) / (lengths[i] * lengths[j]));
            row.chain([product(&slopes[free[i]], target) / lengths[i]]).collect()
        })
        .collect();
    for pivot in 0..n {
        let (done, below) = rows.split_at_mut(pivot + 1);
        let from = &done[pivot];
        // Columns that are parallel but for the steps' rounding.
        if from[pivot] < 1e-9 {
            return None;
        }
        for row in below {
            let factor = row[pivot] / from[pivot];
            row.iter_mut().zip(from).for_each(|(value, from)| *value -= factor * from);
        }
    }
    let mut x = [0.0; 3];
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|j| rows[i][j] * x[free[j]] * lengths[j]).sum();
        x[free[i]] = (rows[i][n] - known) / rows[i][i] / lengths[i];
    }
    Some(x)
}
