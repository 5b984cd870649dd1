//! A folder as `save_pretrained` writes it, read one logical tensor at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use quadrille_files::{Document, is_lfs_pointer};
use quadrille_spec::Model;
use serde_json::Value;

use crate::family::ExpertNames;
use crate::files::{Files, Stored};
use crate::mapping::{Naming, Part, Tensor, each_tensor, head_name, tensors};
use crate::replaced::check_replaced;
use crate::{Family, HuggingFaceError, Origin, StoredType};

/// Ends of the names of quantized tensors, with the methods that write them.
const QUANTIZED: [(&str, &str); 5] = [
    (".qweight", "GPTQ or AWQ"),
    (".qzeros", "GPTQ or AWQ"),
    (".quant_state.bitsandbytes__nf4", "bitsandbytes"),
    (".weight_scale", "compressed-tensors"),
    (".weight_packed", "compressed-tensors"),
];

/// The `config.json` of a model.
pub const CONFIGURATION: Document = Document::new("the configuration of a model (config.json)", 1 << 20);
/// Rows that are read and put into place at once.
const BLOCK: usize = 64;
/// The elements of a block of wide rows.
const BLOCK_ELEMENTS: usize = 1 << 20;

/// A model in a folder of the transformers library, whose configuration and headers are read and found to fit.
#[derive(Debug)]
pub struct Source {
    folder: PathBuf,
    model: Model,
    tensors: Vec<Tensor>,
    origin: Origin,
    files: Files,
    ignored: Vec<String>,
}

impl Source {
    /// Opens a folder with `config.json` and `model.safetensors` or shards with their index. `set` replaces fields of
    /// the model (field, value).
    ///
    /// # Errors
    /// Files that cannot be read or are damaged; a configuration that cannot be expressed exactly; tensors that are
    /// missing, unknown, or of another shape or type than weights have; a head that is said to be tied and is not.
    pub fn open(folder: &Path, set: &[(String, String)]) -> Result<Self, HuggingFaceError> {
        let path = folder.join("config.json");
        if folder.is_dir() && !path.exists() {
            let remedy = "name the folder that transformers' save_pretrained writes";
            return Err(HuggingFaceError::folder(folder, "there is no config.json", remedy));
        }
        let text = CONFIGURATION.text(&path)?;
        if is_lfs_pointer(text.as_bytes()) {
            return Err(HuggingFaceError::folder(
                &path,
                "it is a pointer of Git LFS",
                "fetch the file with `git lfs pull`",
            ));
        }
        let config_error = |source| HuggingFaceError::Config { path: path.clone(), source };
        let model = Model::from_hugging_face(&text, set).map_err(config_error)?;
        let config: Value =
            serde_json::from_str(&text).map_err(|error| HuggingFaceError::damaged(&path, error.to_string()))?;
        // A model was made of it, so that it has one.
        let named = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
        let Some(family) = Family::of(named) else {
            let rule = format!("weights of {named} are not read, its configuration is");
            let known = Family::ALL.map(|(_, name)| name).join(", ");
            let remedy = format!("take weights of {known}, or the configuration alone");
            return Err(HuggingFaceError::folder(folder, rule, remedy));
        };

        check_replaced(&model, family).map_err(config_error)?;
        let files = Files::open(folder)?;
        check_quantized(&files)?;
        let naming = naming(family, &files);
        let prefix = naming.prefix;
        // One by one, so that those of no more experts are listed than the files have.
        let tensors = each_tensor(&model, family, naming).map(|tensor| checked(folder, &files, tensor));
        let mut source = Self {
            folder: folder.to_owned(),
            tensors: tensors.collect::<Result<_, _>>()?,
            model,
            origin: Origin {
                config,
                set: set.to_vec(),
                prefix,
                tied_head_stored: false,
                other_tokenizer: false,
                dtype: StoredType::F32,
                other_dtypes: BTreeMap::new(),
            },
            files,
            ignored: Vec::new(),
        };
        source.check_others(family)?;
        source.take_types(family)?;
        source.check_tied_head(family)?;
        Ok(source)
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The model of the configuration.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What an export needs to give back the folder.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The logical tensors, in the order of the table at [`Model`].
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Buffers that are stored, but follow from the configuration: masks and frequencies of older versions.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// The numbers of a logical tensor, `[rows, cols]`; `index` counts [`Source::tensors`].
    ///
    /// # Errors
    /// A file that cannot be read any more.
    ///
    /// # Panics
    /// An index beyond the last tensor.
    pub fn read(&mut self, index: usize) -> Result<Vec<f32>, HuggingFaceError> {
        let tensor = &self.tensors[index];
        let mut ours = vec![0.0; tensor.rows * tensor.cols];
        let mut block = Vec::new();
        for part in &tensor.parts {
            let columns = part.columns.numbers(&self.model, tensor.cols);
            let [rows, width] = part.matrix();
            let step = block_rows(width);
            for first in (0..rows).step_by(step) {
                let rows = first..rows.min(first + step);
                block.resize(rows.len() * width, 0.0);
                let (stored, stored_type) = found(&self.folder, &self.files, part)?;
                self.files.read(&stored, stored_type, part.start() + first * width, &mut block)?;
                part.put(&columns, rows, &block, tensor.cols, &mut ours);
            }
        }
        Ok(ours)
    }

    /// Nothing else is stored, but for buffers of older versions and a copy of a tied head.
    fn check_others(&mut self, family: Family) -> Result<(), HuggingFaceError> {
        let known: BTreeSet<&str> =
            self.tensors.iter().flat_map(|tensor| &tensor.parts).map(|part| part.name.as_str()).collect();
        let head = head_name(family);
        for (name, stored) in self.files.tensors().iter().filter(|(name, _)| !known.contains(name.as_str())) {
            if *name == head {
                self.origin.tied_head_stored = true;
            } else if family.names().buffers.iter().any(|end| name.ends_with(end)) {
                self.ignored.push(name.clone());
            } else {
                let rule = format!("a {family} of {} layers as config.json describes it has none", self.model.layers());
                let remedy = "use the config.json that was saved with the weights";
                return Err(HuggingFaceError::tensor(self.files.path(stored), name, rule, remedy));
            }
        }
        Ok(())
    }

    /// Notes the type that most elements have, and the tensors of other types, under the names that an export gives them.
    fn take_types(&mut self, family: Family) -> Result<(), HuggingFaceError> {
        let mut counts = BTreeMap::new();
        let mut types = BTreeMap::new();
        for (stored, exported) in self.tensors.iter().zip(tensors(&self.model, family, self.origin.prefix)) {
            for (number, part) in exported.parts.iter().enumerate() {
                // The parts of a fused tensor are of one type.
                let Some(of) = stored.parts.get(number).or(stored.parts.last()) else { continue };
                let (_, stored_type) = found(&self.folder, &self.files, of)?;
                *counts.entry(stored_type).or_insert(0) += part.elements();
                types.insert(part.name.clone(), stored_type);
            }
        }
        let most = counts.into_iter().max_by_key(|(_, elements)| *elements);
        self.origin.dtype = most.map_or(StoredType::F32, |(stored_type, _)| stored_type);
        let dtype = self.origin.dtype;
        self.origin.other_dtypes = types.into_iter().filter(|(_, other)| *other != dtype).collect();
        Ok(())
    }

    /// A tied head that is stored, too, is the embedding in every bit: else one of them would be lost.
    fn check_tied_head(&mut self, family: Family) -> Result<(), HuggingFaceError> {
        if !self.origin.tied_head_stored {
            return Ok(());
        }
        let name = head_name(family);
        let table = self.tensors[0].parts[0].clone();
        let (embedding, embedding_type) = found(&self.folder, &self.files, &table)?;
        let (head, head_type) = found(&self.folder, &self.files, &Part { name: name.clone(), ..table.clone() })?;
        let path = self.files.path(&head).to_owned();
        let differs = || {
            let rule = format!("config.json ties it to {}, and it is another", table.name);
            let remedy = "write \"tie_word_embeddings\": false into config.json if both are meant";
            HuggingFaceError::tensor(&path, &name, rule, remedy)
        };
        if (&head.shape, head_type) != (&embedding.shape, embedding_type) {
            return Err(differs());
        }
        let [rows, width] = table.matrix();
        let mut a = Vec::new();
        let mut b = Vec::new();
        let step = block_rows(width);
        let mut equal = true;
        for first in (0..rows).step_by(step) {
            let elements = (rows.min(first + step) - first) * width;
            for (stored, block) in [(&embedding, &mut a), (&head, &mut b)] {
                block.resize(elements, 0.0);
                self.files.read(stored, embedding_type, first * width, block)?;
            }
            equal &= a.iter().zip(&b).all(|(a, b): (&f32, &f32)| a.to_bits() == b.to_bits());
        }
        if equal { Ok(()) } else { Err(differs()) }
    }
}

/// What the names of the files are like.
fn naming(family: Family, files: &Files) -> Naming {
    let names = family.names();
    let fused = || files.tensors().keys().any(|name| name.ends_with(ExpertNames::FUSED_UP));
    Naming {
        prefix: !files.tensors().contains_key(&format!("{}.weight", names.table)),
        fused: names.experts.is_some() && fused(),
    }
}

/// A tensor, if all of it is stored, with its shapes, in types of weights.
fn checked(folder: &Path, files: &Files, tensor: Tensor) -> Result<Tensor, HuggingFaceError> {
    for part in &tensor.parts {
        let (stored, _) = found(folder, files, part)?;
        if stored.shape != part.shape {
            let rule = format!("its shape is {:?}, and by config.json it is {:?}", stored.shape, part.shape);
            let remedy = "use the config.json that was saved with the weights";
            return Err(HuggingFaceError::tensor(files.path(&stored), &part.name, rule, remedy));
        }
    }
    Ok(tensor)
}

/// How many rows of this width are read or written at once.
pub(crate) fn block_rows(width: usize) -> usize {
    (BLOCK_ELEMENTS / width.max(1)).clamp(1, BLOCK)
}

/// A tensor that must be there, with its type.
fn found(folder: &Path, files: &Files, part: &Part) -> Result<(Stored, StoredType), HuggingFaceError> {
    let name = &part.name;
    let Some(stored) = files.tensors().get(name) else {
        let first = files.tensors().keys().next().map_or_else(|| "none".to_owned(), |name| format!("e.g. {name}"));
        let rule = format!("it is missing (the files have {} tensors, {first})", files.tensors().len());
        let remedy = "use the files and the config.json of one model";
        return Err(HuggingFaceError::tensor(folder, name, rule, remedy));
    };
    let Some(stored_type) = StoredType::of(stored.dtype) else {
        let rule = format!("its numbers are of type {:?}", stored.dtype);
        let remedy = "save the model as float32, float16 or bfloat16";
        return Err(HuggingFaceError::tensor(files.path(stored), name, rule, remedy));
    };
    Ok((stored.clone(), stored_type))
}

/// Refuses weights that are stored in fewer bits, which configurations of older programs do not say.
fn check_quantized(files: &Files) -> Result<(), HuggingFaceError> {
    let method = |name: &str| QUANTIZED.iter().find(|(end, _)| name.ends_with(end)).map(|(_, method)| *method);
    match files.tensors().iter().find_map(|(name, stored)| Some((name, stored, method(name)?))) {
        None => Ok(()),
        Some((name, stored, method)) => {
            let rule = format!("it is quantized by {method}, and weights of f32, f16 and bf16 are read");
            Err(HuggingFaceError::tensor(files.path(stored), name, rule, "take the model that was quantized"))
        }
    }
}
