//! Files that are read and written at any place, and how many of them may be open.

use std::fs::File;
use std::io;

/// Fills `out` with the bytes of a file from `start` on. Threads may do so at once: the file has no common position.
///
/// # Errors
/// [`io::ErrorKind::UnexpectedEof`] if the file ends before; the system's.
pub fn read_exact_at(file: &File, start: u64, out: &mut [u8]) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_exact_at(file, out, start);
    #[cfg(windows)]
    return seek_read_exact(file, start, out);
}

#[cfg(windows)]
fn seek_read_exact(file: &File, mut start: u64, mut out: &mut [u8]) -> io::Result<()> {
    use std::os::windows::fs::FileExt;
    while !out.is_empty() {
        let read = file.seek_read(out, start)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        out = &mut out[read..];
        start += read as u64;
    }
    Ok(())
}

/// Writes bytes into a file from `start` on. Threads may do so at once.
///
/// # Errors
/// [`io::ErrorKind::WriteZero`] if the system takes no more; the system's.
pub(crate) fn write_all_at(file: &File, start: u64, bytes: &[u8]) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::write_all_at(file, bytes, start);
    #[cfg(windows)]
    return seek_write_all(file, start, bytes);
}

#[cfg(windows)]
fn seek_write_all(file: &File, mut start: u64, mut bytes: &[u8]) -> io::Result<()> {
    use std::os::windows::fs::FileExt;
    while !bytes.is_empty() {
        let written = file.seek_write(bytes, start)?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[written..];
        start += written as u64;
    }
    Ok(())
}

/// Files that are open at once, at most: more than any corpus has shards. Limits of billions make some programs slow.
#[cfg(unix)]
const MOST_OPEN: u64 = 1 << 16;

/// Lets this process hold open as many files as the system allows it at most: every shard of a corpus and every file of a
/// checkpoint stays open while it is read, and the usual limit is about a thousand.
///
/// Where that is not possible nothing changes: the file that is one too many will be named when it is opened.
pub fn allow_open_files() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        // `None` is no limit.
        let wanted = maximum.map_or(MOST_OPEN, |maximum| maximum.min(MOST_OPEN));
        if current.is_some_and(|current| current < wanted) {
            // Told in words above: there is nothing better to do about a refusal.
            let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_at_any_place_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, b"0123456789").unwrap();
        let file = File::open(&path).unwrap();
        let mut out = [0; 3];
        for (start, expected) in [(7, b"789"), (0, b"012"), (4, b"456")] {
            read_exact_at(&file, start, &mut out).unwrap();
            assert_eq!(&out, expected);
        }
        for start in [8, 10, u64::from(u32::MAX)] {
            assert_eq!(read_exact_at(&file, start, &mut out).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
        std::fs::write(&path, b"0").unwrap();
        assert_eq!(read_exact_at(&file, 4, &mut out).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        read_exact_at(&file, 10, &mut []).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn more_files_may_be_open_than_usual() {
        let limits = || {
            let text = std::fs::read_to_string("/proc/self/limits").unwrap();
            let line = text.lines().find(|line| line.starts_with("Max open files")).unwrap().to_owned();
            let mut words = line.split_whitespace().skip(3).map(str::to_owned);
            (words.next().unwrap(), words.next().unwrap())
        };
        allow_open_files();
        let (soft, hard) = limits();
        let number = |limit: &str| limit.parse::<u64>().unwrap_or(u64::MAX);
        assert!(number(&soft) >= number(&hard).min(MOST_OPEN), "{soft} of {hard}");
    }
}
