//! What the proofs share: small models and layouts, random ones, short runs, and programs that are broken on purpose.
//!
//! The proofs are the test targets of this package:
//!
//! | target | proves |
//! |---|---|
//! | `equality` | random models on random layouts equal the serial model |
//! | `overlap` | overlap passes, threads and repetition change no bit |
//! | `controls` | a broken program does not pass |
//! | `slices` | slicing is the inverse of gathering |
//! | `volumes` | ledgers are the published closed forms |
//! | `by_hand` | ledgers are what a person counts |
//! | `failures` | a failing or late rank ends the job and is named |
//! | `start` | initial weights and batches do not depend on the layout |
//! | `long` | `equality` with more cases (feature `long`) |

mod case;
mod edit;
mod run;
mod small;

pub use case::{Case, cases};
pub use edit::{edited, is_collective};
pub use run::{Outcome, SEED, Trajectory, holds, hyper, prove, random_tokens, trajectory};
pub use small::{layout, model, program};
