//! `quadrille completions` and `quadrille man`: what shells and manuals know of the command line, made from its parser.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::output::{print_exactly, write_file};

const COMPLETIONS: &str = "Examples:
  quadrille completions bash > ~/.local/share/bash-completion/completions/quadrille
  quadrille completions zsh > \"${fpath[1]}/_quadrille\"
  quadrille completions fish > ~/.config/fish/completions/quadrille.fish";

#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS)]
pub struct CompletionsArguments {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

const PAGES: &str = "Examples:
  quadrille man --out ~/.local/share/man/man1     a page for every command; then: man quadrille-train
  quadrille man | man -l -                        the first page";

#[derive(Debug, Args)]
#[command(after_help = PAGES)]
pub struct ManArguments {
    /// The folder that gets a page for every command; without it the first page is printed
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
}

/// Prints the completions of a shell.
pub fn completions(arguments: &CompletionsArguments) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "quadrille", &mut script);
    print_exactly(&String::from_utf8_lossy(&script))
}

/// Prints the manual's first page, or writes all of its pages.
pub fn man(arguments: &ManArguments) -> Result<(), Failure> {
    let mut command = Arguments::command();
    command.build();
    let Some(folder) = &arguments.out else {
        return print_exactly(&String::from_utf8_lossy(&page(command)?));
    };
    std::fs::create_dir_all(folder).map_err(|error| Failure::usage(format!("--out {}: {error}", folder.display())))?;
    write_pages(command, folder)
}

/// A page for the command and one for each below it: `quadrille-data-prepare.1`.
fn write_pages(command: clap::Command, folder: &std::path::Path) -> Result<(), Failure> {
    let below: Vec<clap::Command> =
        command.get_subcommands().filter(|below| below.get_name() != "help").cloned().collect();
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    write_file("--out", &folder.join(format!("{name}.1")), &page(command)?)?;
    below.into_iter().try_for_each(|below| write_pages(below, folder))
}

fn page(command: clap::Command) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    let rendered = Man::new(command).render(&mut text).and_then(|()| text.flush());
    rendered.map_err(|error| Failure::run(format!("a page of the manual cannot be made: {error}")))?;
    Ok(text)
}
