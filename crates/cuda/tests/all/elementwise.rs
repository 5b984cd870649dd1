//! Whole arrays, the optimizer, kept elements.

use quadrille_cuda::{Array, Number, ParameterArrays, squares_table, update_table, update_words};
use quadrille_tensor::{
    AdamW, Element, adamw, adamw_master, add_assign, compress, expand, round, rounded, scale, squared_error,
    squared_error_loss, sum_of_squares,
};

use crate::support::{Device, Value, equal, in_each_format, in_every_seed, near_to, nowhere, numbers, pool};

/// More than a block of threads, and no multiple of anything.
const N: usize = 1003;

fn sums_and_scales<S: Value>() {
    let x = numbers::<S>(1, N);
    let y = numbers::<S>(2, N);
    let reals = numbers::<S::Wide>(3, N);
    let mut sum = y.clone();
    let mut of_reals = y.clone();
    let mut to_reals = reals.clone();
    let mut scaled = x.clone();
    add_assign(&pool(), &mut sum, &x);
    add_assign(&pool(), &mut of_reals, &reals);
    add_assign(&pool(), &mut to_reals, &x);
    scale(&pool(), &mut scaled, S::Wide::from_f64(0.3));
    let mut less = vec![S::ZERO; N];
    round(&pool(), &mut less, &reals);
    let got = in_every_seed(|device| {
        let queue = device.queue();
        let x = device.up(&x);
        let reals = device.up(&reals);
        let a = device.up(&y);
        let b = device.up(&y);
        let c = device.poison::<S::Wide>(N);
        let d = device.poison::<S>(N);
        queue.copy(c, reals).unwrap();
        queue.add_assign(a, x).unwrap();
        queue.add_assign(b, reals).unwrap();
        queue.add_assign(c, x).unwrap();
        queue.round(d, reals).unwrap();
        queue.scale(x, 0.3).unwrap();
        ([a, b, d, x].map(|array| device.down::<S>(array)), device.down::<S::Wide>(c))
    });
    for (got, expected) in got.0.iter().zip([&sum, &of_reals, &less, &scaled]) {
        equal(got, expected);
    }
    equal(&got.1, &to_reals);
}

fn squares<S: Value>() {
    let x = numbers::<S>(1, 20_000);
    let runs = [0..1, 5..5, 7..9_000, 10_000..20_000];
    let expected: f64 = runs.iter().map(|run| sum_of_squares(&pool(), &x[run.clone()])).sum();
    let got = in_every_seed(|device| {
        let total = device.up(&[3.0_f64]);
        let x = device.up(&x);
        runs.iter().for_each(|run| device.queue().sum_squares(total, x.part(run.clone())).unwrap());
        device.down::<f64>(total)
    });
    near_to(&got, &[expected + 3.0], 1e-13);
}

/// Squares of arrays of several sizes, more than a block and one, as stored and as computed with, are summed at once as one by
/// one.
fn squares_of_all<S: Value>() {
    let stored = numbers::<S>(1, 20_000);
    let reals = numbers::<S::Wide>(2, 9_000);
    let got = in_every_seed(|device| {
        let queue = device.queue();
        let stored = device.up(&stored);
        let reals = device.up(&reals);
        let arrays = [stored.part(0..1), reals, stored.part(3..4099), stored.part(4096..20_000), reals.part(5..6)];
        let [one_by_one, at_once, none] = [0; 3].map(|_| device.up(&[3.0_f64]));
        arrays.iter().for_each(|array| queue.sum_squares(one_by_one, *array).unwrap());
        let (table, blocks) = squares_table(&arrays);
        assert_eq!(blocks, 1 + 3 + 1 + 4 + 1);
        queue.sum_squares_of_all(S::ELEMENT, device.up(&table), arrays.len(), blocks, at_once).unwrap();
        queue.sum_squares_of_all(S::ELEMENT, nowhere::<u32>(), 0, 0, none).unwrap();
        [one_by_one, at_once, none].map(|total| device.down::<f64>(total)[0].to_bits())
    });
    assert_eq!((got[0], got[2]), (got[1], 3.0_f64.to_bits()));
    assert!(f64::from_bits(got[0]) > 1e4, "the squares of 30,000 numbers up to 2");
}

fn squared_errors<S: Value>() {
    let x = numbers::<S>(1, 10_000);
    let targets = numbers::<f64>(2, 10_000);
    let mut gradient = x.clone();
    let factor = 0.3;
    let loss = squared_error(&pool(), &mut gradient, &targets, S::Wide::from_f64(factor));
    assert_eq!(loss, squared_error_loss(&pool(), &x, &targets));
    let mut less = vec![S::ZERO; targets.len()];
    rounded(&pool(), &targets, &mut less);
    let got = in_every_seed(|device| {
        let queue = device.queue();
        let x = device.up(&x);
        let targets = device.up(&targets);
        let total = device.up(&[0.0_f64]);
        let less = device.poison::<S>(targets.len);
        queue.squared_error_loss(x, targets, total).unwrap();
        queue.squared_error(x, targets, factor).unwrap();
        queue.rounded(targets, less).unwrap();
        (device.down::<S>(x), device.down::<S>(less), device.down::<f64>(total))
    });
    equal(&got.0, &gradient);
    equal(&got.1, &less);
    near_to(&got.2, &[loss], 1e-13);
}

const CONSTANTS: AdamW = AdamW {
    learning_rate: 1e-2,
    beta1: 0.9,
    beta2: 0.95,
    epsilon: 1e-8,
    weight_decay: 0.1,
    correction1: 0.19,
    correction2: 0.0975,
};

/// The states of an optimizer: stored; then master, gradient and moments.
fn states<S: Value>() -> (Vec<S>, [Vec<S::Wide>; 4]) {
    let squares = numbers::<S::Wide>(5, N).iter().map(|v| *v * *v).collect();
    (numbers(2, N), [numbers(1, N), numbers(3, N), numbers(4, N), squares])
}

fn optimizer<S: Value>() {
    let (stored, [p, g, m, v]) = states::<S>();
    let few: Vec<S> = g.iter().map(|g| S::rounded(*g)).collect();
    let of_reals = {
        let mut p = p.clone();
        let mut m = m.clone();
        let mut v = v.clone();
        adamw(&pool(), &CONSTANTS, 0.7, &mut p, &g, &mut m, &mut v);
        [p, m, v]
    };
    let (of_master, of_stored) = {
        let mut p = p.clone();
        let mut stored = stored.clone();
        let mut m = m.clone();
        let mut v = v.clone();
        adamw_master(&pool(), &CONSTANTS, 0.7, &mut p, &mut stored, &few, &mut m, &mut v);
        ([p, m, v], stored)
    };
    for applied in [true, false] {
        let got = in_every_seed(|device| {
            let queue = device.queue();
            let update = device.up(&update_words(applied, 0.7));
            let [a, b, c] = [&p, &m, &v].map(|x| device.up(x));
            queue.adamw(&CONSTANTS, update, a, None, device.up(&g), b, c).unwrap();
            let [d, e, f] = [&p, &m, &v].map(|x| device.up(x));
            let to = device.up(&stored);
            queue.adamw(&CONSTANTS, update, to, Some(d), device.up(&few), e, f).unwrap();
            let [h, i, j] = [&p, &m, &v].map(|x| device.up(x));
            let other = device.up(&stored);
            let wide: Vec<S::Wide> = few.iter().map(|g| g.widen()).collect();
            queue.adamw(&CONSTANTS, update, other, Some(h), device.up(&wide), i, j).unwrap();
            ([a, b, c, d, e, f, h, i, j].map(|x| device.down::<S::Wide>(x)), [to, other].map(|x| device.down::<S>(x)))
        });
        let before = [p.clone(), m.clone(), v.clone()];
        let expected = if applied { [&of_reals, &of_master, &of_master] } else { [&before; 3] };
        let wanted = expected.into_iter().flatten();
        got.0.iter().zip(wanted).for_each(|(got, expected)| equal(got, expected));
        got.1.iter().for_each(|got| equal(got, if applied { &of_stored } else { &stored }));
    }
}

/// Parameters of several sizes, more than a unit of work and none, with and without masters, of either gradient and other
/// constants, are updated at once as one by one.
fn optimizer_of_all<S: Value>() {
    let kinds = [
        (5000, false, false),
        (3, true, true),
        (0, true, false),
        (4096, true, false),
        (4097, true, true),
        (1, false, false),
    ];
    for applied in [true, false] {
        in_every_seed(|device| {
            let queue = device.queue();
            let update = device.up(&update_words(applied, 0.7));
            let parameters = || -> Vec<ParameterArrays> {
                let parameter = |(at, (n, has_master, g_is_stored)): (usize, (usize, bool, bool))| {
                    let reals = |name| device.up(&numbers::<S::Wide>(10 * at as u64 + name, n));
                    let squares: Vec<S::Wide> = numbers::<S::Wide>(10 * at as u64, n).iter().map(|v| *v * *v).collect();
                    let stored = |name| device.up(&numbers::<S>(10 * at as u64 + name, n));
                    let (p, master) = if has_master { (stored(1), Some(reals(2))) } else { (reals(1), None) };
                    let g = if g_is_stored { stored(3) } else { reals(3) };
                    let constants = AdamW { weight_decay: 0.1 * at as f64, ..CONSTANTS };
                    ParameterArrays { constants, p, master, g, moments: [reals(4), device.up(&squares)] }
                };
                kinds.into_iter().enumerate().map(parameter).collect()
            };
            let one_by_one = parameters();
            let at_once = parameters();
            for ParameterArrays { constants, p, master, g, moments: [m, v] } in &one_by_one {
                queue.adamw(constants, update, *p, *master, *g, *m, *v).unwrap();
            }
            let (table, units) = update_table(&at_once);
            assert_eq!(units, 2 + 1 + 1 + 2 + 1);
            queue.adamw_of_all(S::ELEMENT, device.up(&table), kinds.len(), units, update).unwrap();
            let results = |of: &[ParameterArrays]| -> Vec<Vec<S::Wide>> {
                let down = |array: Array| {
                    let as_real = array.element == S::Wide::ELEMENT;
                    if as_real {
                        device.down(array)
                    } else {
                        device.down::<S>(array).iter().map(|x| x.widen()).collect()
                    }
                };
                let arrays = |of: &ParameterArrays| [Some(of.p), of.master, Some(of.moments[0]), Some(of.moments[1])];
                of.iter().flat_map(arrays).flatten().map(down).collect()
            };
            let expected = results(&one_by_one);
            let got = results(&at_once);
            expected.iter().zip(&got).for_each(|(expected, got)| equal(got, expected));
            assert_eq!(got == results(&parameters()), !applied, "an update changes parameters");
            got
        });
    }
}

fn kept_elements<S: Value>() {
    let x = numbers::<S>(1, N);
    let indices: Vec<u32> = (0..N as u32).filter(|i| i % 7 < 2).collect();
    let kept = indices.len();
    let mut fresh = vec![S::ZERO; kept + 5];
    let mut added = numbers::<S>(2, kept + 5);
    let mut back = numbers::<S>(3, N);
    let before = added.clone();
    let dense = back.clone();
    compress(&pool(), &x, &indices, &mut fresh, false);
    compress(&pool(), &x, &indices, &mut added, true);
    expand(&pool(), &fresh, &indices, &mut back);
    let got = in_every_seed(|device| {
        let queue = device.queue();
        let x = device.up(&x);
        let indices = device.up(&indices);
        let a = device.poison::<S>(kept + 5);
        let b = device.up(&before);
        let c = device.up(&dense);
        queue.compress(x, indices, a, false).unwrap();
        queue.compress(x, indices, b, true).unwrap();
        queue.expand(a, indices, c).unwrap();
        [a, b, c].map(|array| device.down::<S>(array))
    });
    [fresh, added, back].iter().zip(&got).for_each(|(expected, got)| equal(got, expected));
}

/// Members' buffers combined in their order, into one that was read and one that was not.
fn reduced<S: Value>() {
    let mut members = [1, 2, 3].map(|name| numbers::<S>(name, N));
    members[1][5] = S::rounded(S::Wide::from_f64(f64::NAN));
    let wide = |i: usize| members.iter().map(move |member| member[i].widen());
    let sums: Vec<S> = (0..N).map(|i| S::rounded(wide(i).reduce(|a, b| a + b).unwrap())).collect();
    let most = |a: S::Wide, b: S::Wide| if a.to_f64().is_nan() || a > b { a } else { b };
    let maxima: Vec<S> = (0..N).map(|i| S::rounded(wide(i).reduce(most).unwrap())).collect();
    for (maximum, mut expected) in [(false, sums), (true, maxima)] {
        let got = in_every_seed(|device| {
            let queue = device.queue();
            let other = device.poison::<S>(N);
            let from = [0, 1, 2].map(|member: usize| device.up(&members[member]));
            queue.reduce(maximum, &from, &[from[1], other]).unwrap();
            let mut got = [from[1], other].map(|array| device.down::<S>(array));
            // The one that is no number in all seeds.
            got.iter_mut().for_each(|got| assert!(std::mem::take(&mut got[5]).widen().to_f64().is_nan()));
            got
        });
        expected[5] = S::ZERO;
        got.iter().for_each(|got| equal(got, &expected));
    }
}

/// Nothing to do is no work and no fault.
fn nothing<S: Value>() {
    let device = Device::new(1);
    device.queue().scale(nowhere::<S>(), 2.0).unwrap();
    device.queue().add_assign(nowhere::<S>(), nowhere::<S>()).unwrap();
    device.driver.synchronize(device.stream).unwrap();
}

in_each_format!(optimizer_of_all sums_and_scales squares squares_of_all squared_errors optimizer kept_elements reduced nothing);
