//! Files of a fixed size that nobody else sees: memory on a disk.
//!
//! Such a file loses its name as soon as it is open. So nothing is left of it when its process ends, in whatever way, and two
//! programs may use one folder. All of its room is taken at once: a full disk is told before the work and not in its midst.

use std::fs::{File, OpenOptions, remove_file};
use std::io;
use std::path::{Path, PathBuf};

use crate::positioned::{read_exact_at, write_all_at};

/// A file without a name.
#[derive(Debug)]
pub struct Scratch {
    /// The name that it had.
    path: PathBuf,
    file: File,
    bytes: u64,
}

/// A file that cannot serve as memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScratchError {
    /// It cannot be created, or its name cannot be taken away.
    #[error("cannot create {}; name a folder that is there and may be written, in which no such file is left", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// The disk has no room.
    #[error("cannot take {bytes} bytes for {}, which is of fixed size; name a folder on a disk with more room", path.display())]
    Reserve {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// What the system said.
        source: io::Error,
    },

    /// Bytes cannot be read or written.
    #[error("cannot {doing} {bytes} bytes at {at} of {}; name a folder on another disk", path.display())]
    Move {
        /// The file.
        path: PathBuf,
        /// `read` or `write`.
        doing: &'static str,
        /// Where, in bytes.
        at: u64,
        /// How many.
        bytes: usize,
        /// What the system said.
        source: io::Error,
    },
}

impl Scratch {
    /// A file of so many bytes, all zero, that is created as `name` in `folder`.
    ///
    /// # Errors
    /// There is such a file, or it cannot be created; the disk has no room for it.
    pub fn create(folder: &Path, name: &str, bytes: u64) -> Result<Self, ScratchError> {
        let path = folder.join(name);
        let open = || {
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
            remove_file(&path)?;
            Ok(file)
        };
        let file = open().map_err(|source| ScratchError::Create { path: path.clone(), source })?;
        reserve(&file, bytes).map_err(|source| ScratchError::Reserve { path: path.clone(), bytes, source })?;
        Ok(Self { path, file, bytes })
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fills `out` with the bytes from a place on.
    ///
    /// # Errors
    /// The system's.
    pub fn read(&self, at: u64, out: &mut [u8]) -> Result<(), ScratchError> {
        read_exact_at(&self.file, at, out).map_err(|source| self.failed("read", at, out.len(), source))
    }

    /// Puts bytes to a place.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), ScratchError> {
        write_all_at(&self.file, at, bytes).map_err(|source| self.failed("write", at, bytes.len(), source))
    }

    fn failed(&self, doing: &'static str, at: u64, bytes: usize, source: io::Error) -> ScratchError {
        ScratchError::Move { path: self.path.clone(), doing, at, bytes, source }
    }
}

/// Takes the room of an empty file, in zeros.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::{Errno, retry_on_intr};
        match retry_on_intr(|| fallocate(file, FallocateFlags::empty(), 0, bytes)) {
            Err(error) if [Errno::OPNOTSUPP, Errno::NOSYS].contains(&error) => {}
            reserved => return Ok(reserved?),
        }
    }
    // Written zeros take their room where the file system has no other way.
    let zeros = vec![0; 1 << 20];
    for start in (0..bytes).step_by(zeros.len()) {
        let piece = (bytes - start).min(zeros.len() as u64) as usize;
        write_all_at(file, start, &zeros[..piece])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_no_name_and_all_of_its_room() {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<_> = (0..2).map(|_| Scratch::create(folder.path(), "states", 3 << 20).unwrap()).collect();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let metadata = files[0].file.metadata().unwrap();
            assert_eq!((metadata.len(), metadata.nlink()), (3 << 20, 0));
            assert!(metadata.blocks() * 512 >= 3 << 20, "{} blocks", metadata.blocks());
        }
        files[0].write((3 << 20) - 3, b"abc").unwrap();
        let mut out = [1; 4];
        files[0].read((3 << 20) - 4, &mut out).unwrap();
        assert_eq!(&out, b"\0abc");
        files[1].read((3 << 20) - 4, &mut out).unwrap();
        assert_eq!(out, [0; 4], "files of one name are two files");
        let error = files[1].read((3 << 20) - 3, &mut out).unwrap_err().to_string();
        assert!(error.contains("cannot read 4 bytes at 3145725 of") && error.contains("states"), "{error}");
    }

    #[test]
    fn what_stands_in_its_way_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("states");
        std::fs::write(&path, "another's").unwrap();
        let error = Scratch::create(folder.path(), "states", 8).unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()) && error.contains("no such file is left"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"another's");
        assert!(Scratch::create(&folder.path().join("missing"), "states", 8).is_err());
        // No disk has room for it.
        let error = Scratch::create(folder.path(), "large", 1 << 60).unwrap_err();
        assert!(matches!(error, ScratchError::Reserve { .. }), "{error}");
        assert!(error.to_string().contains("more room"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
