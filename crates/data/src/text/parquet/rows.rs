//! The documents of a file, row by row.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::vec;

use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

use super::column::text_column;
use super::file::{Chunks, damaged, library};
use super::pages::Pages;
use crate::DataError;
use crate::text::bad_lines::{BadLines, LineUnit};
use crate::text::{Piece, SkippedLines, TextRules};
use crate::tokens::StoredFile;

/// Rows that are decoded at a time: their strings are parts of pages, which stay in memory as long.
const BATCH: usize = 64;

/// The documents of a Parquet file; empty texts are left out.
pub(in crate::text) struct Rows {
    path: PathBuf,
    file: Chunks,
    metadata: ParquetMetaData,
    /// The column of the text among the leaves.
    column: usize,
    /// True if texts may be null.
    is_optional: bool,
    /// Rows of the file.
    total: u64,
    /// Rows that were decoded so far.
    row: u64,
    /// Number of the next row group.
    next_group: usize,
    group: Option<RowGroup>,
    /// Rows that are decoded and not returned yet.
    batch: vec::IntoIter<Option<ByteArray>>,
    bad: BadLines,
}

/// A row group that is being read.
struct RowGroup {
    reader: ColumnReaderImpl<ByteArrayType>,
    /// Rows that are left.
    rows: usize,
    /// Place of the column in the file.
    offset: u64,
}

impl Rows {
    /// Opens the file at `path` and reads its metadata.
    ///
    /// # Errors
    /// [`DataError::Parquet`] for a file that is damaged or none; [`DataError::Column`] without a column of strings;
    /// [`DataError::Io`].
    pub fn open(path: &Path, rules: TextRules) -> Result<Self, DataError> {
        let file = Chunks(Arc::new(StoredFile::open(path)?));
        let metadata = library(path, || ParquetMetaDataReader::new().parse_and_finish(&file))?;
        let schema = metadata.file_metadata().schema_descr();
        let column = text_column(schema, rules.field)
            .map_err(|reason| DataError::Column { path: path.to_path_buf(), reason })?;
        let is_optional = schema.column(column).max_def_level() > 0;
        let groups = metadata.row_groups().iter();
        let total = groups.map(|group| u64::try_from(group.num_rows())).sum::<Result<u64, _>>();
        let total = total.map_err(|_| damaged(path, "a row group has a negative number of rows".to_owned()))?;
        let path = path.to_path_buf();
        let bad = BadLines::new(rules, LineUnit::Row);
        let batch = Vec::new().into_iter();
        Ok(Self { path, file, metadata, column, is_optional, total, row: 0, next_group: 0, group: None, batch, bad })
    }

    /// Bytes of the file that the rows so far take: their share of all rows.
    pub fn offset(&self) -> u64 {
        let bytes = self.file.0.len() as u64;
        if self.row < self.total {
            (u128::from(bytes) * u128::from(self.row) / u128::from(self.total)) as u64
        } else {
            bytes
        }
    }

    /// Rows that were skipped so far.
    pub fn skipped(&self) -> Option<&SkippedLines> {
        self.bad.skipped()
    }

    /// The next document.
    pub fn next(&mut self) -> Result<Option<Piece>, DataError> {
        loop {
            let Some(value) = self.batch.next() else {
                if self.decode()? {
                    continue;
                }
                return Ok(None);
            };
            self.row += 1;
            let offset = self.group.as_ref().map_or(0, |group| group.offset);
            let bad = match value.as_ref().map(|value| std::str::from_utf8(value.data())) {
                Some(Ok("")) => continue,
                Some(Ok(text)) => return Ok(Some(Piece::document(text.to_owned(), offset))),
                Some(Err(_)) => "the text is not UTF-8",
                None => "the text is null",
            };
            let error = |reason: String| DataError::Row { path: self.path.clone(), row: self.row, reason };
            self.bad.add(self.row, bad.to_owned(), error)?;
        }
    }

    /// Decodes some rows; false at the end of the file.
    fn decode(&mut self) -> Result<bool, DataError> {
        let Self { path, is_optional, .. } = self;
        let is_optional = *is_optional;
        if self.group.as_ref().is_none_or(|group| group.rows == 0) {
            let path = path.clone();
            return self.open_group(&path);
        }
        let Some(group) = &mut self.group else { return Ok(false) };
        let wanted = BATCH.min(group.rows);
        let mut levels = Vec::with_capacity(wanted);
        let mut values = Vec::with_capacity(wanted);
        let reader = &mut group.reader;
        let (rows, ..) = library(path, || reader.read_records(wanted, Some(&mut levels), None, &mut values))?;
        if rows == 0 || rows > group.rows {
            let reason = format!("row group {} ends {} rows before its end", self.next_group - 1, group.rows);
            return Err(damaged(path, reason));
        }
        group.rows -= rows;
        let mut values = values.into_iter();
        let batch: Vec<Option<ByteArray>> = if is_optional {
            levels.iter().map(|level| if *level > 0 { values.next() } else { None }).collect()
        } else {
            values.map(Some).collect()
        };
        self.batch = batch.into_iter();
        Ok(true)
    }

    /// Begins with the next row group; false after the last one.
    fn open_group(&mut self, path: &Path) -> Result<bool, DataError> {
        let Some(group) = self.metadata.row_groups().get(self.next_group) else { return Ok(false) };
        self.next_group += 1;
        let rows = group.num_rows() as usize;
        let Some(column) = group.columns().get(self.column) else {
            return Err(damaged(path, format!("row group {} lacks a column", self.next_group - 1)));
        };
        let reader = library(path, || {
            let pages = Pages::new(&self.file, column, rows)?;
            Ok(ColumnReaderImpl::<ByteArrayType>::new(column.column_descr_ptr(), Box::new(pages)))
        })?;
        let offset = column.data_page_offset().unsigned_abs();
        self.group = Some(RowGroup { reader, rows, offset });
        Ok(true)
    }
}
