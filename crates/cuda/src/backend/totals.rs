//! What kernels add up over a step, on the device.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use quadrille_engine::{Totals, Update};
use quadrille_step::Scalar;

use super::lanes::Lanes;
use crate::array::{Array, Element};
use crate::driver::Fault;
use crate::memory::DeviceMemory;
use crate::ops::update_words;

/// Numbers that kernels add to, `f64`, in this order; then the update's two.
const SUMS: usize = 6;
const LOSS: usize = 0;
const TARGETS: usize = 1;
const SQUARES: usize = 2;
const BALANCE: usize = 3;
const ROUTER_Z: usize = 4;
const DROPPED: usize = 5;

/// A rank's totals: `f64` on the device, but for what the host knows by itself.
pub struct DeviceTotals {
    lanes: Arc<Lanes>,
    numbers: DeviceMemory,
    /// Targets that the host has counted.
    counted: Cell<u64>,
    /// Choices of each expert of all blocks, in the type of routes; as many as there are so far.
    loads: RefCell<Option<(DeviceMemory, usize)>>,
    element: Element,
}

impl DeviceTotals {
    /// Zeros; loads are counted in `element`.
    pub fn new(lanes: Arc<Lanes>, element: Element) -> Result<Self, Fault> {
        let numbers = lanes.take((SUMS + 2) * size_of::<f64>())?;
        let totals = Self { lanes, numbers, counted: Cell::default(), loads: RefCell::default(), element };
        totals.clear()?;
        totals.set_update(Update::default())?;
        Ok(totals)
    }

    fn all(&self) -> Array {
        self.numbers.array(Element::F64)
    }

    fn one(&self, which: usize) -> Array {
        self.all().part(which..which + 1)
    }

    /// Where losses, and targets that count, are added.
    pub fn loss(&self) -> [Array; 2] {
        [self.one(LOSS), self.one(TARGETS)]
    }

    /// Where squares are added.
    pub fn squares(&self) -> Array {
        self.one(SQUARES)
    }

    /// Where the losses of routers, and choices without a place, are added.
    pub fn routers(&self) -> [Array; 3] {
        [BALANCE, ROUTER_Z, DROPPED].map(|which| self.one(which))
    }

    /// What the optimizer reads of the update.
    pub fn update(&self) -> Array {
        self.all().part(SUMS..SUMS + 2)
    }

    /// Counts targets.
    pub fn count(&self, targets: u64) {
        self.counted.set(self.counted.get() + targets);
    }

    /// A step begins.
    pub fn clear(&self) -> Result<(), Fault> {
        self.counted.set(0);
        let sums = self.all().part(0..SUMS);
        let driver = self.lanes.driver();
        // SAFETY: the memory is this one's.
        unsafe { driver.clear(self.lanes.compute(), sums.at, sums.bytes()) }?;
        self.set_loads(&[])
    }

    /// What there is now; waits for the kernels so far.
    pub fn get(&self) -> Result<Totals, Fault> {
        let mut sums = [0.0; SUMS];
        self.lanes.down(self.all().part(0..SUMS), &mut sums)?;
        Ok(Totals {
            loss: sums[LOSS],
            targets: self.counted.get() + sums[TARGETS] as u64,
            norm_squared: sums[SQUARES],
            balance: sums[BALANCE],
            router_z: sums[ROUTER_Z],
            dropped: sums[DROPPED] as u64,
        })
    }

    /// Others in their place.
    pub fn set(&self, totals: Totals) -> Result<(), Fault> {
        self.counted.set(0);
        let mut sums = [0.0; SUMS];
        let numbers = [
            (LOSS, totals.loss),
            (TARGETS, totals.targets as f64),
            (SQUARES, totals.norm_squared),
            (BALANCE, totals.balance),
            (ROUTER_Z, totals.router_z),
            (DROPPED, totals.dropped as f64),
        ];
        numbers.into_iter().for_each(|(which, number)| sums[which] = number);
        self.lanes.up(&sums, self.all().part(0..SUMS))
    }

    /// What ranks add up for a scalar.
    pub fn take(&self, scalar: Scalar) -> Result<Vec<f64>, Fault> {
        let mut summands = self.get()?.of(scalar);
        if let Scalar::Routers { experts } = scalar {
            let mut loads = self.loads()?;
            loads.resize(experts, 0.0);
            summands.extend(loads);
        }
        Ok(summands)
    }

    /// The sums over ranks in their place.
    pub fn put(&self, scalar: Scalar, mut summed: Vec<f64>) -> Result<(), Fault> {
        if let Scalar::Routers { .. } = scalar {
            self.set_loads(&summed.split_off(Totals::OF_ROUTERS))?;
        }
        self.set(self.get()?.with(scalar, &summed))
    }

    /// Decides what the optimizer does from now on.
    pub fn decide(&self, by: impl FnOnce(Totals) -> Update) -> Result<(), Fault> {
        self.set_update(by(self.get()?))
    }

    fn set_update(&self, Update { applied, gradient_scale }: Update) -> Result<(), Fault> {
        self.lanes.up(&update_words(applied, gradient_scale), self.update())
    }

    /// Where the choices of a block's experts are counted, of which the first has this number.
    pub fn loads_of(&self, first: usize, experts: usize) -> Result<Array, Fault> {
        if self.loads.borrow().as_ref().is_none_or(|(_, len)| *len < first + experts) {
            let mut loads = self.loads()?;
            loads.resize(first + experts, 0.0);
            self.set_loads(&loads)?;
        }
        let loads = self.loads.borrow();
        let (memory, _) = loads.as_ref().expect("there are as many now");
        Ok(memory.array(self.element).part(first..first + experts))
    }

    /// Choices of each expert so far; waits for the kernels so far.
    pub fn loads(&self) -> Result<Vec<f64>, Fault> {
        let loads = self.loads.borrow();
        let Some((memory, len)) = loads.as_ref() else { return Ok(Vec::new()) };
        let from = memory.array(self.element).part(0..*len);
        if self.element == Element::F64 {
            let mut numbers = vec![0.0_f64; *len];
            self.lanes.down(from, &mut numbers)?;
            return Ok(numbers);
        }
        let mut numbers = vec![0.0_f32; *len];
        self.lanes.down(from, &mut numbers)?;
        Ok(numbers.into_iter().map(f64::from).collect())
    }

    fn set_loads(&self, loads: &[f64]) -> Result<(), Fault> {
        let mut there = self.loads.borrow_mut();
        let bytes = loads.len() * self.element.bytes();
        let Some((memory, len)) = there.as_mut().filter(|(memory, _)| memory.bytes() >= bytes) else {
            self.lanes.driver().synchronize(self.lanes.compute())?;
            *there = Some((self.lanes.take(bytes)?, 0));
            drop(there);
            return self.set_loads(loads);
        };
        *len = loads.len();
        let to = memory.array(self.element).part(0..loads.len());
        if self.element == Element::F64 {
            return self.lanes.up(loads, to);
        }
        let narrow: Vec<f32> = loads.iter().map(|load| *load as f32).collect();
        self.lanes.up(&narrow, to)
    }
}
