//! What the proofs share: small models and layouts, random ones, short runs, and programs that are broken on purpose.
//!
//! The proofs are the test targets of this package:
//!
//! | target | proves |
//! |---|---|
//! | `divergence` | losses above the limit are not applied |
//! | `families` | random cases have every family of models, legal ones |
//! | `equality` | random models on random layouts equal the serial model |
//! | `experts` | experts, however they are spread, equal the serial model; what they send; what a missing collective does |
//! | `offload` | states in the host's memory, in buckets of any size, change no bit; what moves; what a wrong order does |
//! | `optimizer_overlap` | updates that are begun before the norm is known change no bit, whatever becomes of them |
//! | `overlap` | overlap passes, threads and repetition change no bit |
//! | `controls` | a broken program does not pass |
//! | `properties` | a layout with another property of the model or the optimizer does not pass |
//! | `lifetimes` | storages that live too short or too long, and microbatches in another order, do not pass |
//! | `counted` | a step that does less than was predicted is named |
//! | `large_logits` | the softmax is taken from the largest logit of all ranks |
//! | `loss_scale` | scaled losses change no bit, save small gradients and give way to large ones |
//! | `slices` | slicing is the inverse of gathering |
//! | `recompute` | recomputation changes no bit |
//! | `recompute_ledger` | it repeats what the closed forms say, and saves activations |
//! | `pipeline` | schedules change no bit; in-flight microbatches; tied copies |
//! | `boundaries` | what stages send each other |
//! | `expert_axis` | expert ranks of a model without experts are data ranks, bit for bit |
//! | `context` | volumes and balance of the attention over parts of sequences |
//! | `summa` | SUMMA equals whole-tile products; its volumes |
//! | `zero` | sharded optimizers and gradients: memory, volumes, bits; weights kept for a step |
//! | `volumes` | ledgers are the published closed forms |
//! | `by_hand` | ledgers are what a person counts |
//! | `evaluation` | forward programs give the serial model's loss, and change no bit of training around them |
//! | `generation` | every layout draws the tokens that whole forward passes of the serial model give |
//! | `from_checkpoint` | any layout evaluates and continues a checkpoint |
//! | `failures` | a failing or late rank ends the job and is named |
//! | `hugging_face` | imported models compute what torch computes of them |
//! | `start` | initial weights are the oracle's, and they and batches do not depend on the layout |
//! | `own_copies` | schedule and dropout of the engine are the oracle's own |
//! | `long` | `equality` with more cases (feature `long`) |
//! | `new_kind` | a row of the table of operations is printed, counted, priced, simulated, and must be executed (feature `long`) |

#![forbid(unsafe_code)]

mod case;
mod control;
mod copy;
mod described;
mod edit;
mod family;
mod mixture;
mod run;
mod seeded;
mod serial;
mod small;
mod traffic;

pub use case::{Case, cases, combined_cases, gpt_cases};
pub use control::{assert_caught, assert_stopped};
pub use copy::{copied_workspace, workspace};
pub use described::described_cases;
pub use edit::{
    Place, edited, edited_at, edited_stage, is_collective, operations, pass_operations, replaced, with_update,
};
pub use mixture::expert_cases;
pub use run::{
    Outcome, SEED, Trajectory, bits, holds, holds_by, hyper, prove, prove_against, prove_within, random_samples,
    trajectory, trajectory_with, verified, verified_on,
};
pub use seeded::for_random;
pub use serial::{drawn, forward_options};
pub use small::{
    built, latent, layout, layout_with, llama, mixture_of, mixture_of_width, model, program, program_with, rebuilt,
    recomputed, vit,
};
pub use traffic::Traffic;
