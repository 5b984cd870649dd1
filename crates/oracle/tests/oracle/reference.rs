//! The oracle against the same model in JAX: `reference.py` printed `reference.txt`.

use quadrille_oracle::{Batch, DropoutSeed, Samples, Tensors, loss_and_gradients, parameter_shapes};
use quadrille_spec::Model;

/// `reference.py`'s starting values.
fn initial(model: &Model) -> Tensors {
    let tensor = |(k, (name, [rows, columns])): (usize, (String, [usize; 2]))| {
        let centre = if name.ends_with("gamma") { 1.0 } else { 0.0 };
        let value = |e| centre + 0.4 * (0.37 * (k as f64 + 1.0) * (e as f64 + 1.0) + k as f64).sin();
        (name, (0..rows * columns).map(value).collect())
    };
    parameter_shapes(model).into_iter().enumerate().map(tensor).collect()
}

/// Compares the loss and every gradient's weighted sum with the case's lines in `reference.txt`.
fn check(case: &str, model: &Model, dropout: Option<DropoutSeed>) {
    let (sequences, seq_len, v) = (3, 5, model.vocab as u32);
    let tokens: Vec<u32> = (0..15).map(|i| (7 * i * i + 3) % v).collect();
    let targets: Vec<u32> = (0..15).map(|i| (5 * i + 1) % v).collect();
    let batch = Batch { samples: Samples::Tokens { inputs: &tokens, targets: &targets }, sequences, seq_len };
    let (loss, gradients) = loss_and_gradients(model, &initial(model), &batch, dropout);

    let text = include_str!("reference.txt").split("case ").find(|text| text.starts_with(case)).unwrap();
    let lines: Vec<_> = text.lines().skip(1).map(|line| line.split_once(' ').unwrap()).collect();
    assert_eq!(lines.len(), 1 + gradients.len(), "the loss and each parameter has a line");
    for (name, expected) in lines {
        let expected: f64 = expected.parse().unwrap();
        let weighted = |g: &Vec<f64>| g.iter().enumerate().map(|(e, g)| g * (e as f64).cos()).sum();
        let value: f64 = if name == "loss" { loss } else { weighted(&gradients[name]) };
        assert!((value - expected).abs() < 1e-13 * expected.abs().max(1.0), "{name}: {value:e} is not {expected:e}");
    }
}

fn model() -> Model {
    Model { ffn: 10, biases: false, ..Model::gpt(2, 12, 3, 13, 7) }
}

#[test]
fn tied_without_biases() {
    check("tied", &model(), None);
}

#[test]
fn untied_with_biases_and_dropout() {
    let model = Model { tied_head: false, biases: true, dropout: 0.25, ..model() };
    check("untied", &model, Some(DropoutSeed { seed: 42, step: 7 }));
}
