//! Files of the library's own writer, whole and damaged.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{BrotliLevel, Compression, Encoding, GzipLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int64Type};
use parquet::file::metadata::ParquetMetaDataReader;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;
use tempfile::TempDir;

use super::Rows;
use crate::tokens::Tokens;
use crate::{DataError, Reading, SkippedLines, TextRules, Tokenizer, prepare};

/// Rows of a row group of the files that tests write.
const GROUP: usize = 40;

/// Writes a file whose column `text` holds `texts`, beside a column of numbers, in row groups of [`GROUP`] rows.
fn write(path: &Path, texts: &[Option<&str>], properties: WriterPropertiesBuilder) {
    write_as(path, "message schema { REQUIRED INT64 id; OPTIONAL BYTE_ARRAY text (STRING); }", texts, properties);
}

fn write_as(path: &Path, schema: &str, texts: &[Option<&str>], properties: WriterPropertiesBuilder) {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let file = fs::File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, properties.build().into()).unwrap();
    for (group, texts) in texts.chunks(GROUP).enumerate() {
        let mut columns = writer.next_row_group().unwrap();
        while let Some(mut column) = columns.next_column().unwrap() {
            let numbers: Vec<i64> = (0..texts.len()).map(|at| (group * GROUP + at) as i64).collect();
            let values: Vec<ByteArray> = texts.iter().flatten().map(|text| ByteArray::from(*text)).collect();
            let levels: Vec<i16> = texts.iter().map(|text| i16::from(text.is_some())).collect();
            match column.untyped() {
                parquet::column::writer::ColumnWriter::Int64ColumnWriter(_) => {
                    column.typed::<Int64Type>().write_batch(&numbers, None, None).map(drop).unwrap();
                }
                parquet::column::writer::ColumnWriter::BoolColumnWriter(_) => {
                    let bits: Vec<bool> = numbers.iter().map(|number| number % 2 == 0).collect();
                    column.typed::<BoolType>().write_batch(&bits, None, None).map(drop).unwrap();
                }
                _ => column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None).map(drop).unwrap(),
            }
            column.close().unwrap();
        }
        columns.close().unwrap();
    }
    writer.close().unwrap();
}

/// The texts of a file, and rows that were skipped.
fn read(path: &Path, rules: TextRules) -> Result<(Vec<String>, Option<SkippedLines>), DataError> {
    let mut rows = Rows::open(path, rules)?;
    let mut texts = Vec::new();
    let mut before = 0;
    while let Some(piece) = rows.next()? {
        assert!(piece.ends && piece.context.is_empty() && rows.offset() >= before);
        before = rows.offset();
        texts.push(String::from_utf8(piece.bytes).unwrap());
    }
    assert_eq!(rows.offset(), fs::metadata(path).unwrap().len());
    Ok((texts, rows.skipped().cloned()))
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    (folder, path)
}

/// Codecs that the library writes.
fn codecs() -> [Compression; 6] {
    [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
    ]
}

/// Several row groups of texts of many lengths, of which some repeat.
fn texts() -> Vec<String> {
    (0..3 * GROUP + 7).map(|at| format!("text {} ", at % 50).repeat(1 + at % 9)).collect()
}

#[test]
fn texts_are_those_that_were_written_in_every_codec_version_and_encoding() {
    let (_folder, path) = folder();
    let texts = texts();
    let given: Vec<Option<&str>> = texts.iter().map(|text| Some(text.as_str())).collect();
    for codec in codecs() {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for dictionary in [true, false] {
                let properties = WriterProperties::builder().set_compression(codec).set_writer_version(version);
                // Several pages in a row group.
                let properties = properties.set_dictionary_enabled(dictionary).set_data_page_size_limit(200);
                write(&path, &given, properties.set_write_batch_size(5));
                let (found, skipped) = read(&path, TextRules::default()).unwrap();
                assert!(found == texts && skipped.is_none(), "{codec:?} {version:?} {dictionary}");
            }
        }
    }
}

#[test]
fn null_rows_are_refused_or_skipped_and_empty_ones_left_out() {
    let (_folder, path) = folder();
    let mut given: Vec<Option<&str>> = vec![Some("one"); 100];
    for (at, text) in [(3, Some("")), (50, None), (51, Some("last")), (77, None)] {
        given[at] = text;
    }
    write(&path, &given, WriterProperties::builder());
    let error = read(&path, TextRules::default()).unwrap_err().to_string();
    assert!(
        error.contains("a.parquet, row 51: the text is null") && error.contains("`data.skip_bad_lines`"),
        "{error}"
    );
    let (found, skipped) = read(&path, TextRules { skip_bad_lines: true, ..TextRules::default() }).unwrap();
    let skipped = skipped.unwrap();
    assert_eq!((found.len(), found[49].as_str()), (97, "last"));
    assert_eq!((skipped.count, skipped.first, skipped.unit.name()), (2, 51, "row"));
}

#[test]
fn columns_that_hold_no_texts_are_refused_by_name_and_type() {
    let (_folder, path) = folder();
    let refused = |schema: &str, field: &str, words: &[&str]| {
        write_as(&path, schema, &[Some("x")], WriterProperties::builder());
        let error = read(&path, TextRules { field, ..TextRules::default() }).unwrap_err();
        let is_column = matches!(error, DataError::Column { .. });
        let message = error.to_string();
        assert!(is_column && message.contains("a.parquet") && message.contains("`data.text_field`"), "{message}");
        assert!(words.iter().all(|word| message.contains(word)), "{words:?}: {message}");
    };
    let flat = "message m { REQUIRED INT64 id; REQUIRED BOOLEAN good; OPTIONAL BYTE_ARRAY body (STRING); }";
    refused(flat, "text", &["no column `text`", "its columns: id, good, body"]);
    refused(flat, "id", &["column `id`", "of type INT64"]);
    refused(flat, "good", &["of type BOOLEAN"]);
    refused("message m { OPTIONAL BYTE_ARRAY text; }", "text", &["BYTE_ARRAY without the annotation STRING"]);
    refused("message m { OPTIONAL BYTE_ARRAY text (JSON); }", "text", &["BYTE_ARRAY (Json)"]);
    let nested =
        "message m { OPTIONAL BYTE_ARRAY id (STRING); REQUIRED GROUP meta { OPTIONAL BYTE_ARRAY text (STRING); } }";
    refused(nested, "meta", &["column `meta` is a struct"]);
    refused(nested, "text", &["no column `text`", "id, meta"]);
    let mut list = String::new();
    let mut map = String::new();
    list += "message m { OPTIONAL BYTE_ARRAY id (STRING); REQUIRED GROUP text (LIST) { REPEATED GROUP list { ";
    list += "REQUIRED INT64 element; } } }";
    map += "message m { REQUIRED GROUP text (MAP) { REPEATED GROUP key_value { REQUIRED INT64 key; ";
    map += "REQUIRED INT64 value; } } }";
    for (schema, kind) in
        [(list, "a list"), (map, "a map"), ("message m { REPEATED INT64 text; }".to_owned(), "a list")]
    {
        let schema = parse_message_type(&schema).unwrap();
        let schema = parquet::schema::types::SchemaDescriptor::new(Arc::new(schema));
        let reason = super::column::text_column(&schema, "text").unwrap_err();
        assert!(reason.contains(&format!("column `text` is {kind}")), "{reason}");
    }
}

#[test]
fn a_column_that_may_not_be_null_is_read_like_one_that_may() {
    let (_folder, path) = folder();
    let texts = texts();
    let given: Vec<Option<&str>> = texts.iter().map(|text| Some(text.as_str())).collect();
    for schema in ["message m { REQUIRED BYTE_ARRAY text (STRING); }", "message m { OPTIONAL BYTE_ARRAY text (UTF8); }"]
    {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            let properties =
                WriterProperties::builder().set_writer_version(version).set_compression(Compression::SNAPPY);
            let properties = properties.set_dictionary_enabled(false).set_data_page_size_limit(200);
            write_as(&path, schema, &given, properties.set_write_batch_size(5));
            assert!(read(&path, TextRules::default()).unwrap().0 == texts, "{schema} {version:?}");
        }
    }
}

/// Place of the first page of the texts.
fn first_page(path: &Path) -> usize {
    let file = fs::File::open(path).unwrap();
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&file).unwrap();
    metadata.row_group(0).columns().last().unwrap().data_page_offset() as usize
}

/// A page of 4 MiB that unpacks to more than its header says is refused before it is unpacked, or where it goes beyond that size.
#[test]
fn pages_that_unpack_to_more_than_their_headers_say_are_refused() {
    let (_folder, path) = folder();
    let text = "x".repeat(4 << 20);
    for codec in &codecs()[1..] {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            let properties = WriterProperties::builder().set_compression(*codec).set_writer_version(version);
            write(&path, &[Some(&text)], properties.set_dictionary_enabled(false));
            assert_eq!(read(&path, TextRules::default()).unwrap().0, [text.as_str()]);
            let mut bytes = fs::read(&path).unwrap();
            // The kind of the page, then its size in four bytes, of which 100 takes as many.
            let page = first_page(&path);
            assert_eq!((bytes[page], bytes[page + 2], bytes[page + 7]), (0x15, 0x15, 0x15), "{codec:?} {version:?}");
            bytes[page + 3..page + 7].copy_from_slice(&[0xc8, 0x81, 0x80, 0]);
            fs::write(&path, bytes).unwrap();
            let message = read(&path, TextRules::default()).unwrap_err().to_string();
            assert!(message.contains("a page of 100 bytes"), "{codec:?} {version:?}: {message}");
        }
    }
}

/// A page whose list of lengths has more entries than the page has values.
#[test]
fn lists_of_lengths_that_are_longer_than_their_page_are_refused() {
    let (_folder, path) = folder();
    let texts = texts();
    let given: Vec<Option<&str>> = texts[..GROUP].iter().map(|text| Some(text.as_str())).collect();
    for (encoding, version, codec) in [
        (Encoding::DELTA_LENGTH_BYTE_ARRAY, WriterVersion::PARQUET_1_0, Compression::UNCOMPRESSED),
        (Encoding::DELTA_LENGTH_BYTE_ARRAY, WriterVersion::PARQUET_2_0, Compression::UNCOMPRESSED),
        (Encoding::DELTA_BYTE_ARRAY, WriterVersion::PARQUET_1_0, Compression::UNCOMPRESSED),
        (Encoding::DELTA_BYTE_ARRAY, WriterVersion::PARQUET_2_0, Compression::UNCOMPRESSED),
        (Encoding::DELTA_LENGTH_BYTE_ARRAY, WriterVersion::PARQUET_1_0, Compression::SNAPPY),
    ] {
        let properties = WriterProperties::builder().set_compression(codec).set_writer_version(version);
        write(&path, &given, properties.set_dictionary_enabled(false).set_column_encoding("text".into(), encoding));
        assert!(read(&path, TextRules::default()).unwrap().0 == texts[..GROUP], "{encoding} {version:?}");
        if codec != Compression::UNCOMPRESSED {
            continue;
        }
        let mut bytes = fs::read(&path).unwrap();
        let page = first_page(&path);
        // Blocks of 128 lengths in 4 parts, and the number of the lengths.
        let list = [0x80, 1, 4, GROUP as u8];
        let at = page + bytes[page..].windows(4).position(|window| window == list).unwrap();
        bytes[at + 3] = GROUP as u8 + 1;
        fs::write(&path, bytes).unwrap();
        let message = read(&path, TextRules::default()).unwrap_err().to_string();
        assert!(message.contains("a page of 40 values") && message.contains("the lengths of 41 strings"), "{message}");
    }
}

#[test]
fn cut_files_are_errors() {
    let (_folder, path) = folder();
    let texts = texts();
    let given: Vec<Option<&str>> = texts.iter().map(|text| Some(text.as_str())).collect();
    write(&path, &given, WriterProperties::builder());
    let whole = fs::read(&path).unwrap();
    for length in (4..whole.len()).step_by(97) {
        fs::write(&path, &whole[..length]).unwrap();
        let error = read(&path, TextRules::default()).unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, DataError::Parquet { .. }) && message.contains("cannot be read"), "{message}");
    }
    fs::write(&path, "PAR1, and nothing more of Parquet").unwrap();
    assert!(matches!(read(&path, TextRules::default()), Err(DataError::Parquet { .. })));
}

#[test]
fn a_file_that_is_cut_while_it_is_read_is_named_as_changed() {
    let (_folder, path) = folder();
    let texts = texts();
    let given: Vec<Option<&str>> = texts.iter().map(|text| Some(text.as_str())).collect();
    write(&path, &given, WriterProperties::builder());
    let bytes = fs::metadata(&path).unwrap().len();
    // Within a page, between row groups, and before all pages.
    for length in [bytes / 2, bytes / 3, 4] {
        write(&path, &given, WriterProperties::builder());
        let mut rows = Rows::open(&path, TextRules::default()).unwrap();
        rows.next().unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_len(length).unwrap();
        let error = (0..texts.len()).find_map(|_| rows.next().err()).unwrap();
        let is_named = matches!(&error, DataError::SourceChanged { expected, found, .. } if (*expected, *found) == (bytes, length));
        assert!(is_named, "{error}");
    }
}

/// The rows of the files in `tests/data`, by their description.
fn stored_texts() -> Vec<String> {
    (0..120).filter(|row| row % 10 != 0).map(|row| format!("text {row} ").repeat(1 + row % 9)).collect()
}

fn stored(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

#[test]
fn files_of_other_writers_are_read() {
    for name in ["zstd-v1.parquet", "zstd-v2.parquet", "pyarrow.parquet"] {
        let rules = TextRules { skip_bad_lines: true, ..TextRules::default() };
        let (found, skipped) = read(&stored(name), rules).unwrap();
        assert!(found == stored_texts(), "{name}");
        assert_eq!(skipped.map(|skipped| (skipped.count, skipped.first)), Some((12, 1)));
    }
}

#[test]
fn parquet_gives_the_tokens_of_json_lines_to_the_bit() {
    let (folder, path) = folder();
    let texts = texts();
    let given: Vec<Option<&str>> = texts.iter().map(|text| Some(text.as_str())).collect();
    write(&path, &given, WriterProperties::builder().set_compression(Compression::SNAPPY));
    let lines: String = texts.iter().map(|text| format!("{}\n", serde_json::json!({ "text": text }))).collect();
    fs::write(folder.path().join("a.jsonl"), lines).unwrap();
    for tokenizer in [Tokenizer::Gpt2, Tokenizer::Bytes] {
        let tokens = |name: &str| {
            let reading = Reading::new(tokenizer.clone());
            let file = prepare(&[folder.path().join(name)], &reading, folder.path(), &mut |_, _| {}).unwrap();
            let mut tokens = vec![0; file.len()];
            file.window(0, &mut tokens).unwrap();
            (tokens, file.documents().unwrap(), file.content())
        };
        let of_table = tokens("a.parquet");
        let of_lines = tokens("a.jsonl");
        assert!(of_table == of_lines && of_table.1 == texts.len(), "{tokenizer}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    /// Whatever bytes are damaged: the file is read or refused, without a panic and in bounded time and memory.
    #[test]
    fn damaged_files_are_read_or_refused(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..5),
        codec in prop::sample::select(codecs().into_iter().map(Some).chain([None]).collect::<Vec<_>>()),
        version in 1..=2_usize,
    ) {
        let (_folder, path) = folder();
        let texts = texts();
        let given: Vec<Option<&str>> = texts.iter().map(|text| Some(text.as_str())).collect();
        if let Some(codec) = codec {
            let versions = [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0];
            let properties = WriterProperties::builder().set_compression(codec).set_writer_version(versions[version - 1]);
            write(&path, &given, properties.set_data_page_size_limit(400).set_write_batch_size(10));
        } else {
            fs::copy(stored(["zstd-v1.parquet", "zstd-v2.parquet"][version - 1]), &path).unwrap();
        }
        let mut bytes = fs::read(&path).unwrap();
        // Half of the damage goes to the metadata at the end, which steer everything.
        let metadata = bytes.len() - bytes.len().min(1500);
        for (place, value, is_metadata) in damage {
            let start = if is_metadata { metadata } else { 0 };
            let at = start + place.index(bytes.len() - start);
            bytes[at] = value;
        }
        fs::write(&path, &bytes).unwrap();
        match read(&path, TextRules { skip_bad_lines: true, ..TextRules::default() }) {
            Ok((found, _)) => prop_assert!(found.len() <= texts.len()),
            Err(DataError::Parquet { .. } | DataError::Column { .. } | DataError::Row { .. }) => {}
            Err(other) => prop_assert!(false, "{:?}", other),
        }
    }
}
