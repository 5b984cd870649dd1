//! Cross-entropy.

use quadrille_tensor::{
    Element, IGNORED, LogitsShape, Stored, cap, cross_entropy_gradient, cross_entropy_max, cross_entropy_sums,
};

use crate::support::{Value, alike, equal, in_each_format, in_every_seed, near_to, numbers, pool};

/// Targets of the first column on are in the vocabulary, in the padding, elsewhere, left out.
fn target(row: usize, shape: LogitsShape) -> u32 {
    match row % 5 {
        0 => IGNORED,
        1 => (shape.start + shape.cols) as u32,
        2 => 0,
        _ => (shape.start + row % shape.valid) as u32,
    }
}

fn losses_and_gradients<S: Value>() {
    for (rows, cols, valid, soft) in [(70, 45, 41, None), (70, 45, 41, Some(0.8)), (1100, 33, 33, None)] {
        let shape = LogitsShape { rows, cols, valid, start: 7 };
        let logits = numbers::<S>(1, rows * cols);
        let targets: Vec<u32> = (0..rows).map(|row| target(row, shape)).collect();
        let mut max = vec![S::Wide::ZERO; rows];
        let mut sums = vec![S::Wide::ZERO; 2 * rows];
        let mut capped = logits.clone();
        soft.into_iter().for_each(|most| cap(&pool(), &mut capped, S::Wide::from_f64(most)));
        let mut d = capped.clone();
        cross_entropy_max(&pool(), shape, &capped, &mut max);
        cross_entropy_sums(&pool(), shape, &capped, &max, &targets, &mut sums);
        let scale = S::Wide::from_f64(0.01);
        let slope = soft.map(S::Wide::from_f64);
        let loss = cross_entropy_gradient(&pool(), shape, &mut d, &max, &sums, &targets, scale, slope);
        let counted = targets.iter().filter(|target| **target != IGNORED).count() as f64;
        let got = in_every_seed(|device| {
            let queue = device.queue();
            let logits = device.up(&logits);
            let targets = device.up(&targets);
            let max = device.poison::<S::Wide>(rows);
            let sums = device.poison::<S::Wide>(2 * rows);
            let loss = device.up(&[1.0_f64]);
            let count = device.up(&[2.0_f64]);
            soft.into_iter().for_each(|most| queue.cap(logits, most).unwrap());
            let after_cap = device.down::<S>(logits);
            queue.cross_entropy_max(shape, logits, max).unwrap();
            queue.cross_entropy_sums(shape, logits, max, targets, sums).unwrap();
            queue.cross_entropy_gradient(shape, logits, max, sums, targets, 0.01, soft).unwrap();
            queue.cross_entropy_loss(sums, targets, loss, count).unwrap();
            let reals = [max, sums].map(|x| device.down::<S::Wide>(x));
            ([after_cap, device.down::<S>(logits)], reals, [loss, count].map(|x| device.down::<f64>(x)[0]))
        });
        [&capped, &d].iter().zip(&got.0).for_each(|(expected, got)| alike(got, expected));
        [&max, &sums].iter().zip(&got.1).for_each(|(expected, got)| alike(got, expected));
        near_to(&got.2[..1], &[loss + 1.0], 1e-13);
        assert_eq!(got.2[1], counted + 2.0);
    }
}

/// A rank whose columns are all padding.
fn padding_only<S: Value>() {
    let shape = LogitsShape { rows: 3, cols: 4, valid: 0, start: 100 };
    let got = in_every_seed(|device| {
        let logits = device.up(&numbers::<S>(1, 12));
        let max = device.poison::<S::Wide>(3);
        device.queue().cross_entropy_max(shape, logits, max).unwrap();
        device.down::<S::Wide>(max)
    });
    equal(&got, &[S::Wide::NEG_INFINITY; 3]);
}

in_each_format!(losses_and_gradients padding_only);
