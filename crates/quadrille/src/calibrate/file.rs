//! Writing a cluster file so that no reader ever sees half of one.

use std::io::Write;
use std::path::Path;

use quadrille_spec::Cluster;
use tempfile::NamedTempFile;

use crate::failure::Failure;

/// Writes the cluster beside `path` under a temporary name, and gives it its name when all of it is on disk.
///
/// # Errors
/// A cluster that breaks its own rules, a folder that cannot be written to.
pub fn write(path: &Path, cluster: &Cluster) -> Result<(), Failure> {
    let text = cluster.to_toml()?;
    let cannot = |error: std::io::Error| Failure::usage(format!("cannot write --out {}: {error}", path.display()));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = NamedTempFile::new_in(folder).map_err(cannot)?;
    file.write_all(text.as_bytes()).map_err(cannot)?;
    file.as_file().sync_all().map_err(cannot)?;
    file.persist(path).map_err(|error| cannot(error.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        std::fs::write(&path, "old").unwrap();
        let cluster = Cluster::preset("selene").unwrap();
        write(&path, &cluster).unwrap();
        assert_eq!(Cluster::from_toml(&std::fs::read_to_string(&path).unwrap()).unwrap(), cluster);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let failure = write(Path::new("/no/such/folder/c.toml"), &Cluster::preset("selene").unwrap()).unwrap_err();
        assert!(format!("{failure:?}").contains("--out /no/such/folder/c.toml"), "{failure:?}");
    }
}
