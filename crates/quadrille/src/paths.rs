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

/// The same of files that a search fills, which may take long: they can be written, or nothing is begun.
pub fn check_ready(written: &[Named], model: &ModelArguments, layout: &LayoutArguments) -> Result<(), Failure> {
    check_described(written, model, layout)?;
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
