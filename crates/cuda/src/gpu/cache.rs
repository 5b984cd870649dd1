//! Machine code that is kept on disk, so that kernels are compiled once for a device, a compiler and a source.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use super::compile::{compile, options, version};
use crate::array::Format;
use crate::cache::folder;
use crate::driver::Fault;
use crate::sources::{HEADERS, Source};

/// The file of a source: its name says everything that its machine code depends on.
fn file(source: Source, format: Format, architecture: &str) -> Result<Option<PathBuf>, Fault> {
    let mut hash = DefaultHasher::new();
    (version()?, options(format, architecture), source.text).hash(&mut hash);
    HEADERS.iter().for_each(|header| (header.name, header.text).hash(&mut hash));
    let stem = source.name.trim_end_matches(".cu");
    let name = format!("{stem}-{}-{architecture}-{:016x}.cubin", format.name(), hash.finish());
    Ok(folder("kernels").map(|folder| folder.join(name)))
}

/// The machine code of a file of kernels. A cache that cannot be read or written costs time only.
pub fn image(source: Source, format: Format, architecture: &str) -> Result<Vec<u8>, Fault> {
    let Some(file) = file(source, format, architecture)? else {
        return Ok(compile(source, format, architecture)?.image);
    };
    if let Ok(image) = fs::read(&file) {
        return Ok(image);
    }
    let image = compile(source, format, architecture)?.image;
    // Whole or not at all: other processes look for it, too.
    let draft = file.with_extension(format!("draft-{}", std::process::id()));
    let folder = file.parent().map(fs::create_dir_all);
    if folder.is_some_and(|made| made.is_ok())
        && fs::write(&draft, &image).and_then(|()| fs::rename(&draft, &file)).is_err()
    {
        let _ = fs::remove_file(&draft);
    }
    Ok(image)
}
