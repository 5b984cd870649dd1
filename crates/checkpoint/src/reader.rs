//! Numbers of a checkpoint, read by one thread.

use std::ops::Range;
use std::sync::PoisonError;

use quadrille_spec::RealType;
use xxhash_rust::xxh3::Xxh3;

use crate::checkpoint::StoredTile;
use crate::manifest::QUANTITIES;
use crate::number::decode;
use crate::{Checkpoint, CheckpointError, Number, Quantity, TensorShape};

/// Bytes that are read at once, if the file has as many: the rows of a tile that follow the one asked for lie behind it.
const AHEAD: usize = 1 << 16;
/// Places of files whose bytes are held at once: a row may lie in as many tiles before they are read again for the next one.
const MOST_HELD: usize = 64;

/// Reads a checkpoint, of which threads share one and have a reader each. It holds the bytes around the places that it read
/// last: 4 MiB at most.
#[derive(Debug)]
pub struct Reader<'a> {
    checkpoint: &'a Checkpoint,
    held: Vec<Held>,
    /// Counts what was asked for.
    turn: u64,
}

/// Bytes of a file.
#[derive(Debug)]
struct Held {
    file: u32,
    /// Where they begin.
    start: usize,
    bytes: Vec<u8>,
    /// When they were asked for last.
    turn: u64,
}

impl Held {
    fn has(&self, file: u32, range: &Range<usize>) -> bool {
        self.file == file && self.start <= range.start && range.end <= self.start + self.bytes.len()
    }
}

impl<'a> Reader<'a> {
    pub(crate) fn new(checkpoint: &'a Checkpoint) -> Self {
        Self { checkpoint, held: Vec::new(), turn: 0 }
    }

    /// Reads neighbouring columns of a row, from `col` on as many as `out` has room for. Numbers of f32 are read as f64
    /// exactly; the other way round is refused unless [rounding](Checkpoint::rounding) was asked for.
    ///
    /// # Errors
    /// A tensor or quantity that is not there, columns beyond the end, f64 numbers, a damaged file or tile.
    pub fn read<T: Number>(
        &mut self,
        tensor: &str,
        quantity: Quantity,
        row: usize,
        col: usize,
        out: &mut [T],
    ) -> Result<(), CheckpointError> {
        let checkpoint = self.checkpoint;
        let tensor = checkpoint.find_tensor(tensor)?;
        self.read_at(tensor, quantity, row, col, out).map_err(|error| checkpoint.explained(error))
    }

    fn read_at<T: Number>(
        &mut self,
        tensor: usize,
        quantity: Quantity,
        row: usize,
        col: usize,
        out: &mut [T],
    ) -> Result<(), CheckpointError> {
        let checkpoint = self.checkpoint;
        let shape = &checkpoint.tensors()[tensor];
        let places = &checkpoint.places[QUANTITIES * tensor + quantity as usize];
        if places.is_empty() {
            let what = format!("{quantity} of tensor {}", shape.name);
            let remedy = match quantity {
                Quantity::Kept => "it is not pruned",
                Quantity::Value | Quantity::FirstMoment | Quantity::SecondMoment => {
                    "it holds weights only: it can be evaluated, not trained on; use one that a training run wrote"
                }
            };
            let path = checkpoint.path().to_path_buf();
            return Err(CheckpointError::Absent { path, what, remedy: remedy.to_owned() });
        }
        let end = col.saturating_add(out.len());
        if row >= shape.rows || end > shape.cols {
            let tensor = shape.name.clone();
            let rows = shape.rows;
            let cols = shape.cols;
            return Err(CheckpointError::OutOfRange { tensor, row, col, end, rows, cols });
        }
        let stored = checkpoint.about().dtype;
        let narrows = quantity != Quantity::Kept && (stored, T::TYPE) == (RealType::F64, RealType::F32);
        if narrows && !checkpoint.rounding {
            return Err(CheckpointError::Rounding(checkpoint.path().to_path_buf()));
        }
        let width = quantity.bytes(stored);
        for id in places.near(row, col..end) {
            let tile = &checkpoint.tiles[id as usize];
            let place = tile.listed.place;
            let first = col.max(place.col);
            let last = end.min(place.col + place.cols);
            if first >= last || !(place.row..place.row + place.rows).contains(&row) {
                continue;
            }
            self.check(tile)?;
            let mut start = tile.bytes.start + ((row - place.row) * place.cols + first - place.col) * width;
            for out in out[first - col..last - col].chunks_mut(AHEAD / width) {
                let bytes = self.bytes(tile.file, start..start + out.len() * width)?;
                decode(quantity, stored, bytes, out);
                if narrows && out.iter().any(|number| !number.is_finite()) {
                    check_range(checkpoint, shape, row, bytes)?;
                }
                start += out.len() * width;
            }
        }
        Ok(())
    }

    /// Whether a tile is what was written; it is looked at once, whoever asks first.
    fn check(&mut self, tile: &StoredTile) -> Result<(), CheckpointError> {
        let mut sound = tile.sound.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = match *sound {
            Some(fits) => fits,
            None => *sound.insert(self.checksum(tile, |_| ())? == tile.listed.checksum),
        };
        if fits { Ok(()) } else { Err(self.checkpoint.damaged_tile(tile)) }
    }

    /// The checksum of a tile's bytes, whatever they are; `look` is shown all of them, in pieces of whole numbers.
    pub(crate) fn checksum(&mut self, tile: &StoredTile, mut look: impl FnMut(&[u8])) -> Result<u64, CheckpointError> {
        let mut hash = Xxh3::new();
        let Range { start, end } = tile.bytes.clone();
        for at in (start..end).step_by(AHEAD) {
            let bytes = self.bytes(tile.file, at..end.min(at + AHEAD))?;
            hash.update(bytes);
            look(bytes);
        }
        Ok(hash.digest())
    }

    /// Bytes of a file, at most [`AHEAD`].
    fn bytes(&mut self, file: u32, range: Range<usize>) -> Result<&[u8], CheckpointError> {
        self.turn += 1;
        let at = match self.held.iter().position(|held| held.has(file, &range)) {
            Some(at) => at,
            None => self.fetch(file, range.start)?,
        };
        let held = &mut self.held[at];
        held.turn = self.turn;
        Ok(&held.bytes[range.start - held.start..range.end - held.start])
    }

    /// Reads a file from `start` on, in place of what was not asked for the longest; where it is held then.
    fn fetch(&mut self, file: u32, start: usize) -> Result<usize, CheckpointError> {
        let oldest = (0..self.held.len()).min_by_key(|at| self.held[*at].turn);
        let at = match oldest {
            Some(oldest) if self.held.len() == MOST_HELD => oldest,
            _ => {
                self.held.push(Held { file, start, bytes: Vec::new(), turn: 0 });
                self.held.len() - 1
            }
        };
        let mut bytes = std::mem::take(&mut self.held[at].bytes);
        let length = self.checkpoint.files[file as usize].bytes as usize; // fits: it was checked when it was opened
        bytes.resize(AHEAD.min(length - start), 0);
        let read = self.checkpoint.read_bytes(file, start, &mut bytes);
        if read.is_err() {
            bytes.clear();
        }
        self.held[at] = Held { file, start, bytes, turn: self.turn };
        read.map(|()| at)
    }
}

/// Numbers that rounding has made infinite.
fn check_range(checkpoint: &Checkpoint, shape: &TensorShape, row: usize, bytes: &[u8]) -> Result<(), CheckpointError> {
    let number = |bytes: &[u8; 8]| f64::from_le_bytes(*bytes);
    if bytes.as_chunks().0.iter().map(number).any(|number| number.is_finite() && !(number as f32).is_finite()) {
        let path = checkpoint.path().to_path_buf();
        let tensor = shape.name.clone();
        return Err(CheckpointError::TooLarge { path, tensor, row });
    }
    Ok(())
}
