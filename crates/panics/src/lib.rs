//! Panics become errors instead of noise on standard error: those of rank threads part of the job's failure, those of a
//! library that was given a bad file the reason for refusing it.
//!
//! ```
//! let text = quadrille_panics::catch(|| panic!("the file has no end")).map(|()| 0).unwrap_err();
//! assert!(text.starts_with("at ") && text.contains(": the file has no end"));
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::print_stdout, clippy::print_stderr)
)]

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

thread_local! {
    /// `Some` while this thread runs code under [`catch`]: the text of its last panic.
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `body`; a panic returns as `at file:line:column: message` (with a backtrace if those are enabled). Calls may be
/// nested: a panic is told by the innermost one, and not by those around it.
///
/// The process's panic hook is wrapped once: it stays silent for code under this function and is otherwise the
/// one that was there before. Where a program replaces the hook later, only the panic's place is lost.
///
/// # Errors
/// The text of the panic.
pub fn catch<R>(body: impl FnOnce() -> R) -> Result<R, String> {
    static WRAP_HOOK: Once = Once::new();
    WRAP_HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let captured = LAST_PANIC.with_borrow_mut(|last| match last {
                Some(text) => {
                    *text = describe(info);
                    true
                }
                None => false,
            });
            if !captured {
                previous(info);
            }
        }));
    });
    let outer = LAST_PANIC.replace(Some(String::new()));
    let outcome = panic::catch_unwind(AssertUnwindSafe(body));
    let text = LAST_PANIC.replace(outer).unwrap_or_default();
    outcome.map_err(|payload| if text.is_empty() { format!(": {}", message(&*payload)) } else { text })
}

/// Locks a mutex whose data stay valid when a holder panics: the panic itself is told by [`catch`].
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn describe(info: &panic::PanicHookInfo<'_>) -> String {
    let place = info.location().map(|place| format!("at {place}")).unwrap_or_default();
    let trace = Backtrace::capture();
    match trace.status() {
        BacktraceStatus::Captured => format!("{place}: {}\n{trace}", message(info.payload())),
        _ => format!("{place}: {}", message(info.payload())),
    }
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("a value that is not text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_by_the_innermost_call() {
        let outer = catch(|| {
            let inner = catch(|| panic!("within {}", 1)).map(|()| 0).unwrap_err();
            assert!(
                inner.starts_with("at ") && inner.contains("panics/src/lib.rs") && inner.contains(": within 1"),
                "{inner}"
            );
            7
        });
        assert_eq!(outer, Ok(7));
        let after = catch(|| {
            let _ = catch(|| panic!("contained"));
            panic!("not contained")
        });
        let text: String = after.map(|()| 0).unwrap_err();
        assert!(text.contains("not contained"), "{text}");
    }
}
