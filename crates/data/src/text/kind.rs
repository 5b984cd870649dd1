//! Kinds of files that are neither text nor tokens, by their first bytes.

/// First bytes of well-known formats, the name of the format, and what to do about it.
const KINDS: [(&[u8], &str, &str); 13] = [
    (b"PAR1", "a Parquet file", "read it with `data.format` parquet"),
    (b"PARE", "an encrypted Parquet file", "decrypt it"),
    (b"ARROW1", "an Arrow file", "write its text as JSON lines or Parquet"),
    (b"\xff\xff\xff\xff", "an Arrow stream", "write its text as JSON lines or Parquet"),
    (b"\x1f\x8b", "a gzip archive", "unpack it"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", "unpack it"),
    (b"\xfd7zXZ\0", "an xz archive", "unpack it"),
    (b"BZh", "a bzip2 archive", "unpack it"),
    (b"PK\x03\x04", "a zip archive, as PyTorch's checkpoints are", "unpack it, or leave it out"),
    (b"\x93NUMPY", "a NumPy array", "write its tokens as a Megatron-LM pair"),
    (b"\x89HDF", "an HDF5 file", "write its text as JSON lines"),
    (b"%PDF", "a PDF document", "extract its text"),
    (b"GGUF", "a GGUF model", "leave it out"),
];

/// Name of the format that begins so, and a remedy.
pub(super) fn known_kind(start: &[u8]) -> Option<(&'static str, &'static str)> {
    let pickle = start.starts_with(b"\x80") && start.get(1).is_some_and(|version| (2..=5).contains(version));
    let safetensors = start.get(8) == Some(&b'{') && start.get(4..8) == Some(&[0; 4]);
    match (pickle, safetensors) {
        (true, _) => Some(("a Python pickle", "leave it out")),
        (_, true) => Some(("a safetensors file of weights", "leave it out")),
        _ => KINDS.into_iter().find(|(magic, ..)| start.starts_with(magic)).map(|(_, name, remedy)| (name, remedy)),
    }
}
