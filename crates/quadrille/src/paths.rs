//! Files that are written, held against those that are read.

use std::path::{Path, PathBuf};

use quadrille_run::written_over;

use crate::arguments::ModelArguments;
use crate::failure::Failure;
use crate::layout_arguments::LayoutArguments;

/// A file with the flag that names it.
pub type Named<'a> = (&'static str, &'a Path);

/// The files that flags ask for, of those that may.
pub fn asked<'a>(files: impl IntoIterator<Item = (&'static str, &'a Option<PathBuf>)>) -> Vec<Named<'a>> {
    files.into_iter().filter_map(|(flag, path)| Some((flag, path.as_deref()?))).collect()
}

/// The files that describe model, layout and cluster; presets name none that exists.
pub fn described<'a>(model: &'a ModelArguments, layout: &'a LayoutArguments) -> impl Iterator<Item = Named<'a>> {
    let configuration = model.from_hf.iter().map(|path| ("--from-hf", path.as_path()));
    let model = model.model.iter().map(|name| ("--model", Path::new(name))).chain(configuration);
    let cluster = ("--cluster", Path::new(layout.cluster()));
    let layout = layout.layout.iter().map(|path| ("--layout", path.as_path()));
    model.chain(layout).chain([cluster]).filter(|(_, path)| path.is_file())
}

/// Refuses to write over or into what describes model, layout and cluster, or two files into one.
pub fn check_described(written: &[Named], model: &ModelArguments, layout: &LayoutArguments) -> Result<(), Failure> {
    check(written, &described(model, layout).collect::<Vec<_>>())
}

/// Refuses to write over or into what is read, or two files into one.
pub fn check(written: &[Named], read: &[Named]) -> Result<(), Failure> {
    match written_over(written, read) {
        None => Ok(()),
        Some([(flag, path), (other_flag, other)]) => Err(Failure::usage(format!(
            "{flag} {} would be written over or into {other_flag} {}; name another file",
            path.display(),
            other.display()
        ))),
    }
}
