//! Files that are written, held against those that are read.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::arguments::ModelArguments;
use crate::failure::Failure;
use crate::layout_arguments::LayoutArguments;

/// A file with the flag that names it.
type Named<'a> = (&'static str, &'a Path);

/// The files that describe model, layout and cluster; presets name none that exists.
pub fn described<'a>(model: &'a ModelArguments, layout: &'a LayoutArguments) -> impl Iterator<Item = Named<'a>> {
    let configuration = model.from_hf.iter().map(|path| ("--from-hf", path.as_path()));
    let model = model.model.iter().map(|name| ("--model", Path::new(name))).chain(configuration);
    let cluster = ("--cluster", Path::new(layout.cluster()));
    let layout = layout.layout.iter().map(|path| ("--layout", path.as_path()));
    model.chain(layout).chain([cluster]).filter(|(_, path)| path.is_file())
}

/// Refuses to write over or into what is read, or two files into one.
pub fn check(written: &[Named], read: &[Named]) -> Result<(), Failure> {
    for (at, (flag, path)) in written.iter().enumerate() {
        let path = real(path);
        for (other_flag, other) in written[..at].iter().chain(read) {
            if path.starts_with(real(other)) {
                return Err(Failure::usage(format!(
                    "{flag} {} would be written over or into {other_flag} {}; name another file",
                    path.display(),
                    other.display()
                )));
            }
        }
    }
    Ok(())
}

/// Whether two files or folders of data have a file in common. What a folder is searched without, hidden entries and files
/// of tokens, is not in it.
pub fn overlap(a: &Path, b: &Path) -> bool {
    let left_out = |part: &OsStr| {
        part.as_encoded_bytes().starts_with(b".")
            || Path::new(part).extension().is_some_and(|extension| extension == "tokens")
    };
    let holds = |folder: &Path, inner: &Path| inner.strip_prefix(folder).is_ok_and(|rest| !rest.iter().any(left_out));
    let (a, b) = (real(&index_of(a)), real(&index_of(b)));
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
