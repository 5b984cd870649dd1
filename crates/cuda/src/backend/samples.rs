//! A microbatch's samples on the device.

use std::mem::swap;

use quadrille_engine::OwnSamples;

use super::lanes::Lanes;
use crate::array::{Array, Number};
use crate::driver::{Fault, Place};
use crate::memory::DeviceMemory;

/// Samples as the host has them, and as kernels read them.
#[derive(Default)]
pub struct DeviceSamples {
    /// The host's.
    pub host: OwnSamples,
    tokens: [Option<DeviceMemory>; 2],
    patches: [Option<DeviceMemory>; 2],
}

impl DeviceSamples {
    /// Takes samples, for kernels that are issued from now on; those before may still read the ones before.
    pub fn load(&mut self, from: &mut OwnSamples, lanes: &Lanes) -> Result<(), Fault> {
        swap(from, &mut self.host);
        load(&self.host.tokens, &mut self.tokens, lanes)?;
        load(&self.host.patches, &mut self.patches, lanes)?;
        // What was read from is the host's to change as soon as this returns.
        lanes.driver().synchronize(lanes.compute())
    }

    /// Ids of tokens: the inputs, or what is to be predicted.
    pub fn tokens(&self, which: usize) -> Array {
        array::<u32>(&self.tokens[which], self.host.tokens[which].len())
    }

    /// Numbers of patches, likewise.
    pub fn patches(&self, which: usize) -> Array {
        array::<f64>(&self.patches[which], self.host.patches[which].len())
    }
}

fn load<T: Number>(from: &[Vec<T>; 2], to: &mut [Option<DeviceMemory>; 2], lanes: &Lanes) -> Result<(), Fault> {
    let (driver, stream) = (lanes.driver(), lanes.compute());
    for (from, to) in from.iter().zip(to) {
        let bytes = size_of_val(from.as_slice());
        if to.as_ref().map_or(0, DeviceMemory::bytes) < bytes {
            driver.synchronize(stream)?;
            *to = Some(lanes.take(bytes)?);
        }
        if let Some(memory) = to {
            // SAFETY: the host's memory is left alone until the stream is done, by `load`; the device's is as large.
            unsafe { driver.copy(stream, Place::Host(from.as_ptr().cast()), Place::Device(memory.at()), bytes) }?;
        }
    }
    Ok(())
}

fn array<T: Number>(memory: &Option<DeviceMemory>, len: usize) -> Array {
    let memory = memory.as_ref().expect("samples are loaded before kernels read them");
    memory.array(T::ELEMENT).part(0..len)
}
