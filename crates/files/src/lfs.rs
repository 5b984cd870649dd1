//! Pointers of Git LFS: small texts in place of files that were not fetched.

/// The first line of a pointer, but for the version.
const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";

/// Returns true if a file that begins with `start` is a pointer of Git LFS.
pub fn is_lfs_pointer(start: &[u8]) -> bool {
    start.starts_with(POINTER)
}
