//! Pages of one column of a row group: checked before they are decoded, and those in Zstandard decompressed.
//!
//! The library's binding of Zstandard is C. Its pages are read as if they were not compressed, and decompressed here by a decoder in
//! Rust.

use std::io::Read;

use bytes::Bytes;
use parquet::basic::CompressionCodec;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::Length;
use parquet::file::serialized_reader::SerializedPageReader;
use ruzstd::decoding::StreamingDecoder;

use super::file::Chunks;

/// Bytes of a decompressed page at most; writers make pages of a megabyte.
const LARGEST_PAGE: u64 = 1 << 30;

/// The pages of a column of a row group.
pub(super) struct Pages {
    inner: SerializedPageReader<Chunks>,
    is_zstd: bool,
    /// Rows of the row group.
    rows: usize,
}

impl Pages {
    /// Begins with the first page of a column of strings without nesting.
    ///
    /// # Errors
    /// A column beyond the end of the file or in another one; an unknown codec.
    pub fn new(file: &Chunks, column: &ColumnChunkMetaData, rows: usize) -> Result<Self> {
        if column.file_path().is_some() {
            return Err(error("its columns are in other files; name these"));
        }
        let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        let end = start.checked_add(column.compressed_size());
        if start < 0 || column.compressed_size() < 0 || end.is_none_or(|end| end as u64 > file.len()) {
            return Err(error("a column lies beyond the end of the file"));
        }
        let is_zstd = column.compression_codec() == CompressionCodec::ZSTD;
        let inner = if is_zstd {
            let plain = column.clone().into_builder().set_compression_codec(CompressionCodec::UNCOMPRESSED).build()?;
            SerializedPageReader::new(file.clone().into(), &plain, rows, None)?
        } else {
            SerializedPageReader::new(file.clone().into(), column, rows, None)?
        };
        Ok(Self { inner, is_zstd, rows })
    }

    /// Refuses numbers of values that a page cannot hold: room is made for that many.
    fn check(&self, page: &Page) -> Result<()> {
        let values = page.num_values() as usize;
        match page {
            // A length of 4 bytes before each string.
            Page::DictionaryPage { buf, .. } if values > buf.len() / 4 => {
                Err(error(format!("a dictionary of {} bytes has {values} strings", buf.len())))
            }
            Page::DataPage { .. } | Page::DataPageV2 { .. } if values > self.rows => {
                Err(error(format!("a page has {values} values, and its row group {} rows", self.rows)))
            }
            _ => Ok(()),
        }
    }
}

impl Iterator for Pages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let Some(mut page) = self.inner.get_next_page()? else { return Ok(None) };
        if self.is_zstd {
            page = decompressed(page)?;
        }
        self.check(&page)?;
        Ok(Some(page))
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.inner.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.inner.skip_next_page()
    }
}

/// A page of Zstandard in plain bytes.
fn decompressed(mut page: Page) -> Result<Page> {
    match &mut page {
        Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } => *buf = plain(buf, 0)?,
        Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, is_compressed, .. } => {
            if *is_compressed {
                // Levels stand before the values as they are.
                *buf = plain(buf, (*def_levels_byte_len as usize).saturating_add(*rep_levels_byte_len as usize))?;
                *is_compressed = false;
            }
        }
    }
    Ok(page)
}

/// The bytes up to `start`, and those after it decompressed.
fn plain(bytes: &Bytes, start: usize) -> Result<Bytes> {
    let levels = bytes.get(..start).ok_or_else(|| error("the levels of a page are longer than the page"))?;
    let mut plain = levels.to_vec();
    let mut frames = &bytes[start..];
    while !frames.is_empty() {
        let left = LARGEST_PAGE.saturating_sub(plain.len() as u64);
        let decoder = StreamingDecoder::new(&mut frames).map_err(|reason| error(format!("Zstandard: {reason}")))?;
        let read = { decoder }.take(left + 1).read_to_end(&mut plain);
        read.map_err(|reason| error(format!("Zstandard: {reason}")))?;
        if plain.len() as u64 > LARGEST_PAGE {
            return Err(error(format!("a page has more than {LARGEST_PAGE} bytes")));
        }
    }
    Ok(plain.into())
}

fn error(reason: impl Into<String>) -> ParquetError {
    ParquetError::General(reason.into())
}
