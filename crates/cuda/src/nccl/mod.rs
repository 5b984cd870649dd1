//! NCCL: collectives of devices whose ranks are processes.
//!
//! | file | holds |
//! |---|---|
//! | `functions` | the library's functions and structures |
//! | `library` | opening it |
//! | `communicator` | one communicator: begun, in progress, ready, given up or closed |
//! | `founding` | how the ranks of a communicator find each other, by letters of the job |
//! | `wire` | what carries a rank's collectives, and their steps |
//! | `channel` | what carries its messages |
//!
//! Communicators never block: calls are in progress until the library says otherwise, and whoever waits looks at the job too. A
//! job that fails aborts them.

mod channel;
mod communicator;
mod founding;
mod functions;
mod library;
mod wire;

pub use functions::{Code, Config, Functions, Handle, UniqueId};
#[cfg(emulated)]
pub(crate) use functions::{IN_PROGRESS, INVALID_USAGE, MAGIC, MAXIMUM, OLDEST, SUCCESS, kind_of};
pub(crate) use library::open;
pub(crate) use wire::Wire;
