//! What benches have measured beside their yardsticks, but for [`crate::collectives`].

mod gemm;
mod optimizer;
mod pipeline;
mod searches;
mod simulation;
mod step;

pub use gemm::GemmReport;
pub use optimizer::OptimizerReport;
pub use pipeline::PipelineReport;
pub use searches::{SearchesReport, text as searches};
pub use simulation::SimulationReport;
pub use step::StepReport;
