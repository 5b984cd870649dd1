//! Writing a cluster file.

use std::path::Path;

use quadrille_spec::Cluster;

use crate::failure::Failure;
use crate::output::write_file;

/// Writes the cluster in place of what the file holds, whole or not at all.
///
/// # Errors
/// A cluster that breaks its own rules, a file that cannot be written.
pub fn write(path: &Path, cluster: &Cluster) -> Result<(), Failure> {
    write_file("--out", path, cluster.to_toml()?.as_bytes())
}
