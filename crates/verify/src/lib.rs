//! The proof: a layout held against the serial model.
//!
//! [`verify`](fn@verify) trains a model for some steps as a layout says, and as plain serial code does in f64; losses, gradients,
//! norms, updated weights and the loss of an evaluation must be equal within a [`Tolerance`], replicas equal in every bit, and
//! counted ledgers equal to predicted ones.
//!
//! ```
//! use quadrille_spec::{ElementType, Layout, LayoutRequest, Model};
//! use quadrille_step::StepProgram;
//! use quadrille_verify::{Reference, VerifyOptions, verify_on_cpu};
//!
//! let model = Model::preset("gpt-tiny")?;
//! // Four sequences a step, in f64: equal to 1e-11.
//! let request = LayoutRequest { dtype: ElementType::F64, ..LayoutRequest::new("x=2,data=2".parse()?, 4) };
//! let layout = Layout::new(&model, &request)?;
//! let program = StepProgram::new(&model, &layout)?;
//! let options = VerifyOptions::new(1, 7); // one step; 7 keys weights, samples and dropout
//! let mut reference = Reference::new(&program, &options);
//! let report = verify_on_cpu(&program, &options, &mut reference)?;
//! assert!(report.ok && report.ledger_equal, "{report:?}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What the serial model shares with what it judges, and what guards that, is listed in ARCHITECTURE.md.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::print_stdout, clippy::print_stderr)
)]

mod comparison;
mod decisions;
mod reference;
mod verify;

pub use comparison::VerifyReport;
pub use decisions::DecisionsReport;
pub use reference::{Reference, SerialBatch};
pub use verify::{Tolerance, VerifyOptions, take_part_on, verify, verify_on, verify_on_cpu};
