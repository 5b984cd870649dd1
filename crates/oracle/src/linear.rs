//! A linear layer: `y = x weight + bias`.

/// `y[n, outputs]` from `x[n, inputs]`, `weight[inputs, outputs]`, `bias[outputs]`.
pub(crate) fn forward(n: usize, x: &[f64], weight: &[f64], bias: Option<&[f64]>) -> Vec<f64> {
    let inputs = x.len() / n;
    let outputs = weight.len() / inputs;
    let mut y = vec![0.0; n * outputs];
    for row in 0..n {
        for i in 0..inputs {
            for o in 0..outputs {
                y[row * outputs + o] += x[row * inputs + i] * weight[i * outputs + o];
            }
        }
        for o in 0..outputs {
            y[row * outputs + o] += bias.map_or(0.0, |bias| bias[o]);
        }
    }
    y
}

/// Gradients of a linear layer, shaped as what they belong to.
pub(crate) struct Gradients {
    pub(crate) x: Vec<f64>,
    pub(crate) weight: Vec<f64>,
    pub(crate) bias: Vec<f64>,
}

/// Gradients from `dy[n, outputs]` and the forward's `x` and `weight`.
pub(crate) fn backward(n: usize, dy: &[f64], x: &[f64], weight: &[f64]) -> Gradients {
    let inputs = x.len() / n;
    let outputs = weight.len() / inputs;
    let mut d = Gradients { x: vec![0.0; x.len()], weight: vec![0.0; weight.len()], bias: vec![0.0; outputs] };
    for row in 0..n {
        for i in 0..inputs {
            for o in 0..outputs {
                d.x[row * inputs + i] += dy[row * outputs + o] * weight[i * outputs + o];
                d.weight[i * outputs + o] += dy[row * outputs + o] * x[row * inputs + i];
            }
        }
        for o in 0..outputs {
            d.bias[o] += dy[row * outputs + o];
        }
    }
    d
}
