//! Vocabulary-parallel cross-entropy, in the pieces between which ranks reduce.
//!
//! Letters: logits [rows, cols] of the vocabulary ids `start..start + cols`, of which the first
//! `valid` are real and the rest padding, whose logits count as minus infinity.
//! Per row: m = the largest logit, S = sum of exp(logit - m), q = the target's logit - m, all
//! over every rank; the loss is ln S - q.

use crate::cap::slope;
use crate::dispatch::vectorised;
use crate::element::Element;
use crate::lanes::{largest, sum};
use crate::pool::Pool;
use crate::shape::LogitsShape;
use crate::stored::Stored;

/// A target that is left out: its row has no loss and no gradient.
pub const IGNORED: u32 = u32::MAX;

/// max `[rows]` = the largest of each row's valid logits; minus infinity if there are none.
pub fn cross_entropy_max<S: Stored>(pool: &Pool, shape: LogitsShape, logits: &[S], max: &mut [S::Real]) {
    let LogitsShape { rows, cols, valid, .. } = shape;
    assert_eq!((logits.len(), max.len()), (rows * cols, rows));
    assert!(valid <= cols);
    let piece = pool.rows_per_piece(rows, cols);
    pool.each(max.chunks_mut(piece).enumerate(), |(i, max)| {
        let logits = &logits[i * piece * cols..];
        vectorised(
            #[inline(always)]
            || {
                for (row, max) in max.iter_mut().enumerate() {
                    *max = largest(&logits[row * cols..row * cols + valid]);
                }
            },
        );
    });
}

/// sums [rows, 2] = this rank's share of (S, q), given m; q is 0 where another rank holds the
/// target.
pub fn cross_entropy_sums<S: Stored>(
    pool: &Pool,
    shape: LogitsShape,
    logits: &[S],
    max: &[S::Real],
    targets: &[u32],
    sums: &mut [S::Real],
) {
    let LogitsShape { rows, cols, valid, start } = shape;
    assert_eq!((logits.len(), sums.len()), (rows * cols, rows * 2));
    assert_eq!((max.len(), targets.len()), (rows, rows));
    assert!(valid <= cols);
    let piece = pool.rows_per_piece(rows, cols);
    pool.each(sums.chunks_mut(piece * 2).enumerate(), |(i, sums)| {
        vectorised(
            #[inline(always)]
            || {
                for (row, sums) in sums.chunks_exact_mut(2).enumerate() {
                    let row = i * piece + row;
                    let logits = &logits[row * cols..row * cols + valid];
                    let m = max[row];
                    sums[0] = sum(logits, |x| (x - m).exp());
                    let target = (targets[row] as usize).wrapping_sub(start);
                    sums[1] = logits.get(target).map_or(S::Real::ZERO, |x| x.widen() - m);
                }
            },
        );
    });
}

/// The sum over rows of the loss ln S - q, not scaled, of the reduced sums [rows, 2] (S, q). Rows whose target is
/// [`IGNORED`] have no loss.
pub fn cross_entropy_loss<T: Element>(sums: &[T], targets: &[u32]) -> f64 {
    let counted = sums.chunks_exact(2).zip(targets).filter(|(_, target)| **target != IGNORED);
    counted.map(|(row, _)| row[0].to_f64().ln() - row[1].to_f64()).sum()
}

/// logits become their gradient, (softmax - onehot) scale, 0 in the padding, given m and the
/// reduced (S, q); where a soft `cap` gave them, that of what it was given. Returns the sum over rows of the loss ln S - q, not scaled. Rows whose target is [`IGNORED`] have
/// no loss, and their gradient is 0.
pub fn cross_entropy_gradient<S: Stored>(
    pool: &Pool,
    shape: LogitsShape,
    logits: &mut [S],
    max: &[S::Real],
    sums: &[S::Real],
    targets: &[u32],
    scale: S::Real,
    cap: Option<S::Real>,
) -> f64 {
    let LogitsShape { rows, cols, valid, start } = shape;
    assert_eq!((logits.len(), sums.len()), (rows * cols, rows * 2));
    assert_eq!((max.len(), targets.len()), (rows, rows));
    assert!(valid <= cols);
    let piece = pool.rows_per_piece(rows, cols);
    pool.each(logits.chunks_mut((piece * cols).max(1)).enumerate(), |(i, logits)| {
        vectorised(
            #[inline(always)]
            || {
                for (row, logits) in logits.chunks_exact_mut(cols).enumerate() {
                    let row = i * piece + row;
                    if targets[row] == IGNORED {
                        logits.fill(S::ZERO);
                        continue;
                    }
                    let (logits, padding) = logits.split_at_mut(valid);
                    let m = max[row];
                    let factor = scale / sums[2 * row];
                    let softmax = |x: S::Real| (x - m).exp() * factor;
                    let target = (targets[row] as usize).wrapping_sub(start);
                    match cap {
                        None => row_gradient(logits, target, softmax, scale, |_| S::Real::ONE),
                        Some(cap) => row_gradient(logits, target, softmax, scale, |x| slope(x, cap)),
                    }
                    padding.fill(S::ZERO);
                }
            },
        );
    });
    cross_entropy_loss(sums, targets)
}

/// A row's logits become (softmax - onehot scale) slope, of which `softmax` has the scale.
#[inline(always)]
fn row_gradient<S: Stored>(
    logits: &mut [S],
    target: usize,
    softmax: impl Fn(S::Real) -> S::Real,
    scale: S::Real,
    slope: impl Fn(S::Real) -> S::Real,
) {
    let of_target = logits.get(target).map(|x| S::rounded((softmax(x.widen()) - scale) * slope(x.widen())));
    logits.iter_mut().for_each(|x| *x = S::rounded(softmax(x.widen()) * slope(x.widen())));
    if let Some((x, gradient)) = logits.get_mut(target).zip(of_target) {
        *x = gradient;
    }
}
