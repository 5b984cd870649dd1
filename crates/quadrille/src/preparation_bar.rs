//! How far text is on its way to tokens.

use std::io::{IsTerminal, stderr};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use quadrille_run::OnPreparation;

/// Bytes that were read, for who watches.
pub struct PreparationBar(ProgressBar);

impl PreparationBar {
    /// Shown from the first byte on, if standard error is a terminal.
    pub fn new() -> Self {
        let target = if stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let style =
            ProgressStyle::with_template("preparing {bar:30} {bytes}/{total_bytes} {bytes_per_sec} (eta {eta})");
        let bar = ProgressBar::with_draw_target(None, target);
        Self(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
    }

    /// `done` of `total` bytes.
    pub fn show(&self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// Does what tells how far text is, under a bar.
pub fn shown<R>(prepare: impl FnOnce(OnPreparation) -> R) -> R {
    let bar = PreparationBar::new();
    let done = prepare(&|done, total| bar.show(done, total));
    bar.finish();
    done
}
