//! Plans and prices: their reports, and text, rows and pages of these.

mod advised;
mod assumed;
mod band;
mod budget;
mod explanation;
mod headline;
mod page;
mod priced;
mod priced_layout;
mod report;
mod rows;
mod tables;
mod text;

pub use assumed::AssumedShare;
pub(crate) use band::ends;
pub use explanation::{BindingPart, ChoiceGain, HardwareGain, PriceExplanation, RunnerUp};
pub(crate) use headline::counted;
pub use headline::{FullestRank, Headline};
pub use page::{Drawing, FrameworkOptions, PlanPage};
pub use priced::PriceReport;
pub use priced_layout::{CommunicationParts, GoodputReport, LayoutWords, MemoryParts, PricedLayout, StepParts};
pub use report::{AdvisedLayout, FailureAssumptions, ImbalanceReport, PlanReport, SearchCounts, SearchSettings};
pub use rows::rows;
pub(crate) use rows::{columns, names, values_of};
pub(crate) use tables::{COLUMNS, SPARE, cells};
pub use text::text;
