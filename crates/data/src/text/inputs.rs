//! The files of a corpus: found in a fixed order, and identified by a hash.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128;

use super::{Format, InputFormat, Reading, TextRules};
use crate::tokens::{megatron, quadrille};
use crate::{DataError, DataFile};

/// Token files of this program end in this; folders are searched without them, since one may be its own cache.
pub(crate) const TOKEN_FILE_EXTENSION: &str = "tokens";

/// Files that describe data sets of Hugging Face's library; their folders hold no text as it is.
const DATA_SET_MARKERS: [&str; 4] = ["dataset_dict.json", "dataset_info.json", "dataset_infos.json", "state.json"];

/// One file; of Megatron-LM's pairs the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Input {
    /// Absolute path without symbolic links.
    pub path: PathBuf,
    /// What it holds.
    pub format: Format,
    /// Size in bytes.
    pub bytes: u64,
}

/// The non-empty files named by `paths`: files in the order given, folders in the order of their entries' names, with
/// their subfolders. In folders, hidden entries, `*.tokens`, links to folders and what is not a regular file are
/// skipped, and of ids without a header all but `*.bin`, beside which programs keep texts and scripts. A file named twice is
/// read once.
pub(crate) fn collect(paths: &[PathBuf], rules: TextRules) -> Result<Vec<Input>, DataError> {
    let mut inputs = Vec::new();
    for path in paths {
        if path.is_dir() {
            collect_folder(path, rules, &mut inputs)?;
        } else {
            inputs.push(Input::new(path, rules)?);
        }
    }
    let mut seen = HashSet::new();
    inputs.retain(|input| input.bytes > 0 && seen.insert(input.path.clone()));
    if inputs.is_empty() {
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        let paths = if names.is_empty() { "an empty list of paths".to_string() } else { names.join(", ") };
        return Err(DataError::EmptyCorpus { paths });
    }
    Ok(inputs)
}

fn collect_folder(folder: &Path, rules: TextRules, inputs: &mut Vec<Input>) -> Result<(), DataError> {
    let read = DataError::io("read", folder);
    let mut entries = fs::read_dir(folder).and_then(|entries| entries.collect::<Result<Vec<_>, _>>()).map_err(read)?;
    entries.sort_by_key(|entry| entry.file_name());
    let is_marker = |entry: &&fs::DirEntry| DATA_SET_MARKERS.iter().any(|name| entry.file_name() == *name);
    if let Some(marker) = entries.iter().find(is_marker).filter(|_| rules.format == InputFormat::Auto) {
        let content = format!("it is the folder of a data set: it holds {}", marker.file_name().display());
        let remedy = "name the files of text in it, as JSON lines or Parquet";
        return Err(DataError::Doubtful { path: folder.to_path_buf(), content, remedy });
    }
    for entry in entries {
        let path = entry.path();
        if entry.file_name().as_encoded_bytes().starts_with(b".") || is_token_file(&path) {
            continue;
        }
        let kind = entry.file_type().map_err(DataError::io("read", &path))?;
        if kind.is_dir() {
            collect_folder(&path, rules, inputs)?;
        } else if rules.format.is_raw() && !holds_ids(&path) {
            continue;
        } else if fs::metadata(&path).map_err(DataError::io("read", &path))?.is_file() {
            inputs.push(Input::new(&path, rules)?);
        }
    }
    Ok(())
}

/// True for names of files of ids, with a header or without.
fn holds_ids(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "bin" || extension == "idx")
}

fn is_token_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == TOKEN_FILE_EXTENSION)
}

impl Input {
    fn new(path: &Path, rules: TextRules) -> Result<Self, DataError> {
        let format = Format::of(path, rules)?;
        let (named, sized) = match format {
            Format::Megatron => {
                let (data, index) = megatron::pair(path);
                (index, data)
            }
            _ => (path.to_path_buf(), path.to_path_buf()),
        };
        let metadata = fs::metadata(&sized).map_err(DataError::io("read", &sized))?;
        let path = named.canonicalize().map_err(DataError::io("read", &named))?;
        Ok(Self { path, format, bytes: metadata.len() })
    }
}

/// Identity of the tokens of text files: a hash of the token format, the tokenizer, the special tokens of documents, the field
/// that holds the text, the rule for lines without one, and each file's format and content.
///
/// # Errors
/// Those of [`crate::Tokenizer::parsed_special`].
pub(crate) fn corpus_key<'f>(
    reading: &Reading,
    files: impl IntoIterator<Item = &'f DataFile>,
) -> Result<u128, DataError> {
    let vocabulary = reading.tokenizer.vocabulary();
    let mut named = format!("{} {} {:?} {}", quadrille::VERSION, vocabulary.name, vocabulary.end, reading.text_field);
    // Tokens without any of these keep the keys that they had before there was a choice. No field has the byte 0 in its name.
    if !reading.affixes().is_empty() {
        named += &format!("\0{:?}", reading.affixes());
    }
    if reading.special.parsed {
        // The files beside a tokenizer decide on them, which its name does not cover.
        named += &format!("\0special tokens {:?}", reading.tokenizer.parsed_special()?);
    }
    if reading.skip_bad_lines {
        named += "\0skip bad lines";
    }
    let mut text = named.into_bytes();
    for file in files {
        text.push(match file.format {
            Format::JsonLines => 1,
            Format::Parquet => 2,
            _ => 0,
        });
        text.extend(file.bytes.to_le_bytes());
        text.extend(file.content.to_le_bytes());
    }
    Ok(xxh3_128(&text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SpecialTokens, Tokenizer};

    fn write(folder: &Path, name: &str, text: &str) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn names(root: &Path, inputs: &[Input]) -> Vec<String> {
        let root = root.canonicalize().unwrap();
        inputs.iter().map(|input| input.path.strip_prefix(&root).unwrap().display().to_string()).collect()
    }

    #[test]
    fn folders_are_searched_in_the_order_of_names() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["b.txt", "a/z.md", "a/b/c", "c.txt", ".hidden", ".git/config", "old.tokens", "sub/.x/y"] {
            write(root, name, name);
        }
        write(root, "empty", "");
        let inputs = collect(&[root.to_path_buf()], TextRules::default()).unwrap();
        assert_eq!(names(root, &inputs), ["a/b/c", "a/z.md", "b.txt", "c.txt"]);
        let inputs =
            collect(&[root.join("c.txt"), root.to_path_buf(), root.join(".hidden")], TextRules::default()).unwrap();
        assert_eq!(names(root, &inputs), ["c.txt", "a/b/c", "a/z.md", "b.txt", ".hidden"]);
    }

    #[test]
    fn a_folder_of_a_data_set_is_refused_unless_the_format_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "train/dataset_info.json", "{\n}");
        write(root, "train/data.jsonl", "{\"text\": \"x\"}\n");
        let error = collect(&[root.to_path_buf()], TextRules::default()).unwrap_err().to_string();
        assert!(error.contains("folder of a data set: it holds dataset_info.json"), "{error}");
        assert!(error.contains("train: ") && error.contains("`data.format`"), "{error}");
        let rules = TextRules { format: InputFormat::Text, ..TextRules::default() };
        assert_eq!(
            names(root, &collect(&[root.to_path_buf()], rules).unwrap()),
            ["train/data.jsonl", "train/dataset_info.json"]
        );
        collect(&[root.join("train/data.jsonl")], TextRules::default()).unwrap();
    }

    /// The folder of nanoGPT's data/*/prepare.py.
    #[test]
    fn of_a_folder_of_ids_only_those_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in
            ["input.txt", "meta.pkl", "prepare.py", "readme.md", "train.bin", "val.bin", "more/0.bin", "more/a.u16"]
        {
            write(root, name, "\u{1}\0\u{2}\0");
        }
        for format in [InputFormat::RawU16, InputFormat::RawU32] {
            let rules = TextRules { format, ..TextRules::default() };
            let inputs = collect(&[root.to_path_buf()], rules).unwrap();
            assert_eq!(names(root, &inputs), ["more/0.bin", "train.bin", "val.bin"]);
            // By name others, too.
            assert_eq!(names(root, &collect(&[root.join("more/a.u16")], rules).unwrap()), ["more/a.u16"]);
            fs::create_dir_all(root.join("none")).unwrap();
            write(root, "none/input.txt", "text");
            let error = collect(&[root.join("none")], rules).unwrap_err().to_string();
            assert!(error.contains("nothing to read") && error.contains(".bin"), "{error}");
            fs::remove_dir_all(root.join("none")).unwrap();
        }
    }

    #[test]
    fn the_key_changes_with_the_tokenizer_and_with_each_content() {
        let file = |name: &str, content: u128| {
            let path = name.into();
            let format = Format::Text;
            DataFile { path, format, bytes: 3, content, skipped: None }
        };
        let key = |reading: &Reading, files: &[DataFile]| corpus_key(reading, files).unwrap();
        let both = [file("a", 1), file("b", 2)];
        let bytes = Reading::new(Tokenizer::Bytes);
        let mut keys = vec![
            key(&Reading::new(Tokenizer::Gpt2), &both),
            key(&bytes, &both),
            key(&bytes, &both[..1]),
            key(&bytes, &[both[1].clone(), both[0].clone()]),
            key(&Reading { text_field: "body".to_owned(), ..bytes.clone() }, &both),
            key(&Reading { skip_bad_lines: true, ..bytes.clone() }, &both),
            key(&Reading { special: SpecialTokens { parsed: true, ..bytes.special }, ..bytes.clone() }, &both),
            // Names of fields that end like other rules.
            key(&Reading { text_field: "text special tokens".to_owned(), ..bytes.clone() }, &both),
            key(&Reading { text_field: "text skip bad lines".to_owned(), ..bytes.clone() }, &both),
        ];
        let changes: [fn(&mut DataFile); 4] = [
            |file| file.bytes += 1,
            |file| file.content += 1,
            |file| file.format = Format::JsonLines,
            |file| file.format = Format::Parquet,
        ];
        for change in changes {
            let mut changed = both.clone();
            change(&mut changed[1]);
            keys.push(key(&bytes, &changed));
        }
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), 13);
        let moved = [file("elsewhere/c", 1), file("d", 2)];
        assert_eq!(keys[0], key(&Reading::new(Tokenizer::Gpt2), &moved));
    }

    #[test]
    fn nothing_to_read_is_an_error_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "empty", "");
        for paths in [vec![], vec![root.to_path_buf()], vec![root.join("empty")]] {
            let error = collect(&paths, TextRules::default()).unwrap_err();
            assert!(matches!(error, DataError::EmptyCorpus { .. }), "{error}");
        }
        let error = collect(&[root.join("absent.txt")], TextRules::default()).unwrap_err();
        assert!(matches!(error, DataError::Io { .. }) && error.to_string().contains("absent.txt"), "{error}");
        write(root, "x.tokens", "tokens");
        assert_eq!(collect(&[root.join("x.tokens")], TextRules::default()).unwrap()[0].format, Format::Quadrille);
        assert!(matches!(collect(&[PathBuf::from("/dev/null")], TextRules::default()), Err(DataError::NotAFile(_))));
    }
}
