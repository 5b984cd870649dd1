//! All that is printed, and files that flags name and commands write, with messages that name both.

use std::io::{ErrorKind, Write, stderr};
use std::path::{Path, PathBuf};

use quadrille_report::{Role, Text, plain};
use serde::Serialize;
use serde_json::Value;

use crate::failure::Failure;
use crate::terminal;

/// Prints a JSON document to standard output.
pub fn print_json(document: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document).map_err(|error| Failure::Run(error.into()))?;
    print_exactly(&format!("{}\n", plain::json(&text)))
}

/// A report as a document.
pub fn json_value(report: &impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(report).map_err(|error| Failure::Run(error.into()))
}

/// Prints text for people to standard output: fitted to a terminal, in full to a pipe or a file.
pub fn print_text(text: impl Into<Text>) -> Result<(), Failure> {
    print_exactly(&text.into().shown(terminal::output()))
}

/// Prints text as it is to standard output, whatever is in it; a closed pipe ends the output, not the program.
pub fn print_exactly(text: &str) -> Result<(), Failure> {
    printed(std::io::stdout().write_all(text.as_bytes()))
}

/// What came of printing to standard output; a closed pipe is no failure.
pub fn printed(result: std::io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::run(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes progress to standard error, unless nothing but results was asked for; the work goes on where nobody reads it.
pub fn tell(text: &str) {
    if !terminal::is_quiet() {
        let shown = terminal::errors().wrapped(&plain::plain(text));
        let _ = stderr().write_all(shown.as_bytes());
    }
}

/// Says which of the files that may be asked for were written, beside results that do not name them.
pub fn written<'a>(files: impl IntoIterator<Item = &'a Option<PathBuf>>) {
    files.into_iter().flatten().for_each(|path| tell(&format!("written to {}\n", path.display())));
}

/// Writes one message of a kind ("warning") to standard error: `warning: text`.
pub fn remark(kind: &str, text: &str) {
    if !terminal::is_quiet() {
        complain(Role::Warning, kind, text);
    }
}

/// Writes what was read or done to standard error, if more than usual was asked for.
pub fn detail(text: &str) {
    if terminal::is_verbose() {
        let style = terminal::errors();
        for line in style.wrapped(&plain::message(text)).lines() {
            let _ = stderr().write_all((style.paint(Role::Aside, line) + "\n").as_bytes());
        }
    }
}

/// Writes where a description is from, if more than usual was asked for.
pub fn source(what: &str, name: &str) {
    let origin = if Path::new(name).is_file() { "a file" } else { "built in" };
    detail(&format!("{what} {name}: {origin}"));
}

/// Writes what is wrong with a command line to standard error, whose first word is `error`.
pub fn refused(message: &str) {
    let style = terminal::errors();
    let message = style.wrapped(&plain::plain(message));
    let (kind, behind) = message.split_once(':').unwrap_or((&message, ""));
    let _ = stderr().write_all(format!("{}:{behind}", style.paint(Role::Error, kind)).as_bytes());
}

/// Writes one message of a kind ("error") to standard error, whatever was asked for. Where nobody listens any more, the exit
/// code still tells.
pub fn complain(role: Role, kind: &str, text: &str) {
    let style = terminal::errors();
    let message = style.wrapped(&format!("{kind}: {}\n", plain::message(text)));
    let behind = message.strip_prefix(kind).unwrap_or(&message);
    let _ = stderr().write_all((style.paint(role, kind) + behind).as_bytes());
}

/// Makes sure that a file can be written, before the work that fills it; leaves nothing and changes nothing.
pub fn check_writable(flag: &str, path: &Path) -> Result<(), Failure> {
    quadrille_files::check_writable(path).map_err(|error| Failure::usage(unwritable(flag, path, &error)))
}

/// Names the flag and the file that was asked for: errors of temporary files name those.
fn unwritable(flag: &str, path: &Path, error: &std::io::Error) -> String {
    let why = quadrille_files::reason(error);
    let remedy = quadrille_files::remedy(path, error);
    format!("cannot write {flag} {}: {why}{remedy}", path.display())
}

/// Writes what a flag asked for to a file, in place of what it holds; whole or not at all.
pub fn write_file(flag: &str, path: &Path, content: &[u8]) -> Result<(), Failure> {
    check_writable(flag, path)?;
    quadrille_files::replace(path, content).map_err(|error| Failure::run(unwritable(flag, path, &error)))
}

/// Writes rows as comma-separated values to the file that a flag asks for, if it does.
pub fn write_rows<R>(flag: &str, path: Option<&Path>, rows: impl FnOnce() -> R) -> Result<(), Failure>
where
    R: IntoIterator<Item = Vec<String>>,
{
    path.map_or(Ok(()), |path| write_file(flag, path, csv(rows())?.as_bytes()))
}

/// Rows of equal length as CSV, the header first.
pub fn csv(rows: impl IntoIterator<Item = Vec<String>>) -> Result<String, Failure> {
    quadrille_report::csv(rows).map_err(|error| Failure::Run(error.into()))
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
            let remedy = if path == missing { "; make the folder " } else { "; name a file in it" };
            assert!(message.contains(remedy), "{message}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
