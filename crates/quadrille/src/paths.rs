//! Files that are written, held against those that are read.

use std::path::{Path, PathBuf};

use crate::arguments::ModelArguments;
use crate::failure::Failure;
use crate::layout_arguments::LayoutArguments;

/// A file with the flag that names it.
type Named<'a> = (&'static str, &'a Path);

/// The files that describe model, layout and cluster; presets name none that exists.
pub fn described<'a>(model: &'a ModelArguments, layout: &'a LayoutArguments) -> impl Iterator<Item = Named<'a>> {
    let configuration = model.from_hf.iter().map(|path| ("--from-hf", path.as_path()));
    let model = model.model.iter().map(|name| ("--model", Path::new(name))).chain(configuration);
    let cluster = ("--cluster", Path::new(layout.cluster()));
    let layout = layout.layout.iter().map(|path| ("--layout", path.as_path()));
    model.chain(layout).chain([cluster]).filter(|(_, path)| path.is_file())
}

/// Refuses to write over or into what is read, or two files into one.
pub fn check(written: &[Named], read: &[Named]) -> Result<(), Failure> {
    for (at, (flag, path)) in written.iter().enumerate() {
        let path = real(path);
        for (other_flag, other) in written[..at].iter().chain(read) {
            if path.starts_with(real(other)) {
                return Err(Failure::usage(format!(
                    "{flag} {} would be written over or into {other_flag} {}; name another file",
                    path.display(),
                    other.display()
                )));
            }
        }
    }
    Ok(())
}

/// The path without links; of a file that is not there, the absolute path.
fn real(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.canonicalize().unwrap_or(path)
}
