//! Drawings as SVG, and pages that hold them, without anything from elsewhere.

mod page;
mod svg;

pub use page::{document, heading, page, paragraph, table};
pub use svg::{Anchor, Drawing};
