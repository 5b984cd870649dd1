//! The published planners against the figures of their papers.

mod atp;
mod axonn;
mod axonn_search;
mod hybrid;
mod lbnl;
mod lbnl_search;
mod megatron;
mod reproduce;
mod ted;
