//! Buffers, a worker pool and the CPU kernels of a transformer's training step.
//!
//! Every matrix is row-major and contiguous, every kernel a free function that takes the
//! [`Pool`] of its rank first. Kernels allocate nothing large: outputs come from the caller,
//! scratch is kept per thread. The number of threads changes no bit of any result.
//!
//! Values may be stored in 16 bits (see [`Stored`]): kernels widen them, compute in `f32` and round
//! once where they store. Statistics, biases and norm vectors are in `f32`.
//!
//! A kernel panics if a slice's length does not match the shape it is given: shapes come from
//! a checked program, so a mismatch is a fault of the caller.

#![cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::print_stdout, clippy::print_stderr)
)]

mod activation;
mod adamw;
pub mod attention;
#[cfg(target_arch = "x86_64")]
mod bf16_product;
mod buffer;
mod cap;
mod columns;
mod context;
mod cross_entropy;
mod curves;
mod dispatch;
mod element;
mod elementwise;
mod embedding;
mod experts;
mod few_rows;
mod gated;
mod head_norm;
mod kept;
mod lanes;
mod latent;
mod matmul;
mod norm;
mod pool;
mod product;
mod residual;
mod rms_norm;
mod rotary;
mod shape;
mod squared_error;
mod stored;
mod transpose;
mod turn;
mod vector;
mod widened;

pub use activation::{activate_curve, bias_backward, bias_curve_backward, bias_curve_forward, bias_forward};
pub use adamw::{AdamW, adamw, adamw_master};
pub use attention::{
    AttentionDropout, AttentionShape, CacheShape, attention_backward, attention_forward, cached_attention, join_heads,
    newest_rows, pack_keys_values, split_heads, store_keys_values, unpack_keys_values,
};
pub use buffer::Buffer;
pub use cap::cap;
pub use columns::{copy_panel_columns, pack_columns, slice_columns, store_panel_columns, unpack_columns};
pub use context::ContextPart;
pub use cross_entropy::{IGNORED, cross_entropy_gradient, cross_entropy_loss, cross_entropy_max, cross_entropy_sums};
pub use curves::Curve;
pub use element::Element;
pub use elementwise::{add_assign, copy, round, scale, sum_of_squares};
pub use embedding::{add_positions, embed_backward, embed_forward, positions_backward};
pub use experts::{
    GroupedShape, RouterLosses, RouterRule, RouterShape, Segments, Slots, SpreadShape, TokenGroups, combine,
    combine_backward, count_choices, dropped_choices, follow_loads, grouped_matmul, route, route_backward,
    router_forward, router_input_gradient, router_losses, router_weight_gradient, spread, spread_backward,
};
pub use few_rows::{FEW_ROWS, matmul_few_rows};
pub use gated::{activate_gated, bias_gated_backward, bias_gated_forward};
pub use head_norm::{HeadNorm, head_norm_backward, head_norm_forward};
pub use kept::{compress, expand};
pub use latent::{LatentShape, join_latent, split_latent};
pub use matmul::{Transpose, library_matmul, matmul};
pub use norm::{norm_backward, norm_backward_sums, norm_centered_squares, norm_forward, norm_row_sums};
pub use pool::Pool;
pub use residual::{Dropout, dropout, residual_forward};
pub use rms_norm::{rms_norm_backward, rms_norm_backward_sums, rms_norm_forward, rms_norm_squares};
pub use rotary::{Rotary, rotate};
pub use shape::{GroupShape, LogitsShape, NormShape, PanelShape, ProductShape, Shape, TableShape};
pub use squared_error::{rounded, squared_error, squared_error_loss};
pub use stored::Stored;
pub use transpose::{matmul_as, matmul_as_scratch};
