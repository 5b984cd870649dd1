//! Where the ranks of a communicator leave what others are to read: a folder of files, each written once and read once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use crate::nccl::UniqueId;

/// Memory, where the system has such a folder.
fn root() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

/// An id that no other communicator has: the name of its folder.
pub fn new_id() -> UniqueId {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let name = format!("quadrille-emulated-{}-{}-{now}", process::id(), MADE.fetch_add(1, Ordering::Relaxed));
    let mut id = UniqueId([0; 128]);
    id.0[..name.len()].copy_from_slice(name.as_bytes());
    id
}

/// The folder of a communicator.
#[derive(Debug, Clone)]
pub struct Shelf(PathBuf);

impl Shelf {
    pub fn of(id: UniqueId) -> Self {
        let name = id.0.split(|byte| *byte == 0).next().unwrap_or_default();
        let folder = root().join(String::from_utf8_lossy(name).as_ref());
        let _ = fs::create_dir_all(&folder); // what cannot be made is missed by who writes
        Self(folder)
    }

    /// Leaves bytes under a name; whoever finds it finds all of them.
    pub fn leave(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        let draft = self.0.join(format!("{name}.draft"));
        let place = self.0.join(name);
        let left = fs::write(&draft, bytes).and_then(|()| fs::rename(&draft, &place));
        left.map_err(|error| format!("{}: {error}", place.display()))
    }

    /// Takes what lies under a name, once it does.
    pub fn take(&self, name: &str) -> Option<Vec<u8>> {
        let place = self.0.join(name);
        let bytes = fs::read(&place).ok()?;
        let _ = fs::remove_file(place); // names are used once
        Some(bytes)
    }

    /// How many names begin so.
    pub fn count(&self, begin: &str) -> usize {
        let named = |path: &Path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(begin)) && path.extension().is_none()
        };
        fs::read_dir(&self.0).map_or(0, |entries| entries.flatten().filter(|entry| named(&entry.path())).count())
    }

    /// The end, for the last who is there.
    pub fn clear(&self) {
        let _ = fs::remove_dir_all(&self.0); // what stays is in nobody's way
    }
}
