//! The emulated device itself: what it must find, and what it must let pass.

use quadrille_cuda::{Array, Fault, Format, Launch, Number, Place, Product, THREADS};
use quadrille_tensor::{ProductShape, Shape, Stored, Transpose, matmul};

use crate::support::{Device, Value, equal, in_each_format, in_every_seed, near, numbers, pool};

const COUNT: usize = THREADS as usize;

/// Runs a control kernel in one block; what it wrote, or what is wrong with it.
fn control(kernel: &'static str, seed: u64) -> Result<Vec<f64>, Fault> {
    control_sharing(kernel, seed, 0)
}

/// The same with so many bytes of the launch's memory.
fn control_sharing(kernel: &'static str, seed: u64, shared: u32) -> Result<Vec<f64>, Fault> {
    let device = Device::emulated(seed);
    let x = device.up(&(0..COUNT).map(|i| i as f64).collect::<Vec<_>>());
    let y = device.poison::<f64>(COUNT);
    let launch = Launch { kernel, format: Format::F64, blocks: 1, shared, words: &[y.at.0, x.at.0] };
    // SAFETY: control kernels take these two, of a number for each thread.
    unsafe { device.driver.launch(device.stream, &launch) }?;
    device.driver.synchronize(device.stream)?;
    Ok(device.down(y))
}

#[test]
fn a_missing_barrier_gives_a_wrong_sum() {
    let sum = (COUNT * (COUNT - 1) / 2) as f64;
    for seed in 0..8 {
        assert_eq!(control("control_sound", seed).unwrap()[0], sum);
        assert_ne!(control("control_without_barrier", seed).unwrap()[0], sum);
    }
}

#[test]
fn threads_at_different_barriers_are_named() {
    let fault = control("control_divergent", 1).unwrap_err();
    assert!(fault.text.contains("different barriers") && fault.text.contains("control_divergent_f64"), "{fault}");
    let fault = control("control_missing_lane", 1).unwrap_err();
    assert!(fault.text.contains("never come"), "{fault}");
}

#[test]
fn shared_memory_that_nobody_wrote_is_no_number() {
    let y = control("control_unwritten", 1).unwrap();
    assert!((0..COUNT).all(|i| y[i].is_nan() == (i == 3)));
}

#[test]
fn copies_are_done_when_they_are_waited_for() {
    let shared = (COUNT * 8) as u32;
    let y = control_sharing("control_copies", 1, shared).unwrap();
    assert!((0..COUNT).all(|i| y[i] == if i / 2 == 1 { 0.0 } else { i as f64 }));
    let y = control_sharing("control_unfinished_copies", 1, shared).unwrap();
    assert!(y.iter().all(|y| y.is_nan()));
    let fault = control_sharing("control_copies", 1, shared - 8).unwrap_err();
    assert!(fault.text.contains("than its launch says"), "{fault}");
}

#[test]
fn what_is_wrong_with_products_of_warpgroups_is_found() {
    const TILE: u32 = 64 * 64 * 2;
    let y = control_sharing("control_products", 1, TILE).unwrap();
    assert!(y.iter().all(|y| *y == 0.0));
    for (kernel, text) in [
        ("control_products_unaligned", "multiple of 1,024 bytes"),
        ("control_products_beyond", "beyond the memory that is shared"),
        ("control_products_otherwise", "said to lie otherwise"),
        ("control_products_lanes_differ", "lanes name different operands"),
        ("control_products_warps_differ", "warps of a group name different operands"),
        ("control_products_never_waited_for", "never waited for"),
    ] {
        let fault = control_sharing(kernel, 1, TILE).unwrap_err();
        assert!(fault.text.contains(text), "{kernel}: {fault}");
    }
    for kernel in ["control_products_overwritten", "control_products_left_changed", "control_products_sums_changed"] {
        let y = control_sharing(kernel, 1, TILE).unwrap();
        assert!(y.iter().all(|y| y.is_nan()), "{kernel}: {y:?}");
    }
}

#[test]
fn kernels_that_are_not_there_or_take_other_words_are_named() {
    let device = Device::emulated(1);
    let launch = |kernel, words: &[u64]| {
        let launch = Launch { kernel, format: Format::F32, blocks: 1, shared: 0, words };
        // SAFETY: both are refused.
        unsafe { device.driver.launch(device.stream, &launch) }.unwrap_err().to_string()
    };
    assert!(launch("no_such", &[]).contains("there is no kernel no_such_f32"));
    assert!(launch("scale", &[0, 0]).contains("kernel scale_f32 takes 3 words, not 2"));
}

/// Copies what one stream computes on another, with an event between them or without.
fn copied(device: &Device, with_event: bool) -> f64 {
    let driver = &device.driver;
    let other = driver.stream(true).unwrap();
    let event = driver.event().unwrap();
    let x = device.up(&[1.0_f64]);
    let y = device.up(&[0.0_f64]);
    device.queue().scale(x, 2.0).unwrap();
    driver.record(event, device.stream).unwrap();
    if with_event {
        driver.wait(other, event).unwrap();
    }
    // SAFETY: both are numbers of the device.
    unsafe { driver.copy(other, Place::Device(x.at), Place::Device(y.at), 8) }.unwrap();
    driver.synchronize(other).unwrap();
    device.down::<f64>(y)[0]
}

#[test]
fn a_missing_event_is_a_wrong_result_in_some_seed() {
    let results = |with_event| (0..16).map(|seed| copied(&Device::emulated(seed), with_event)).collect::<Vec<_>>();
    assert!(results(true).iter().all(|y| *y == 2.0));
    assert!(results(false).contains(&1.0), "in no order of 16 the copy came first");
}

#[test]
fn nothing_is_done_before_the_host_waits() {
    let device = Device::emulated(3);
    let x = device.up(&[1.0_f64]);
    let event = device.driver.event().unwrap();
    assert!(device.driver.query(event).unwrap(), "an event that was never recorded holds nothing back");
    let mut seen = 0.0_f64;
    device.queue().scale(x, 2.0).unwrap();
    // SAFETY: the number is there until the stream is done.
    unsafe { device.driver.copy(device.stream, Place::Device(x.at), Place::HostMut((&raw mut seen).cast()), 8) }
        .unwrap();
    device.driver.record(event, device.stream).unwrap();
    assert_eq!(seen, 0.0);
    let mut asked = 0;
    while !device.driver.query(event).unwrap() {
        asked += 1;
    }
    assert!((1..=2).contains(&asked) && seen == 2.0, "asked {asked} times, seen {seen}");
}

#[test]
fn an_event_orders_by_what_it_recorded_last() {
    for seed in 0..8 {
        let device = Device::emulated(seed);
        let driver = &device.driver;
        let other = device.driver.stream(false).unwrap();
        let event = driver.event().unwrap();
        let x = device.up(&[1.0_f64]);
        let y = device.up(&[0.0_f64]);
        for _ in 0..2 {
            device.queue().scale(x, 2.0).unwrap();
            driver.record(event, device.stream).unwrap();
        }
        driver.wait(other, event).unwrap();
        // What comes behind the mark may come before or after.
        device.queue().scale(y, 2.0).unwrap();
        // SAFETY: both are numbers of the device.
        unsafe { driver.copy(other, Place::Device(x.at), Place::Device(y.at), 8) }.unwrap();
        driver.synchronize(other).unwrap();
        driver.synchronize(device.stream).unwrap();
        let y = device.down::<f64>(y)[0];
        assert!(y == 4.0 || y == 8.0, "{y}");
    }
}

#[test]
fn memory_is_no_number_before_it_is_written_and_after_it_is_freed() {
    let device = Device::emulated(1);
    let fresh = device.poison::<f32>(5);
    assert!(device.down::<f32>(fresh).iter().all(|x| x.is_nan()));
    let x = device.up(&[1.0_f32; 5]);
    // SAFETY: all work is done.
    unsafe { device.driver.free(x.at) }.unwrap();
    assert!(device.down::<f32>(x).iter().all(|x| x.is_nan()));
    // SAFETY: it is refused.
    let fault = unsafe { device.driver.free(x.at) }.unwrap_err();
    assert!(fault.text.contains("was not allocated"), "{fault}");
    let used = device.driver.device().memory().unwrap().used;
    device.poison::<f32>(5);
    assert_eq!(device.driver.device().memory().unwrap().used, used + 20);
}

#[test]
fn writing_beyond_the_end_is_found() {
    let device = Device::emulated(1);
    let x = device.up(&[1.0_f64; 3]);
    // SAFETY: behind the numbers is the emulated device's guard.
    unsafe { device.driver.clear(device.stream, x.at, 25) }.unwrap();
    let fault = device.driver.synchronize(device.stream).unwrap_err();
    assert!(fault.text.contains("beyond the 24 bytes"), "{fault}");
}

/// Products of every layout, with and without accumulation, of operands stored as S.
fn products<S: Value>() {
    for (stored, accumulate) in Transpose::ALL.into_iter().flat_map(|stored| [(stored, false), (stored, true)]) {
        let shape = ProductShape { stored, m: 5, n: 7, k: 11 };
        product::<S, S>(shape, accumulate);
        product::<S, S::Wide>(shape, accumulate);
    }
}

fn product<S: Value, C: Value<Wide = S::Wide>>(shape: ProductShape, accumulate: bool) {
    let ProductShape { m, n, k, .. } = shape;
    let a = numbers::<S>(1, m * k);
    let b = numbers::<S>(2, k * n);
    let c = numbers::<C>(3, m * n);
    let mut expected = c.clone();
    matmul(&pool(), shape, &a, &b, &mut expected, accumulate);
    let got = in_every_seed(|device| {
        let c = if accumulate { device.up(&c) } else { device.poison::<C>(m * n) };
        let product = Product { shape, a: device.up(&a), b: device.up(&b), c, accumulate, bias: None, algorithm: None };
        // SAFETY: the operands stay until the device is dropped.
        unsafe { device.driver.product(device.stream, &product) }.unwrap();
        device.down::<C>(c)
    });
    near(&got, &expected);
}

/// A product with a bias, in what C has, is the sum of both before it is rounded: the bits of both apart where nothing is rounded
/// between.
fn biased_products<S: Value>() {
    let shape = ProductShape { stored: Transpose::Nt, m: 7, n: 6, k: 9 };
    let a = numbers::<S>(1, 7 * 9);
    let b = numbers::<S>(2, 6 * 9);
    let bias = numbers::<S>(3, 6);
    let wide = |x: &[S]| x.iter().map(|x| x.widen()).collect::<Vec<S::Wide>>();
    let mut sums = vec![S::Wide::ZERO; 7 * 6];
    matmul(&pool(), shape, &wide(&a), &wide(&b), &mut sums, false);
    let both = |(at, sum): (usize, &S::Wide)| S::rounded(*sum + bias[at % 6].widen());
    let expected: Vec<S> = sums.iter().enumerate().map(both).collect();
    let got = in_every_seed(|device| {
        let a = device.up(&a);
        let b = device.up(&b);
        let bias = device.up(&bias);
        let run = |bias: Option<Array>| {
            let c = device.poison::<S>(7 * 6);
            let product = Product { shape, a, b, c, accumulate: false, bias, algorithm: None };
            // SAFETY: the operands stay until the device is dropped.
            unsafe { device.driver.product(device.stream, &product) }.unwrap();
            c
        };
        let at_once = run(Some(bias));
        let apart = run(None);
        let reals = device.up(&wide(&numbers::<S>(3, 6)));
        device.queue().bias_forward(Shape { rows: 7, cols: 6 }, apart, reals).unwrap();
        [at_once, apart].map(|c| device.down::<S>(c))
    });
    near(&got[0], &expected);
    if S::ELEMENT == S::Wide::ELEMENT { equal(&got[0], &got[1]) } else { assert_ne!(got[0], got[1], "rounded twice") }
}

in_each_format!(products biased_products);
