//! Rotary positions (Su et al., RoFormer, 2021, section 3.2.2). Halves of a head are paired ("rotate half", as in
//! GPT-NeoX and in the Hugging Face form of Llama; RoFormer pairs neighbours): the numbers `i` and `i + d/2` of a query
//! or key turn by `position * base^(-2 i / d)`.

use crate::attention::{Attention, Part};

/// Turns the queries and keys in `qkv` forwards.
pub(crate) fn forward(attention: &Attention, base: f64, qkv: &mut [f64]) {
    turn(attention, base, 1.0, qkv);
}

/// Turns their gradients in `dqkv` back: a rotation's transpose is its inverse.
pub(crate) fn backward(attention: &Attention, base: f64, dqkv: &mut [f64]) {
    turn(attention, base, -1.0, dqkv);
}

fn turn(attention: &Attention, base: f64, sense: f64, qkv: &mut [f64]) {
    for sequence in 0..attention.sequences {
        for position in 0..attention.seq_len {
            for head in 0..attention.heads {
                let at = attention.index(sequence, head, position, Part::Query);
                turn_head(&mut qkv[at..][..attention.head_dim], position, base, sense);
            }
            for kv_head in 0..attention.kv_heads {
                // Any head of the group finds the key that they share.
                let head = kv_head * attention.group();
                let at = attention.index(sequence, head, position, Part::Key);
                turn_head(&mut qkv[at..][..attention.head_dim], position, base, sense);
            }
        }
    }
}

fn turn_head(numbers: &mut [f64], position: usize, base: f64, sense: f64) {
    let d = numbers.len();
    for i in 0..d / 2 {
        let angle = position as f64 * base.powf(-2.0 * i as f64 / d as f64);
        let (sin, cos) = (sense * angle).sin_cos();
        let (a, b) = (numbers[i], numbers[i + d / 2]);
        numbers[i] = a * cos - b * sin;
        numbers[i + d / 2] = b * cos + a * sin;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: f64 = 10_000.0;

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
            causal: true,
            window: None,
            cap: None,
        };
        let before: Vec<f64> = [1.0, 0.0, 0.0, 1.0, 5.0, 6.0].repeat(3);
        let mut after = before.clone();
        forward(&attention, BASE, &mut after);
        let (cos, sin) = (0.540_302_305_868_139_7, 0.841_470_984_807_896_5); // of 1
        let (cos2, sin2) = (-0.416_146_836_547_142_4, 0.909_297_426_825_681_7); // of 2
        assert!(close(&after[..6], &before[..6]), "position 0 stays");
        assert!(close(&after[6..12], &[cos, sin, -sin, cos, 5.0, 6.0]), "{after:?}");
        assert!(close(&after[12..], &[cos2, sin2, -sin2, cos2, 5.0, 6.0]), "{after:?}");
        backward(&attention, BASE, &mut after);
        assert!(close(&after, &before));
    }

    #[test]
    fn halves_are_paired_and_later_pairs_turn_slower() {
        let mut numbers = [1.0, 2.0, 3.0, 4.0];
        turn_head(&mut numbers, 1, BASE, 1.0);
        // Pairs (1, 3) by 1 and (2, 4) by 10000^(-2/4) = 0.01.
        let ((sin1, cos1), (sin2, cos2)) = (1.0_f64.sin_cos(), 0.01_f64.sin_cos());
        let expected = [cos1 - 3.0 * sin1, 2.0 * cos2 - 4.0 * sin2, 3.0 * cos1 + sin1, 4.0 * cos2 + 2.0 * sin2];
        assert!(close(&numbers, &expected), "{numbers:?}");
    }

    #[test]
    fn products_know_the_distance_only() {
        let (query, key) = ([0.3, -1.2, 0.7, 2.0, 0.1, 0.4], [1.1, 0.2, -0.5, 0.9, -1.4, 0.6]);
        let product = |at: usize, before: usize| {
            let (mut q, mut k) = (query, key);
            turn_head(&mut q, at, BASE, 1.0);
            turn_head(&mut k, before, BASE, 1.0);
            q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>()
        };
        assert!((product(7, 5) - product(2, 0)).abs() < 1e-14);
        assert!((product(7, 5) - product(7, 4)).abs() > 1e-2);
    }
}
