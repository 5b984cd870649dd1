//! How far back attention reaches, as a Hugging Face configuration describes it.

use crate::hf_fields::{Fields, cut, unexpressed};
use crate::model_file::BlockTable;
use crate::{ModelFile, SpecError};

impl Fields {
    /// The window, `default` where nobody says it; null is none.
    ///
    /// # Errors
    /// A window without a position.
    pub fn window(&mut self, default: Option<usize>) -> Result<Option<usize>, SpecError> {
        let default = default.filter(|_| !self.names("sliding_window"));
        match self.size("sliding_window")?.or(default) {
            Some(0) => Err(unexpressed("sliding_window", 0, "a position attends to itself at least")),
            window => Ok(window),
        }
    }

    /// A model whose blocks have this window where `layer_types` says so, or, without it, from the block `first` on.
    ///
    /// # Errors
    /// Types of other blocks than there are, or that are not known; a type that asks for a window where there is none.
    pub fn windows_by_block(
        &mut self,
        file: ModelFile,
        window: Option<usize>,
        first: usize,
    ) -> Result<ModelFile, SpecError> {
        let types = self.windowed_blocks(file.layers)?;
        let Some(window) = window else {
            return match types.unwrap_or_default().first() {
                None => Ok(file),
                Some(block) => {
                    let rule = format!(
                        "it says so of block {block}, and there is no window: use_sliding_window and sliding_window say it"
                    );
                    Err(unexpressed("layer_types", SLIDING, rule))
                }
            };
        };
        let fields = [("window", window.to_string())];
        match types {
            Some(blocks) if blocks.len() == file.layers => Ok(ModelFile { window: Some(window), ..file }),
            Some(blocks) if blocks.is_empty() => Ok(file),
            Some(blocks) => Ok(ModelFile { blocks: vec![BlockTable::at(blocks, fields)], ..file }),
            None if first == 0 => Ok(ModelFile { window: Some(window), ..file }),
            None if first < file.layers => Ok(ModelFile { blocks: vec![BlockTable::from(first, 1, fields)], ..file }),
            None => Ok(file),
        }
    }

    /// The blocks of type "sliding_attention", if the types are said.
    ///
    /// # Errors
    /// Types of other blocks than there are, or that are not known.
    pub fn windowed_blocks(&mut self, layers: usize) -> Result<Option<Vec<usize>>, SpecError> {
        let Some(value) = self.take("layer_types") else { return Ok(None) };
        let refuse = || {
            let rule = format!("it says of each of {layers} blocks \"{FULL}\" or \"{SLIDING}\"");
            unexpressed("layer_types", cut(&value.to_string()), rule)
        };
        let types = value.as_array().filter(|types| types.len() == layers).ok_or_else(refuse)?;
        if types.iter().any(|kind| kind != FULL && kind != SLIDING) {
            return Err(refuse());
        }
        Ok(Some((0..layers).filter(|block| types[*block] == SLIDING).collect()))
    }
}

/// Types of blocks: attention that reaches over all positions before, and over a window.
pub(crate) const FULL: &str = "full_attention";
pub(crate) const SLIDING: &str = "sliding_attention";
