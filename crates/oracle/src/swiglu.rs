//! SwiGLU (Shazeer, GLU variants improve transformer, 2020): `silu(gate) * up` with `silu(g) = g / (1 + e^-g)`.

/// `y[n, f]` from `x[n, 2f]`, whose columns are gate 0, up 0, gate 1, up 1, ...
pub(crate) fn forward(x: &[f64]) -> Vec<f64> {
    x.chunks(2).map(|pair| silu(pair[0]) * pair[1]).collect()
}

/// `dx[n, 2f]` from `dy[n, f]` and the forward's `x`.
pub(crate) fn backward(dy: &[f64], x: &[f64]) -> Vec<f64> {
    let both = |(dy, pair): (&f64, &[f64])| {
        let gate = pair[0];
        let up = pair[1];
        [dy * up * derivative(gate), dy * silu(gate)]
    };
    dy.iter().zip(x.chunks(2)).flat_map(both).collect()
}

pub(crate) fn silu(gate: f64) -> f64 {
    gate * sigmoid(gate)
}

/// Of [`silu`].
pub(crate) fn derivative(gate: f64) -> f64 {
    sigmoid(gate) * (1.0 + gate * (1.0 - sigmoid(gate)))
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // e^(ln 3) = 3: the sigmoid is 3/4 at ln 3 and 1/4 at -ln 3.
        let ln3 = 3.0_f64.ln();
        let x = [0.0, 7.0, ln3, 2.0, -ln3, 2.0, 1000.0, -1.0, -1000.0, 1.0];
        let expected = [0.0, 1.5 * ln3, -0.5 * ln3, -1000.0, 0.0];
        for (y, expected) in forward(&x).iter().zip(expected) {
            assert!((y - expected).abs() < 1e-15, "{y} is not {expected}");
        }

        // silu' = sigmoid + gate sigmoid (1 - sigmoid): 1/2 at 0, 3/4 + 3/16 ln 3, 1/4 - 3/16 ln 3, 1, 0.
        let slopes = [0.5, 0.75 + 0.1875 * ln3, 0.25 - 0.1875 * ln3, 1.0, 0.0];
        let values = [0.0, 0.75 * ln3, -0.25 * ln3, 1000.0, 0.0];
        let dx = backward(&[3.0; 5], &x);
        for pair in 0..5 {
            let gate = 3.0 * x[2 * pair + 1] * slopes[pair];
            let up = 3.0 * values[pair];
            assert!((dx[2 * pair] - gate).abs() < 1e-14, "gate {pair}: {} is not {gate}", dx[2 * pair]);
            assert!((dx[2 * pair + 1] - up).abs() < 1e-14, "up {pair}: {} is not {up}", dx[2 * pair + 1]);
        }
    }
}
