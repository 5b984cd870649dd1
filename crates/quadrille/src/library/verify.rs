//! Whether a layout computes what the serial model computes.

use quadrille_spec::{Layout, Model};
use quadrille_step::StepProgram;
use quadrille_verify::{Reference, VerifyOptions, VerifyReport, verify_on_cpu};

use crate::Error;

/// Takes so many steps of a layout on ranks that are threads, on random samples, and holds them against the serial model: to
/// 1e-11 where the layout is of f64; of f32, values to 5e-5 and what the update makes of the gradients to 1e-6. [`VerifyReport::ok`] says whether they are equal, and counted ledgers as predicted.
///
/// # Errors
/// A layout that has no program; a rank that failed.
pub fn verify(model: &Model, layout: &Layout, steps: u64) -> Result<VerifyReport, Error> {
    let program = StepProgram::new(model, layout)?;
    let options = VerifyOptions::new(steps, 1);
    Ok(verify_on_cpu(&program, &options, &mut Reference::new(&program, &options))?)
}
