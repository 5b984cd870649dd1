//! Documents that are read whole.

use std::io::Read;
use std::path::Path;

use crate::{FileError, open};

/// A kind of document: what messages call it, and how long it may be.
#[derive(Debug, Clone, Copy)]
pub struct Document {
    name: &'static str,
    most: u64,
}

impl Document {
    /// A kind that is called `name` ("a model file") and has at most so many bytes.
    pub const fn new(name: &'static str, most: u64) -> Self {
        Self { name, most }
    }

    /// The bytes of a file of this kind.
    ///
    /// # Errors
    /// The system's; what is no regular file, or too long.
    pub fn bytes(&self, path: &Path) -> Result<Vec<u8>, FileError> {
        let (file, length) = open(path, self.name)?;
        let long = |bytes| FileError::TooLong { path: path.to_owned(), bytes, most: self.most, expected: self.name };
        if length > self.most {
            return Err(long(length));
        }
        let mut content = Vec::with_capacity(length as usize);
        // It may have grown meanwhile, and some files of the system do not say their length.
        let read = file.take(self.most + 1).read_to_end(&mut content).map_err(FileError::system(path))? as u64;
        if read > self.most { Err(long(read)) } else { Ok(content) }
    }

    /// The text of a file of this kind.
    ///
    /// # Errors
    /// Those of [`Self::bytes`]; bytes that are not UTF-8.
    pub fn text(&self, path: &Path) -> Result<String, FileError> {
        String::from_utf8(self.bytes(path)?).map_err(|error| FileError::NotText {
            path: path.to_owned(),
            offset: error.utf8_error().valid_up_to(),
            expected: self.name,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const SHORT: Document = Document::new("a short one", 4);

    #[test]
    fn a_document_is_read_up_to_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("it");
        fs::write(&path, "fits").unwrap();
        assert_eq!(SHORT.text(&path).unwrap(), "fits");
        fs::write(&path, "longer").unwrap();
        let message = SHORT.bytes(&path).unwrap_err().to_string();
        assert!(message.ends_with("it: it has 6 bytes, and a short one has at most 4; give such a file"), "{message}");
        fs::write(&path, b"ab\xff").unwrap();
        let message = SHORT.text(&path).unwrap_err().to_string();
        assert!(message.contains("not UTF-8 text (byte 2), and a short one is"), "{message}");
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_regular_file_is_refused_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for (path, found) in
            [(pipe.as_path(), "a pipe"), (folder.path(), "a directory"), (Path::new("/dev/zero"), "a device")]
        {
            let message = SHORT.bytes(path).unwrap_err().to_string();
            let rule = format!("cannot read {}: it is {found}, not a regular file; give a short one", path.display());
            assert_eq!(message, rule);
        }
        assert!(SHORT.bytes(&folder.path().join("missing")).unwrap_err().is_missing());
    }
}
