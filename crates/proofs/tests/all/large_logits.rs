//! Logits beyond what their exponential can hold: the softmax is taken from the largest of all ranks.

use quadrille_engine::{Cpu, Hyper};
use quadrille_proofs::{SEED, forward_options, hyper, model, program};
use quadrille_spec::{Activations, Algorithm, Choice, Model, Overlap};
use quadrille_verify::{Reference, Tolerance, VerifyOptions, verify};

/// A first step of this size makes every weight as large, and the logits of the second far larger.
const STEP: f64 = 30.0;

#[test]
fn logits_of_thousands_have_the_serial_models_loss() {
    let model = Model { tied_head: false, ..model(1) };
    for grid in ["x=4", "x=2,y=2", "y=4"] {
        let program = program(&model, grid, Activations::Replicated, Overlap::NONE, 4, 4);
        let options = VerifyOptions {
            steps: 2,
            seed: SEED,
            sparsity: None,
            hyper: Hyper { learning_rate: STEP, warmup_steps: 0, ..hyper(None) },
            states: None,
            threads: 1,
            timeout: forward_options(1).timeout,
            collectives: Choice::Always(Algorithm::Native),
            world: None,
        };
        let mut reference = Reference::new(&program, &options);
        let report = verify::<Cpu<f64>>(&program, &options, Tolerance::F64, &mut reference).unwrap();
        assert!(report.loss_diff <= 1e-11, "{grid}: {report:?}");
    }
}
