//! Delays of messages, for experiments: a network that is slower than shared memory.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A message, as a [`MessageDelay`] sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageInfo {
    /// The sending rank.
    pub from: usize,
    /// The receiving rank.
    pub to: usize,
    /// The message's tag.
    pub tag: u32,
    /// Which message of this group, sender, receiver and tag it is, from 1.
    pub sequence: u64,
}

/// How long messages are under way: a function that all ranks share. A message is received no earlier than its delay
/// after it was sent; the sender does not notice. Messages are matched in the order of their sends, but one with a shorter
/// delay may arrive before an earlier one.
#[derive(Clone)]
pub struct MessageDelay(Arc<dyn Fn(&MessageInfo) -> Duration + Send + Sync>);

impl MessageDelay {
    /// The delay that `delay` states for a message; called once for each, on the thread of either side.
    pub fn new(delay: impl Fn(&MessageInfo) -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(delay))
    }

    pub(crate) fn of(&self, message: &MessageInfo) -> Duration {
        (self.0)(message)
    }
}

impl fmt::Debug for MessageDelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MessageDelay")
    }
}
