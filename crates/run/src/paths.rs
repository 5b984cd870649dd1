//! Files that are written, held against those that are read.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The first file of `written`, each with a name for it, that would be written over or into another of them or one of `read`:
/// both, with their names. Of the first the path without links.
pub fn written_over<'a, N: Copy>(written: &'a [(N, &'a Path)], read: &'a [(N, &'a Path)]) -> Option<[(N, PathBuf); 2]> {
    written.iter().enumerate().find_map(|(at, (name, path))| {
        let path = real(path);
        let mut others = written[..at].iter().chain(read);
        let (of, other) = others.find(|(_, other)| path.starts_with(real(other)))?;
        Some([(*name, path), (*of, other.to_path_buf())])
    })
}

/// Whether two files or folders of data have a file in common. What a folder is searched without, hidden entries and files
/// of tokens, is not in it.
pub(crate) fn overlap(a: &Path, b: &Path) -> bool {
    let left_out = |part: &OsStr| {
        part.as_encoded_bytes().starts_with(b".")
            || Path::new(part).extension().is_some_and(|extension| extension == "tokens")
    };
    let holds = |folder: &Path, inner: &Path| inner.strip_prefix(folder).is_ok_and(|rest| !rest.iter().any(left_out));
    let a = real(&index_of(a));
    let b = real(&index_of(b));
    holds(&a, &b) || holds(&b, &a)
}

/// Of the files of Megatron-LM, which are named together, by either, or by neither's extension, the index.
fn index_of(path: &Path) -> PathBuf {
    let mut added = path.as_os_str().to_owned();
    added.push(".idx");
    let beside = path.with_extension("idx");
    match path.extension() {
        Some(extension) if extension == "bin" && beside.is_file() => beside,
        _ if !path.exists() && Path::new(&added).is_file() => added.into(),
        _ => path.to_owned(),
    }
}

/// The path without links; of a file that is not there, the absolute path.
fn real(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.canonicalize().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn data_overlaps_where_a_file_is_read_twice() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("texts/more")).unwrap();
        for name in
            ["texts/a.txt", "texts/more/b.txt", "texts/held.tokens", "texts/.hidden", "other.txt", "m.bin", "m.idx"]
        {
            fs::write(at(name), "x").unwrap();
        }
        for (a, b, expected) in [
            ("texts/a.txt", "texts/more/../a.txt", true),
            ("texts", "texts/more/b.txt", true),
            ("texts/more", "texts", true),
            ("texts", "texts/held.tokens", false),
            ("texts", "texts/.hidden", false),
            ("texts/held.tokens", "texts/held.tokens", true),
            ("texts", "other.txt", false),
            ("m", "m.bin", true),
            ("m.idx", "m.bin", true),
        ] {
            assert_eq!(overlap(&at(a), &at(b)), expected, "{a} {b}");
        }
    }
}
