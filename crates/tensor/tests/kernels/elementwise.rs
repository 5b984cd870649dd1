use crate::support::{LENGTHS, assert_close, on_any_threads, random, wide};
use quadrille_tensor::*;

fn check<T: Element>(len: usize) {
    let x = random::<T>(1, len);
    let y = random::<T>(2, len);
    let change = |kernel: &dyn Fn(&Pool, &mut [T])| {
        on_any_threads(|pool| {
            let mut y = y.clone();
            kernel(pool, &mut y);
            y
        })
    };
    let sum: Vec<_> = x.iter().zip(&y).map(|(x, y)| *x + *y).collect();
    assert_eq!(change(&|pool, y| add_assign(pool, y, &x)), sum);
    assert_eq!(change(&|pool, y| copy(pool, y, &x)), x);
    let squares = on_any_threads(|pool| vec![sum_of_squares(pool, &x)]);
    assert_close("sum of squares", &squares, &[wide(&x).iter().map(|x| x * x).sum()]);
}

#[test]
fn flat_operations_equal_loops() {
    for len in LENGTHS {
        check::<f32>(len);
        check::<f64>(len);
    }
}

/// Gradients are below `size`; those near epsilon are moved by it as much as by their own root.
fn check_adamw<T: Element>(len: usize, size: f64) {
    let constants = AdamW {
        learning_rate: 0.01,
        beta1: 0.9,
        beta2: 0.99,
        epsilon: 1e-6,
        weight_decay: 0.1,
        correction1: 1.0 - 0.9_f64.powi(3),
        correction2: 1.0 - 0.99_f64.powi(3),
    };
    let p = random::<T>(1, len);
    let [g, m, root] = [2, 3, 4].map(|seed| {
        let numbers = random::<T>(seed, len);
        numbers.iter().map(|number| *number * T::from_f64(size)).collect::<Vec<T>>()
    });
    let v: Vec<T> = root.iter().map(|root| *root * *root).collect();
    let all = on_any_threads(|pool| {
        let mut p = p.clone();
        let mut m = m.clone();
        let mut v = v.clone();
        adamw(pool, &constants, 0.5, &mut p, &g, &mut m, &mut v);
        [p, m, v].concat()
    });
    let mut expected = Vec::new();
    let mut means = Vec::new();
    let mut squares = Vec::new();
    for i in 0..len {
        let p = p[i].to_f64();
        let g = g[i].to_f64() * 0.5;
        let m = 0.9 * m[i].to_f64() + 0.1 * g;
        let v = 0.99 * v[i].to_f64() + 0.01 * g * g;
        let step = m / constants.correction1 / ((v / constants.correction2).sqrt() + 1e-6);
        expected.push(p - 0.01 * (step + 0.1 * p));
        means.push(m);
        squares.push(v);
    }
    assert_close("p, m, v", &all, &[expected, means, squares].concat());
}

#[test]
fn adamw_equals_loops() {
    for len in LENGTHS {
        for size in [1.0, 1e-6] {
            check_adamw::<f32>(len, size);
            check_adamw::<f64>(len, size);
        }
    }
}

#[test]
fn buffers_are_zero_aligned_and_counted() {
    // From 4 MiB on a buffer lies on huge pages.
    for (len, alignment) in [(0, 1), (1, 64), (1000, 64), ((1 << 20) - 1, 64), (1 << 20, 2 << 20), (2 << 20, 2 << 20)] {
        let mut buffer = Buffer::<f32>::new(len);
        assert_eq!((buffer.len(), buffer.bytes()), (len, len * 4));
        assert!(buffer.iter().all(|x| *x == 0.0));
        assert_eq!(buffer.as_ptr() as usize % alignment, 0);
        buffer.as_mut().fill(2.0);
        assert!(buffer.as_ref().iter().all(|x| *x == 2.0));
    }
    assert_eq!(Buffer::from_fn(3, |i| i as f64)[..], [0.0, 1.0, 2.0]);
}

#[test]
fn every_piece_is_worked_on_once() {
    for threads in [1, 2, 4] {
        let mut counts = vec![0; 1000];
        Pool::new(threads).each(counts.iter_mut().enumerate(), |(i, count)| *count += i);
        assert!(counts.iter().enumerate().all(|(i, count)| i == *count));
    }
}

#[test]
#[should_panic(expected = "piece 3")]
fn a_panic_on_a_worker_reaches_the_caller() {
    Pool::new(3).each(0..8, |i| assert!(i != 3, "piece {i}"));
}
