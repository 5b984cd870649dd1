use crate::support::{assert_close, assert_gradient, on_any_threads, random, wide};
use quadrille_tensor::*;

/// Losses and logit gradients over a vocabulary of `valid` ids, padded to `parts * cols` and
/// held in `parts` blocks of columns; returned as the gradient [parts, rows, cols] and the loss. With a soft cap they are those
/// of what it is given.
fn sharded<T: Element>(
    pool: &Pool,
    (rows, cols, parts, valid): (usize, usize, usize, usize),
    logits: &[T],
    targets: &[u32],
    scale: T,
    soft: Option<T>,
) -> (Vec<T>, f64) {
    let mut blocks = vec![T::ZERO; logits.len()];
    pack_columns(pool, Shape { rows, cols: cols * parts }, parts, logits, &mut blocks);
    soft.into_iter().for_each(|most| cap(pool, &mut blocks, most));
    let valid = |part: usize| valid.saturating_sub(part * cols).min(cols);
    let mut max = vec![T::NEG_INFINITY; rows];
    let mut sums = vec![T::ZERO; rows * 2];
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
            soft,
        );
    }
    (blocks, loss)
}

/// Logits that may be capped.
fn plain_capped(logits: &[f64], soft: Option<f64>) -> Vec<f64> {
    logits.iter().map(|x| soft.map_or(*x, |cap| cap * (x / cap).tanh())).collect()
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

fn check<T: Element>(rows: usize, cols: usize, parts: usize, valid: usize, soft: Option<f64>) {
    let shape = (rows, cols, parts, valid);
    let factor = T::from_f64(8.0);
    let logits: Vec<T> = random::<T>(1, rows * cols * parts).iter().map(|x| *x * factor).collect();
    let targets: Vec<u32> = (0..rows).map(|i| (i * 31 % valid) as u32).collect();
    let scale = T::from_f64(0.125);
    let all = on_any_threads(|pool| {
        let (mut gradient, loss) = sharded(pool, shape, &logits, &targets, scale, soft.map(T::from_f64));
        gradient.push(T::from_f64(loss));
        gradient
    });
    let (loss, gradient) = all.split_last().expect("the loss");
    let capped = plain_capped(&wide(&logits), soft);
    let expected = plain(cols * parts, valid, &capped, &targets);
    assert_close("loss", &[*loss], &[expected]);
    let mut whole = vec![T::ZERO; gradient.len()];
    unpack_columns(&Pool::new(1), Shape { rows, cols: cols * parts }, parts, gradient, &mut whole);
    for row in whole.chunks_exact(cols * parts) {
        assert!(row[valid..].iter().all(|x| *x == T::ZERO), "padding has a gradient");
    }
    let mut expected = plain_gradient(cols * parts, valid, &capped, &targets, 0.125);
    let slope = |x: f64| soft.map_or(1.0, |cap| 1.0 - (x / cap).tanh().powi(2));
    expected.iter_mut().zip(wide(&logits)).for_each(|(gradient, x)| *gradient *= slope(x));
    assert_close("gradient", &whole, &expected);
    if T::NAME == "f64" && whole.len() < 400 {
        let f = |x: &[f64]| plain(cols * parts, valid, &plain_capped(x, soft), &targets) * 0.125;
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
        for soft in [None, Some(5.0)] {
            check::<f32>(rows, cols, parts, valid, soft);
            check::<f64>(rows, cols, parts, valid, soft);
        }
    }
}

#[test]
fn a_rank_of_padding_has_no_maximum_and_no_sum() {
    let logits = [1.0_f32; 6];
    let mut max = [0.0; 2];
    let mut sums = [9.0; 4];
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
    let logits = vec![3e4_f32, -3e4, 2.9e4];
    let shape = (1, 3, 1, 3);
    let (gradient, loss) = sharded(&Pool::new(1), shape, &logits, &[1], 1.0, None);
    assert_eq!(loss, 6e4);
    assert_eq!(gradient, [1.0, -1.0, 0.0]);
}

/// Far beyond the cap it is reached, and nothing moves any more.
#[test]
fn a_soft_cap_is_never_passed() {
    let mut x = [-1e30_f32, -40.0, 0.0, 1e-3, 2.0, 40.0, f32::MAX];
    cap(&Pool::new(1), &mut x, 2.0);
    assert_eq!((x[0], x[1], x[2], x[5], x[6]), (-2.0, -2.0, 0.0, 2.0, 2.0));
    assert!((x[3] - 1e-3).abs() < 1e-6 && (x[4] - 2.0 * 1_f32.tanh()).abs() < 1e-6, "{x:?}");
    let (gradient, _) = sharded(&Pool::new(1), (1, 2, 1, 2), &[3e4_f32, 0.0], &[1], 1.0, Some(2.0));
    assert!(gradient[0] == 0.0 && gradient[1] < -0.5, "{gradient:?}");
}
