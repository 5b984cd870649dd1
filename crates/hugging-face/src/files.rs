//! The safetensors files of a folder: one, or the shards that an index lists. Only headers are kept in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use quadrille_files::{Document, is_lfs_pointer, open};
use safetensors::Dtype;
use safetensors::tensor::Metadata;
use serde_json::Value;

use crate::{HuggingFaceError, StoredType};

/// The file of a model in one piece.
pub(crate) const WHOLE: &str = "model.safetensors";
/// The file that says which shard holds which tensor.
pub(crate) const INDEX: &str = "model.safetensors.index.json";
/// What the format allows for a header.
const LONGEST_HEADER: u64 = 100_000_000;
/// Bytes of a pointer of Git LFS that show what it is.
const POINTER_BYTES: u64 = 128;
/// That of a model with 90 thousand tensors has 9 million bytes.
const INDEX_DOCUMENT: Document = Document::new("an index of safetensors files", 1 << 26);

/// Where a tensor is.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    /// The number of its file.
    pub file: usize,
    /// Its type as the header says.
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    /// Offset of its first byte in the file.
    start: u64,
}

/// The files of a model and all their tensors.
#[derive(Debug)]
pub(crate) struct Files {
    files: Vec<(PathBuf, File)>,
    tensors: BTreeMap<String, Stored>,
    bytes: Vec<u8>,
}

impl Files {
    /// Opens `model.safetensors`, or the shards of the index where that is not there, and reads all headers.
    pub fn open(folder: &Path) -> Result<Self, HuggingFaceError> {
        let mut files = Self { files: Vec::new(), tensors: BTreeMap::new(), bytes: Vec::new() };
        let whole = folder.join(WHOLE);
        let index = folder.join(INDEX);
        if whole.exists() {
            files.add(whole)?;
        } else if index.exists() {
            let map = weight_map(&index)?;
            for shard in map.values().collect::<BTreeSet<_>>() {
                files.add(folder.join(shard))?;
            }
            files.check_index(folder, &map)?;
        } else if let Some((name, kind, remedy)) = other_weights(folder) {
            let rule = format!("its weights are {name}, {kind}, and there is neither {WHOLE} nor {INDEX}");
            return Err(HuggingFaceError::folder(folder, rule, remedy));
        } else {
            let rule = format!("there is neither {WHOLE} nor {INDEX}");
            let remedy = "name the folder that transformers' save_pretrained writes, with safetensors";
            return Err(HuggingFaceError::folder(folder, rule, remedy));
        }
        Ok(files)
    }

    /// All tensors by name.
    pub fn tensors(&self) -> &BTreeMap<String, Stored> {
        &self.tensors
    }

    /// The file that holds a tensor.
    pub fn path(&self, stored: &Stored) -> &Path {
        &self.files[stored.file].0
    }

    /// Reads some elements of a tensor of the type `stored_type`, from the element `first` on.
    pub fn read(
        &mut self,
        stored: &Stored,
        stored_type: StoredType,
        first: usize,
        out: &mut [f32],
    ) -> Result<(), HuggingFaceError> {
        let (path, file) = &mut self.files[stored.file];
        self.bytes.resize(out.len() * stored_type.bytes(), 0);
        let start = stored.start + (first * stored_type.bytes()) as u64;
        let result = file.seek(SeekFrom::Start(start)).and_then(|_| file.read_exact(&mut self.bytes));
        result.map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                HuggingFaceError::damaged(path, "it has become shorter since it was opened")
            }
            _ => HuggingFaceError::io("read", path)(error),
        })?;
        stored_type.decode(&self.bytes, out);
        Ok(())
    }

    /// Opens a file and takes up its tensors.
    fn add(&mut self, path: PathBuf) -> Result<(), HuggingFaceError> {
        let (mut file, length) = open(&path, "a safetensors file")?;
        let (metadata, data) = header(&path, &mut file, length)?;
        for (name, info) in metadata.tensors() {
            let start = data + info.data_offsets.0 as u64;
            let stored = Stored { file: self.files.len(), dtype: info.dtype, shape: info.shape.clone(), start };
            if let Some(other) = self.tensors.insert(name.clone(), stored) {
                let rule = format!("{} has it, too", self.path(&other).display());
                return Err(HuggingFaceError::tensor(&path, &name, rule, "keep the shards of one model only"));
            }
        }
        self.files.push((path, file));
        Ok(())
    }

    /// Every tensor of the index is in the shard that it names.
    fn check_index(&self, folder: &Path, map: &BTreeMap<String, String>) -> Result<(), HuggingFaceError> {
        for (name, shard) in map {
            let path = folder.join(shard);
            let found = self.tensors.get(name).map(|stored| self.path(stored));
            if found != Some(path.as_path()) {
                let rule = found.map_or_else(
                    || format!("{INDEX} says that it is there, and it is not"),
                    |other| format!("{INDEX} says that it is there, and it is in {}", other.display()),
                );
                return Err(HuggingFaceError::tensor(&path, name, rule, "copy or download the whole folder again"));
            }
        }
        Ok(())
    }
}

/// The first file of weights of another kind, by its name, with the kind and a remedy.
fn other_weights(folder: &Path) -> Option<(String, &'static str, &'static str)> {
    const PICKLE: (&str, &str) = (
        "a pickle of PyTorch, which runs code when it is read",
        "load it with transformers and write it with save_pretrained, as safetensors",
    );
    const GGUF: (&str, &str) = ("a model of llama.cpp, quantized as a rule", "take the folder that it was made from");
    let entries = std::fs::read_dir(folder).ok()?.filter_map(Result::ok);
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names.into_iter().find_map(|name| {
        let (kind, remedy) = match Path::new(&name).extension()?.to_str()? {
            "bin" | "pt" | "pth" | "ckpt" => PICKLE,
            "gguf" => GGUF,
            _ => return None,
        };
        Some((name, kind, remedy))
    })
}

/// The header of a safetensors file, checked against the length of the file, and where the data begin.
fn header(path: &Path, file: &mut File, length: u64) -> Result<(Metadata, u64), HuggingFaceError> {
    let damaged = |reason: String| HuggingFaceError::damaged(path, reason);
    if length < 8 {
        return Err(damaged(format!("it has {length} bytes, less than a header's length takes")));
    }
    let mut read = |bytes: &mut [u8]| file.read_exact(bytes).map_err(HuggingFaceError::io("read", path));
    let mut size = [0; 8];
    read(&mut size)?;
    if &size == b"version " {
        let mut rest = vec![0; (length - 8).min(POINTER_BYTES) as usize];
        read(&mut rest)?;
        if is_lfs_pointer(&[&size[..], &rest].concat()) {
            return Err(lfs_pointer(path));
        }
    }
    let size = u64::from_le_bytes(size);
    if size > LONGEST_HEADER || size > length - 8 {
        return Err(damaged(format!("its header would have {size} bytes, and the file has {length}")));
    }
    let mut text = vec![0; size as usize];
    read(&mut text)?;
    let metadata: Metadata =
        serde_json::from_slice(&text).map_err(|error| damaged(format!("its header cannot be read: {error}")))?;
    let expected = (metadata.data_len() as u64).saturating_add(8 + size);
    if expected != length {
        let problem = if length < expected { "it is cut off" } else { "something follows its tensors" };
        return Err(damaged(format!("{problem}: it has {length} bytes, and its header speaks of {expected}")));
    }
    Ok((metadata, 8 + size))
}

fn lfs_pointer(path: &Path) -> HuggingFaceError {
    let rule = "it is a pointer of Git LFS, not the file that it stands for";
    HuggingFaceError::folder(path, rule, "fetch that with `git lfs pull`")
}

/// Which tensor is in which file, as the index says.
fn weight_map(path: &Path) -> Result<BTreeMap<String, String>, HuggingFaceError> {
    let text = INDEX_DOCUMENT.text(path)?;
    if is_lfs_pointer(text.as_bytes()) {
        return Err(lfs_pointer(path));
    }
    let index: Value =
        serde_json::from_str(&text).map_err(|error| HuggingFaceError::damaged(path, error.to_string()))?;
    let map = index.get("weight_map").and_then(Value::as_object).filter(|map| !map.is_empty());
    let Some(map) = map else {
        return Err(HuggingFaceError::damaged(path, "it has no weight_map of tensors and files"));
    };
    let entry = |(name, file): (&String, &Value)| match file.as_str() {
        // A shard lies in the folder, nowhere else.
        Some(file) if Path::new(file).file_name().is_some_and(|name| name == file) => {
            Ok((name.clone(), file.to_owned()))
        }
        _ => Err(HuggingFaceError::damaged(path, format!("the file of tensor {name} is {file}, not a file's name"))),
    };
    map.iter().map(entry).collect()
}

/// Writes a new file, and waits until its bytes have reached the disk.
pub(crate) fn write_file(path: &Path, content: &[u8]) -> Result<(), HuggingFaceError> {
    let written = File::create(path).and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()));
    written.map_err(HuggingFaceError::io("write", path))
}
