//! The planners that other works have published, each as it was printed.

pub mod atp;
pub mod axonn;
pub mod lbnl;
pub mod megatron;
pub mod reproduce;
