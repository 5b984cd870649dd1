//! Moving plane waves: a field to be predicted one step of time ahead, as a weather model predicts its fields.

use std::f64::consts::TAU;

use quadrille_spec::RandomStream;

/// Waves that are added up in a field.
const WAVES: u64 = 3;
/// Lengths of the field that a wave travels in a step of time.
const SPEED: f64 = 0.05;

/// Periodic fields in two dimensions, cut into patches; each sample has waves of its own, each moving at the same speed
/// across its crests, and all of them to the right. So one look at a field says what it will be: the least possible loss
/// is 0, and that of predicting zeros is the mean square of a field, 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waves {
    seed: u64,
    /// Patches of a field: columns and rows.
    patches: [usize; 2],
    /// Points of a patch: columns and rows.
    points: [usize; 2],
}

/// One plane wave.
#[derive(Debug, Clone, Copy)]
struct Wave {
    /// How often it repeats along either direction of the field.
    number: [f64; 2],
    /// Its phase at the field's first point, in radians.
    phase: f64,
}

impl Waves {
    /// Fields of `seq_len` patches of `values` points, both cut as square as their divisors allow.
    pub fn new(seed: u64, seq_len: usize, values: usize) -> Self {
        Self { seed, patches: squarest(seq_len), points: squarest(values) }
    }

    /// Numbers of a sample's field.
    pub fn points(&self) -> usize {
        self.patches.iter().chain(&self.points).product()
    }

    /// Fills `inputs`, `[samples, seq_len, values]`, with the fields of the samples from `first_sample` on of training
    /// step `step`, and `targets` with what they are one step of time later.
    ///
    /// # Panics
    /// If the buffers are not of the same whole number of samples.
    pub fn fill(&self, step: u64, first_sample: u64, inputs: &mut [f64], targets: &mut [f64]) {
        let len = self.points();
        assert!(inputs.len() == targets.len() && inputs.len().is_multiple_of(len), "buffers of fields of {len} points");
        for (sample, (inputs, targets)) in inputs.chunks_mut(len).zip(targets.chunks_mut(len)).enumerate() {
            let waves = self.waves(step, first_sample + sample as u64);
            for (at, (input, target)) in inputs.iter_mut().zip(targets).enumerate() {
                let [now, later] = [0.0, 1.0].map(|time| waves.map(|wave| wave.at(self.place(at), time)).iter().sum());
                (*input, *target) = (now, later);
            }
        }
    }

    /// The waves of a sample.
    fn waves(&self, step: u64, sample: u64) -> [Wave; WAVES as usize] {
        let stream = RandomStream::new(self.seed, "waves").substream(step);
        std::array::from_fn(|index| {
            let [along, across, phase, _] = stream.words(sample * WAVES + index as u64);
            // None stands still or moves to the left.
            let number = [f64::from(1 + along % 2), f64::from(across % 5) - 2.0];
            Wave { number, phase: TAU * f64::from(phase) / 4_294_967_296.0 }
        })
    }

    /// Where the point with index `at` of a sample lies in the field, in lengths of the field.
    fn place(&self, at: usize) -> [f64; 2] {
        let patch = at / (self.points[0] * self.points[1]);
        let point = at % (self.points[0] * self.points[1]);
        let coordinates = [
            patch % self.patches[0] * self.points[0] + point % self.points[0],
            patch / self.patches[0] * self.points[1] + point / self.points[0],
        ];
        [0, 1].map(|side| coordinates[side] as f64 / (self.patches[side] * self.points[side]) as f64)
    }
}

impl Wave {
    /// The wave's part of the field; all parts together have the mean square 1.
    fn at(self, [x, y]: [f64; 2], time: f64) -> f64 {
        let [along, across] = self.number;
        let turns = along * x + across * y - SPEED * along.hypot(across) * time;
        (2.0 / WAVES as f64).sqrt() * (TAU * turns + self.phase).cos()
    }
}

/// `n` as a product of two factors that are as equal as possible, the larger first.
fn squarest(n: usize) -> [usize; 2] {
    let lesser = (1..=n.isqrt()).rev().find(|factor| n.is_multiple_of(*factor)).unwrap_or(1);
    [n / lesser, lesser]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(waves: Waves, step: u64, first: u64, samples: usize, len: usize) -> [Vec<f64>; 2] {
        let [mut inputs, mut targets] = [(); 2].map(|()| vec![0.0; samples * len]);
        waves.fill(step, first, &mut inputs, &mut targets);
        [inputs, targets]
    }

    #[test]
    fn factors_are_as_equal_as_possible() {
        assert_eq!([1, 2, 7, 16, 30, 64_800].map(squarest), [[1, 1], [2, 1], [7, 1], [4, 4], [6, 5], [270, 240]]);
    }

    #[test]
    fn batches_do_not_depend_on_how_they_are_split() {
        let waves = Waves::new(7, 16, 30);
        let whole = fields(waves, 3, 0, 6, 480);
        for (first, samples) in [(0, 1), (1, 4), (5, 1)] {
            let part = fields(waves, 3, first, samples, 480);
            let range = first as usize * 480..(first as usize + samples) * 480;
            assert_eq!(part, [whole[0][range.clone()].to_vec(), whole[1][range].to_vec()]);
        }
        assert_ne!(whole, fields(waves, 4, 0, 6, 480), "steps differ");
        assert_ne!(whole, fields(Waves::new(8, 16, 30), 3, 0, 6, 480), "seeds differ");
    }

    #[test]
    fn fields_have_the_mean_square_that_is_promised_and_move() {
        let [inputs, targets] = fields(Waves::new(1, 36, 16), 1, 0, 400, 576);
        let mean = |numbers: &[f64]| numbers.iter().sum::<f64>() / numbers.len() as f64;
        let squares = |numbers: &[f64]| numbers.iter().map(|number| number * number).collect::<Vec<_>>();
        for field in [&inputs, &targets] {
            assert!(mean(field).abs() < 1e-3 && (mean(&squares(field)) - 1.0).abs() < 0.1, "{}", mean(&squares(field)));
        }
        let moved: Vec<f64> = inputs.iter().zip(&targets).map(|(now, later)| later - now).collect();
        assert!(mean(&squares(&moved)) > 0.1, "standing still is no good prediction");
    }

    /// A point further to the right has, one step later, what this one has now: waves keep their form and move to the
    /// right.
    #[test]
    fn targets_are_the_field_a_step_of_time_later() {
        let waves = Waves::new(3, 4, 9);
        for wave in waves.waves(1, 0) {
            let [along, across] = wave.number;
            let length = along.hypot(across);
            let moved = |[x, y]: [f64; 2]| [x + SPEED * along / length, y + SPEED * across / length];
            for place in (0..36).map(|at| waves.place(at)) {
                assert!(along > 0.0 && (wave.at(place, 0.0) - wave.at(moved(place), 1.0)).abs() < 1e-12);
            }
        }
        let [inputs, targets] = fields(waves, 1, 0, 1, 36);
        let sum =
            |at: usize, time: f64| waves.waves(1, 0).map(|wave| wave.at(waves.place(at), time)).iter().sum::<f64>();
        assert!((0..36).all(|at| inputs[at] == sum(at, 0.0) && targets[at] == sum(at, 1.0)));
    }

    #[test]
    fn points_lie_side_by_side_also_across_patches() {
        // Two by two patches of three columns and two rows.
        let waves = Waves::new(0, 4, 6);
        let place = |at| waves.place(at).map(|side| (side * 12.0).round() as usize);
        assert_eq!([place(0), place(1), place(3)], [[0, 0], [2, 0], [0, 3]]);
        assert_eq!([place(6), place(12), place(23)], [[6, 0], [0, 6], [10, 9]]);
    }
}
