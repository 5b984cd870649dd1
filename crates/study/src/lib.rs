//! How much a model learns by heart of documents that it sees again and again, and how much of it the goldfish loss prevents
//! (AxoNN, SC24, section VIII; Hans et al., 2024).
//!
//! A [`StudySpec`] says what is trained and which documents are seen how often. [`Prepared::new`] holds it against files and
//! the machine, [`Prepared::run`] trains a model with each loss, has it continue every document, and returns the
//! [`Findings`]: a table, a document, a picture.
//!
//! ```
//! use quadrille_run::Host;
//! use quadrille_spec::{Layout, LayoutRequest, Model};
//! use quadrille_study::{Prepared, StudySpec};
//!
//! let model = Model::gpt(1, 8, 2, 256, 32);
//! let layout = Layout::new(&model, &LayoutRequest::new("x=2".parse()?, 4))?;
//! // Two documents that are never seen, two that are seen three times; of each the last eight tokens are to be written.
//! let spec = StudySpec {
//!     epochs: vec![0, 3],
//!     documents_per_bucket: 2,
//!     warmup_steps: 1,
//!     generate_tokens: 8,
//!     threads: Some(1),
//!     ..StudySpec::new(model, layout)
//! };
//! let findings = Prepared::new(spec, &Host::default())?.run(None, &mut |_| ())?;
//! assert_eq!(findings.check()?.runs.len(), 2, "with all tokens, and with the goldfish loss");
//! assert_eq!(findings.runs[0].buckets[1].documents, 2);
//! println!("{}", findings.text());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here prints, reads a command line or ends the process. Errors are [`StudyError`]s, which know what is at fault
//! ([`StudyError::blame`]); a [`Refusal`] of what was asked for knows the choices that it names.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod corpus;
mod error;
mod findings;
mod learn;
mod order;
mod place;
mod prepare;
mod progress;
mod refusal;
mod spec;

pub use error::StudyError;
pub use findings::{Bucket, Conditions, Findings, Learned};
pub use prepare::Prepared;
pub use progress::{Part, Progress};
pub use refusal::{Refusal, Setting};
pub use spec::{StudySpec, TextSpec};
