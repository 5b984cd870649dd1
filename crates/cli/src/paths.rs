//! Files that are written, held against those that are read.

use std::any::TypeId;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Command};
use quadrille_run::written_over;

use crate::arguments::ModelArguments;
use crate::failure::Failure;
use crate::layout_arguments::LayoutArguments;
use crate::output::check_writable;

/// A file with the flag that names it.
pub type Named<'a> = (&'static str, &'a Path);

/// Refuses `-` for a file or a folder: results go to standard output where no file is asked for, and nothing is read from
/// standard input.
///
/// # Errors
/// The flag, the rule and the remedy.
pub fn check_named(command: &Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let is_path = |argument: &&Arg| argument.get_value_parser().type_id() == TypeId::of::<PathBuf>();
    for argument in command.get_arguments().filter(is_path) {
        let mut typed = matches.get_raw(argument.get_id().as_str()).into_iter().flatten();
        if typed.any(|word| word == "-") {
            let message = format!(
                "{argument}: - is no file and no folder; name one, as ./- if it is called so. Results go to standard output \
                 where no file is asked for\n"
            );
            return Err(clap::Error::raw(ErrorKind::ValueValidation, message));
        }
    }
    match matches.subcommand().and_then(|(name, matches)| Some((command.find_subcommand(name)?, matches))) {
        Some((command, matches)) => check_named(command, matches),
        None => Ok(()),
    }
}

/// The files that flags ask for, of those that may.
pub fn asked<'a>(files: impl IntoIterator<Item = (&'static str, &'a Option<PathBuf>)>) -> Vec<Named<'a>> {
    files.into_iter().filter_map(|(flag, path)| Some((flag, path.as_deref()?))).collect()
}

/// The files that describe a model; presets name none that exists.
pub fn of_model(model: &ModelArguments) -> impl Iterator<Item = Named<'_>> {
    let configuration = model.from_hf.iter().map(|path| ("--from-hf", path.as_path()));
    let named = model.model.iter().map(|name| ("--model", Path::new(name)));
    named.chain(configuration).filter(|(_, path)| path.is_file())
}

/// The file that describes a cluster; presets name none that exists.
pub fn of_cluster(name: &str) -> Option<Named<'_>> {
    Some(("--cluster", Path::new(name))).filter(|(_, path)| path.is_file())
}

/// The files that describe model, layout and cluster.
pub fn described<'a>(model: &'a ModelArguments, layout: &'a LayoutArguments) -> impl Iterator<Item = Named<'a>> {
    let file = layout.layout.iter().map(|path| ("--layout", path.as_path())).filter(|(_, path)| path.is_file());
    of_model(model).chain(file).chain(of_cluster(layout.cluster()))
}

/// Refuses to write over or into what describes model, layout and cluster, or two files into one.
pub fn check_described(written: &[Named], model: &ModelArguments, layout: &LayoutArguments) -> Result<(), Failure> {
    check(written, &described(model, layout).collect::<Vec<_>>())
}

/// Checks before a search, which may take long, that the files it fills can be written, and over nothing that it reads.
pub fn check_ready(written: &[Named], read: &[Named]) -> Result<(), Failure> {
    check(written, read)?;
    written.iter().try_for_each(|(flag, path)| check_writable(flag, path))
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
