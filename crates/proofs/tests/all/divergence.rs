//! Losses above the limit: their gradients are not applied, and they do not count as usual.

use quadrille_engine::{DivergencePolicy, OnDivergence, RunEvent, TrainOptions, random_batch, train_on_cpu};
use quadrille_proofs::{SEED, hyper, model, program};
use quadrille_spec::{Activations, Overlap};

#[test]
fn losses_above_the_limit_are_skipped_and_do_not_raise_it() {
    let model = model(1);
    let program = program(&model, "x=2,data=2", Activations::Scattered, Overlap::NONE, 4, 2);
    // Half the mean of the losses before, of which there must be ten: everything after them is above it.
    let divergence = DivergencePolicy { action: OnDivergence::Skip, largest_loss: Some(0.5) };
    let options = TrainOptions { divergence, ..TrainOptions::new(13, hyper(None), SEED) };
    let batch = random_batch(&model, SEED, model.seq_len);
    let mut limits = Vec::new();
    let outcome = train_on_cpu(&program, &options, &batch, None, &mut |event| {
        if let RunEvent::Skipped { step, reason } = event {
            limits.push((step, reason.split("; ").nth(1).unwrap_or_default().to_owned()));
        }
        Ok(())
    });
    let records = outcome.unwrap().records;
    let applied: Vec<bool> = records.iter().map(|record| record.applied).collect();
    assert_eq!(applied, [[true; 10].as_slice(), &[false; 3]].concat());
    let mean = records[..10].iter().map(|record| record.loss).sum::<f64>() / 10.0;
    let limit = format!("the largest that is applied, from the losses before, is {:.4}", 0.5 * mean);
    assert_eq!(limits, [11, 12, 13].map(|step| (step, limit.clone())));
}
