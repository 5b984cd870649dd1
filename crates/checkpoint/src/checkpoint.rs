//! A checkpoint that is read.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use quadrille_spec::ElementType;

use crate::folder::unusable;
use crate::header::Header;
use crate::manifest::{self, ListedTile, Manifest};
use crate::number::decode;
use crate::places::Places;
use crate::stored::{Expected, StoredFile};
use crate::tile::Place;
use crate::{About, CheckpointError, Folder, Number, Quantity, TensorShape, Tile};

/// Bytes of a row that are read at once, on the stack: a multiple of every number's.
const PIECE: usize = 1 << 13;

/// A checkpoint on disk. Threads share it: every tile is verified once, by the first that touches it.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    about: About,
    tensors: Vec<TensorShape>,
    names: HashMap<String, usize>,
    pub(crate) files: Vec<StoredFile>,
    /// Checksums of the files' headers and who wrote them, by file.
    listed: Vec<(u64, usize)>,
    /// By file, then in the order of their bytes.
    pub(crate) tiles: Vec<StoredTile>,
    /// The tiles of a quantity of a tensor, at `3 * tensor + quantity`.
    places: Vec<Places>,
    rounding: bool,
}

/// A tile in a file.
#[derive(Debug)]
pub(crate) struct StoredTile {
    pub file: u32,
    pub listed: ListedTile,
    /// Its bytes in the file.
    pub bytes: Range<usize>,
    /// Whether its checksum fits, once someone has looked; locked meanwhile, so that nobody else does.
    sound: Mutex<Option<bool>>,
}

impl Checkpoint {
    /// Opens the checkpoint in the folder `path`: reads the manifest, checks that its tiles cover all tensors exactly once,
    /// and that all files are there and as long as they should be. Their content is checked when it is read.
    ///
    /// # Errors
    /// What is no checkpoint, of a later version or damaged; the file is named.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        let file = path.join(manifest::NAME);
        let manifest = Manifest::parse(&file, &read_manifest(path, &file)?)?;
        let files: Vec<StoredFile> =
            manifest.files.iter().map(|listed| StoredFile::new(path, listed, &manifest)).collect::<Result<_, _>>()?;
        let tiles = place_tiles(&manifest, &files);
        let places = index(manifest.tensors.len(), &tiles);
        let names = manifest.tensors.iter().enumerate().map(|(at, shape)| (shape.name.clone(), at)).collect();
        Ok(Self {
            path: path.to_path_buf(),
            about: manifest.about,
            tensors: manifest.tensors,
            names,
            files,
            listed: manifest.files.iter().map(|file| (file.header, file.writer)).collect(),
            tiles,
            places,
            rounding: false,
        })
    }

    /// Opens what a user means by `path`: a checkpoint, the newest of a folder of checkpoints, or the newest of a run's
    /// folder, which has one called `checkpoints`.
    ///
    /// # Errors
    /// Those of [`Self::open`] and [`Folder::newest`]; a path without a checkpoint.
    pub fn find(path: &Path) -> Result<Self, CheckpointError> {
        if path.join(manifest::NAME).symlink_metadata().is_ok() {
            return Self::open(path);
        }
        let foreign = |reason: &str| CheckpointError::Foreign { path: path.to_path_buf(), reason: reason.to_owned() };
        fs::metadata(path).map_err(CheckpointError::io("read", path))?;
        let newest = Folder::of(path).newest()?;
        newest.ok_or_else(|| foreign("it has no manifest.json, no step-... folder and no folder checkpoints with one"))
    }

    /// The same checkpoint, whose f64 numbers are rounded where f32 ones are asked for.
    pub fn rounding(mut self) -> Self {
        self.rounding = true;
        self
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it is of.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// All tensors, in the order of the manifest.
    pub fn tensors(&self) -> &[TensorShape] {
        &self.tensors
    }

    /// Whether it holds this of every tensor: values it always has, moments all or none.
    pub fn has(&self, quantity: Quantity) -> bool {
        self.places.iter().skip(quantity as usize).step_by(3).all(|places| !places.is_empty())
    }

    /// Length of all its files of tiles.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Every file with the rank that wrote it, its length in bytes and its number of tiles.
    pub fn files(&self) -> impl Iterator<Item = (usize, u64, usize)> {
        let mut tiles = vec![0; self.files.len()];
        self.tiles.iter().for_each(|tile| tiles[tile.file as usize] += 1);
        self.listed.iter().zip(&self.files).zip(tiles).map(|(((_, writer), file), tiles)| (*writer, file.bytes, tiles))
    }

    /// Reads neighbouring columns of a row, from `col` on as many as `out` has room for. Numbers of f32 are read as f64
    /// exactly; the other way round is refused unless [rounding](Self::rounding) was asked for.
    ///
    /// # Errors
    /// A tensor or quantity that is not there, columns beyond the end, f64 numbers, a damaged file or tile.
    pub fn read<T: Number>(
        &self,
        tensor: &str,
        quantity: Quantity,
        row: usize,
        col: usize,
        out: &mut [T],
    ) -> Result<(), CheckpointError> {
        self.read_at(self.find_tensor(tensor)?, quantity, row, col, out).map_err(|error| self.explained(error))
    }

    /// A whole tensor, row by row.
    ///
    /// # Errors
    /// Those of [`Self::read`]; not enough memory.
    pub fn whole<T: Number>(&self, tensor: &str, quantity: Quantity) -> Result<Vec<T>, CheckpointError> {
        let at = self.find_tensor(tensor)?;
        let TensorShape { rows, cols, .. } = self.tensors[at];
        let mut numbers = Vec::new();
        if numbers.try_reserve_exact(rows * cols).is_err() {
            let source = io::Error::from(io::ErrorKind::OutOfMemory);
            return Err(CheckpointError::io("hold in memory a tensor of", &self.path)(source));
        }
        numbers.resize(rows * cols, T::from_f32(0.0));
        for (row, out) in numbers.chunks_exact_mut(cols).enumerate() {
            self.read_at(at, quantity, row, 0, out).map_err(|error| self.explained(error))?;
        }
        Ok(numbers)
    }

    /// Of a damaged checkpoint says which one to use instead.
    fn explained(&self, error: CheckpointError) -> CheckpointError {
        if error.is_damage() { unusable(&self.path, error) } else { error }
    }

    fn find_tensor(&self, tensor: &str) -> Result<usize, CheckpointError> {
        self.names.get(tensor).copied().ok_or_else(|| {
            let model = &self.about.model.name;
            let remedy = format!("it has {} tensors of the model {model}", self.tensors.len());
            CheckpointError::Absent { path: self.path.clone(), what: format!("tensor {tensor}"), remedy }
        })
    }

    fn read_at<T: Number>(
        &self,
        tensor: usize,
        quantity: Quantity,
        row: usize,
        col: usize,
        out: &mut [T],
    ) -> Result<(), CheckpointError> {
        let shape = &self.tensors[tensor];
        let places = &self.places[3 * tensor + quantity as usize];
        if places.is_empty() {
            let what = format!("{quantity} of tensor {}", shape.name);
            let remedy =
                "it holds weights only: it can be evaluated, not trained on; use one that a training run wrote";
            return Err(CheckpointError::Absent { path: self.path.clone(), what, remedy: remedy.to_owned() });
        }
        let end = col.saturating_add(out.len());
        if row >= shape.rows || end > shape.cols {
            let (tensor, rows, cols) = (shape.name.clone(), shape.rows, shape.cols);
            return Err(CheckpointError::OutOfRange { tensor, row, col, end, rows, cols });
        }
        let stored = self.about.dtype;
        let narrows = (stored, T::TYPE) == (ElementType::F64, ElementType::F32);
        if narrows && !self.rounding {
            return Err(CheckpointError::Rounding(self.path.clone()));
        }
        let width = size_of_element(stored);
        for id in places.near(row, col..end) {
            let place = self.tiles[id as usize].listed.place;
            let (first, last) = (col.max(place.col), end.min(place.col + place.cols));
            if first >= last || !(place.row..place.row + place.rows).contains(&row) {
                continue;
            }
            let start = ((row - place.row) * place.cols + first - place.col) * width;
            let mut buffer = [0; PIECE];
            for (piece, out) in out[first - col..last - col].chunks_mut(PIECE / width).enumerate() {
                let bytes = &mut buffer[..out.len() * width];
                self.read_tile(id, start + piece * PIECE, bytes)?;
                decode(stored, bytes, out);
                if narrows && out.iter().any(|number| !number.is_finite()) {
                    self.check_range(shape, row, bytes)?;
                }
            }
        }
        Ok(())
    }

    /// Numbers that rounding has made infinite.
    fn check_range(&self, shape: &TensorShape, row: usize, bytes: &[u8]) -> Result<(), CheckpointError> {
        let number = |bytes: &[u8; 8]| f64::from_le_bytes(*bytes);
        if bytes.as_chunks().0.iter().map(number).any(|number| number.is_finite() && !(number as f32).is_finite()) {
            return Err(CheckpointError::TooLarge { path: self.path.clone(), tensor: shape.name.clone(), row });
        }
        Ok(())
    }

    /// Bytes of a tile from `start` on, if all of it is what was written.
    fn read_tile(&self, id: u32, start: usize, out: &mut [u8]) -> Result<(), CheckpointError> {
        let tile = &self.tiles[id as usize];
        let mut sound = tile.sound.lock().unwrap_or_else(PoisonError::into_inner);
        if sound.is_none() {
            *sound = Some(self.checksum(tile, |_| ())? == tile.listed.checksum);
        }
        if *sound == Some(false) {
            return Err(self.damaged_tile(tile));
        }
        drop(sound);
        self.files[tile.file as usize].read(tile.bytes.start + start, out, || self.expected(tile.file))
    }

    pub(crate) fn damaged_tile(&self, tile: &StoredTile) -> CheckpointError {
        CheckpointError::DamagedTile {
            path: self.files[tile.file as usize].path.clone(),
            tensor: self.tensors[tile.listed.tensor].name.clone(),
            tile: self.named(tile).name(),
        }
    }

    /// The checksum of a tile's bytes, whatever they are; `look` is shown all of them, in pieces.
    pub(crate) fn checksum(&self, tile: &StoredTile, look: impl FnMut(&[u8])) -> Result<u64, CheckpointError> {
        let Range { start, end } = tile.bytes;
        self.files[tile.file as usize].checksum(start, end, || self.expected(tile.file), look)
    }

    fn expected(&self, file: u32) -> Expected {
        let (checksum, writer) = self.listed[file as usize];
        let first = self.tiles.partition_point(|tile| tile.file < file);
        let own: Vec<&StoredTile> = self.tiles[first..].iter().take_while(|tile| tile.file == file).collect();
        let header = Header {
            step: self.about.step,
            writer,
            element: self.about.dtype,
            tiles: own.iter().map(|tile| self.named(tile)).collect(),
            checksums: own.iter().map(|tile| tile.listed.checksum).collect(),
        };
        Expected { checksum, header }
    }

    fn named(&self, tile: &StoredTile) -> Tile {
        let Place { row, col, rows, cols } = tile.listed.place;
        let tensor = self.tensors[tile.listed.tensor].name.clone();
        Tile { tensor, quantity: tile.listed.quantity, row, col, rows, cols }
    }
}

fn size_of_element(element: ElementType) -> usize {
    element.bytes() as usize // 4 or 8
}

/// The manifest's bytes; says what the folder is instead where there is none.
fn read_manifest(folder: &Path, file: &Path) -> Result<Vec<u8>, CheckpointError> {
    let foreign = |reason| Err(CheckpointError::Foreign { path: folder.to_path_buf(), reason });
    match fs::metadata(file) {
        Ok(metadata) if !metadata.is_file() => foreign(format!("its {} is not a regular file", manifest::NAME)),
        Ok(metadata) if metadata.len() > manifest::MAX_BYTES => {
            foreign(format!("its {} has {} bytes, more than any", manifest::NAME, metadata.len()))
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            foreign(format!("it has no {}", manifest::NAME))
        }
        _ => fs::read(file).map_err(CheckpointError::io("read", file)),
    }
}

fn place_tiles(manifest: &Manifest, files: &[StoredFile]) -> Vec<StoredTile> {
    let width = size_of_element(manifest.about.dtype);
    let mut tiles = Vec::with_capacity(manifest.files.iter().map(|file| file.tiles.len()).sum());
    for (file, (listed, stored)) in manifest.files.iter().zip(files).enumerate() {
        let mut start = stored.data;
        for tile in &listed.tiles {
            // All tiles together fit in the file's length.
            let end = start + tile.place.rows * tile.place.cols * width;
            tiles.push(StoredTile { file: file as u32, listed: *tile, bytes: start..end, sound: Mutex::new(None) });
            start = end;
        }
    }
    tiles
}

fn index(tensors: usize, tiles: &[StoredTile]) -> Vec<Places> {
    let mut ids: Vec<Vec<u32>> = vec![Vec::new(); 3 * tensors];
    for (id, tile) in (0_u32..).zip(tiles) {
        ids[3 * tile.listed.tensor + tile.listed.quantity as usize].push(id);
    }
    let place = |id: u32| tiles[id as usize].listed.place;
    ids.into_iter().map(|ids| Places::new(ids, &place)).collect()
}
