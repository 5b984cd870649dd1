//! The planners that other works have published, each as it was printed, and the figures that they print beside ours.
//!
//! | module | work |
//! |---|---|
//! | [`atp`] | communication time of two-dimensional meshes on an interconnect (Cheng et al., 2023) |
//! | [`axonn`] | communication time of grids (Singh et al., SC 2024), memory with states in buckets (dissertation, chapter 3) |
//! | [`lbnl`] | steps of three strategies on systems of a fast and a slow network (Subramanian et al., 2024) |
//! | [`megatron`] | parameters, FLOPs, bubbles and takeaways of Megatron-LM (Narayanan et al., SC 2021) |
//! | [`samo`] | memory of pruned models' training, bubbles, messages (Singh's dissertation, chapter 4) |
//! | [`ted`] | memory of mixtures of experts' training, what GPUs send for rows at experts (dissertation, chapter 7) |
//!
//! None of them uses another, and none the native model. [`reproduce`] holds all six against their works; a few of its
//! figures are not of a work's formula but of step programs: bubbles of their schedules, their messages and their memory,
//! what they send for rows at experts.
//!
//! ```
//! use quadrille_papers::axonn::plan;
//! use quadrille_spec::{Activations, Axis, Cluster, LayoutRequest, Model};
//!
//! let model = Model::preset("gpt-20b")?;
//! let cluster = Cluster::preset("perlmutter")?;
//! let activations = Activations::Replicated;
//! let request = LayoutRequest { activations, ..LayoutRequest::new("x=1".parse()?, 512) };
//! let found = plan(&model, &cluster, 32, &request, 2, 3)?;
//! assert_eq!((found.grids, found.feasible, found.ranked.len()), (56, 52, 3));
//! // With a million tokens in a batch weights are cheaper to send than activations.
//! assert_eq!(found.ranked[0].layout.grid.size(Axis::Data), 32);
//! # Ok::<(), quadrille_spec::SpecError>(())
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::print_stdout, clippy::print_stderr)
)]

pub mod atp;
pub mod axonn;
pub mod lbnl;
pub mod megatron;
pub mod reproduce;
pub mod samo;
pub mod ted;
