//! Folders of the library become checkpoints, and checkpoints such folders.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use quadrille_checkpoint::{About, Checkpoint, Draft, Folder, Quantity, TensorShape, Tile};
use quadrille_spec::{Grid, Layout, LayoutRequest, Model, RealType, SpecError, quantities};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::companions::{COMPANIONS, copy_companions, remove_companions};
use crate::destination::check_vacant;
use crate::mapping::Tensor;
use crate::special_tokens::SpecialTokens;
use crate::{Destination, Exported, HuggingFaceError, Narrow, Origin, Source, StoredType};

/// The checkpoint that an import wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Imported {
    /// Where it is.
    pub checkpoint: PathBuf,
    /// Number of logical tensors.
    pub tensors: usize,
    /// Number of parameters.
    pub parameters: u64,
    /// The type that most weights had; the checkpoint's is f32.
    pub dtype: StoredType,
    /// How many numbers are not finite.
    pub not_finite: u64,
    /// Stored tensors that follow from the configuration and were left out.
    pub ignored: Vec<String>,
    /// The files that were copied into the folder of the checkpoint.
    pub copied: Vec<String>,
}

/// How a checkpoint is exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportOptions {
    /// The type of all weights; `None`: that which they were imported in, or f32.
    pub dtype: Option<StoredType>,
    /// Most bytes of numbers in a file.
    pub shard_size: u64,
}

impl ExportOptions {
    /// Bytes of a file as they are written, `5GB`.
    ///
    /// # Errors
    /// What is no number of bytes with its unit.
    pub fn shard_size_of(text: &str) -> Result<u64, SpecError> {
        match quantities::bytes(text) {
            Some(bytes) if (1.0..1e18).contains(&bytes) => Ok(bytes as u64),
            _ => Err(SpecError::invalid("shard_size", text, "it is bytes, with their unit", "write e.g. 5GB or 500MB")),
        }
    }
}

impl Default for ExportOptions {
    /// Files of 5 GB, as older versions of the library cut them.
    fn default() -> Self {
        Self { dtype: None, shard_size: 5_000_000_000 }
    }
}

/// Is told how many numbers of how many are written.
pub type OnNumbers<'a> = &'a mut dyn FnMut(u64, u64);

/// Writes a model into a folder of checkpoints, as step 0, in f32, weights only; one tensor is in memory at a time. The
/// source's [`COMPANIONS`] are copied beside the checkpoint.
///
/// # Errors
/// A folder that is there and not empty; a file that cannot be read or written. Nothing is left then.
pub fn import(source: &mut Source, folder: &Path) -> Result<Imported, HuggingFaceError> {
    import_watched(source, folder, &mut |_, _| {})
}

/// The same, telling before each tensor, and at the end, how many numbers of how many are written.
///
/// # Errors
/// As [`import`].
pub fn import_watched(source: &mut Source, folder: &Path, watch: OnNumbers) -> Result<Imported, HuggingFaceError> {
    check_vacant(folder)?;
    let created = !folder.exists();
    let result = write_checkpoint(source, folder, watch);
    if result.is_err() {
        // The folder was empty, so that all of it is this attempt's. What cannot be removed is no second failure.
        let _ = Folder::new(folder).clean();
        remove_companions(folder);
        if created {
            let _ = fs::remove_dir(folder);
        }
    }
    result
}

fn write_checkpoint(source: &mut Source, folder: &Path, watch: OnNumbers) -> Result<Imported, HuggingFaceError> {
    let model = source.model().clone();
    let about = about(&model, source)?;
    let draft = Draft::begin(folder, about.step)?;
    let not_finite = write_tensors(source, &draft, watch)?;
    let copied = copy_companions(source.folder(), folder)?;
    let shape = |tensor: &Tensor| TensorShape { name: tensor.name.clone(), rows: tensor.rows, cols: tensor.cols };
    let shapes: Vec<TensorShape> = source.tensors().iter().map(shape).collect();
    Ok(Imported {
        checkpoint: draft.commit(&about, &shapes, &[0])?,
        tensors: shapes.len(),
        parameters: model.parameters(),
        dtype: source.origin().dtype,
        not_finite,
        ignored: source.ignored().to_vec(),
        copied,
    })
}

/// Writes all tensors to one file; how many of their numbers are not finite.
fn write_tensors(source: &mut Source, draft: &Draft, watch: OnNumbers) -> Result<u64, HuggingFaceError> {
    let tile = |tensor: &Tensor| Tile {
        tensor: tensor.name.clone(),
        quantity: Quantity::Value,
        row: 0,
        col: 0,
        rows: tensor.rows,
        cols: tensor.cols,
    };
    let mut file = draft.writer::<f32>(0, source.tensors().iter().map(tile).collect())?;
    let of: u64 = source.tensors().iter().map(|tensor| (tensor.rows * tensor.cols) as u64).sum();
    let mut not_finite = 0;
    let mut done = 0;
    for index in 0..source.tensors().len() {
        watch(done, of);
        let numbers = source.read(index)?;
        done += numbers.len() as u64;
        not_finite += numbers.iter().filter(|number| !number.is_finite()).count() as u64;
        file.push(&numbers)?;
    }
    file.finish()?;
    watch(done, of);
    Ok(not_finite)
}

/// A checkpoint before the first step of any run, on one rank.
fn about(model: &Model, source: &Source) -> Result<About, HuggingFaceError> {
    let config = |error| HuggingFaceError::Config { path: source.folder().join("config.json"), source: error };
    let grid = Grid::new(1, 1, 1, 1).map_err(config)?;
    let layout = Layout::new(model, &LayoutRequest::new(grid, 1)).map_err(config)?;
    Ok(About {
        model: model.clone(),
        layout,
        dtype: RealType::F32,
        step: 0,
        samples: 0,
        tokens: 0,
        seed: 0,
        hyper: Value::Null,
        data: Value::Null,
        run: Map::from_iter([("converted_from".to_owned(), source.folder().display().to_string().into())]).into(),
        hugging_face: Some(source.origin().to_value()),
    })
}

/// Writes a checkpoint's model as a folder of the library, with the [`COMPANIONS`] that lie beside the checkpoint or beside
/// the folder of checkpoints that it is in; the notes of [`Destination::notes`] come along. One tensor is in memory at a
/// time.
///
/// # Errors
/// A model that no family of the library computes, those of [`Destination::write`], a damaged checkpoint. Nothing is left
/// then.
pub fn export(
    checkpoint: Checkpoint,
    folder: &Path,
    options: ExportOptions,
) -> Result<(Exported, Vec<String>), HuggingFaceError> {
    export_watched(checkpoint, folder, options, &mut |_, _| {})
}

/// The same, telling before each tensor how many numbers of how many are written, and at the end that all are.
///
/// # Errors
/// As [`export`].
pub fn export_watched(
    checkpoint: Checkpoint,
    folder: &Path,
    options: ExportOptions,
    watch: OnNumbers,
) -> Result<(Exported, Vec<String>), HuggingFaceError> {
    let about = checkpoint.about();
    let origin = about.hugging_face.as_ref().map(Origin::from_value).transpose()?;
    let mut destination = Destination::new(&about.model, origin.as_ref(), options.dtype)?;
    let companions = companions_of(checkpoint.path());
    let vocabulary = about.data["vocabulary"].as_str();
    destination.set_special_tokens(&SpecialTokens::of(companions.as_deref(), vocabulary, origin.as_ref())?);
    let exported = match about.dtype {
        RealType::F32 => write::<f32>(&destination, &checkpoint, folder, options, companions.as_deref(), watch),
        RealType::F64 => write::<f64>(&destination, &checkpoint, folder, options, companions.as_deref(), watch),
    }?;
    Ok((exported, destination.notes().to_vec()))
}

fn write<T: Narrow + quadrille_checkpoint::Number>(
    destination: &Destination,
    checkpoint: &Checkpoint,
    folder: &Path,
    options: ExportOptions,
    companions: Option<&Path>,
    watch: OnNumbers,
) -> Result<Exported, HuggingFaceError> {
    let mut done = 0;
    let of = checkpoint.about().model.parameters();
    let mut read = BTreeSet::new();
    let exported = destination.write(folder, options.shard_size, companions, |tensor| {
        watch(done, of);
        // What a tensor's parts are cut from is read more than once.
        if read.insert(tensor.name.clone()) {
            done += (tensor.rows * tensor.cols) as u64;
        }
        Ok::<Vec<T>, HuggingFaceError>(checkpoint.whole(&tensor.name, Quantity::Value)?)
    })?;
    watch(of, of);
    Ok(exported)
}

/// The folder beside a checkpoint that has any of the companions: that of the checkpoints, or the run's around it.
fn companions_of(checkpoint: &Path) -> Option<PathBuf> {
    // `..` of a relative path leads nowhere.
    let checkpoint = checkpoint.canonicalize().ok()?;
    let beside = checkpoint.parent()?;
    let around = beside.parent().filter(|_| beside.file_name().is_some_and(|name| name == "checkpoints"));
    let has_any = |folder: &Path| COMPANIONS.iter().any(|name| folder.join(name).is_file());
    [Some(checkpoint.as_path()), Some(beside), around]
        .into_iter()
        .flatten()
        .find(|folder| has_any(folder))
        .map(Path::to_owned)
}
