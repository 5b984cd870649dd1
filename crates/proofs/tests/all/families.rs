//! What the random cases are made of: every family of models, each legal. Runs nothing.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use quadrille_proofs::{Case, cases, combined_cases, described_cases, gpt_cases, llama, model, vit};
use quadrille_spec::{Activation, Axis, Classic, Linear, Model, ModelFile, Norm, Positions};

/// The same at every run.
fn drawn(strategy: impl Strategy<Value = Case>, count: usize) -> Vec<Case> {
    let mut random = TestRunner::deterministic();
    (0..count).map(|_| strategy.new_tree(&mut random).unwrap().current()).collect()
}

#[test]
fn a_file_could_state_every_model() {
    let random =
        drawn(cases(), 400).into_iter().chain(drawn(combined_cases(), 400)).chain(drawn(described_cases(), 200));
    let random = random.map(|case| case.model);
    for model in random.chain([model(2), llama(2), vit(2)]) {
        assert_eq!(ModelFile::of(&model).validate().unwrap(), model);
    }
}

/// A kind of cases.
type Kind = (&'static str, fn(&Case) -> bool);

#[test]
fn every_kind_of_model_is_drawn() {
    const X: fn(&Case) -> usize = |case| case.layout.grid.size(Axis::X);
    let kinds: [Kind; 12] = [
        ("GPT", |case| {
            let Classic { heads, kv_heads, norm, activation, causal, .. } = case.model.classic();
            kv_heads == heads && norm == Norm::Layer && activation == Activation::Gelu && causal
        }),
        ("Llama", |case| {
            let Classic { norm, positions, activation, .. } = case.model.classic();
            (norm, positions, activation) == (Norm::Rms, Positions::Rotary, Activation::Swiglu)
        }),
        ("patches without a mask", |case| case.model.patch_values.is_some() && !case.model.classic().causal),
        ("tokens without a mask", |case| case.model.patch_values.is_none() && !case.model.classic().causal),
        ("patches with a mask", |case| case.model.patch_values.is_some() && case.model.classic().causal),
        ("patches that x and y do not divide", |case| {
            let mesh = X(case) * case.layout.grid.size(Axis::Y);
            case.model.patch_values.is_some_and(|values| !values.is_multiple_of(mesh))
        }),
        ("gates with biases", |case| {
            case.model.classic().activation == Activation::Swiglu && case.model.classic().biases
        }),
        ("rotary patches", |case| {
            case.model.classic().positions == Positions::Rotary && case.model.patch_values.is_some()
        }),
        ("a tied head with RMS norms", |case| case.model.tied_head && case.model.classic().norm == Norm::Rms),
        ("groups within a rank", |case| {
            let Classic { heads, kv_heads, .. } = case.model.classic();
            X(case) > 1 && kv_heads < heads && kv_heads.is_multiple_of(X(case))
        }),
        ("groups over ranks", |case| case.model.classic().kv_heads < X(case)),
        ("groups with dropout", |case| {
            case.model.classic().kv_heads < case.model.classic().heads && case.model.dropout > 0.0
        }),
    ];
    let plain = drawn(cases(), 400);
    let combined = drawn(combined_cases(), 400);
    for (name, is) in kinds {
        for cases in [&plain, &combined] {
            let count = cases.iter().filter(|case| is(case)).count();
            assert!(count >= 4, "{name}: {count} of {}", cases.len());
        }
    }
    let panels =
        combined.iter().filter(|case| case.layout.linear == Linear::Summa && case.model.classic().kv_heads < X(case));
    assert!(panels.count() >= 2, "SUMMA with groups over ranks");
    let parts = combined.iter().filter(|case| case.layout.grid.size(Axis::Context) > 1 && !case.model.classic().causal);
    assert!(parts.count() >= 4, "parts of sequences without a mask");
}

#[test]
fn cases_of_gpt_are_of_gpt() {
    for Case { model, .. } in drawn(gpt_cases(), 100) {
        let gpt = Model::gpt(model.layers(), model.hidden, model.classic().heads, model.vocab, model.seq_len);
        let Classic { name, ffn, tied_head, biases, dropout, .. } = model.classic();
        assert_eq!(
            model,
            gpt.reshaped(|m| {
                m.name = name;
                m.ffn = ffn;
                m.tied_head = tied_head;
                m.biases = biases;
                m.dropout = dropout;
            })
        );
    }
}
