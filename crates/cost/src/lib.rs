//! Prices layouts: the published communication models, one file each.

pub mod axonn;
