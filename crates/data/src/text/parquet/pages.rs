//! Pages of one column of a row group: decompressed, and checked before they are decoded.
//!
//! The library reads them as if they were not compressed.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parquet::basic::{CompressionCodec, Encoding};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;

use super::codec::decompressed;
use super::delta::check_lengths;
use super::file::Chunks;

/// The pages of a column of a row group.
pub(super) struct Pages {
    file: HeaderFile,
    inner: SerializedPageReader<HeaderFile>,
    codec: CompressionCodec,
    /// Rows of the row group.
    rows: usize,
    /// True if strings may be null: their levels stand before them.
    is_optional: bool,
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
        let plain = column.clone().into_builder().set_compression_codec(CompressionCodec::UNCOMPRESSED).build()?;
        let file = HeaderFile { chunks: file.clone(), header: Arc::default() };
        Ok(Self {
            inner: SerializedPageReader::new(file.clone().into(), &plain, rows, None)?,
            file,
            codec: column.compression_codec(),
            rows,
            is_optional: column.column_descr().max_def_level() > 0,
        })
    }

    /// The page in plain bytes.
    fn decompressed(&self, mut page: Page) -> Result<Page> {
        if self.codec == CompressionCodec::UNCOMPRESSED {
            return Ok(page);
        }
        match &mut page {
            Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } => *buf = self.plain(buf, 0)?,
            Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, is_compressed, .. } => {
                if *is_compressed {
                    // Levels stand before the values as they are.
                    *buf = self.plain(buf, levels_bytes(*def_levels_byte_len, *rep_levels_byte_len))?;
                    *is_compressed = false;
                }
            }
        }
        Ok(page)
    }

    /// The bytes of a page up to `start`, and those after it decompressed.
    fn plain(&self, page: &Bytes, start: usize) -> Result<Bytes> {
        let sizes = self.file.page_sizes()?;
        if sizes.compressed != page.len() {
            return Err(error("the header of a page cannot be read"));
        }
        decompressed(self.codec, page, start, sizes.plain)
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
            _ => match page.encoding() {
                Encoding::DELTA_LENGTH_BYTE_ARRAY => check_lengths(self.values(page)?, 1, values),
                Encoding::DELTA_BYTE_ARRAY => check_lengths(self.values(page)?, 2, values),
                _ => Ok(()),
            },
        }
    }

    /// The bytes of a page after its levels.
    fn values<'p>(&self, page: &'p Page) -> Result<&'p [u8]> {
        let levels = match page {
            Page::DataPage { buf, def_level_encoding: Encoding::RLE, .. } if self.is_optional => {
                let length = buf.first_chunk().ok_or_else(|| error("a page lacks its levels"))?;
                (u32::from_le_bytes(*length) as usize).saturating_add(length.len())
            }
            // A bit for each value.
            Page::DataPage { num_values, .. } if self.is_optional => num_values.div_ceil(8) as usize,
            Page::DataPage { .. } | Page::DictionaryPage { .. } => 0,
            Page::DataPageV2 { def_levels_byte_len, rep_levels_byte_len, .. } => {
                levels_bytes(*def_levels_byte_len, *rep_levels_byte_len)
            }
        };
        page.buffer().get(levels..).ok_or_else(|| error("the levels of a page are longer than the page"))
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
        let Some(page) = self.inner.get_next_page()? else { return Ok(None) };
        let page = self.decompressed(page)?;
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

/// A file that keeps the place from which the library reads on: the header of the page that it then returns, unless the header
/// was looked at before.
#[derive(Clone)]
struct HeaderFile {
    chunks: Chunks,
    header: Arc<AtomicU64>,
}

/// Bytes of a page by its header.
struct PageSizes {
    plain: usize,
    compressed: usize,
}

impl HeaderFile {
    /// The sizes in the header of the page read last: the second and third field of its structure in Thrift's compact protocol.
    fn page_sizes(&self) -> Result<PageSizes> {
        let mut reader = self.chunks.get_read(self.header.load(Ordering::Relaxed))?;
        let mut field = || -> Result<usize> {
            // The field after the one before, an integer of 32 bits.
            if byte(&mut reader)? != 0x15 {
                return Err(error("the header of a page does not begin with its sizes"));
            }
            let mut number = 0_u64;
            for shift in (0..35).step_by(7) {
                let part = byte(&mut reader)?;
                number |= u64::from(part & 0x7f) << shift;
                if part & 0x80 == 0 {
                    break;
                }
            }
            // Negative numbers are odd.
            if number.is_multiple_of(2) {
                Ok((number / 2) as usize)
            } else {
                Err(error("the header of a page has a negative size"))
            }
        };
        // The kind of the page.
        field()?;
        Ok(PageSizes { plain: field()?, compressed: field()? })
    }
}

impl Length for HeaderFile {
    fn len(&self) -> u64 {
        self.chunks.len()
    }
}

impl ChunkReader for HeaderFile {
    type T = <Chunks as ChunkReader>::T;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        self.header.store(start, Ordering::Relaxed);
        self.chunks.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        self.chunks.get_bytes(start, length)
    }
}

fn byte(reader: &mut impl Read) -> Result<u8> {
    let mut byte = [0];
    reader.read_exact(&mut byte)?;
    Ok(byte[0])
}

fn levels_bytes(definition: u32, repetition: u32) -> usize {
    (definition as usize).saturating_add(repetition as usize)
}

pub(super) fn error(reason: impl Into<String>) -> ParquetError {
    ParquetError::General(reason.into())
}
