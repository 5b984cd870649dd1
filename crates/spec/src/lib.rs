//! What a user describes and what a run reports: models, grids, layouts, clusters, ledgers.
//!
//! Everything here is data with validation; nothing does I/O. Units are SI: bytes, seconds,
//! FLOP, bytes per second; types or field names say which.
//!
//! ```
//! use quadrille_spec::{Axis, Layout, LayoutRequest, Model};
//!
//! let model = Model::preset("gpt2-124m")?;
//! // Eight ranks, sixteen sequences a step; what is not said is as usual.
//! let layout = Layout::new(&model, &LayoutRequest::new("x=2,data=4".parse()?, 16))?;
//! assert_eq!((layout.grid.ranks(), layout.grid.size(Axis::Data)), (8, 4));
//! // A refusal names the value, the rule and a remedy.
//! let refused = Layout::new(&model, &LayoutRequest::new("x=5".parse()?, 16)).unwrap_err();
//! println!("{refused}");
//! # Ok::<(), quadrille_spec::SpecError>(())
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::print_stdout, clippy::print_stderr)
)]

mod attention;
mod axis;
mod block;
mod block_list;
mod calibration;
mod choices;
mod classic;
mod cluster;
mod cluster_file;
mod counted;
mod csv_line;
mod device;
mod devices;
mod error;
mod experts;
mod field;
mod field_value;
mod flops;
mod formation;
mod generation;
mod grid;
mod hf;
mod hf_deepseek;
mod hf_experts;
mod hf_fields;
mod hf_gemma;
mod hf_gpt;
mod hf_llama;
mod hf_qwen;
mod hf_rotary;
mod hf_windows;
mod imbalance;
mod inputs;
pub mod keys;
mod layout;
mod layout_file;
mod ledger;
mod ledger_difference;
mod legal_grids;
mod model;
mod model_file;
mod models;
mod named;
mod nearest_name;
mod nodes;
mod origins;
mod overlap;
mod parameters;
mod pieces;
mod planned;
pub mod quantities;
mod random;
mod refusals;
mod remedy;
mod routing;
mod routing_seconds;
mod rules;
mod sparsity;
mod targets;
mod toml_text;
mod unusable;
mod usual_order;
mod usual_tokens;

pub use attention::{Attention, Latent, NormedOver, QueryKeyNorm, Rotary, RotaryScaling};
pub use axis::{Axis, AxisOrder, AxisSet};
pub use block::{Block, FeedForward, Normalization, Perceptron, Residual};
pub use block_list::Blocks;
pub use calibration::{Calibration, MeasuredCollective, MeasuredOperation, RateUnit};
pub use choices::{
    Activation, Activations, BalanceScope, Dispatch, DropOrder, ElementType, KeepWeights, Linear, Norm, NormPlace,
    Offload, Positions, QkNorm, RealType, Recompute, ResidualOrder, RotaryRule, RouterScores, Schedule, Zero,
};
pub use classic::Classic;
pub use cluster::{Cluster, GroupBandwidth, Network, Tier, used_of_domain};
pub use counted::counted;
pub use csv_line::csv_line;
pub use device::{Device, Efficiency, MeasuredRate, Peaks};
pub use error::{SpecError, nearest_divisors};
pub use experts::{Capacity, ExpertGroups, Experts, Router};
pub use field::Field;
pub use field_value::{FieldValue, Kind};
pub use flops::{FlopsConvention, six_per_parameter};
pub use formation::Formation;
pub use grid::{Coordinate, Grid};
pub use imbalance::{Imbalance, MeasuredLoads, fullest_rank, most_crowded, usual_room};
pub use inputs::{InputKind, InputLayer, LatentLayers};
pub use layout::{Layout, LayoutRequest, sequences_of};
pub use layout_file::LayoutFile;
pub use ledger::{
    AxesLedger, CollectiveKind, FlopsLedger, HOST, LayerLedger, Ledger, MemoryClass, MemoryLedger, RankLedger, Transfer,
};
pub use ledger_difference::LedgerDifference;
pub use legal_grids::LegalGrids;
pub use model::Model;
pub use model_file::{BlockTable, ModelFile};
pub use named::by_name;
pub use nodes::{Nodes, TwoLevel};
pub use origins::{Origin, Origins};
pub use overlap::Overlap;
pub use parameters::{Initial, ModelParameter};
pub use pieces::EvenPieces;
pub use planned::Planned;
pub use random::{Dropout, RandomStream};
pub use refusals::Refusals;
pub use remedy::{Change, Refusal, Remedy};
pub use routing::{Algorithm, Choice, Collectives, Route, Routing};
pub use rules::{Rule, Scope};
pub use sparsity::Sparsity;
pub use targets::{IGNORED, PADDING};
pub use toml_text::{check_name, read as read_toml};
pub use unusable::{Blame, Named, Unusable};
pub use usual_tokens::{USUAL_BEGINNINGS, USUAL_ENDS};
