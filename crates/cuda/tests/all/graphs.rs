//! Graphs of a device: the same commands, with the words that kernels have got.

use quadrille_cuda::{Array, Launch, Place, Product};
use quadrille_tensor::{ProductShape, Transpose};

use crate::support::{Device, Value, equal, in_each_format, numbers};

/// Sides of the matrices.
const SIDE: usize = 16;

/// Matrices that a graph's commands read and write.
struct Row<'d> {
    device: &'d Device,
    a: Array,
    b: Array,
    /// That are written.
    x: Array,
    c: Array,
    sum: Array,
    copied: Array,
    cleared: Array,
}

impl<'d> Row<'d> {
    fn new<S: Value>(device: &'d Device) -> Self {
        let [a, b, x, c, sum, copied, cleared] =
            [1, 2, 3, 4, 5, 6, 7].map(|name| device.up(&numbers::<S>(name, SIDE * SIDE)));
        Self { device, a, b, x, c, sum, copied, cleared }
    }

    fn written(&self) -> [Array; 5] {
        [self.x, self.c, self.sum, self.copied, self.cleared]
    }

    fn all<S: Value>(&self) -> [Vec<S>; 5] {
        self.written().map(|array| self.device.down::<S>(array))
    }

    fn put<S: Value>(&self, numbers: &[Vec<S>; 5]) {
        for (array, numbers) in self.written().into_iter().zip(numbers) {
            let from = Place::Host(numbers.as_ptr().cast());
            let to = Place::Device(array.at);
            // SAFETY: both have so many bytes, and are there until the stream is done.
            unsafe { self.device.driver.copy(self.device.stream, from, to, array.bytes()) }.unwrap();
        }
        self.device.driver.synchronize(self.device.stream).unwrap();
    }

    /// Calls `with` with the launch that multiplies x.
    fn scale<R>(&self, factor: f64, with: impl FnOnce(&Launch<'_>) -> R) -> R {
        let words = [self.x.at.0, factor.to_bits(), self.x.len as u64];
        with(&Launch { kernel: "scale", format: self.x.element.format(), blocks: 1, shared: 0, words: &words })
    }

    fn launch(&self, factor: f64) {
        // SAFETY: arrays of a device stay until it is dropped.
        self.scale(factor, |launch| unsafe { self.device.driver.launch(self.device.stream, launch) }).unwrap();
    }

    /// The commands after the launch, one of each kind.
    fn rest(&self) {
        let driver = &self.device.driver;
        let stream = self.device.stream;
        let shape = ProductShape { stored: Transpose::Nn, m: SIDE, n: SIDE, k: SIDE };
        let bias = None;
        let algorithm = None;
        let product = Product { shape, a: self.a, b: self.b, c: self.c, accumulate: true, bias, algorithm };
        // SAFETY: as above, and they are apart.
        unsafe {
            driver.product(stream, &product).unwrap();
            let from = Place::Device(self.x.at);
            let to = Place::Device(self.copied.at);
            driver.copy(stream, from, to, self.x.bytes()).unwrap();
            driver.clear(stream, self.cleared.at, self.cleared.bytes() / 2).unwrap();
            let words = [self.sum.at.0, self.copied.at.0, self.sum.len as u64];
            let format = self.sum.element.format();
            let launch = Launch { kernel: "add_assign", format, blocks: 2, shared: 0, words: &words };
            driver.launch(stream, &launch).unwrap();
        }
    }
}

/// Launches, products, clears and copies of a graph do what they do one by one, time after time; a launch that got other words
/// does that from then on.
fn graphs_do_what_their_commands_do<S: Value>() {
    let device = Device::new(1);
    let row = Row::new::<S>(&device);
    let driver = &device.driver;
    let stream = device.stream;
    let before = row.all::<S>();
    for factor in [0.5, 0.5, 2.0] {
        row.launch(factor);
        row.rest();
    }
    let expected = row.all::<S>();
    assert!(expected.iter().zip(&before).all(|(expected, before)| expected != before), "something is done");
    row.put(&before);
    driver.begin_graph(stream).unwrap();
    row.launch(0.5);
    let node = driver.last_node(stream).unwrap();
    row.rest();
    let graph = driver.end_graph(stream).unwrap();
    row.all::<S>().iter().zip(&before).for_each(|(now, before)| equal(now, before));
    // SAFETY: arrays of a device stay until it is dropped.
    unsafe {
        driver.run_graph(graph, stream).unwrap();
        driver.run_graph(graph, stream).unwrap();
        row.scale(2.0, |launch| driver.update_node(graph, node, launch)).unwrap();
        driver.run_graph(graph, stream).unwrap();
    }
    driver.forget_graph(graph);
    row.all::<S>().iter().zip(&expected).for_each(|(now, expected)| equal(now, expected));
}

in_each_format! { graphs_do_what_their_commands_do }
