use crate::support::{assert_close, assert_gradient, on_any_threads, random, wide};
use quadrille_tensor::*;

/// Losses and logit gradients over a vocabulary of `valid` ids, padded to `parts * cols` and
/// held in `parts` blocks of columns; returned as the gradient [parts, rows, cols] and the loss.
fn sharded<T: Element>(
    pool: &Pool,
    (rows, cols, parts, valid): (usize, usize, usize, usize),
    logits: &[T],
    targets: &[u32],
    scale: T,
) -> (Vec<T>, f64) {
    let mut blocks = vec![T::ZERO; logits.len()];
    pack_columns(pool, Shape { rows, cols: cols * parts }, parts, logits, &mut blocks);
    let valid = |part: usize| valid.saturating_sub(part * cols).min(cols);
    let (mut max, mut sums) = (vec![T::NEG_INFINITY; rows], vec![T::ZERO; rows * 2]);
    for (part, block) in blocks.chunks_exact(rows * cols).enumerate() {
        let mut local = vec![T::ZERO; rows];
        cross_entropy_max(pool, LogitsShape { rows, cols, valid: valid(part), start: 0 }, block, &mut local);
        max.iter_mut().zip(local).for_each(|(m, x)| *m = if x > *m { x } else { *m });
    }
    for (part, block) in blocks.chunks_exact(rows * cols).enumerate() {
        let mut local = vec![T::ZERO; rows * 2];
        cross_entropy_sums(
            pool,
            LogitsShape { rows, cols, valid: valid(part), start: part * cols },
            block,
            &max,
            targets,
            &mut local,
        );
        add_assign(pool, &mut sums, &local);
    }
    let mut loss = 0.0;
    for (part, block) in blocks.chunks_exact_mut(rows * cols).enumerate() {
        loss = cross_entropy_gradient(
            pool,
            LogitsShape { rows, cols, valid: valid(part), start: part * cols },
            block,
            &max,
            &sums,
            targets,
            scale,
        );
    }
    (blocks, loss)
}

fn plain(cols: usize, valid: usize, logits: &[f64], targets: &[u32]) -> f64 {
    let rows = logits.chunks_exact(cols).zip(targets);
    rows.map(|(x, t)| x[..valid].iter().map(|x| x.exp()).sum::<f64>().ln() - x[*t as usize]).sum()
}

fn plain_gradient(cols: usize, valid: usize, logits: &[f64], targets: &[u32], scale: f64) -> Vec<f64> {
    let mut gradient = vec![0.0; logits.len()];
    for ((to, x), target) in gradient.chunks_exact_mut(cols).zip(logits.chunks_exact(cols)).zip(targets) {
        let sum: f64 = x[..valid].iter().map(|x| x.exp()).sum();
        to.iter_mut().zip(&x[..valid]).for_each(|(to, x)| *to = x.exp() / sum * scale);
        to[*target as usize] -= scale;
    }
    gradient
}

fn check<T: Element>(rows: usize, cols: usize, parts: usize, valid: usize) {
    let shape = (rows, cols, parts, valid);
    let factor = T::from_f64(8.0);
    let logits: Vec<T> = random::<T>(1, rows * cols * parts).iter().map(|x| *x * factor).collect();
    let targets: Vec<u32> = (0..rows).map(|i| (i * 31 % valid) as u32).collect();
    let scale = T::from_f64(0.125);
    let all = on_any_threads(|pool| {
        let (mut gradient, loss) = sharded(pool, shape, &logits, &targets, scale);
        gradient.push(T::from_f64(loss));
        gradient
    });
    let (loss, gradient) = all.split_last().expect("the loss");
    let expected = plain(cols * parts, valid, &wide(&logits), &targets);
    assert_close("loss", &[*loss], &[expected]);
    let mut whole = vec![T::ZERO; gradient.len()];
    unpack_columns(&Pool::new(1), Shape { rows, cols: cols * parts }, parts, gradient, &mut whole);
    for row in whole.chunks_exact(cols * parts) {
        assert!(row[valid..].iter().all(|x| *x == T::ZERO), "padding has a gradient");
    }
    assert_close("gradient", &whole, &plain_gradient(cols * parts, valid, &wide(&logits), &targets, 0.125));
    if T::NAME == "f64" && whole.len() < 400 {
        let f = |x: &[f64]| plain(cols * parts, valid, x, &targets) * 0.125;
        assert_gradient("dlogits", &wide(&logits), &wide(&whole), f);
    }
}

#[test]
fn vocabulary_parallel_cross_entropy_equals_loops_and_differences() {
    // The fifth has a rank whose columns are all padding. Then those around 32 lanes and pieces of 32768 elements.
    let shapes = [(1, 1, 1, 1), (5, 9, 1, 9), (7, 11, 3, 29), (130, 517, 2, 1030), (6, 4, 4, 11)];
    let edges =
        [(2, 31, 1, 31), (2, 32, 1, 32), (2, 33, 2, 65), (64, 512, 1, 512), (65, 512, 1, 511), (128, 512, 1, 512)];
    for (rows, cols, parts, valid) in shapes.into_iter().chain(edges) {
        check::<f32>(rows, cols, parts, valid);
        check::<f64>(rows, cols, parts, valid);
    }
}

#[test]
fn a_rank_of_padding_has_no_maximum_and_no_sum() {
    let (logits, mut max, mut sums) = ([1.0_f32; 6], [0.0; 2], [9.0; 4]);
    let pool = Pool::new(1);
    cross_entropy_max(&pool, LogitsShape { rows: 2, cols: 3, valid: 0, start: 0 }, &logits, &mut max);
    assert_eq!(max, [f32::NEG_INFINITY; 2]);
    cross_entropy_sums(
        &pool,
        LogitsShape { rows: 2, cols: 3, valid: 0, start: 4 },
        &logits,
        &[1.0, 2.0],
        &[4, 5],
        &mut sums,
    );
    assert_eq!(sums, [0.0; 4]);
}

#[test]
fn huge_logits_do_not_overflow() {
    let (logits, shape) = (vec![3e4_f32, -3e4, 2.9e4], (1, 3, 1, 3));
    let (gradient, loss) = sharded(&Pool::new(1), shape, &logits, &[1], 1.0);
    assert_eq!(loss, 6e4);
    assert_eq!(gradient, [1.0, -1.0, 0.0]);
}
