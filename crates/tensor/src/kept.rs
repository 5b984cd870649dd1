//! Kept elements of a pruned weight: out of its dense tile, and back. Indices ascend.

use crate::pool::Pool;
use crate::stored::Stored;

/// `y[i] = x[indices[i]]`, or `y[i] += x[indices[i]]` with `accumulate`. Elements of `y` beyond the indices become zero, or stay
/// as they are with `accumulate`.
///
/// # Panics
/// More indices than `y` has room for; an index beyond `x`.
pub fn compress<S: Stored>(pool: &Pool, x: &[S], indices: &[u32], y: &mut [S], accumulate: bool) {
    let (own, padding) = y.split_at_mut(indices.len());
    let piece = pool.piece(own.len());
    pool.each(own.chunks_mut(piece).zip(indices.chunks(piece)), |(y, indices)| {
        for (y, index) in y.iter_mut().zip(indices) {
            let x = x[*index as usize];
            *y = if accumulate { add(*y, x) } else { x };
        }
    });
    if !accumulate {
        padding.fill(S::ZERO);
    }
}

/// `y[indices[i]] = x[i]`; the other elements of `y` stay.
///
/// # Panics
/// Fewer elements in `x` than indices; an index beyond `y`.
pub fn expand<S: Stored>(pool: &Pool, x: &[S], indices: &[u32], y: &mut [S]) {
    let piece = pool.piece(indices.len());
    let mut rest = (y, 0);
    let pieces: Vec<_> = indices
        .chunks(piece)
        .zip(x[..indices.len()].chunks(piece))
        .map(|(indices, x)| {
            let (y, first) = std::mem::take(&mut rest);
            let end = indices.last().map_or(first, |last| *last as usize + 1);
            let (own, behind) = y.split_at_mut(end - first);
            rest = (behind, end);
            (indices, x, own, first)
        })
        .collect();
    pool.each(pieces.into_iter(), |(indices, x, y, first)| {
        for (index, x) in indices.iter().zip(x) {
            y[*index as usize - first] = *x;
        }
    });
}

fn add<S: Stored>(y: S, x: S) -> S {
    S::rounded(y.widen() + x.widen())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compressed_comes_back_to_its_places() {
        for (threads, elements) in [(1, 10), (3, 300_000)] {
            let pool = Pool::new(threads);
            let x: Vec<f32> = (0..elements).map(|index| index as f32 + 1.0).collect();
            let indices: Vec<u32> = (0..elements as u32).filter(|index| index % 3 == 1).collect();
            let mut kept = vec![7.0; indices.len() + 5];
            compress(&pool, &x, &indices, &mut kept, false);
            assert!(indices.iter().zip(&kept).all(|(index, kept)| *kept == x[*index as usize]));
            assert_eq!(kept[indices.len()..], [0.0; 5]);
            compress(&pool, &x, &indices, &mut kept, true);
            assert!(indices.iter().zip(&kept).all(|(index, kept)| *kept == 2.0 * x[*index as usize]));
            let mut y = vec![-1.0; elements];
            expand(&pool, &kept, &indices, &mut y);
            for (index, y) in y.iter().enumerate() {
                assert_eq!(*y, if index % 3 == 1 { 2.0 * x[index] } else { -1.0 });
            }
        }
    }

    #[test]
    fn nothing_kept_is_nothing_written() {
        let pool = Pool::new(1);
        let mut kept = [3.0_f64];
        let mut y = [4.0_f64; 2];
        compress(&pool, &[1.0, 2.0], &[], &mut kept, false);
        expand(&pool, &kept, &[], &mut y);
        assert_eq!((kept, y), ([0.0], [4.0; 2]));
    }
}
