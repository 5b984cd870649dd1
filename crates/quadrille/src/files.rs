//! Files that flags name and commands write, with messages that name both.

use std::io;
use std::path::Path;

use crate::failure::Failure;

/// Makes sure that a file can be written, before the work that fills it; leaves nothing and changes nothing.
pub fn check_writable(flag: &str, path: &Path) -> Result<(), Failure> {
    quadrille_files::check_writable(path).map_err(|error| Failure::usage(unwritable(flag, path, &error)))
}

/// Names the flag and the file that was asked for: errors of temporary files name those.
pub fn unwritable(flag: &str, path: &Path, error: &io::Error) -> String {
    format!("cannot write {flag} {}: {}", path.display(), quadrille_files::reason(error))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_cannot_be_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing/table.csv");
        for path in [missing.as_path(), folder.path()] {
            let Err(Failure::Usage(error)) = check_writable("--csv", path) else { panic!("{}", path.display()) };
            let message = error.to_string();
            assert!(message.starts_with(&format!("cannot write --csv {}: ", path.display())), "{message}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
