//! A microbatch's samples on the device.

use std::mem::swap;

use quadrille_engine::OwnSamples;

use super::lanes::Lanes;
use super::staging::Sent;
use crate::array::{Array, Number};
use crate::driver::Fault;
use crate::memory::DeviceMemory;

/// Samples as the host has them, and as kernels read them.
#[derive(Default)]
pub struct DeviceSamples {
    /// The host's.
    pub host: OwnSamples,
    tokens: [Option<DeviceMemory>; 2],
    patches: [Option<DeviceMemory>; 2],
    present: [Option<DeviceMemory>; 1],
}

impl DeviceSamples {
    /// Takes samples, and gives what is to be copied, for kernels that are issued after that; those before may still read the
    /// ones before.
    pub fn load(&mut self, from: &mut OwnSamples, lanes: &Lanes) -> Result<Vec<Sent<'_>>, Fault> {
        swap(from, &mut self.host);
        let mut sent = load(&self.host.tokens, &mut self.tokens, lanes)?;
        sent.extend(load(&self.host.patches, &mut self.patches, lanes)?);
        sent.extend(load(std::slice::from_ref(&self.host.present), &mut self.present, lanes)?);
        Ok(sent)
    }

    /// Ids of tokens: the inputs, or what is to be predicted.
    pub fn tokens(&self, which: usize) -> Array {
        array::<u32>(&self.tokens[which], self.host.tokens[which].len())
    }

    /// 1 for each token or patch, 0 for padding.
    pub fn present(&self) -> Array {
        array::<u32>(&self.present[0], self.host.present.len())
    }

    /// Numbers of patches, likewise.
    pub fn patches(&self, which: usize) -> Array {
        array::<f64>(&self.patches[which], self.host.patches[which].len())
    }
}

fn load<'h, T: Number>(
    from: &'h [Vec<T>],
    to: &mut [Option<DeviceMemory>],
    lanes: &Lanes,
) -> Result<Vec<Sent<'h>>, Fault> {
    let mut sent = Vec::with_capacity(from.len());
    for (from, to) in from.iter().zip(to) {
        let bytes = bytes_of(from);
        if to.as_ref().map_or(0, DeviceMemory::bytes) < bytes.len() {
            lanes.driver().synchronize(lanes.compute())?;
            *to = Some(lanes.take(bytes.len())?);
        }
        if to.is_some() {
            sent.push((bytes, array::<T>(to, from.len())));
        }
    }
    Ok(sent)
}

/// Numbers as bytes.
pub(super) fn bytes_of<T: Number>(numbers: &[T]) -> &[u8] {
    // SAFETY: numbers have no padding, and as many bytes; they are borrowed for as long.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// Numbers as bytes to be written: any bytes are some number.
pub(super) fn bytes_of_mut<T: Number>(numbers: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and borrowed mutably.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
}

fn array<T: Number>(memory: &Option<DeviceMemory>, len: usize) -> Array {
    let memory = memory.as_ref().expect("samples are loaded before kernels read them");
    memory.array(T::ELEMENT).part(0..len)
}
