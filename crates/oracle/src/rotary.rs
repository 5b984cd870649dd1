//! Rotary positions (Su et al., RoFormer, 2021, section 3.2.2). Halves of a head are paired ("rotate half", as in
//! GPT-NeoX and in the Hugging Face form of Llama; RoFormer pairs neighbours): the numbers `i` and `i + d/2` of a query
//! or key turn by `position * base^(-2 i / d)`; `d` is how many numbers of a head turn, the first ones.

use std::f64::consts::PI;

use quadrille_spec::{Rotary, RotaryScaling};

use crate::attention::{Attention, Part};

/// Turns the queries and keys in `qkv` forwards.
pub(crate) fn forward(attention: &Attention, rotary: Rotary, qkv: &mut [f64]) {
    turn(attention, rotary, 1.0, qkv);
}

/// Turns their gradients in `dqkv` back: a rotation's transpose is its inverse.
pub(crate) fn backward(attention: &Attention, rotary: Rotary, dqkv: &mut [f64]) {
    turn(attention, rotary, -1.0, dqkv);
}

fn turn(attention: &Attention, rotary: Rotary, sense: f64, qkv: &mut [f64]) {
    for sequence in 0..attention.sequences {
        for position in 0..attention.seq_len {
            for head in 0..attention.heads {
                let at = attention.index(sequence, head, position, Part::Query);
                turn_head(&mut qkv[at..][..attention.head_dim], position, rotary, sense);
            }
            for kv_head in 0..attention.kv_heads {
                // Any head of the group finds the key that they share.
                let head = kv_head * attention.group();
                let at = attention.index(sequence, head, position, Part::Key);
                turn_head(&mut qkv[at..][..attention.head_dim], position, rotary, sense);
            }
        }
    }
}

fn turn_head(numbers: &mut [f64], position: usize, rotary: Rotary, sense: f64) {
    let d = rotary.columns;
    for i in 0..d / 2 {
        let angle = position as f64 * scaled(i, rotary);
        let (sin, cos) = (sense * angle).sin_cos();
        let a = numbers[i];
        let b = numbers[i + d / 2];
        numbers[i] = a * cos - b * sin;
        numbers[i + d / 2] = b * cos + a * sin;
    }
}

/// The frequency as it is used. Llama 3.1: waves longer than a part of the former length are stretched, short ones stay,
/// between them the share of the stretched one falls with the number of waves in that length. YaRN: up to the last pair whose wave
/// fits so often into the former length that they stay, they do; from the first pair on whose wave fits so seldom that they are
/// stretched, they are; between them the share of the stretched one grows from pair to pair.
fn scaled(pair: usize, rotary: Rotary) -> f64 {
    let of = |pair: usize| rotary.base.powf(-2.0 * pair as f64 / rotary.columns as f64);
    let frequency = of(pair);
    match rotary.scaling {
        RotaryScaling::None => frequency,
        RotaryScaling::Linear { factor } => frequency / factor,
        RotaryScaling::Llama3 { factor, low, high, positions } => {
            let wave = 2.0 * PI / frequency;
            if wave < positions as f64 / high {
                frequency
            } else if wave > positions as f64 / low {
                frequency / factor
            } else {
                let smooth = (positions as f64 / wave - low) / (high - low);
                (1.0 - smooth) * frequency / factor + smooth * frequency
            }
        }
        RotaryScaling::Yarn { factor, low, high, positions } => {
            let waves = |pair: &usize| positions as f64 * of(*pair) / (2.0 * PI);
            let pairs = 0..rotary.columns;
            let end = rotary.columns - 1;
            let last_kept = pairs.clone().rev().find(|pair| waves(pair) >= high).unwrap_or(0);
            let first_stretched = pairs.clone().find(|pair| waves(pair) <= low).unwrap_or(end);
            if pair <= last_kept {
                frequency
            } else if pair >= first_stretched {
                frequency / factor
            } else {
                let stretched = (pair - last_kept) as f64 / (first_stretched - last_kept) as f64;
                (1.0 - stretched) * frequency + stretched * frequency / factor
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: f64 = 10_000.0;

    fn whole(columns: usize) -> Rotary {
        Rotary { base: BASE, columns, scaling: RotaryScaling::None }
    }

    fn close(a: &[f64], b: &[f64]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-15)
    }

    #[test]
    fn two_numbers_turn_by_the_position() {
        // One sequence of 3, one head of 2: q, k, v of each position.
        let attention = Attention {
            sequences: 1,
            seq_len: 3,
            heads: 1,
            kv_heads: 1,
            head_dim: 2,
            value_dim: 2,
            causal: true,
            window: None,
            scale: 1.0,
            cap: None,
        };
        let before: Vec<f64> = [1.0, 0.0, 0.0, 1.0, 5.0, 6.0].repeat(3);
        let mut after = before.clone();
        forward(&attention, whole(2), &mut after);
        let cos = 0.540_302_305_868_139_7;
        let sin = 0.841_470_984_807_896_5; // of 1
        let cos2 = -0.416_146_836_547_142_4;
        let sin2 = 0.909_297_426_825_681_7; // of 2
        assert!(close(&after[..6], &before[..6]), "position 0 stays");
        assert!(close(&after[6..12], &[cos, sin, -sin, cos, 5.0, 6.0]), "{after:?}");
        assert!(close(&after[12..], &[cos2, sin2, -sin2, cos2, 5.0, 6.0]), "{after:?}");
        backward(&attention, whole(2), &mut after);
        assert!(close(&after, &before));
    }

    #[test]
    fn halves_are_paired_and_later_pairs_turn_slower() {
        let mut numbers = [1.0, 2.0, 3.0, 4.0];
        turn_head(&mut numbers, 1, whole(4), 1.0);
        // Pairs (1, 3) by 1 and (2, 4) by 10000^(-2/4) = 0.01.
        let (sin1, cos1) = 1.0_f64.sin_cos();
        let (sin2, cos2) = 0.01_f64.sin_cos();
        let expected = [cos1 - 3.0 * sin1, 2.0 * cos2 - 4.0 * sin2, 3.0 * cos1 + sin1, 4.0 * cos2 + 2.0 * sin2];
        assert!(close(&numbers, &expected), "{numbers:?}");
    }

    #[test]
    fn a_part_turns_and_long_waves_are_stretched() {
        let mut numbers = [1.0, 2.0, 3.0, 4.0, 5.0];
        turn_head(&mut numbers, 1, whole(2), 1.0);
        let (sin, cos) = 1.0_f64.sin_cos();
        assert!(close(&numbers, &[cos - 2.0 * sin, 2.0 * cos + sin, 3.0, 4.0, 5.0]), "{numbers:?}");
        // 64 positions: waves of 64 and more are stretched eightfold, of 16 and less stay; one of 32 is in them twice, a
        // third of the way from once to four times.
        let llama = RotaryScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, positions: 64 };
        for (wave, share) in [(100.0, 0.125), (10.0, 1.0), (32.0, 2.0 / 3.0 / 8.0 + 1.0 / 3.0)] {
            // The second pair of four columns has this wave.
            let frequency: f64 = 2.0 * PI / wave;
            let rotary = Rotary { base: frequency.powi(-2), columns: 4, scaling: llama };
            assert!((scaled(1, rotary) / frequency - share).abs() < 1e-13, "{wave}");
        }
        assert_eq!(scaled(0, Rotary { base: 3.0, columns: 2, scaling: RotaryScaling::Linear { factor: 2.0 } }), 0.5);
    }

    /// DeepSeek-V3's: waves of 4,096 / 32 positions lie between pairs 10 and 11, of 4,096 between 22 and 23; what describes models
    /// says the same.
    #[test]
    fn yarn_stretches_pairs_between_two_by_their_place() {
        let yarn = RotaryScaling::Yarn { factor: 40.0, low: 1.0, high: 32.0, positions: 4096 };
        let rotary = Rotary { base: BASE, columns: 64, scaling: yarn };
        let shares: Vec<f64> =
            (0..32).map(|pair| scaled(pair, rotary) / BASE.powf(-2.0 * pair as f64 / 64.0)).collect();
        for (pair, stretched) in
            [(0, 0.0), (10, 0.0), (11, 1.0 / 13.0), (16, 6.0 / 13.0), (22, 12.0 / 13.0), (23, 1.0), (31, 1.0)]
        {
            let expected = 1.0 - stretched + stretched / 40.0;
            assert!((shares[pair] - expected).abs() < 1e-14, "{pair}: {} and {expected}", shares[pair]);
        }
        for (columns, low, high, positions) in
            [(64, 1.0, 32.0, 4096), (6, 0.5, 2.0, 20), (2, 0.5, 2.0, 20), (8, 1.0, 1e4, 3)]
        {
            let scaling = RotaryScaling::Yarn { factor: 4.0, low, high, positions };
            let rotary = Rotary { base: BASE, columns, scaling };
            let own: Vec<f64> = (0..columns / 2).map(|pair| scaled(pair, rotary)).collect();
            let described: Vec<f64> = rotary.frequencies().collect();
            assert!(own.iter().zip(&described).all(|(a, b)| (a - b).abs() <= 1e-14 * a), "{own:?} {described:?}");
        }
    }

    #[test]
    fn products_know_the_distance_only() {
        let query = [0.3, -1.2, 0.7, 2.0, 0.1, 0.4];
        let key = [1.1, 0.2, -0.5, 0.9, -1.4, 0.6];
        let product = |at: usize, before: usize| {
            let mut q = query;
            let mut k = key;
            turn_head(&mut q, at, whole(6), 1.0);
            turn_head(&mut k, before, whole(6), 1.0);
            q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>()
        };
        assert!((product(7, 5) - product(2, 0)).abs() < 1e-14);
        assert!((product(7, 5) - product(7, 4)).abs() > 1e-2);
    }
}
