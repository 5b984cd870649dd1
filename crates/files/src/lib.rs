//! Files that a user names, opened and read so that none of them hangs or fills the memory.
//!
//! A pipe without a writer would wait for ever, a device may have no end, and a sparse file has any length: only regular
//! files are opened ([`open`]), documents that are read whole have a limit ([`Document`]), and files of lines have one
//! for each line ([`Lines`]).
//!
//! Data and checkpoints are read by calls ([`read_exact_at`]) and never mapped into memory: a mapped file that another program
//! makes shorter ends the process with a signal; here that is an error which can name the file.
//!
//! What is written appears under its name only when it is whole, and folders keep their entries ([`temporary`],
//! [`publish`], [`sync_folder`]; for a file that may be there already [`replace()`]). What serves as memory has no name and
//! is gone with its process ([`Scratch`]).
//!
//! ```
//! use std::io::Write;
//!
//! use quadrille_files::{Document, publish, temporary};
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("notes.txt");
//! let mut file = temporary(folder.path())?;
//! file.write_all(b"whole")?;
//! assert!(!path.exists());
//! publish(file, &path)?; // synced, then renamed
//! assert_eq!(Document::new("a file of notes", 1 << 10).text(&path)?, "whole");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod document;
mod error;
mod lfs;
mod lines;
mod positioned;
mod regular;
mod replace;
mod scratch;
mod writing;

pub use document::Document;
pub use error::FileError;
pub use lfs::is_lfs_pointer;
pub use lines::{Line, Lines};
pub use positioned::{allow_open_files, read_exact_at};
pub use regular::open;
pub use replace::{beside, check_writable, reason, remedy, replace};
pub use scratch::{Scratch, ScratchError};
pub use writing::{create_folders, folder_of, is_temporary, publish, remove_left, sync_folder, temporary};
