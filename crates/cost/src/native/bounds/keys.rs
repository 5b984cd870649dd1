//! Maps whose keys are candidates and shapes: a search asks them for every layout, and trusts what it asks.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map without a defence against keys that are made to collide.
pub(super) type Keyed<K, V> = HashMap<K, V, BuildHasherDefault<Mixed>>;

/// Multiplies and turns what it is given, word by word (FxHash of rustc).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mixed(u64);

impl Mixed {
    const FACTOR: u64 = 0x517c_c1b7_2722_0a95;

    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(Self::FACTOR);
    }
}

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        for bytes in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.mix(byte.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.mix(word as u64);
    }

    fn finish(&self) -> u64 {
        // The upper bits depend on all words; maps take the lower ones.
        self.0.rotate_left(26)
    }
}
