//! `quadrille bench gemm`: the products of a step beside the matrix library's own threads.

use quadrille_measure::gemm;
use quadrille_report::bench::GemmReport;
use quadrille_spec::ElementType;
use quadrille_step::StepProgram;

use crate::bench::arguments::BenchGemmArguments;
use crate::bench::layout;
use crate::failure::Failure;
use crate::output::{print_json, print_text};

/// Measures and reports.
pub fn run(arguments: &BenchGemmArguments) -> Result<(), Failure> {
    let model = arguments.model.described(super::MODEL)?;
    let layout = layout(&arguments.layout, &model, Some(ElementType::F32))?;
    let program = StepProgram::new(&model, &layout)?;
    let threads = arguments.threads.map_or_else(quadrille_run::cores, usize::from);
    let measured = gemm::measure(&program, threads);
    let report = GemmReport { program: &program, threads, measured: &measured };
    if arguments.json { print_json(&report.document()) } else { print_text(&report.text()) }
}
