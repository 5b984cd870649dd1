//! A checkpoint that is read.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use quadrille_files::FileError;

use crate::folder::unusable;
use crate::header::Header;
use crate::manifest::{self, ListedTile, Manifest, QUANTITIES};
use crate::places::Places;
use crate::stored::{Expected, StoredFile};
use crate::tile::Place;
use crate::{About, CheckpointError, Folder, Number, Quantity, Reader, TensorShape, Tile};

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
    /// The tiles of a quantity of a tensor, at `QUANTITIES * tensor + quantity`.
    pub(crate) places: Vec<Places>,
    pub(crate) rounding: bool,
}

/// A tile in a file.
#[derive(Debug)]
pub(crate) struct StoredTile {
    pub file: u32,
    pub listed: ListedTile,
    /// Its bytes in the file.
    pub bytes: Range<usize>,
    /// Whether its checksum fits, once someone has looked; locked meanwhile, so that nobody else does.
    pub sound: Mutex<Option<bool>>,
}

impl Checkpoint {
    /// Opens the checkpoint in the folder `path`: reads the manifest, checks that its tiles cover all tensors exactly once,
    /// and that all files are there and as long as they should be. Their content is checked when it is read.
    ///
    /// # Errors
    /// A path that is no checkpoint, one of another version or a damaged one; the file is named.
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
        (0..self.tensors.len()).all(|tensor| self.has_at(tensor, quantity))
    }

    /// Whether it says of this tensor, by its place among [`Self::tensors`], which elements are kept.
    pub fn is_pruned(&self, tensor: usize) -> bool {
        self.has_at(tensor, Quantity::Kept)
    }

    /// Whether it has a tensor of this name and says which of its elements are kept.
    pub fn prunes(&self, name: &str) -> bool {
        self.find_tensor(name).is_ok_and(|tensor| self.is_pruned(tensor))
    }

    /// How many elements of a pruned tensor are kept.
    ///
    /// # Errors
    /// A tensor that is not pruned; damage.
    pub fn kept(&self, tensor: &TensorShape) -> Result<u64, CheckpointError> {
        let mut reader = self.reader();
        let mut mask = vec![0.0_f32; tensor.cols];
        let mut kept = 0;
        for row in 0..tensor.rows {
            reader.read(&tensor.name, Quantity::Kept, row, 0, &mut mask)?;
            kept += mask.iter().filter(|kept| **kept != 0.0).count() as u64;
        }
        Ok(kept)
    }

    pub(crate) fn has_at(&self, tensor: usize, quantity: Quantity) -> bool {
        !self.places[QUANTITIES * tensor + quantity as usize].is_empty()
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

    /// A reader of its numbers: one for each thread.
    pub fn reader(&self) -> Reader<'_> {
        Reader::new(self)
    }

    /// A whole tensor, row by row.
    ///
    /// # Errors
    /// Those of [`Reader::read`]; not enough memory.
    pub fn whole<T: Number>(&self, tensor: &str, quantity: Quantity) -> Result<Vec<T>, CheckpointError> {
        let TensorShape { rows, cols, .. } = self.tensors[self.find_tensor(tensor)?];
        let mut numbers = Vec::new();
        if numbers.try_reserve_exact(rows * cols).is_err() {
            let source = io::Error::from(io::ErrorKind::OutOfMemory);
            return Err(CheckpointError::io("hold in memory a tensor of", &self.path)(source));
        }
        numbers.resize(rows * cols, T::from_f32(0.0));
        let mut reader = self.reader();
        for (row, out) in numbers.chunks_exact_mut(cols).enumerate() {
            reader.read(tensor, quantity, row, 0, out)?;
        }
        Ok(numbers)
    }

    /// Of a damaged checkpoint says which one to use instead.
    pub(crate) fn explained(&self, error: CheckpointError) -> CheckpointError {
        if error.is_damage() { unusable(&self.path, error) } else { error }
    }

    pub(crate) fn find_tensor(&self, tensor: &str) -> Result<usize, CheckpointError> {
        self.names.get(tensor).copied().ok_or_else(|| {
            let model = &self.about.model.name;
            let remedy = format!("it has {} tensors of the model {model}", self.tensors.len());
            CheckpointError::Absent { path: self.path.clone(), what: format!("tensor {tensor}"), remedy }
        })
    }

    pub(crate) fn damaged_tile(&self, tile: &StoredTile) -> CheckpointError {
        CheckpointError::DamagedTile {
            path: self.files[tile.file as usize].path.clone(),
            tensor: self.tensors[tile.listed.tensor].name.clone(),
            tile: self.named(tile).name(),
        }
    }

    /// Fills `out` with the bytes of a file from `start` on.
    pub(crate) fn read_bytes(&self, file: u32, start: usize, out: &mut [u8]) -> Result<(), CheckpointError> {
        self.files[file as usize].read(start, out, || self.expected(file))
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

/// The manifest's bytes; says what the folder is instead where there is none.
fn read_manifest(folder: &Path, file: &Path) -> Result<Vec<u8>, CheckpointError> {
    let foreign = |reason| Err(CheckpointError::Foreign { path: folder.to_path_buf(), reason });
    match manifest::KIND.bytes(file) {
        Err(FileError::System { source, .. })
            if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            foreign(format!("it has no {}", manifest::NAME))
        }
        Err(error @ (FileError::NotRegular { .. } | FileError::TooLong { .. })) => foreign(error.to_string()),
        bytes => Ok(bytes?),
    }
}

fn place_tiles(manifest: &Manifest, files: &[StoredFile]) -> Vec<StoredTile> {
    let mut tiles = Vec::with_capacity(manifest.files.iter().map(|file| file.tiles.len()).sum());
    for (file, (listed, stored)) in manifest.files.iter().zip(files).enumerate() {
        let mut start = stored.data;
        for tile in &listed.tiles {
            // All tiles together fit in the file's length.
            let end = start + tile.place.rows * tile.place.cols * tile.quantity.bytes(manifest.about.dtype);
            tiles.push(StoredTile { file: file as u32, listed: *tile, bytes: start..end, sound: Mutex::new(None) });
            start = end;
        }
    }
    tiles
}

fn index(tensors: usize, tiles: &[StoredTile]) -> Vec<Places> {
    let mut ids: Vec<Vec<u32>> = vec![Vec::new(); QUANTITIES * tensors];
    for (id, tile) in (0_u32..).zip(tiles) {
        ids[QUANTITIES * tile.listed.tensor + tile.listed.quantity as usize].push(id);
    }
    let place = |id: u32| tiles[id as usize].listed.place;
    ids.into_iter().map(|ids| Places::new(ids, &place)).collect()
}
