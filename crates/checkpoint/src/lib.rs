//! Checkpoints: logical tensors cut into rectangular tiles, written by many ranks at once, read by any layout.
//!
//! A checkpoint is a folder `step-000000000010` in the folder of a run's checkpoints:
//!
//! | file | holds |
//! |---|---|
//! | `rank-00003.safetensors` | the tiles that one rank owns, each a tensor `[rows, cols]` that every safetensors tool reads |
//! | `manifest.json` | what the checkpoint is of ([`About`]), tensors, files, tiles, and a checksum of everything |
//!
//! Tensors are the logical matrices of [`quadrille_spec::Model`]'s table, without padding. A tile is named by its tensor,
//! its quantity and the place of its first number: `block.0.qkv.weight@0,32` are values, `block.0.qkv.weight#m@0,32` and
//! `#v@` the first and second moments of AdamW. Tiles cover every tensor exactly once; that is checked when a checkpoint is
//! finished and whenever it is opened. Of a pruned tensor `#kept@` says with a byte for each element whether it is kept.
//!
//! Writing: every rank that owns tiles calls [`Draft::begin`] and [`Draft::write`]; when all are done, one calls
//! [`Draft::commit`]. Until then the folder is called `step-000000000010.partial`, so that a crash leaves nothing that
//! looks like a checkpoint.
//!
//! Reading: [`Checkpoint::open`], then a [`Reader`] for each thread. No number is returned whose tile's checksum was not
//! verified. A file that another program cuts short after it was opened is damaged, and named; this program replaces files by
//! renaming.
//!
//! ```
//! use quadrille_checkpoint::{About, Checkpoint, Draft, Quantity, TensorShape, Tile};
//! # use quadrille_spec::{RealType, Layout, LayoutRequest, Model};
//! # use serde_json::Value;
//! # let model = Model::gpt(1, 12, 3, 7, 4);
//! # let layout = Layout::new(&model, &LayoutRequest::new("x=1".parse()?, 2))?;
//! # let about = About {
//! #     model, layout, dtype: RealType::F32, step: 10, samples: 20, tokens: 80, seed: 1,
//! #     hyper: Value::Null, data: Value::Null, run: Value::Null, hugging_face: None,
//! # };
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! // Two ranks own a row of a tensor each.
//! let tile = |row| Tile { tensor: "x".to_owned(), quantity: Quantity::Value, row, col: 0, rows: 1, cols: 3 };
//! Draft::begin(folder, 10)?.write(0, &[(tile(0), vec![1.0_f32, 2.0, 3.0].into())])?;
//! Draft::begin(folder, 10)?.write(1, &[(tile(1), vec![4.0_f32, 5.0, 6.0].into())])?;
//! let shape = TensorShape { name: "x".to_owned(), rows: 2, cols: 3 };
//! let path = Draft::begin(folder, 10)?.commit(&about, &[shape], &[0, 1])?;
//! // Any part of it, as any type that holds the numbers exactly.
//! let checkpoint = Checkpoint::open(&path)?;
//! let mut part = [0.0_f64; 2];
//! checkpoint.reader().read("x", Quantity::Value, 1, 1, &mut part)?;
//! assert_eq!(part, [5.0, 6.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod about;
mod checkpoint;
mod coverage;
mod disk;
mod draft;
mod error;
mod folder;
mod header;
mod manifest;
mod merge;
mod number;
mod places;
mod prune;
mod reader;
mod stored;
mod tile;
mod verify;
mod writer;

pub use about::About;
pub use checkpoint::Checkpoint;
pub use draft::Draft;
pub use error::CheckpointError;
pub use folder::Folder;
pub use merge::{Merge, merge};
pub use number::Number;
pub use prune::{Distances, EarlyBird, MaskOf, PrunedTensor, Pruning, Scope, prune};
pub use reader::Reader;
pub use tile::{Quantity, TensorShape, Tile};
pub use verify::{NotFinite, Summary, Verdict};
pub use writer::TileWriter;
