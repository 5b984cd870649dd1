//! `manifest.json`: what the checkpoint is of, its tensors, its files with their tiles, and a checksum of all of it.
//!
//! One line per tensor and tile. The checksum (XXH3, 64 bits) is the last entry, over all bytes before its line.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::Path;

use quadrille_spec::{ModelFile, RealType};
use serde::{Deserialize, Serialize};

use crate::about::AboutText;
use crate::header::{FORMAT, read_checksum};
use crate::tile::{Place, is_name};
use crate::writer::checksum;
use crate::{About, CheckpointError, Quantity, TensorShape, coverage};

/// The file's name.
pub(crate) const NAME: &str = "manifest.json";
/// Version of the format that is written and read.
pub(crate) const VERSION: u64 = 2;
/// Number of quantities.
pub(crate) const QUANTITIES: usize = Quantity::ALL.len();
/// More than ten million tiles.
pub(crate) const KIND: quadrille_files::Document =
    quadrille_files::Document::new("the manifest of a checkpoint", 2 << 30);

/// A checkpoint without its numbers.
#[derive(Debug)]
pub(crate) struct Manifest {
    pub about: About,
    pub tensors: Vec<TensorShape>,
    pub files: Vec<ListedFile>,
}

/// A file of tiles.
#[derive(Debug)]
pub(crate) struct ListedFile {
    /// The rank that wrote it, which names it.
    pub writer: usize,
    /// Its length.
    pub bytes: u64,
    /// The checksum of what is before the first tile.
    pub header: u64,
    /// In the order of their bytes.
    pub tiles: Vec<ListedTile>,
}

/// A tile of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListedTile {
    /// Which of the tensors.
    pub tensor: usize,
    pub quantity: Quantity,
    pub place: Place,
    pub checksum: u64,
}

impl ListedFile {
    /// Bytes of its tiles, which are at its end; `None` if they are more than the file has.
    pub fn data_bytes(&self, element: RealType) -> Option<u64> {
        let tile = |tile: &ListedTile| (tile.place.numbers()? as u64).checked_mul(tile.quantity.bytes(element) as u64);
        let sum = self.tiles.iter().try_fold(0_u64, |sum, listed| sum.checked_add(tile(listed)?));
        sum.filter(|sum| *sum <= self.bytes)
    }
}

/// The name of a rank's file.
pub(crate) fn file_name(writer: usize) -> String {
    format!("rank-{writer:05}.safetensors")
}

/// The rank whose file is called so.
pub(crate) fn writer_of(name: &str) -> Option<usize> {
    let writer = name.strip_prefix("rank-")?.strip_suffix(".safetensors")?.parse().ok()?;
    (file_name(writer) == name).then_some(writer)
}

#[derive(Deserialize)]
struct Probe<'a> {
    #[serde(borrow)]
    format: Cow<'a, str>,
    version: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document<'a> {
    #[serde(rename = "format")]
    _format: String,
    #[serde(rename = "version")]
    _version: u64,
    about: AboutText<ModelFile>,
    tensors: Vec<TensorShape>,
    #[serde(borrow)]
    files: Vec<FileText<'a>>,
    #[serde(rename = "checksum")]
    _checksum: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText<'a> {
    name: String,
    bytes: u64,
    header: String,
    #[serde(borrow)]
    tiles: Vec<TileText<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TileText<'a> {
    #[serde(borrow)]
    tensor: Cow<'a, str>,
    quantity: Quantity,
    row: usize,
    col: usize,
    rows: usize,
    cols: usize,
    #[serde(borrow)]
    checksum: Cow<'a, str>,
}

impl Manifest {
    /// The file's text.
    ///
    /// # Errors
    /// None that is known: all parts are texts and numbers.
    pub fn to_text(&self) -> Result<String, serde_json::Error> {
        let about = serde_json::to_string_pretty(&self.about)?;
        let tensors: Vec<String> = self.tensors.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
        let files: Vec<String> = self.files.iter().map(|file| self.file_text(file)).collect::<Result<_, _>>()?;
        let tensors = tensors.join(",\n");
        let files = files.join(",\n");
        let body = format!(
            "{{\n\"format\": \"{FORMAT}\",\n\"version\": {VERSION},\n\"about\": {about},\n\
             \"tensors\": [\n{tensors}\n],\n\"files\": [\n{files}\n],\n"
        );
        let end = end(checksum(body.as_bytes()));
        Ok(body + &end)
    }

    fn file_text(&self, file: &ListedFile) -> Result<String, serde_json::Error> {
        let tile = |tile: &ListedTile| {
            let Place { row, col, rows, cols } = tile.place;
            let tensor = Cow::Borrowed(self.tensors[tile.tensor].name.as_str());
            let checksum = Cow::Owned(format!("{:016x}", tile.checksum));
            serde_json::to_string(&TileText { tensor, quantity: tile.quantity, row, col, rows, cols, checksum })
        };
        let tiles: Vec<String> = file.tiles.iter().map(tile).collect::<Result<_, _>>()?;
        let name = file_name(file.writer);
        let bytes = file.bytes;
        let header = file.header;
        Ok(format!(
            "{{\"name\":\"{name}\",\"bytes\":{bytes},\"header\":\"{header:016x}\",\"tiles\":[\n{}\n]}}",
            tiles.join(",\n")
        ))
    }

    /// Reads the text of the manifest at `path` and checks all that can be checked without the other files.
    ///
    /// # Errors
    /// What is wrong, in `path`'s name.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, CheckpointError> {
        let damaged = |reason: String| CheckpointError::damaged(path, reason);
        check_kind(path, bytes)?;
        let body = bytes.len().saturating_sub(end(0).len());
        let (body, tail) = bytes.split_at(body);
        if tail != end(checksum(body)).as_bytes() {
            return Err(damaged("its checksum does not fit".to_owned()));
        }
        let document: Document<'_> =
            serde_json::from_slice(bytes).map_err(|error| damaged(format!("it cannot be read: {error}")))?;
        let description = |(what, error)| {
            let source = Box::new(error);
            CheckpointError::Description { path: path.to_path_buf(), what, source }
        };
        let about = document.about.validate().map_err(description)?;
        let names = check_tensors(&document.tensors).map_err(damaged)?;
        let mut writers = HashSet::new();
        let mut files = Vec::with_capacity(document.files.len());
        for file in &document.files {
            let listed = file.check(&names).map_err(damaged)?;
            if !writers.insert(listed.writer) {
                return Err(damaged(format!("it lists {} twice", file.name)));
            }
            if listed.data_bytes(about.dtype).is_none() {
                return Err(damaged(format!("the tiles of {} need more than its {} bytes", file.name, file.bytes)));
            }
            files.push(listed);
        }
        drop(names);
        let manifest = Self { about, tensors: document.tensors, files };
        manifest.check_coverage(path)?;
        Ok(manifest)
    }

    /// Values cover all tensors exactly once, moments all or none, and what is kept covers whole tensors.
    pub fn check_coverage(&self, path: &Path) -> Result<(), CheckpointError> {
        let mut places: Vec<[Vec<Place>; QUANTITIES]> = self.tensors.iter().map(|_| Default::default()).collect();
        let mut moments = false;
        for tile in self.files.iter().flat_map(|file| &file.tiles) {
            moments |= tile.quantity.is_moment();
            places[tile.tensor][tile.quantity as usize].push(tile.place);
        }
        for (shape, places) in self.tensors.iter().zip(&places) {
            let is_pruned = !places[Quantity::Kept as usize].is_empty();
            let has = |quantity: &Quantity| match quantity {
                Quantity::Value => true,
                Quantity::FirstMoment | Quantity::SecondMoment => moments,
                Quantity::Kept => is_pruned,
            };
            for quantity in Quantity::ALL.into_iter().filter(has) {
                coverage::check(shape, &places[quantity as usize]).map_err(|reason| {
                    let path = path.to_path_buf();
                    let tensor = shape.name.clone();
                    CheckpointError::Coverage { path, tensor, quantity, reason }
                })?;
            }
        }
        Ok(())
    }
}

/// The last lines.
fn end(checksum: u64) -> String {
    format!("\"checksum\": \"{checksum:016x}\"\n}}\n")
}

/// Distinguishes a file that is no manifest, or one of another version, from a damaged one.
fn check_kind(path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    let foreign =
        || CheckpointError::Foreign { path: path.to_path_buf(), reason: format!("it is no manifest of {FORMAT}") };
    let begin = format!("{{\n\"format\": \"{FORMAT}\",\n\"version\": ");
    let version = match bytes.strip_prefix(begin.as_bytes()) {
        Some(rest) => {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            std::str::from_utf8(&rest[..digits]).ok().and_then(|digits| digits.parse().ok())
        }
        // Another version may be laid out otherwise.
        None => {
            serde_json::from_slice::<Probe<'_>>(bytes).ok().filter(|probe| probe.format == FORMAT).map(|p| p.version)
        }
    };
    match version {
        None if bytes.starts_with(begin.as_bytes()) => Err(CheckpointError::damaged(path, "its version is no number")),
        None => Err(foreign()),
        Some(VERSION) => Ok(()),
        Some(found) => Err(CheckpointError::OtherVersion { path: path.to_path_buf(), found }),
    }
}

/// Tensors by name.
fn check_tensors(tensors: &[TensorShape]) -> Result<HashMap<&str, usize>, String> {
    if tensors.is_empty() {
        return Err("it lists no tensor".to_owned());
    }
    let mut names = HashMap::with_capacity(tensors.len());
    for (at, TensorShape { name, rows, cols }) in tensors.iter().enumerate() {
        if !is_name(name) {
            return Err(format!("{name:?} is no name of a tensor"));
        }
        if *rows == 0 || *cols == 0 || rows.checked_mul(*cols).is_none_or(|numbers| numbers > usize::MAX >> 4) {
            return Err(format!("tensor {name} has {rows} x {cols} numbers"));
        }
        if names.insert(name.as_str(), at).is_some() {
            return Err(format!("it lists tensor {name} twice"));
        }
    }
    Ok(names)
}

impl FileText<'_> {
    fn check(&self, tensors: &HashMap<&str, usize>) -> Result<ListedFile, String> {
        let writer = writer_of(&self.name).ok_or_else(|| format!("{:?} is no name of a rank's file", self.name))?;
        let no_checksum = |of: &str| format!("the checksum of {of} is no number of 16 digits");
        let header = read_checksum(&self.header).ok_or_else(|| no_checksum(&self.name))?;
        let mut tiles = Vec::with_capacity(self.tiles.len());
        for tile in &self.tiles {
            let tensor = tensors.get(&*tile.tensor).copied();
            let tensor =
                tensor.ok_or_else(|| format!("{} has a tile of unlisted tensor {:?}", self.name, tile.tensor))?;
            let checksum = read_checksum(&tile.checksum).ok_or_else(|| no_checksum(&tile.tensor))?;
            let place = Place { row: tile.row, col: tile.col, rows: tile.rows, cols: tile.cols };
            tiles.push(ListedTile { tensor, quantity: tile.quantity, place, checksum });
        }
        if tiles.is_empty() {
            return Err(format!("it lists {} without tiles", self.name));
        }
        Ok(ListedFile { writer, bytes: self.bytes, header, tiles })
    }
}
