//! How far work is, for who watches.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use quadrille_run::OnPreparation;
use quadrille_study::{Part, Progress};

use crate::launch::Launch;
use crate::terminal;

/// A bar of so many steps, if it is known how many, as a template draws it.
pub fn bar(target: ProgressDrawTarget, length: Option<u64>, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(length, target).with_style(style)
}

/// How far work is, how fast it goes and how long it still takes.
const COUNTED: &str = "{bar:24} {pos}/{len} {msg} {per_sec} (eta {eta})";

/// A bar of so many pieces of work, shown to who watches the first process.
pub fn counted(launch: &Launch, length: usize) -> ProgressBar {
    bar(launch.progress(), Some(length as u64), COUNTED)
}

/// A bar of so many steps of a run.
pub fn steps(length: u64) -> ProgressBar {
    bar(terminal::progress(), Some(length), COUNTED)
}

/// Does what tells how many pieces of how many are done, under a bar of them.
pub fn counting<R>(work: impl FnOnce(&mut dyn FnMut(usize, usize)) -> R) -> R {
    let bar = bar(terminal::progress(), None, COUNTED);
    let done = work(&mut |done, of| {
        bar.set_length(of as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    done
}

/// Does what does not tell how far it is, under a line that says what it is and for how long it goes on.
pub fn waiting<R>(what: &str, work: impl FnOnce() -> R) -> R {
    let bar = bar(terminal::progress(), None, "{spinner} {msg} {elapsed}").with_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    let done = work();
    bar.finish_and_clear();
    done
}

/// Does what tells how far text is on its way to tokens, under a bar of the bytes that were read: shown from the first one on,
/// if standard error is a terminal.
pub fn preparing<R>(prepare: impl FnOnce(OnPreparation) -> R) -> R {
    let template = "preparing {bar:24} {bytes}/{total_bytes} {bytes_per_sec} (eta {eta})";
    // Where standard error is no terminal, nothing is drawn.
    let bar = bar(terminal::progress(), None, template);
    let done = prepare(&|done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    done
}

/// A bar for every part of every run of a study, one after the other.
pub struct StudyBars<'a> {
    launch: &'a Launch,
    now: Option<(&'static str, Part, ProgressBar)>,
}

impl<'a> StudyBars<'a> {
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
        let template = "{prefix:18} {bar:16} {pos}/{len} {msg} {per_sec} (eta {eta})";
        let named = || bar(self.launch.progress(), Some(of), template).with_prefix(format!("{run}: {part}"));
        let (.., bar) = self.now.get_or_insert_with(|| (run, part, named()));
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
