//! The small files that commands read: what messages call each kind, and how long it may be. Those of runs, and of
//! models, layouts and clusters, are in `quadrille_run::documents`.

use std::path::Path;

use quadrille_files::Document;
use quadrille_plan::native::PlanRequest;

use crate::failure::Failure;

/// `--interconnect`.
pub const INTERCONNECT: Document = Document::new("an interconnect file", 1 << 20);
/// Tables of `paper lbnl estimate` and `validate`.
pub const TABLE: Document = Document::new("a table", 1 << 28);
/// `--prompt-file`.
pub const PROMPT: Document = Document::new("a prompt", 1 << 26);
/// `--request`: a plan request, which may hold a model and a calibrated cluster.
const PLAN_REQUEST: Document = Document::new("a plan request", 1 << 24);

/// Reads a plan request: JSON if the file name ends in .json, otherwise TOML.
///
/// # Errors
/// A file that cannot be read, or is no request.
pub fn plan_request(path: &Path) -> Result<PlanRequest, Failure> {
    let text = PLAN_REQUEST.text(path)?;
    let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    let request = if is_json { PlanRequest::from_json(&text) } else { PlanRequest::from_toml(&text) };
    request.map_err(|error| Failure::usage(format!("--request {}: {error}", path.display())))
}
