//! Writes one safetensors file of tiles as their numbers come.

use std::io::{Seek, SeekFrom, Write};
use std::marker::PhantomData;
use std::path::PathBuf;

use tempfile::NamedTempFile;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::header::Header;
use crate::number::encode;
use crate::{CheckpointError, Number, Tile, disk};

/// Numbers are turned into bytes and written in pieces of so many bytes: no second copy of a tile is made.
const PIECE: usize = 1 << 20;

/// A file of tiles under way, whose numbers are given tile by tile, row by row, in pieces of any length. It gets its name
/// when it is whole; dropped before, it leaves nothing.
pub struct TileWriter<T: Number> {
    path: PathBuf,
    file: NamedTempFile,
    header: Header,
    /// Bytes before the first tile's.
    header_bytes: usize,
    /// The tile whose numbers are expected.
    tile: usize,
    /// Numbers of it that have come.
    come: usize,
    /// Of the tile's bytes that have come.
    hash: Box<Xxh3>,
    /// Bytes that are not written yet.
    piece: Vec<u8>,
    numbers: PhantomData<T>,
}

impl<T: Number> TileWriter<T> {
    pub(crate) fn new(path: PathBuf, step: u64, writer: usize, tiles: Vec<Tile>) -> Result<Self, CheckpointError> {
        let folder = path.parent().map(PathBuf::from).unwrap_or_default();
        let checksums = vec![0; tiles.len()];
        let header = Header { step, writer, element: T::TYPE, tiles, checksums };
        let bytes = header.to_bytes().map_err(|reason| CheckpointError::unwritable(&path, reason))?;
        let mut file = disk::temporary(&folder)?;
        file.write_all(&bytes).map_err(CheckpointError::io("write", &path))?;
        let piece = Vec::with_capacity(PIECE);
        let hash = Box::new(Xxh3::new());
        let header_bytes = bytes.len();
        Ok(Self { path, file, header, header_bytes, tile: 0, come: 0, hash, piece, numbers: PhantomData })
    }

    /// Appends the next numbers, which may belong to several tiles.
    ///
    /// # Errors
    /// More numbers than the tiles have; the system's, e.g. a full disk.
    pub fn push(&mut self, mut numbers: &[T]) -> Result<(), CheckpointError> {
        while !numbers.is_empty() {
            let Some(tile) = self.header.tiles.get(self.tile) else {
                let reason = format!("{} numbers more than its tiles have", numbers.len());
                return Err(CheckpointError::unwritable(&self.path, reason));
            };
            let all = tile.rows * tile.cols;
            let quantity = tile.quantity;
            let width = tile.quantity.bytes(T::TYPE);
            let count = numbers.len().min(all - self.come).min((PIECE - self.piece.len()) / width);
            let (now, later) = numbers.split_at(count);
            let start = self.piece.len();
            encode(quantity, now, &mut self.piece);
            self.hash.update(&self.piece[start..]);
            self.come += count;
            numbers = later;
            if self.come == all {
                self.header.checksums[self.tile] = self.hash.digest();
                self.hash.reset();
                (self.tile, self.come) = (self.tile + 1, 0);
            }
            if self.piece.len() + size_of::<T>() > PIECE {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CheckpointError> {
        self.file.write_all(&self.piece).map_err(CheckpointError::io("write", &self.path))?;
        self.piece.clear();
        Ok(())
    }

    /// Completes the file: its bytes have reached the disk when this returns.
    ///
    /// # Errors
    /// Fewer numbers than the tiles have; the system's.
    pub fn finish(mut self) -> Result<(), CheckpointError> {
        if let Some(tile) = self.header.tiles.get(self.tile) {
            let reason = format!("tile {} has {} of its {} numbers", tile.name(), self.come, tile.rows * tile.cols);
            return Err(CheckpointError::unwritable(&self.path, reason));
        }
        self.flush()?;
        let header = self.header.to_bytes().map_err(|reason| CheckpointError::unwritable(&self.path, reason))?;
        debug_assert_eq!(header.len(), self.header_bytes, "the length does not depend on the checksums");
        let written = self.file.seek(SeekFrom::Start(0)).and_then(|_| self.file.write_all(&header));
        written.map_err(CheckpointError::io("write", &self.path))?;
        disk::keep(self.file, &self.path)
    }
}

/// The checksum of a tile's or a header's bytes.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}
