//! How far a study is, for who watches.

use indicatif::{ProgressBar, ProgressStyle};
use quadrille_study::{Part, Progress};

use crate::launch::Launch;

/// A bar for every part of every run, one after the other.
pub struct Bars<'a> {
    launch: &'a Launch,
    now: Option<(&'static str, Part, ProgressBar)>,
}

impl<'a> Bars<'a> {
    /// None yet.
    pub fn new(launch: &'a Launch) -> Self {
        Self { launch, now: None }
    }

    /// Shows how far the study is.
    pub fn show(&mut self, progress: &Progress) {
        let Progress { run, part, done, of, loss } = *progress;
        if !self.now.as_ref().is_some_and(|(shown, at, _)| (*shown, *at) == (run, part)) {
            self.clear();
        }
        let (.., bar) = self.now.get_or_insert_with(|| (run, part, bar(self.launch, of, format!("{run}: {part}"))));
        if let Some(loss) = loss {
            bar.set_message(format!("loss {loss:.4}"));
        }
        bar.set_position(done);
    }

    /// Takes the bar away.
    pub fn clear(&mut self) {
        if let Some((.., bar)) = self.now.take() {
            bar.finish_and_clear();
        }
    }
}

fn bar(launch: &Launch, of: u64, name: String) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:18} {bar:30} {pos}/{len} {msg} (eta {eta})");
    ProgressBar::with_draw_target(Some(of), launch.progress())
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        .with_prefix(name)
}
