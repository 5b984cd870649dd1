//! How a job fails: who, doing what, and why.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::activity::Activity;
use crate::call::Call;

/// The first failure of a job; everything after it is a consequence.
#[derive(Debug, Clone)]
pub struct JobFailure {
    /// The rank that failed first (for a stuck collective: the first late one).
    pub rank: usize,
    /// What that rank was doing.
    pub activity: Activity,
    /// Why it failed.
    pub cause: Cause,
}

impl fmt::Display for JobFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, activity, cause } = self;
        match cause {
            Cause::Told(text) => f.write_str(text),
            Cause::Lost { host, .. } => write!(f, "rank {rank} on {host}: {cause}"),
            _ => write!(f, "rank {rank} failed at {activity}: {cause}"),
        }
    }
}

impl Error for JobFailure {}

/// Why a rank failed.
#[derive(Debug, Clone, Error)]
pub enum Cause {
    /// The rank's body panicked; the panic's place and message.
    #[error("panicked {0}")]
    Panic(String),
    /// The rank's body returned this error.
    #[error("{}", with_sources(.0.as_ref()))]
    Error(Arc<dyn Error + Send + Sync>),
    /// A collective could not be executed.
    #[error("{0}")]
    Collective(Arc<CollectiveError>),
    /// The operating system refused the rank's thread.
    #[error("its thread could not be started: {0}; use fewer ranks")]
    Spawn(Arc<std::io::Error>),
    /// The rank's process gave no sign of life for so long.
    #[error("no sign of life for {:.1} s", silent.as_secs_f64())]
    Lost {
        /// The host that it runs on.
        host: String,
        /// For how long.
        silent: Duration,
    },
    /// What another process said about the whole failure; rank and activity are in it.
    #[error("{0}")]
    Told(String),
}

impl JobFailure {
    /// Of a rank's process, whatever the rank was doing.
    pub fn of_process(rank: usize, cause: Cause) -> Self {
        Self { rank, activity: Activity::BETWEEN_JOBS, cause }
    }
}

/// The job was aborted; carries the first failure. Every wait and every `enter` returns it from then on.
#[derive(Debug, Clone, Error)]
#[error("job aborted: {0}")]
pub struct Aborted(pub Arc<JobFailure>);

/// Why a collective could not be executed. Sequence numbers count a group's collectives from 1 (messages: per
/// sender, receiver and tag).
#[derive(Debug, Clone, Error)]
pub enum CollectiveError {
    /// A group that cannot exist.
    #[error("group {group:?} of ranks {members:?}: {rule}")]
    Group {
        /// The group's name.
        group: String,
        /// The members asked for.
        members: Vec<usize>,
        /// The rule that is broken.
        rule: String,
    },
    /// A call that is wrong by itself, such as an input that the group's size does not divide.
    #[error("rank {rank}: {call} on group {group:?} of {ranks} ranks: {rule}")]
    Arguments {
        /// The calling rank.
        rank: usize,
        /// The group's name.
        group: Arc<str>,
        /// The group's size.
        ranks: usize,
        /// The call.
        call: Box<Call>,
        /// The rule that is broken.
        rule: String,
    },
    /// Two members' calls do not fit together: other operation, size, element type or root.
    #[error(
        "#{sequence} on group {group:?}: rank {} issued {}, but rank {} issued {}; all members must issue the same \
         operations with the same sizes in the same order", first.0, first.1, second.0, second.1
    )]
    Mismatch {
        /// The group's name.
        group: Arc<str>,
        /// Sequence number in the group.
        sequence: u64,
        /// The rank that came first, and its call.
        first: Box<(usize, Call)>,
        /// The rank whose call does not fit, and its call.
        second: Box<(usize, Call)>,
    },
    /// Two members' tables say different lengths of the chunk that passes between them.
    #[error(
        "{call} #{sequence} on group {group:?}: rank {from} sends a chunk of {sent} elements, but rank {to} expects \
         {expected}"
    )]
    Chunk {
        /// The group's name.
        group: Arc<str>,
        /// Sequence number in the group.
        sequence: u64,
        /// The receiver's call.
        call: Box<Call>,
        /// The rank that sends the chunk.
        from: usize,
        /// The rank that receives it.
        to: usize,
        /// Its elements by the sender's table.
        sent: usize,
        /// Its elements by the receiver's table.
        expected: usize,
    },
    /// What carries data between processes could not carry this out.
    #[error("{call} #{sequence} on group {group:?}: {error}")]
    Transport {
        /// The group's name.
        group: Arc<str>,
        /// Sequence number in the group.
        sequence: u64,
        /// The call.
        call: Box<Call>,
        /// What the library said, or what came in place of what was expected.
        error: String,
    },
    /// For a rank's calls other than their bytes were moved: a fault of this program, not of its user's.
    #[error("rank {rank}: {moved} bytes were moved for {what} where {planned} were to be; please report this fault")]
    Moved {
        /// The rank.
        rank: usize,
        /// The collective, or which calls.
        what: String,
        /// Bytes that the calls come to.
        planned: u64,
        /// Bytes that were moved for them.
        moved: u64,
    },
    /// A rank returned while others wait for it.
    #[error("rank {departed} returned while ranks {waiting:?} wait for it in {call} #{sequence} on group {group:?}")]
    Departed {
        /// The group's name.
        group: Arc<str>,
        /// Sequence number in the group.
        sequence: u64,
        /// The call that waits.
        call: Box<Call>,
        /// The ranks that wait.
        waiting: Vec<usize>,
        /// The rank that is gone.
        departed: usize,
    },
    /// Some members did not come within the job's timeout.
    #[error(
        "{call} #{sequence} on group {group:?} has waited {:.1} s: ranks {arrived:?} arrived; late: {}",
        waited.as_secs_f64(), joined(late)
    )]
    Stuck {
        /// The group's name.
        group: Arc<str>,
        /// Sequence number in the group.
        sequence: u64,
        /// The call that waits.
        call: Box<Call>,
        /// Time since the first member arrived.
        waited: Duration,
        /// The ranks that arrived.
        arrived: Vec<usize>,
        /// The ranks that did not.
        late: Vec<Late>,
    },
}

/// A rank that a stuck collective waits for.
#[derive(Debug, Clone)]
pub struct Late {
    /// The rank.
    pub rank: usize,
    /// What it recorded last.
    pub activity: Activity,
    /// Collectives that it has issued on this group, or messages that it has matched with this sender, receiver and tag:
    /// the sequence number it has reached.
    pub issued: u64,
    /// The collective that its communication waits in, if any: group and call.
    pub busy_with: Option<(Arc<str>, Call)>,
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} at {} (reached #{}", self.rank, self.activity, self.issued)?;
        if let Some((group, call)) = &self.busy_with {
            write!(f, ", its communication waits in {call} on group {group:?}")?;
        }
        f.write_str(")")
    }
}

fn joined(late: &[Late]) -> String {
    late.iter().map(Late::to_string).collect::<Vec<_>>().join("; ")
}

fn with_sources(error: &(dyn Error + Send + Sync + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text += &format!(": {inner}");
        source = inner.source();
    }
    text
}
