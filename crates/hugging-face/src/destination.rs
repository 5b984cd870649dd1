//! A folder as the library reads it, written one tensor at a time.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use quadrille_files::{create_folders, sync_folder};
use quadrille_spec::Model;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::companions::{GENERATION_CONFIG, copy_companions};
use crate::config_rotary::complete;
use crate::files::{INDEX, write_file};
use crate::mapping::{Part, Tensor, head_name, tensors};
use crate::shards::{Item, Shard, cut, index};
use crate::source::block_rows;
use crate::special_tokens::SpecialTokens;
use crate::training::{left_out, set_balance};
use crate::{Family, HuggingFaceError, Narrow, Origin, StoredType, config};

/// A model in the library's terms: its configuration, and its tensors with their types.
#[derive(Debug)]
pub struct Destination {
    model: Model,
    tensors: Vec<Tensor>,
    items: Vec<Item>,
    family: Family,
    config: Value,
    /// True if the special tokens of the configuration are those of the import.
    has_imported_tokens: bool,
    dtype: StoredType,
    notes: Vec<String>,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Exported {
    /// The family, as `model_type` says it.
    pub family: String,
    /// The type of the weights, or of most of them.
    pub dtype: StoredType,
    /// The files of weights.
    pub files: Vec<String>,
    /// Number of tensors in them.
    pub tensors: usize,
    /// Bytes of their numbers.
    pub bytes: u64,
    /// How many numbers changed because the type is narrower.
    pub rounded: u64,
    /// How many are no finite numbers, as in the checkpoint.
    pub not_finite: u64,
    /// The files that were copied beside them.
    pub copied: Vec<String>,
}

impl Destination {
    /// What a model becomes. With an `origin` its configuration, names and types are given back, unless the model has
    /// changed since; without one the family follows from the model. `layout.dtype` replaces the type of all tensors;
    /// otherwise they have the origin's, or f32.
    ///
    /// # Errors
    /// A model that no family of the library computes.
    pub fn new(model: &Model, origin: Option<&Origin>, dtype: Option<StoredType>) -> Result<Self, HuggingFaceError> {
        let mut notes = Vec::new();
        let kept = origin.and_then(|origin| Some((origin, origin.family()?, origin.config_of(model)?)));
        if origin.is_some() && kept.is_none() {
            notes.push("the model has changed since it was imported: config.json is written anew".to_owned());
        }
        let general = dtype.or_else(|| kept.as_ref().map(|(origin, ..)| origin.dtype)).unwrap_or(StoredType::F32);
        let (family, config) = match &kept {
            Some((_, family, config)) => (*family, config.clone()),
            None => config::fresh(model, general)?,
        };
        let (prefix, head_stored) =
            kept.as_ref().map_or((true, false), |(origin, ..)| (origin.prefix, origin.tied_head_stored));
        let tensors = tensors(model, family, prefix);
        let dtype_of = |name: &str| match (dtype, &kept) {
            (None, Some((origin, ..))) => origin.dtype_of(name),
            _ => general,
        };
        let items = items(&tensors, (head_stored && model.tied_head).then(|| head_name(family)), dtype_of);
        let has_imported_tokens = kept.as_ref().is_some_and(|(origin, ..)| !origin.other_tokenizer);
        let model = model.clone();
        let mut new = Self { model, tensors, items, family, config, has_imported_tokens, dtype: general, notes };
        if let Some((origin, ..)) = kept {
            new.adapt(origin, dtype);
            complete(&mut new.config, &new.model, family);
        } else if !config::set_dropout(&mut new.config, family, new.model.dropout) {
            new.note_dropout();
        }
        new.notes.extend(left_out(&new.model, family));
        Ok(new)
    }

    /// Changes of a configuration that was kept, where the model's dropout, its balance loss or the type is another.
    fn adapt(&mut self, origin: &Origin, dtype: Option<StoredType>) {
        let dropout = self.model.dropout;
        // What config.json says, whatever was replaced at the import.
        let before = Model::from_hugging_face(&self.config.to_string(), &[]).map(|model| model.dropout);
        if before != Ok(dropout) && !config::set_dropout(&mut self.config, self.family, dropout) {
            self.note_dropout();
        }
        set_balance(&mut self.config, &self.model);
        if let Some(dtype) = dtype.filter(|dtype| *dtype != origin.dtype || !origin.other_dtypes.is_empty()) {
            config::set_dtype(&mut self.config, dtype);
        }
    }

    fn note_dropout(&mut self) {
        let dropout = self.model.dropout;
        let family = self.family;
        self.notes.push(format!("{family} has no dropout of this kind: the rate {dropout} is left out of config.json"));
    }

    /// Writes the special tokens of a tokenizer into a configuration that has not those of its import.
    pub(crate) fn set_special_tokens(&mut self, tokens: &SpecialTokens) {
        if !self.has_imported_tokens {
            tokens.write(&mut self.config, self.model.vocab);
        }
    }

    /// The family of the library.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The `config.json` to be written.
    pub fn config(&self) -> &Value {
        &self.config
    }

    /// What is not as it was, for people.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Writes the folder, which appears when it is complete: `config.json`, files of at most `shard_size` bytes of
    /// numbers, their index where they are several, and copies of the [`crate::COMPANIONS`] of the folder `companions`.
    /// `read` gives the numbers of a logical tensor, `[rows, cols]`; it is called once or, for tensors in several
    /// files, a few times for each, and only one is held at a time.
    ///
    /// # Errors
    /// A folder that is there and not empty; a file that cannot be written; a number too large for its type; those of
    /// `read`.
    pub fn write<T: Narrow, E: From<HuggingFaceError>>(
        &self,
        folder: &Path,
        shard_size: u64,
        companions: Option<&Path>,
        mut read: impl FnMut(&Tensor) -> Result<Vec<T>, E>,
    ) -> Result<Exported, E> {
        check_vacant(folder)?;
        let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        create_folders(parent).map_err(HuggingFaceError::io("create", parent))?;
        let partial = partial(parent).map_err(HuggingFaceError::io("create a folder in", parent))?;
        let shards = cut(self.items.clone(), shard_size);
        let mut exported = Exported {
            family: self.family.model_type().to_owned(),
            dtype: self.dtype,
            files: shards.iter().map(|shard| shard.file.clone()).collect(),
            tensors: self.items.len(),
            bytes: self.items.iter().map(Item::bytes).sum(),
            rounded: 0,
            not_finite: 0,
            copied: Vec::new(),
        };
        let mut last = None;
        for shard in &shards {
            self.write_shard(partial.path(), shard, &mut exported, &mut last, &mut read)?;
        }
        if shards.len() > 1 {
            write_json(&partial.path().join(INDEX), &index(&shards))?;
        }
        write_json(&partial.path().join("config.json"), &self.config)?;
        if let Some(companions) = companions {
            exported.copied = copy_companions(companions, partial.path())?;
        }
        self.write_generation_config(&partial.path().join(GENERATION_CONFIG))?;
        // In an order that survives a crash of the machine: what is in the folder, then its name.
        let finish = || {
            sync_folder(partial.path())?;
            if folder.exists() {
                fs::remove_dir(folder)?;
            }
            fs::rename(partial.path(), folder)?;
            sync_folder(parent)
        };
        finish().map_err(HuggingFaceError::io("write", folder))?;
        Ok(exported)
    }

    /// Writes the file by which the library generates, with the special tokens alone, unless it is there or they are those of the
    /// import.
    fn write_generation_config(&self, path: &Path) -> Result<(), HuggingFaceError> {
        let tokens: Map<String, Value> = SpecialTokens::FIELDS
            .iter()
            .filter_map(|field| Some(((*field).to_owned(), self.config.get(field)?.clone())))
            .filter(|(_, token)| !token.is_null())
            .collect();
        if self.has_imported_tokens || tokens.is_empty() || path.exists() {
            return Ok(());
        }
        let mut config = Map::from_iter([("_from_model_config".to_owned(), Value::from(true))]);
        config.extend(tokens);
        write_json(path, &config.into())
    }

    /// Writes one file; `last` is the logical tensor that was read last, with its number.
    fn write_shard<T: Narrow, E: From<HuggingFaceError>>(
        &self,
        folder: &Path,
        shard: &Shard,
        exported: &mut Exported,
        last: &mut Option<(usize, Vec<T>)>,
        read: &mut impl FnMut(&Tensor) -> Result<Vec<T>, E>,
    ) -> Result<(), E> {
        let path = folder.join(&shard.file);
        let file = File::create_new(&path).map_err(HuggingFaceError::io("write", &path))?;
        let mut file = BufWriter::with_capacity(1 << 20, file);
        file.write_all(&shard.header()?).map_err(HuggingFaceError::io("write", &path))?;
        for item in &shard.items {
            let tensor = &self.tensors[item.of.0];
            if last.as_ref().is_none_or(|(index, _)| *index != item.of.0) {
                // Given back before the next is read.
                *last = None;
                *last = Some((item.of.0, read(tensor)?));
            }
            let ours = last.as_ref().map_or(&[][..], |(_, ours)| ours);
            if ours.len() != tensor.rows * tensor.cols {
                let rule =
                    format!("{} has {} numbers instead of {} x {}", tensor.name, ours.len(), tensor.rows, tensor.cols);
                let remedy = "use a checkpoint of this model";
                return Err(HuggingFaceError::tensor(&path, &item.name, rule, remedy).into());
            }
            self.write_tensor(&mut file, &path, item, ours, exported)?;
        }
        let file = file.into_inner().map_err(|error| HuggingFaceError::io("write", &path)(error.into_error()))?;
        file.sync_all().map_err(HuggingFaceError::io("write", &path))?;
        Ok(())
    }

    /// Writes the numbers of a tensor, rounded to its type.
    fn write_tensor<T: Narrow>(
        &self,
        file: &mut impl Write,
        path: &Path,
        item: &Item,
        ours: &[T],
        exported: &mut Exported,
    ) -> Result<(), HuggingFaceError> {
        let tensor = &self.tensors[item.of.0];
        let part: &Part = &tensor.parts[item.of.1];
        let columns = part.columns.numbers(&self.model, tensor.cols);
        let [rows, width] = part.matrix();
        let step = block_rows(width);
        let mut block = Vec::new();
        let mut bytes = Vec::new();
        for first in (0..rows).step_by(step) {
            let rows = first..rows.min(first + step);
            block.resize(rows.len() * width, T::default());
            part.take(&columns, rows, ours, tensor.cols, &mut block);
            bytes.clear();
            for number in &block {
                let before = number.to_f64();
                let after = f64::from(item.dtype.encode(*number, &mut bytes));
                if !before.is_finite() {
                    exported.not_finite += 1;
                } else if after.is_infinite() {
                    return Err(overflow(item, before));
                } else if before != after {
                    exported.rounded += 1;
                }
            }
            file.write_all(&bytes).map_err(HuggingFaceError::io("write", path))?;
        }
        Ok(())
    }
}

/// Every tensor to be written; `head`: the name of a copy of the embedding.
fn items(tensors: &[Tensor], head: Option<String>, dtype_of: impl Fn(&str) -> StoredType) -> Vec<Item> {
    let mut items = Vec::new();
    for (index, tensor) in tensors.iter().enumerate() {
        for (number, part) in tensor.parts.iter().enumerate() {
            let name = part.name.clone();
            let dtype = dtype_of(&part.name);
            items.push(Item { of: (index, number), name, shape: part.shape.clone(), dtype });
        }
    }
    // Beside the embedding, which is then read once; of its type, since both are one.
    if let (Some(name), Some(table)) = (head, items.first().cloned()) {
        items.insert(1, Item { name, ..table });
    }
    items
}

/// A folder that is not there, or is empty.
pub(crate) fn check_vacant(folder: &Path) -> Result<(), HuggingFaceError> {
    let entries = match fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(HuggingFaceError::io("write", folder)(error)),
    };
    if entries {
        let remedy = "name another folder, or empty this one";
        return Err(HuggingFaceError::folder(folder, "there are files, and none is replaced", remedy));
    }
    Ok(())
}

/// A folder beside the one to be written; dropped, it leaves nothing.
fn partial(parent: &Path) -> std::io::Result<tempfile::TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".hugging-face-").suffix(".partial");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // As any program creates a folder; temporary ones are their owner's only.
        builder.permissions(fs::Permissions::from_mode(0o777));
    }
    builder.tempdir_in(parent)
}

fn write_json(path: &Path, value: &Value) -> Result<(), HuggingFaceError> {
    write_file(path, format!("{value:#}\n").as_bytes())
}

fn overflow(item: &Item, value: f64) -> HuggingFaceError {
    let remedy = match item.dtype {
        StoredType::F16 => "export it with `layout.dtype` bf16 or f32",
        StoredType::Bf16 => "export it with `layout.dtype` f32",
        StoredType::F32 => "no type of the library's models holds it: look at where training went wrong",
    };
    HuggingFaceError::Overflow { tensor: item.name.clone(), value, dtype: item.dtype.name(), remedy }
}
