//! What the command line says of the output, and the terminal that it goes to.

use std::io::{IsTerminal, stderr, stdout};
use std::os::fd::AsFd;
use std::sync::OnceLock;

use anstream::AutoStream;
use anstream::stream::RawStream;
use clap::{Args, ColorChoice};
use indicatif::ProgressDrawTarget;
use quadrille_report::Style;

/// How much is told, and how it looks.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArguments {
    /// Colours: auto (on a terminal, unless NO_COLOR is set), always or never
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = ColorChoice::Auto, global = true, hide_possible_values = true)]
    pub color: ColorChoice,
    /// Tell more of what is read and done, on standard error
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub verbose: bool,
    /// Tell nothing but results and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
}

impl OutputArguments {
    /// Whether nothing of it was said.
    pub fn is_usual(&self) -> bool {
        self.color == ColorChoice::Auto && !self.verbose && !self.quiet
    }
}

/// What was said, once, before anything is printed.
static SAID: OnceLock<OutputArguments> = OnceLock::new();

/// Columns of a terminal that does not say how many it has.
const USUAL_WIDTH: usize = 80;

/// Keeps what the command line says.
pub fn set(said: OutputArguments) {
    // Only the first word counts, and there is but one command line.
    let _ = SAID.set(said);
}

/// What words of a command line say of colours, before it is known whether they can be used: its own errors have them, too.
pub fn color(words: impl Iterator<Item = String>) -> ColorChoice {
    let mut words = words.take_while(|word| word != "--");
    let mut said = None;
    while let Some(word) = words.next() {
        said = match word.strip_prefix("--color") {
            Some("") => words.next(),
            Some(value) => value.strip_prefix('=').map(str::to_owned),
            None => continue,
        };
    }
    match said.as_deref() {
        Some("always") => ColorChoice::Always,
        Some("never") => ColorChoice::Never,
        _ => ColorChoice::Auto,
    }
}

/// Whether nothing but results and errors is told.
pub fn is_quiet() -> bool {
    SAID.get().is_some_and(|said| said.quiet)
}

/// Whether more than usual is told.
pub fn is_verbose() -> bool {
    SAID.get().is_some_and(|said| said.verbose)
}

/// How results are shown.
pub fn output() -> Style {
    style(&stdout())
}

/// How messages and progress are shown.
pub fn errors() -> Style {
    style(&stderr())
}

/// Whether people read the results, and no other program.
pub fn is_for_people() -> bool {
    stdout().is_terminal()
}

/// Where progress is shown, if it is.
pub fn progress() -> ProgressDrawTarget {
    if is_quiet() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() }
}

fn style(stream: &(impl RawStream + IsTerminal + AsFd)) -> Style {
    let color = match SAID.get().map_or(ColorChoice::Auto, |said| said.color) {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => AutoStream::choice(stream) != anstream::ColorChoice::Never,
    };
    let of_terminal = || terminal_size::terminal_size_of(stream).map(|(width, _)| usize::from(width.0));
    let said = || std::env::var("COLUMNS").ok()?.parse().ok();
    let width = || said().or_else(of_terminal).filter(|width| *width > 0).unwrap_or(USUAL_WIDTH);
    Style { width: IsTerminal::is_terminal(stream).then(width), color }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_known_before_the_rest_of_the_command_line() {
        let color = |line: &str| color(line.split(' ').map(str::to_owned));
        assert_eq!(color("plan --color always --gpus x"), ColorChoice::Always);
        assert_eq!(color("--color=never plan"), ColorChoice::Never);
        assert_eq!(color("plan --color=never --color always"), ColorChoice::Always);
        for line in ["plan", "plan --color", "plan --color green", "plan -- --color always"] {
            assert_eq!(color(line), ColorChoice::Auto, "{line}");
        }
    }
}
