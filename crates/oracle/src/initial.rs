//! What training starts from: GPT-2's initial values, each a function of the seed, the parameter's name and the element's
//! logical index.
//!
//! Weights, tables and positions are normal with deviation 0.02, those that end a branch of a block (`projection`, and
//! `down`, also of experts) divided by the root of twice the layers; gammas are 1, or 0 where they are stored as distances
//! from 1, betas and biases 0.

use std::f64::consts::PI;

use quadrille_spec::{Model, RandomStream};

use crate::{Tensors, parameter_shapes};

/// Deviation of what is added to ones and zeros where they are to be told apart.
const PERTURBATION: f64 = 0.1;
/// The same for biases of routers, by which experts are chosen: about as far apart as their scores, which begin nearly equal.
const PERTURBATION_OF_CHOICES: f64 = 0.01;

/// The parameters that training starts from. `perturbed`: normal numbers with deviation 0.1 are added to those that would
/// be all ones or all zeros, of biases of routers 0.01, so that no error can hide behind them.
pub fn initial(model: &Model, seed: u64, perturbed: bool) -> Tensors {
    let tensor = |(name, [rows, columns]): (String, [usize; 2])| {
        let stream = RandomStream::new(seed, &format!("initial {name}"));
        let (mean, deviation) = distribution(model, &name, perturbed);
        let element = |index| if deviation == 0.0 { mean } else { mean + deviation * normal(stream, index) };
        (name, (0..(rows * columns) as u64).map(element).collect())
    };
    parameter_shapes(model).into_iter().map(tensor).collect()
}

/// Mean and deviation of the parameter `name`.
fn distribution(model: &Model, name: &str, perturbed: bool) -> (f64, f64) {
    let spread = if perturbed { PERTURBATION } else { 0.0 };
    match name.rsplit('.').next() {
        Some("bias") if name.ends_with(".router.bias") => (0.0, if perturbed { PERTURBATION_OF_CHOICES } else { 0.0 }),
        Some("gamma") => (if offset(model, name) { 0.0 } else { 1.0 }, spread),
        Some("beta" | "bias") => (0.0, spread),
        _ if name.ends_with(".projection.weight") || name.ends_with(".down.weight") => {
            (0.0, 0.02 / ((2 * model.layers()) as f64).sqrt())
        }
        _ => (0.0, 0.02),
    }
}

/// Whether the norm that the gamma `name` is of stores distances from 1.
fn offset(model: &Model, name: &str) -> bool {
    let block = name.strip_prefix("block.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
    match block {
        Some(block) if name.contains("query_norm") || name.contains("key_norm") => {
            model.blocks[block].attention.qk_norm.is_some_and(|norm| norm.rule.offset)
        }
        Some(block) => model.blocks[block].norm.offset,
        None => model.final_norm.offset,
    }
}

/// The standard normal number at `index`: of every two neighbours, made from two words, the one is the cosine's and the
/// other the sine's (Box and Muller, 1958).
fn normal(stream: RandomStream, index: u64) -> f64 {
    let even = index - index % 2;
    // In (0, 1], so that the logarithm is finite, and in [0, 1).
    let [radius, turn] =
        [(even, 1.0), (even + 1, 0.0)].map(|(at, above)| (f64::from(stream.word(at)) + above) / 2.0_f64.powi(32));
    let (sin, cos) = (2.0 * PI * turn).sin_cos();
    (-2.0 * radius.ln()).sqrt() * if index == even { cos } else { sin }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_the_published_ones() {
        let model = Model::gpt(8, 64, 4, 50, 32);
        let tensors = initial(&model, 5, false);
        let spread = |name: &str| {
            let tensor: &Vec<f64> = &tensors[name];
            (tensor.iter().map(|w| w * w).sum::<f64>() / tensor.len() as f64).sqrt()
        };
        for (name, expected) in [
            ("embedding.table", 0.02),
            ("embedding.positions", 0.02),
            ("block.0.qkv.weight", 0.02),
            ("block.3.up.weight", 0.02),
            ("block.3.projection.weight", 0.005),
            ("block.7.down.weight", 0.005),
        ] {
            assert!((spread(name) / expected - 1.0).abs() < 0.05, "{name}: {}", spread(name));
        }
        assert_eq!((spread("block.1.norm2.gamma"), spread("block.1.norm2.beta")), (1.0, 0.0));
        assert_eq!(spread("block.1.up.bias"), 0.0);
        let perturbed = initial(&model, 5, true);
        let bias = &perturbed["block.1.up.bias"];
        let moved = (bias.iter().map(|w| w * w).sum::<f64>() / bias.len() as f64).sqrt();
        assert!((moved - 0.1).abs() < 0.015, "{moved}");
    }

    #[test]
    fn neighbours_are_the_two_sides_of_a_right_angle() {
        let stream = RandomStream::new(9, "test");
        for index in (0..100).step_by(2) {
            let x = normal(stream, index);
            let y = normal(stream, index + 1);
            let [first, second] = [0, 1].map(|next| f64::from(stream.word(index + next)));
            assert!(((-(x * x + y * y) / 2.0).exp() - (first + 1.0) / 2.0_f64.powi(32)).abs() < 1e-12);
            let turn = y.atan2(x) / (2.0 * PI);
            assert!((turn - turn.floor() - second / 2.0_f64.powi(32)).abs() < 1e-12, "{index}");
        }
    }
}
