//! Hashes of the contents of files: what a run reads is identified by them, not by names and times.
//!
//! A file is read for its hash once: the hash is stored in the cache folder with the file's size and times, and used as long as
//! these stay. The times are those of the last change of the content and, on Unix, of the inode, which no program can set.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quadrille_files::{Document, replace};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::tokens::StoredFile;
use crate::{DataError, Format, SkippedLines};

/// The file of hashes in the cache folder; hidden, since that may be a folder of text.
const FILE: &str = ".contents.json";
/// Its version.
const VERSION: u32 = 1;
/// Some hundred bytes for each file that was ever read.
const DOCUMENT: Document = Document::new("hashes of contents", 1 << 30);
/// Size in bytes from which on hashes are stored: smaller files are read as fast as a record of them.
const STORED_FROM: u64 = 1 << 16;
/// Age of a change from which on another change has another time: clocks of file systems tick every few milliseconds.
const SETTLED: Duration = Duration::from_millis(100);

/// A file that a source reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataFile {
    /// Absolute path.
    pub path: PathBuf,
    /// Its format.
    pub format: Format,
    /// Size in bytes.
    pub bytes: u64,
    /// XXH3-128 of the content; for a token file of this program that of its header, which covers all tokens by checksums.
    pub content: u128,
    /// Lines that were skipped.
    pub skipped: Option<SkippedLines>,
}

/// Size and times of a file; equal as long as the content is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    bytes: u64,
    /// Nanoseconds since 1970 of the last change of the content, negative before.
    modified: i64,
    /// Nanoseconds since 1970 of the last change of the inode; 0 on systems without inodes.
    changed: i64,
}

#[derive(Debug, Serialize, Deserialize)]
struct ContentRecord {
    #[serde(flatten)]
    stamp: Stamp,
    /// XXH3-128 in hexadecimal digits.
    content: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct ContentRecords {
    version: u32,
    /// By the XXH3-128 of the absolute path: paths need not be UTF-8.
    files: BTreeMap<String, ContentRecord>,
}

/// The hashes in a cache folder.
pub(crate) struct ContentHashes<'a> {
    cache: &'a Path,
    records: ContentRecords,
    is_changed: bool,
}

/// A file with its hash, to be checked once more after it was read.
pub(crate) struct HashedFile {
    pub file: DataFile,
    stamp: Stamp,
}

impl<'a> ContentHashes<'a> {
    /// Opens the hashes in a cache folder; without any that can be read every file is read.
    pub fn open(cache: &'a Path) -> Self {
        let read = DOCUMENT.bytes(&cache.join(FILE)).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let records = read.filter(|records: &ContentRecords| records.version == VERSION);
        Self { cache, records: records.unwrap_or_default(), is_changed: false }
    }

    /// Returns the hash of the file at the absolute path `path`; `progress` gets the number of bytes that are done.
    ///
    /// # Errors
    /// [`DataError::Io`]; [`DataError::SourceChanged`] where the file changes meanwhile.
    pub fn hash(
        &mut self,
        path: &Path,
        format: Format,
        progress: &mut dyn FnMut(u64),
    ) -> Result<HashedFile, DataError> {
        let stamp = Stamp::of(path)?;
        let key = format!("{:032x}", xxh3_128(path.as_os_str().as_encoded_bytes()));
        let bytes = stamp.bytes;
        let file = |content| DataFile { path: path.to_path_buf(), format, bytes, content, skipped: None };
        let known = self.records.files.get(&key).filter(|record| record.stamp == stamp);
        if let Some(content) = known.and_then(|record| u128::from_str_radix(&record.content, 16).ok()) {
            progress(stamp.bytes);
            return Ok(HashedFile { file: file(content), stamp });
        }
        let content = read(path, progress)?;
        let hashed = HashedFile { file: file(content), stamp };
        hashed.check_unchanged()?;
        if stamp.bytes >= STORED_FROM && stamp.is_settled() {
            self.records.files.insert(key, ContentRecord { stamp, content: format!("{content:032x}") });
            self.is_changed = true;
        }
        Ok(hashed)
    }

    /// Stores new hashes. Where that fails, files are read again the next time, and nothing else is lost.
    pub fn store(mut self) {
        if self.is_changed {
            self.records.version = VERSION;
            let text = serde_json::to_vec(&self.records).unwrap_or_default();
            _ = fs::create_dir_all(self.cache).and_then(|()| replace(&self.cache.join(FILE), &text));
        }
    }
}

impl HashedFile {
    /// Refuses a file that has changed since it was hashed.
    ///
    /// # Errors
    /// [`DataError::SourceChanged`]; [`DataError::Io`].
    pub fn check_unchanged(&self) -> Result<(), DataError> {
        let DataFile { path, bytes, .. } = &self.file;
        let now = Stamp::of(path)?;
        // A new owner or name changes the inode alone.
        if (now.bytes, now.modified) == (self.stamp.bytes, self.stamp.modified) {
            return Ok(());
        }
        Err(DataError::SourceChanged { path: path.clone(), expected: *bytes, found: now.bytes })
    }
}

impl Stamp {
    fn of(path: &Path) -> Result<Self, DataError> {
        let metadata = fs::metadata(path).map_err(DataError::io("read", path))?;
        let modified = metadata.modified().map_err(DataError::io("read", path))?;
        Ok(Self { bytes: metadata.len(), modified: nanoseconds(modified), changed: changed(&metadata) })
    }

    /// True if the last change is so old that one more would show.
    fn is_settled(&self) -> bool {
        let now = nanoseconds(SystemTime::now());
        now.saturating_sub(self.modified.max(self.changed)) > SETTLED.as_nanos() as i64
    }
}

#[cfg(unix)]
fn changed(metadata: &Metadata) -> i64 {
    use std::os::unix::fs::MetadataExt;
    metadata.ctime().saturating_mul(1_000_000_000).saturating_add(metadata.ctime_nsec())
}

#[cfg(not(unix))]
fn changed(_metadata: &Metadata) -> i64 {
    0
}

fn nanoseconds(time: SystemTime) -> i64 {
    let bounded = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => bounded(after),
        Err(before) => -bounded(before.duration()),
    }
}

/// XXH3-128 of the content of a file.
fn read(path: &Path, progress: &mut dyn FnMut(u64)) -> Result<u128, DataError> {
    let file = StoredFile::open(path)?;
    let mut hash = Xxh3::new();
    let mut done = 0;
    file.pieces(0, file.len(), |bytes| {
        hash.update(bytes);
        done += bytes.len() as u64;
        progress(done);
        Ok(())
    })?;
    Ok(hash.digest128())
}

/// The hash of several, in their order.
pub(crate) fn joined(contents: impl IntoIterator<Item = u128>) -> u128 {
    let bytes: Vec<u8> = contents.into_iter().flat_map(u128::to_le_bytes).collect();
    xxh3_128(&bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::{File, FileTimes};

    use super::*;

    fn hash(path: &Path, cache: &Path) -> u128 {
        let mut contents = ContentHashes::open(cache);
        let hashed = contents.hash(path, Format::Text, &mut |_| {}).unwrap();
        contents.store();
        hashed.file.content
    }

    fn set_time(path: &Path, time: SystemTime) {
        File::options().write(true).open(path).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
    }

    #[test]
    fn content_decides_and_neither_name_nor_time() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b, cache] = ["a", "b", "cache"].map(|name| folder.path().join(name));
        let long_ago = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        fs::write(&a, "some content").unwrap();
        set_time(&a, long_ago);
        // XXH3-128 of the bytes at once, by the library's other function.
        let expected = xxh3_128(b"some content");
        assert_eq!(hash(&a, &cache), expected);
        fs::rename(&a, &b).unwrap();
        set_time(&b, SystemTime::now());
        assert_eq!(hash(&b, &cache), expected);
        // The same length and time of change.
        fs::write(&b, "SOME content").unwrap();
        set_time(&b, long_ago);
        assert_eq!(hash(&b, &cache), xxh3_128(b"SOME content"));
    }

    #[test]
    fn unchanged_files_are_not_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let [path, cache] = ["a", "cache"].map(|name| folder.path().join(name));
        fs::write(&path, vec![b'a'; STORED_FROM as usize]).unwrap();
        std::thread::sleep(2 * SETTLED);
        let found = hash(&path, &cache);
        // Another hash in the record is returned as it is: the file was not read.
        let record = fs::read_to_string(cache.join(FILE)).unwrap();
        let digits = format!("{found:032x}");
        assert!(record.contains(&digits), "{record}");
        fs::write(cache.join(FILE), record.replace(&digits, &format!("{:032x}", 7))).unwrap();
        assert_eq!(hash(&path, &cache), 7);
        // A small file is read, and nothing is stored.
        let small = folder.path().join("small");
        fs::write(&small, "some content").unwrap();
        std::thread::sleep(2 * SETTLED);
        hash(&small, &folder.path().join("other"));
        assert!(!folder.path().join("other").exists());
        set_time(&path, UNIX_EPOCH);
        assert_eq!(hash(&path, &cache), found);
        for damaged in ["", "{", "{\"version\":2,\"files\":{}}"] {
            fs::write(cache.join(FILE), damaged).unwrap();
            assert_eq!(hash(&path, &cache), found, "{damaged}");
        }
    }

    #[test]
    fn a_change_since_the_hash_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "some content").unwrap();
        let hashed = ContentHashes::open(folder.path()).hash(&path, Format::Text, &mut |_| {}).unwrap();
        hashed.check_unchanged().unwrap();
        fs::write(&path, "more content than before").unwrap();
        let error = hashed.check_unchanged().unwrap_err();
        assert!(matches!(error, DataError::SourceChanged { expected: 12, found: 24, .. }), "{error}");
    }
}
