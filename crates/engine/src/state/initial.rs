//! Initial values: a function of (seed, parameter name, logical index), so that every layout starts from the same
//! bits and no rank holds more than its shard.

use quadrille_spec::RandomStream;
use quadrille_step::{Initial, Parameter};
use quadrille_tensor::{Element, Pool};

use crate::Shard;

/// Initial values of parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitialValues {
    /// Those that training starts from.
    Training,
    /// For proofs: also biases and norms are drawn, so that no parameter's error hides behind a zero or a one.
    Perturbed,
}

/// Standard deviation of what [`InitialValues::Perturbed`] adds to constants.
const PERTURBATION: f64 = 0.1;
/// The same for biases of routers, by which experts are chosen: about as far apart as their scores, which begin nearly equal.
const PERTURBATION_OF_CHOICES: f64 = 0.01;

/// Fills a shard of a parameter; padded rows are zero.
pub(crate) fn fill_shard<T: Element>(
    pool: &Pool,
    parameter: &Parameter,
    shard: Shard,
    seed: u64,
    values: InitialValues,
    out: &mut [T],
) {
    let stream = RandomStream::new(seed, &format!("initial {}", parameter.name));
    let (mean, deviation) = match (parameter.initial, values) {
        (Initial::Normal(deviation), _) => (0.0, deviation),
        (Initial::Constant(value), InitialValues::Training) => (value, 0.0),
        (Initial::Constant(value), InitialValues::Perturbed) => {
            (value, if parameter.is_trained() { PERTURBATION } else { PERTURBATION_OF_CHOICES })
        }
    };
    let mut rest = out;
    let pieces: Vec<_> = shard
        .runs()
        .map(|run| {
            let (piece, tail) = std::mem::take(&mut rest).split_at_mut(run.len);
            rest = tail;
            (run, piece)
        })
        .collect();
    pool.each(pieces.into_iter(), |(run, piece)| {
        if run.row >= parameter.rows || deviation == 0.0 {
            piece.fill(T::from_f64(if run.row >= parameter.rows { 0.0 } else { mean }));
            return;
        }
        let first = (run.row * parameter.cols + run.col) as u64;
        let mut counter = u64::MAX;
        let mut drawn = [0.0; 4];
        for (offset, element) in piece.iter_mut().enumerate() {
            let index = first + offset as u64;
            if index / 4 != counter {
                counter = index / 4;
                drawn = stream.normals(counter);
            }
            *element = T::from_f64(mean + deviation * drawn[(index % 4) as usize]);
        }
    });
}
