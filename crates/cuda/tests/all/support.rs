//! Devices, numbers, and comparisons.

use std::sync::{Arc, OnceLock};

use bytemuck::Pod;
use half::bf16;
use quadrille_cuda::{Address, Array, Driver, Emulator, Gpu, Number, Place, Queue, Stream};
use quadrille_tensor::{Element, Pool, Stored};

/// A type that values are stored in, which devices have as well.
pub trait Value: Stored<Real = <Self as Value>::Wide> + Number + Pod {
    /// What is computed in.
    type Wide: Element + Number + Pod + Value<Wide = Self::Wide>;
    /// How far sums in another order may be off, of the largest number.
    const SUMS: f64;
}

impl Value for f64 {
    type Wide = f64;
    const SUMS: f64 = 1e-13;
}
impl Value for f32 {
    type Wide = f32;
    const SUMS: f64 = 2e-6;
}
impl Value for bf16 {
    type Wide = f32;
    /// A unit in the last place: what is near the middle of two values is rounded to either.
    const SUMS: f64 = 8e-3;
}

/// Whether tests run on a real device.
pub fn is_real() -> bool {
    std::env::var("QUADRILLE_TEST_DEVICE").is_ok_and(|device| device == "cuda")
}

/// The variable that names a barrier, `file:line`, which emulated devices do without.
pub const WITHOUT: &str = "QUADRILLE_TEST_WITHOUT";

/// A device with one stream: an emulated one, or with `QUADRILLE_TEST_DEVICE=cuda` the first real one.
pub struct Device {
    pub driver: Arc<dyn Driver>,
    pub stream: Stream,
}

/// Elements of scratch, `f64`, that queues have.
const SCRATCH: usize = 1 << 17;

impl Device {
    pub fn new(seed: u64) -> Self {
        static REAL: OnceLock<Option<Arc<Gpu>>> = OnceLock::new();
        let real = REAL.get_or_init(|| is_real().then(|| Arc::new(Gpu::open(0).unwrap())));
        match real {
            Some(device) => Self::of(device.clone()),
            None => Self::emulated(seed),
        }
    }

    /// An emulated one in any case.
    pub fn emulated(seed: u64) -> Self {
        let without = std::env::var(WITHOUT).ok();
        Self::of(Arc::new(match without.as_deref().and_then(|text| text.split_once(':')) {
            None => Emulator::new(seed),
            Some((file, line)) => Emulator::without_barrier(seed, file, line.parse().unwrap()),
        }))
    }

    pub fn of(driver: Arc<dyn Driver>) -> Self {
        let stream = driver.stream(false).unwrap();
        Self { driver, stream }
    }

    /// Kernels on the stream.
    pub fn queue(&self) -> Queue<'_> {
        // SAFETY: arrays of a device stay until it is dropped; tests give methods arrays that are apart.
        unsafe { Queue::new(self.driver.as_ref(), self.stream, self.poison::<f64>(SCRATCH)) }
    }

    /// Memory that nobody has written.
    pub fn poison<T: Number>(&self, len: usize) -> Array {
        let at = self.driver.allocate(len * size_of::<T>()).unwrap();
        Array { at, len, element: T::ELEMENT }
    }

    /// Numbers in the device's memory.
    pub fn up<T: Number>(&self, numbers: &[T]) -> Array {
        let array = self.poison::<T>(numbers.len());
        self.copy(Place::Host(numbers.as_ptr().cast()), Place::Device(array.at), array.bytes());
        array
    }

    /// What is in the device's memory.
    pub fn down<T: Number>(&self, array: Array) -> Vec<T> {
        assert_eq!(array.element, T::ELEMENT);
        let mut numbers = vec![T::default(); array.len];
        self.copy(Place::Device(array.at), Place::HostMut(numbers.as_mut_ptr().cast()), array.bytes());
        numbers
    }

    fn copy(&self, from: Place, to: Place, bytes: usize) {
        // SAFETY: both have so many bytes and are there until the stream is done.
        unsafe { self.driver.copy(self.stream, from, to, bytes) }.unwrap();
        self.driver.synchronize(self.stream).unwrap();
    }
}

/// No memory.
pub fn nowhere<T: Number>() -> Array {
    Array { at: Address::NONE, len: 0, element: T::ELEMENT }
}

/// What `work` gives on devices of several seeds, always the same.
pub fn in_every_seed<R: PartialEq + std::fmt::Debug>(work: impl Fn(&Device) -> R) -> R {
    let first = work(&Device::new(1));
    for seed in 2..5 {
        assert!(work(&Device::new(seed)) == first, "seed {seed} gives other bits than seed 1");
    }
    first
}

/// Numbers between -2 and 2, others for each name.
pub fn numbers<S: Stored>(name: u64, len: usize) -> Vec<S> {
    let mut state = name.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let draw = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let x = (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64;
        S::rounded(S::Real::from_f64(4.0 * x - 2.0))
    };
    (0..len).map(draw).collect()
}

/// The rank's threads for the reference.
pub fn pool() -> Pool {
    Pool::new(1)
}

/// Asserts equal bits, but for the sign of zero.
#[track_caller]
pub fn equal<S: Stored>(got: &[S], expected: &[S]) {
    assert_eq!(got.len(), expected.len());
    let wrong = got.iter().zip(expected).position(|(a, b)| a != b);
    assert!(wrong.is_none(), "element {wrong:?}: {:?}, not {:?}", got[wrong.unwrap()], expected[wrong.unwrap()]);
}

/// Asserts equal bits, but in `f64` on a real device, whose exponentials and logarithms are its own.
#[track_caller]
pub fn alike<S: Value>(got: &[S], expected: &[S]) {
    if is_real() && S::ELEMENT == f64::ELEMENT { near_to(got, expected, 1e-14) } else { equal(got, expected) }
}

/// Asserts that no number is further off than sums in another order may be.
#[track_caller]
pub fn near<S: Value>(got: &[S], expected: &[S]) {
    near_to(got, expected, S::SUMS);
}

/// Asserts that no number is further off than so much of the largest.
#[track_caller]
pub fn near_to<S: Stored>(got: &[S], expected: &[S], tolerance: f64) {
    assert_eq!(got.len(), expected.len());
    let wide = |x: &S| x.widen().to_f64();
    let largest = expected.iter().map(|x| wide(x).abs()).fold(0.0, f64::max);
    for (i, (a, b)) in got.iter().zip(expected).enumerate() {
        let off = (wide(a) - wide(b)).abs();
        assert!(off <= tolerance * largest, "element {i}: {a:?}, not {b:?}, of at most {largest}");
    }
}

/// Tests in each of the three formats.
macro_rules! in_each_format {
    ($($test:ident)*) => {
        mod in_f64 { $(#[test] fn $test() { super::$test::<f64>(); })* }
        mod in_f32 { $(#[test] fn $test() { super::$test::<f32>(); })* }
        mod mixed { $(#[test] fn $test() { super::$test::<half::bf16>(); })* }
    };
}
pub(crate) use in_each_format;
