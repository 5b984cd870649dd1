//! What the native search has found: tables, a document, why the best is as fast as it is.

mod advised;
mod assumed;
mod band;
mod budget;
mod document;
mod explanation;
mod page;
mod priced;
mod rates;
mod text;

use quadrille_cost::native::Price;

pub(crate) use band::{band, ends};
pub use document::{columns, document, entry, rows};
pub(crate) use document::{names, values_of};
pub use explanation::{explanation_document, explanation_text};
pub use page::{asked_document, drawing, page_document};
pub use priced::PricedReport;
pub(crate) use rates::counted;
pub use text::text;
pub(crate) use text::{COLUMNS, SPARE, cells};

/// Bytes with a name, by class.
fn memory(price: &Price) -> [(&'static str, u64); 6] {
    let memory = &price.memory;
    [
        ("parameters", memory.parameters),
        ("gradients", memory.gradients),
        ("optimizer", memory.optimizer),
        ("activations", memory.activations),
        ("buffers", memory.buffers),
        ("framework", memory.framework),
    ]
}
