//! Models as Hugging Face's transformers library stores them: a folder with `config.json` and safetensors files.
//!
//! Every logical tensor of a [`quadrille_spec::Model`] is made of one or several tensors of such a folder, without
//! arithmetic: `mapping` says which and where their numbers lie, so that importing and exporting give back every bit.
//! Rotary positions turn the same pairs on both sides (the halves of a head), so that queries and keys stay in order.
//!
//! | | GPT-2 | Llama and its kin | Phi-3 | StarCoder2 | GPT-NeoX |
//! |---|---|---|---|---|---|
//! | stored weights | `[inputs, outputs]` | `[outputs, inputs]` | `[outputs, inputs]` | `[outputs, inputs]` | `[outputs, inputs]` |
//! | `qkv` | `c_attn`: all queries, all keys, all values | `q_proj`, `k_proj`, `v_proj` | `qkv_proj`: as GPT-2 | as Llama | `query_key_value`: by head, as here |
//! | `up` | `c_fc` | `gate_proj`, `up_proj` | `gate_up_proj`: all gates, then what they are multiplied with | `c_fc` | `dense_h_to_4h` |
//!
//! Experts of Mixtral and Qwen3-MoE are blocks of rows here. Each has tensors of its own there (`w1`, `w3`, `w2`;
//! `gate_proj`, `up_proj`, `down_proj`), or all are in one (`gate_up_proj`, `down_proj` of version 5's modules): both are
//! read, the former are written.
//!
//! The path of an import: [`Source::open`] reads the configuration and the headers of all files and checks names, types
//! and shapes; [`Source::read`] gives one logical tensor. The path of an export: [`Destination::new`] chooses the
//! configuration, [`Destination::write`] writes shard after shard, one tensor at a time. [`import`] and [`export`] do so
//! with checkpoints.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod checkpoints;
mod columns;
mod companions;
mod config;
mod config_decoders;
mod config_experts;
mod config_gemma;
mod config_rotary;
mod destination;
mod element;
mod error;
mod family;
mod files;
mod mapping;
mod origin;
mod replaced;
mod shards;
mod source;
mod special_tokens;
mod training;

pub use checkpoints::{ExportOptions, Imported, OnNumbers, export, export_watched, import, import_watched};
pub use columns::Columns;
pub use companions::{
    COMPANION, COMPANIONS, GENERATION_CONFIG, check_companions, copy_companions, copy_companions_without,
};
pub use destination::{Destination, Exported};
pub use element::{Narrow, StoredType};
pub use error::HuggingFaceError;
pub use family::Family;
pub use mapping::{Part, Tensor, tensors};
pub use origin::Origin;
pub use source::{CONFIGURATION, Source};
