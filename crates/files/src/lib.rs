//! Files that a user names, opened and read so that none of them hangs or fills the memory.
//!
//! A pipe without a writer would wait for ever, a device may have no end, and a sparse file has any length: only regular
//! files are opened ([`open`]), documents that are read whole have a limit ([`Document`]), and files of lines have one
//! for each line ([`Lines`]).
//!
//! What is written appears under its name only when it is whole, and folders keep their entries ([`temporary`],
//! [`publish`], [`sync_folder`]).

mod document;
mod error;
mod lines;
mod regular;
mod writing;

pub use document::Document;
pub use error::FileError;
pub use lines::{Line, Lines};
pub use regular::open;
pub use writing::{create_folders, folder_of, is_temporary, publish, remove_left, sync_folder, temporary};
