//! Logits beyond what their exponential can hold: the softmax is taken from the largest of all ranks.

use quadrille_proofs::{edited_stage, model, program, prove};
use quadrille_spec::{Activations, Model, Overlap};
use quadrille_step::Initial;

#[test]
fn logits_of_hundreds_equal_the_serial_model() {
    let model = Model { tied_head: false, ..model(1) };
    for grid in ["x=4", "x=2,y=2", "y=4"] {
        let program = program(&model, grid, Activations::Replicated, Overlap::NONE, 4, 4);
        let large = edited_stage(&program, 0, |stage| {
            let head = stage.parameters.iter_mut().find(|parameter| parameter.name == "head.weight").unwrap();
            head.initial = Initial::Normal(150.0);
        });
        let report = prove(&large, 1).unwrap();
        assert!(report.ok, "{grid}: {report:?}");
    }
}
