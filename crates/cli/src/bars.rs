//! How far work is, for who watches.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use quadrille_run::OnPreparation;
use quadrille_run::units::{decimal, seconds};
use quadrille_study::{Part, Progress};

use crate::launch::Launch;
use crate::terminal;

/// Between two looks at how far work is.
const TICK: Duration = Duration::from_millis(200);

/// A bar of so many steps, if it is known how many, as a template draws it.
pub fn bar(target: ProgressDrawTarget, length: Option<u64>, template: &str) -> ProgressBar {
    ProgressBar::with_draw_target(length, target).with_style(styled(template))
}

fn styled(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    // Where the terminal is gone nobody misses it.
    style.with_key("rate", |state: &ProgressState, out: &mut dyn fmt::Write| _ = out.write_str(&rate(state.per_sec())))
}

/// How fast pieces of work are done, or where one takes longer than a second, how long each takes.
fn rate(per_second: f64) -> String {
    match per_second {
        0.0 => String::new(),
        ..1.0 => format!("{} each", seconds(1.0 / per_second)),
        _ => format!("{}/s", decimal(per_second, "").trim_end()),
    }
}

/// How far work is, how fast it goes and how long it still takes.
const COUNTED: &str = "{bar:24} {pos}/{len} {msg} {rate} (eta {eta})";

/// A bar of so many pieces of work, shown to who watches the first process.
pub fn counted(launch: &Launch, length: usize) -> ProgressBar {
    bar(launch.progress(), Some(length as u64), COUNTED)
}

/// A bar of so many steps of a run.
pub fn steps(length: u64) -> ProgressBar {
    bar(terminal::progress(), Some(length), COUNTED)
}

/// Does what tells how many pieces of how many are done, under a bar of them.
pub fn counting<N: TryInto<u64>, R>(work: impl FnOnce(&mut dyn FnMut(N, N)) -> R) -> R {
    let bar = bar(terminal::progress(), None, COUNTED);
    let number = |count: N| count.try_into().unwrap_or(u64::MAX);
    let done = work(&mut |done, of| {
        bar.set_length(number(of));
        bar.set_position(number(done));
    });
    bar.finish_and_clear();
    done
}

/// Does what tells before each of its parts which one comes next, under a bar of them.
pub fn measuring<R>(work: impl FnOnce(&(dyn Fn(quadrille_measure::Progress) + Sync)) -> R) -> R {
    let bar = bar(terminal::progress(), None, COUNTED);
    bar.enable_steady_tick(TICK);
    let done = work(&|progress| {
        bar.set_length(progress.of as u64);
        bar.set_position(progress.done as u64);
        bar.set_message(progress.next.unwrap_or_default().to_owned());
    });
    bar.finish_and_clear();
    done
}

/// Does what counts itself how many parts of how many are done, under a bar of them once there are some.
pub fn watching<R>(what: &str, counts: impl Fn() -> (usize, usize) + Sync, work: impl FnOnce() -> R) -> R {
    let bar = bar(terminal::progress(), None, "{spinner} {msg} {elapsed}").with_message(what.to_owned());
    let is_over = AtomicBool::new(false);
    let follow = || {
        let mut is_counted = false;
        while !is_over.load(Ordering::Relaxed) {
            let (done, of) = counts();
            if of > 0 && !is_counted {
                is_counted = true;
                bar.set_style(styled(COUNTED));
            }
            if of > 0 {
                bar.set_length(of as u64);
                bar.set_position(done as u64);
            }
            bar.tick();
            thread::park_timeout(TICK);
        }
    };
    let done = thread::scope(|scope| {
        let follower = scope.spawn(follow);
        let ended = Ended(&is_over, follower.thread());
        let done = work();
        drop(ended);
        done
    });
    bar.finish_and_clear();
    done
}

/// Ends what follows work however that ends.
struct Ended<'a>(&'a AtomicBool, &'a thread::Thread);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.unpark();
    }
}

/// Does what does not tell how far it is, under a line that says what it is and for how long it goes on.
pub fn waiting<R>(what: &str, work: impl FnOnce() -> R) -> R {
    let bar = bar(terminal::progress(), None, "{spinner} {msg} {elapsed}").with_message(what.to_owned());
    bar.enable_steady_tick(TICK);
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
        let template = "{prefix:18} {bar:16} {pos}/{len} {msg} {rate} (eta {eta})";
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_few_digits() {
        assert_eq!([0.0, 0.05, 1.2566, 45678.0].map(rate), ["", "20.00 s each", "1.26/s", "45.7 K/s"]);
    }
}
