//! A layout of one's own held against the serial model, from code.
//!
//! `cargo run --release -p quadrille --example verify_layout`

use quadrille::prelude::*;

pub(crate) fn main() -> Result<(), Error> {
    let model = Model::preset("llama-tiny")?;
    let request = LayoutRequest {
        dtype: ElementType::F64,
        recompute: Recompute::Full { every: 1 },
        zero: Zero::Optimizer,
        ..LayoutRequest::new("x=2,data=2,pipe=2".parse()?, 8)
    };
    let report = verify(&model, &Layout::new(&model, &request)?, 2)?;
    println!("{} against the serial model, largest relative differences:", report.grid);
    println!("loss {:.1e}, gradients {:.1e} ({})", report.loss_diff, report.grad_diff, report.grad_diff_in);
    println!("weights {:.1e}, loss of an evaluation {:.1e}", report.weight_diff, report.evaluation_diff);
    println!(
        "replicas equal in every bit: {}; bytes, FLOPs and memory as predicted: {}",
        report.replicas_equal, report.ledger_equal
    );
    assert!(report.ok, "{:?}", report.failures);

    // A layout that breaks a rule is refused with the rule and a remedy.
    let refused = Layout::new(&model, &LayoutRequest::new("x=3".parse()?, 8)).map(|_| ());
    println!("\nx=3: {}", refused.expect_err("heads cannot be cut in three"));
    Ok(())
}
