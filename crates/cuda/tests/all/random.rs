//! Random numbers on the device.

use quadrille_cuda::{Draw, ElementMask, Rows};
use quadrille_tensor::Shape;

use crate::support::Device;

/// Philox 4x32-10 as its paper writes it.
pub fn philox(key: [u32; 2], counter: u64) -> [u32; 4] {
    let mut state = [counter as u32, (counter >> 32) as u32, 0, 0];
    let mut key = key;
    for _ in 0..10 {
        let [low, high] = [u64::from(state[0]) * 0xd251_1f53, u64::from(state[2]) * 0xcd9e_8d57];
        let [a, b] = [(high >> 32) as u32 ^ state[1] ^ key[0], (low >> 32) as u32 ^ state[3] ^ key[1]];
        state = [a, high as u32, b, low as u32];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    state
}

/// Whether an element stays.
pub fn keeps(draw: Draw, index: usize) -> bool {
    philox(draw.key, index as u64 / 4)[index % 4] >= draw.threshold
}

/// The known answer of Random123: the words of counter 0 under key 0. An element stays up to its own word and no further.
#[test]
fn philox_gives_the_words_of_random123() {
    let words = [0x6627_e8d5_u32, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8];
    assert_eq!(philox([0, 0], 0), words);
    let device = Device::new(1);
    for (i, word) in words.into_iter().enumerate() {
        for (threshold, stays) in [(word, 1.0), (word + 1, 0.0)] {
            let draw = Draw { key: [0, 0], threshold, scale: 1.0 };
            let mask = ElementMask { draw, rows: Rows::whole(1), first_col: 0, cols: 4 };
            let x = device.up(&[1.0_f64; 4]);
            device.queue().dropout(Shape { rows: 1, cols: 4 }, x, &mask).unwrap();
            assert_eq!(device.down::<f64>(x)[i], stays, "word {i} at {threshold:#x}");
        }
    }
}
