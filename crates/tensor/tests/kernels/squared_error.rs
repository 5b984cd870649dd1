use crate::support::{LENGTHS, assert_close, assert_gradient, on_any_threads, random, wide};
use quadrille_tensor::*;

fn check<T: Element>(len: usize) {
    let x = random::<T>(1, len);
    let targets = random::<f64>(2, len);
    let rounded_targets = on_any_threads(|pool| {
        let mut y = vec![T::ONE; len];
        rounded(pool, &targets, &mut y);
        y
    });
    assert!(rounded_targets.iter().zip(&targets).all(|(y, x)| *y == T::from_f64(*x)));
    // The loss comes back as a last element, so that it is compared bit by bit as well.
    let loss_of = |x: &[f64]| -> f64 { x.iter().zip(wide(&rounded_targets)).map(|(x, y)| (x - y).powi(2)).sum() };
    let all = on_any_threads(|pool| {
        let mut dx = x.clone();
        let loss = squared_error(pool, &mut dx, &targets, T::from_f64(0.5));
        dx.push(T::from_f64(loss));
        dx
    });
    let (loss, dx) = all.split_last().unwrap();
    assert_close("loss", &[*loss], &[loss_of(&wide(&x))]);
    let expected: Vec<f64> = wide(&x).iter().zip(wide(&rounded_targets)).map(|(x, y)| x - y).collect();
    assert_close("dx", dx, &expected);
    if T::NAME == "f64" && len < 100 {
        assert_gradient("dx", &wide(&x), &wide(dx), |x| 0.5 * loss_of(x));
    }
}

#[test]
fn squared_errors_and_their_gradient_equal_loops_and_differences() {
    for len in LENGTHS.into_iter().chain([77]) {
        check::<f32>(len);
        check::<f64>(len);
    }
}
