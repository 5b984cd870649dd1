//! The page of a run.

use std::path::Path;

use quadrille_report::run::{Prediction, Run, page};
use quadrille_spec::Cluster;

use crate::Error;

/// The page of the run in a folder, as HTML that loads nothing from elsewhere: its curves, its ledgers, where the time of a
/// step goes, beside what was predicted for a cluster.
///
/// # Errors
/// A folder without a run, or one that cannot be read.
pub fn report(folder: &Path, cluster: &Cluster) -> Result<String, Error> {
    let run = Run::read(folder)?;
    Ok(page(&run, &Prediction::of(&run, cluster.clone())))
}
