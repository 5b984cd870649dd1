//! What the published planners find, and the figures that their works print: tables for people, documents, rows of
//! comma-separated values.

pub mod atp;
pub mod axonn;
pub mod lbnl;
pub mod megatron;
pub mod reproduce;

/// The columns of a header that is written with commas.
fn columns(header: &str) -> Vec<String> {
    header.split(',').map(str::to_owned).collect()
}
