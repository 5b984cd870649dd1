//! A checkpoint while it is being written.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use quadrille_files::{create_folders, folder_of, is_temporary, sync_folder};

use crate::manifest::{self, ListedFile, ListedTile, Manifest};
use crate::stored;
use crate::tile::is_name;
use crate::writer::checksum;
use crate::{About, CheckpointError, Folder, Number, TensorShape, Tile, TileWriter, disk};

/// What names of unfinished checkpoints end with.
pub(crate) const PARTIAL: &str = ".partial";

/// A checkpoint that is being written, in a folder whose name ends with `.partial`. Dropped, it leaves that folder: other
/// writers may still be at work in it.
#[derive(Debug)]
pub struct Draft {
    target: PathBuf,
    partial: PathBuf,
    step: u64,
}

impl Draft {
    /// Begins the checkpoint of a step in a folder of checkpoints, or joins the writers that have begun it: all of them call
    /// this, threads or processes, in any order.
    ///
    /// # Errors
    /// There is a finished checkpoint of this step; the system's.
    pub fn begin(folder: &Path, step: u64) -> Result<Self, CheckpointError> {
        Self::begin_at(&Folder::new(folder).path_of(step), step)
    }

    /// Begins a checkpoint at a path of its own, outside a run, as its only writer.
    ///
    /// # Errors
    /// There is something at this path, or what an interrupted attempt has left beside it; the system's.
    pub fn begin_alone(target: &Path, step: u64) -> Result<Self, CheckpointError> {
        let draft = Self::new(target, step)?;
        if let Some(parent) = draft.partial.parent() {
            create_folders(parent).map_err(CheckpointError::io("create the folder", parent))?;
        }
        match fs::create_dir(&draft.partial) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let reason = format!("an interrupted attempt has left {}; remove it", draft.partial.display());
                Err(CheckpointError::unwritable(target, reason))
            }
            made => made.map(|()| draft).map_err(CheckpointError::io("create the folder", target)),
        }
    }

    /// Begins a checkpoint at a path of its own, outside a run, or joins its writers.
    ///
    /// # Errors
    /// There is something at this path; the system's.
    pub fn begin_at(target: &Path, step: u64) -> Result<Self, CheckpointError> {
        let draft = Self::new(target, step)?;
        create_folders(&draft.partial).map_err(CheckpointError::io("create the folder", &draft.partial))?;
        Ok(draft)
    }

    fn new(target: &Path, step: u64) -> Result<Self, CheckpointError> {
        let target = target.to_path_buf();
        let Some(name) = target.file_name() else {
            return Err(CheckpointError::unwritable(&target, "it has no name; give one, e.g. model"));
        };
        let partial = target.with_file_name([name, PARTIAL.as_ref()].into_iter().collect::<OsString>());
        let draft = Self { target, partial, step };
        draft.check_free()?;
        Ok(draft)
    }

    fn check_free(&self) -> Result<(), CheckpointError> {
        if self.target.symlink_metadata().is_ok() {
            return Err(CheckpointError::unwritable(
                &self.target,
                "it exists already; remove it, or choose another place",
            ));
        }
        Ok(())
    }

    /// Writes the tiles of one writer to its file, in their order: row-major numbers of each. The file appears when it is
    /// whole and has reached the disk; an earlier one of the same writer is replaced. Without tiles there is no file. No
    /// copy of the numbers is made. Threads and processes may call this at once, each for its own writer.
    ///
    /// # Errors
    /// Numbers that do not fit their tile; names that are none; the system's, e.g. a full disk.
    pub fn write<T: Number>(&self, writer: usize, tiles: &[(Tile, Cow<'_, [T]>)]) -> Result<(), CheckpointError> {
        for (tile, numbers) in tiles {
            if tile.place().numbers() != Some(numbers.len()) {
                let rows = tile.rows;
                let cols = tile.cols;
                let reason = format!("tile {} of {rows} x {cols} was given {} numbers", tile.name(), numbers.len());
                return Err(CheckpointError::unwritable(&self.target, reason));
            }
        }
        if tiles.is_empty() {
            return Ok(());
        }
        let mut file = self.writer::<T>(writer, tiles.iter().map(|(tile, _)| tile.clone()).collect())?;
        tiles.iter().try_for_each(|(_, numbers)| file.push(numbers))?;
        file.finish()
    }

    /// The file of one writer, whose numbers come later: for tiles that are not in memory at once. At least one tile.
    ///
    /// # Errors
    /// Those of [`Self::write`].
    pub fn writer<T: Number>(&self, writer: usize, tiles: Vec<Tile>) -> Result<TileWriter<T>, CheckpointError> {
        let refuse = |reason| Err(CheckpointError::unwritable(&self.target, reason));
        if tiles.is_empty() {
            return refuse(format!("rank {writer} has no tile; leave it out"));
        }
        let mut names = HashSet::with_capacity(tiles.len());
        for tile in &tiles {
            if !is_name(&tile.tensor) {
                return refuse(format!("{:?} is no name of a tensor; use 1 to 200 bytes without @ and #", tile.tensor));
            }
            if tile.place().numbers().is_none_or(|numbers| numbers == 0) {
                return refuse(format!("tile {} has {} x {} numbers", tile.name(), tile.rows, tile.cols));
            }
            if !names.insert(tile.name()) {
                return refuse(format!("rank {writer} has tile {} twice", tile.name()));
            }
        }
        TileWriter::new(self.partial.join(manifest::file_name(writer)), self.step, writer, tiles)
    }

    /// Those of some writers that have written a file, for writers that may have no tile.
    pub fn written(&self, writers: &[usize]) -> Vec<usize> {
        let wrote = |writer: &usize| self.partial.join(manifest::file_name(*writer)).exists();
        writers.iter().copied().filter(wrote).collect()
    }

    /// Makes the files of `writers` a checkpoint, after all of them have been written: checks that their tiles cover
    /// `tensors` exactly once, writes the manifest and gives the folder its name. Called once, by one of the writers.
    /// Returns the checkpoint's path. What was under way when a machine stops is no checkpoint afterwards, or a whole one.
    ///
    /// # Errors
    /// A missing or foreign file, a tensor that is not covered exactly once, an `about` that cannot be read back; the
    /// system's. The folder stays as it is, to be [discarded](Self::discard) or [cleaned](Folder::clean).
    pub fn commit(self, about: &About, tensors: &[TensorShape], writers: &[usize]) -> Result<PathBuf, CheckpointError> {
        self.commit_in_place(about, tensors, writers)
    }

    /// [`Self::commit`], after whose failure the draft can be discarded.
    pub(crate) fn commit_in_place(
        &self,
        about: &About,
        tensors: &[TensorShape],
        writers: &[usize],
    ) -> Result<PathBuf, CheckpointError> {
        if about.step != self.step {
            let reason = format!("it was begun as step {} and is about step {}", self.step, about.step);
            return Err(CheckpointError::unwritable(&self.target, reason));
        }
        self.check_strangers(writers)?;
        let names: HashMap<&str, usize> =
            tensors.iter().enumerate().map(|(at, shape)| (shape.name.as_str(), at)).collect();
        let files = writers.iter().map(|writer| self.list(*writer, about, &names)).collect::<Result<_, _>>()?;
        let listed = Manifest { about: about.clone(), tensors: tensors.to_vec(), files };
        let path = self.partial.join(manifest::NAME);
        let text = listed.to_text().map_err(|error| CheckpointError::unwritable(&self.target, error.to_string()))?;
        // What could not be read back is not written; this checks coverage as well.
        if Manifest::parse(&path, text.as_bytes())?.about != *about {
            let reason = "its model or layout is none that a description says";
            return Err(CheckpointError::unwritable(&self.target, reason));
        }
        let mut file = disk::temporary(&self.partial)?;
        file.write_all(text.as_bytes()).map_err(CheckpointError::io("write", &path))?;
        disk::keep(file, &path)?;
        self.publish()?;
        Ok(self.target.clone())
    }

    /// A file of another attempt would silently be kept for ever, or taken for this one's.
    fn check_strangers(&self, writers: &[usize]) -> Result<(), CheckpointError> {
        let read = CheckpointError::io("read", &self.partial);
        let entries: Vec<_> = fs::read_dir(&self.partial).and_then(Iterator::collect).map_err(read)?;
        for entry in entries {
            let name = entry.file_name();
            let stranger = name.to_str().and_then(manifest::writer_of).is_some_and(|writer| !writers.contains(&writer));
            if stranger || is_temporary(&name) {
                let folder = self.partial.display();
                let name = name.to_string_lossy();
                let reason = format!("{folder} has {name} of another attempt; clean the folder before writers begin");
                return Err(CheckpointError::unwritable(&self.target, reason));
            }
        }
        Ok(())
    }

    /// What a writer's file holds.
    fn list(&self, writer: usize, about: &About, names: &HashMap<&str, usize>) -> Result<ListedFile, CheckpointError> {
        let path = self.partial.join(manifest::file_name(writer));
        let (header, head, bytes) = stored::read_header(&path)?;
        if (header.step, header.writer, header.element) != (about.step, writer, about.dtype) {
            let reason = format!(
                "it is of step {}, rank {}, in {}, and the checkpoint of step {}, rank {writer}, in {}",
                header.step, header.writer, header.element, about.step, about.dtype
            );
            return Err(CheckpointError::damaged(&path, reason));
        }
        let mut tiles = Vec::with_capacity(header.tiles.len());
        for (tile, checksum) in header.tiles.iter().zip(header.checksums) {
            let Some(tensor) = names.get(tile.tensor.as_str()).copied() else {
                let reason = format!("rank {writer} wrote {}, a tile of no listed tensor", tile.name());
                return Err(CheckpointError::unwritable(&self.target, reason));
            };
            tiles.push(ListedTile { tensor, quantity: tile.quantity, place: tile.place(), checksum });
        }
        Ok(ListedFile { writer, bytes, header: checksum(&head), tiles })
    }

    /// Renames the folder, in an order that survives a crash at any moment.
    fn publish(&self) -> Result<(), CheckpointError> {
        sync_folder(&self.partial).map_err(CheckpointError::io("write", &self.partial))?;
        self.check_free()?;
        fs::rename(&self.partial, &self.target).map_err(CheckpointError::io("write", &self.target))?;
        let parent = folder_of(&self.target);
        sync_folder(parent).map_err(CheckpointError::io("write", parent))
    }

    /// Removes what was written.
    ///
    /// # Errors
    /// The system's.
    pub fn discard(self) -> Result<(), CheckpointError> {
        disk::remove_folder(&self.partial)
    }
}
