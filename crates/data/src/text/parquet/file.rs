//! Files as the library reads them, and its errors.

use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{ChunkReader, Length};
use quadrille_panics::catch;

use crate::DataError;
use crate::tokens::StoredFile;

/// Bytes that are read ahead of a page's header, which has some dozens.
const HEADER: usize = 1 << 10;

/// A file whose parts are read as they are asked for.
#[derive(Debug, Clone)]
pub(super) struct Chunks(pub Arc<StoredFile>);

/// Reads on from a place.
pub(super) struct Cursor {
    file: Arc<StoredFile>,
    position: usize,
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

impl ChunkReader for Chunks {
    type T = BufReader<Cursor>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        let position = usize::try_from(start)?;
        Ok(BufReader::with_capacity(HEADER, Cursor { file: self.0.clone(), position }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let start = usize::try_from(start)?;
        if start.checked_add(length).is_none_or(|end| end > self.0.len()) {
            return Err(ParquetError::EOF(format!(
                "{length} bytes from byte {start} on are beyond the end of the file"
            )));
        }
        let mut bytes = vec![0; length];
        self.0.read(start, &mut bytes).map_err(|error| ParquetError::External(Box::new(error)))?;
        Ok(bytes.into())
    }
}

impl Read for Cursor {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = out.len().min(self.file.len().saturating_sub(self.position));
        self.file.read(self.position, &mut out[..count]).map_err(io::Error::other)?;
        self.position += count;
        Ok(count)
    }
}

/// Calls the library. It panics at some damaged files, e.g. where values refer to a dictionary that the column lacks: that is an
/// error, too.
pub(super) fn library<T>(path: &Path, call: impl FnOnce() -> ParquetResult<T>) -> Result<T, DataError> {
    match catch(call) {
        Ok(result) => result.map_err(|error| failed(path, error)),
        Err(panic) => Err(damaged(path, format!("its content made the reader stop {panic}"))),
    }
}

/// An error of the library, or of reading below it.
fn failed(path: &Path, error: ParquetError) -> DataError {
    match error {
        ParquetError::External(error) => match error.downcast::<DataError>() {
            Ok(error) => *error,
            // A reader of pages knows errors of the system alone.
            Err(error) => match error.downcast::<io::Error>().map(|error| error.downcast::<DataError>()) {
                Ok(Ok(error)) => error,
                // A header or a compressed page that ends before its time, not the file: that is found below.
                Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => damaged(path, error.to_string()),
                Ok(Err(error)) => DataError::io("read", path)(error),
                Err(error) => damaged(path, error.to_string()),
            },
        },
        ParquetError::General(reason) | ParquetError::NYI(reason) | ParquetError::EOF(reason) => damaged(path, reason),
        error => damaged(path, error.to_string()),
    }
}

/// A file that is not what its metadata promise.
pub(super) fn damaged(path: &Path, reason: String) -> DataError {
    DataError::Parquet { path: path.to_path_buf(), reason }
}
