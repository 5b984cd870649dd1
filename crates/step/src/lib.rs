//! The step program: one description of a training step that the planner prices and the engine executes.
//!
//! [`StepProgram::new`] builds it from a model and a layout:
//!
//! 1. `blocks.rs` and `ends.rs` declare blocks, embedding and head with the shardings of their values; every
//!    change of sharding goes through `reshard`, which derives the collectives;
//! 2. `backward.rs` walks the recorded layers in reverse and emits each one's gradient operations;
//! 3. `update.rs` reduces gradients over the axes on which they are still partial sums, computes the
//!    gradient norm by ownership, and updates the parameters;
//! 4. `passes/` reorder issue and wait of collectives (OAR, ORS, OAG);
//! 5. `liveness.rs` says where every storage is born and dies, `placement.rs` which
//!    ones share a buffer.
//!
//! [`StepProgram::evaluation`] leaves the forward passes, `generation.rs` makes passes that read keys and values of earlier
//! ones from a cache.
//!
//! [`predict`] gives the exact ledgers without running; [`print_program`] shows the program as text, whose lines [`wrap`] breaks, as
//! it does those of all other text for people.
//!
//! ```
//! use quadrille_spec::{Layout, LayoutRequest, Model};
//! use quadrille_step::{StepProgram, predict, print_program};
//!
//! let model = Model::preset("gpt-tiny")?;
//! let layout = Layout::new(&model, &LayoutRequest::new("x=2,data=2".parse()?, 4))?;
//! let program = StepProgram::new(&model, &layout)?;
//! let ledger = predict(&program);
//! let sent: u64 = ledger.ranks[0].axes.values().flat_map(|kinds| kinds.values()).map(|each| each.wire_bytes).sum();
//! assert!(sent > 0 && ledger.ranks[0].flops.total() > 0);
//! println!("rank 0 sends {sent} bytes and allocates {}", ledger.ranks[0].memory.allocated);
//! assert!(print_program(&program).contains("all-reduce"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Letters in shapes: `B` global batch, `b` microbatch, `s` tokens of a sequence, `h` hidden, `f` perceptron width,
//! `n` heads, `V` padded vocabulary, `m` token rows of one (data, z) rank in a pass.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::print_stdout, clippy::print_stderr)
)]

mod alike;
mod all_heads;
mod backward;
mod blocks;
mod buckets;
mod builder;
mod context;
mod crowds;
mod ends;
mod error;
mod experts;
mod extent;
mod folded;
mod generation;
mod hold;
mod instances;
mod interval;
mod kept;
mod latent;
mod ledger;
mod liveness;
mod memory;
mod operation;
mod parameter;
mod passes;
mod placement;
mod practice;
mod print;
mod program;
mod queues;
mod reason;
mod reshard;
mod resize;
mod routes;
pub mod schedule;
mod sharding;
mod shared_keys;
mod summa;
mod update;
mod value;
mod weights;
mod wire;
pub mod wrap;

pub use buckets::{Bucket, BucketId, BucketRun, ShardRun};
pub use error::StepError;
pub use experts::Places;
pub use extent::Extent;
pub use folded::{FoldedProgram, FoldedStage};
pub use generation::Generation;
pub use interval::least_interval;
pub use kept::{INDEX_BYTES, Kept, KeptCounts};
pub use ledger::{
    cached_attention_flops, decision_axes, decision_of, declared_axes, empty_axes, most_elements, moved_to_host,
    payload_bytes, payload_elements, predict, predict_after, predict_rank, predict_rank_loaded, predict_rank_routed,
    predict_routed, transfer_of,
};
pub use liveness::Lifetimes;
pub use memory::{Held, Living, Moment};
pub use operation::{
    At, BlockKind, Collective, Computation, DropoutSite, GemmPass, GemmStorage, Group, Members, NormOf, Op, Operands,
    Operation, Panel, Product, Reduction, Scalar, Scaled, Verdict, Wanted, When, Work, Write, kind, operation_names,
};
pub use parameter::{Initial, Parameter, ParameterId, SharedKeys};
pub use placement::Placement;
pub use practice::{Formats, Practice};
pub use print::{Shown, print_part, print_program};
pub use program::{ChunkProgram, Layer, Message, Purpose, Section, StageProgram, StepProgram};
pub use queues::{Loads, Parts, Queues};
pub use reason::Reasons;
pub use sharding::{AxisList, Sharding};
pub use value::{Format, Sized, StorageId, StorageInfo, Value, ValueId};
pub use wire::wire_bytes;
