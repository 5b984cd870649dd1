//! The methods of [`Queue`](crate::Queue), by the modules of `quadrille_tensor`.

mod activation;
mod adamw;
mod attention;
mod attention_tiles;
mod cached;
mod collectives;
mod columns;
mod cross_entropy;
mod elementwise;
mod embedding;
mod experts;
mod gated;
mod head_norm;
mod heads;
mod indices;
mod kept;
mod latent;
mod norm;
mod residual;
mod rotary;
mod squared_error;

pub use activation::column_scratch;
pub use adamw::{ParameterArrays, update_table, update_words};
pub use attention::{Saved, attention_scratch};
pub use cached::cached_scratch;
pub use cross_entropy::loss_scratch;
pub use elementwise::{squares_scratch, squares_table, sum_scratch};
pub use embedding::Places;
pub use experts::{losses_scratch, route_scratch, spread_scratch};
pub use head_norm::head_norm_scratch;
pub use indices::{AttentionMask, Draw, ElementMask, Positions, Rows};
pub use norm::{Gamma, Statistics};
