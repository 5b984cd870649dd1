//! A model as a Hugging Face configuration (`config.json`) describes it.
//!
//! Only what this crate's [`Model`] computes exactly is accepted. A field that would change the computation is refused
//! by its name; so is a field that is not known, since it may. Fields and defaults are those of the transformers library,
//! version 4 and 5, in the configurations of the families in [`FAMILIES`].

use crate::hf_deepseek::deepseek_v3;
use crate::hf_experts::{JOINS_BLOCKS, mixtral, olmoe, per_block, qwen3_moe};
use crate::hf_fields::{Fields, cut};
use crate::hf_gemma::{gemma, gemma2, gemma3};
use crate::hf_gpt::{gpt_neox, gpt2, starcoder2};
use crate::hf_llama::{llama, mistral, olmo2, phi3};
use crate::hf_qwen::{qwen2, qwen3};
use crate::{Model, ModelFile, SpecError};

impl Model {
    /// Reads the text of a `config.json` of one of the families `deepseek_v3`, `gemma`, `gemma2`, `gemma3_text`, `gpt2`, `gpt_neox`, `kimi_k2`,
    /// `llama`, `mistral`, `mixtral`, `olmo2`, `olmoe`, `phi3`, `qwen2`, `qwen3`, `qwen3_moe` and `starcoder2` (its `model_type`), replaces
    /// fields of the model file by `overrides` (field, value) in their order, and validates the result. Experts drop no token, unless `overrides` say a
    /// capacity. A window that no sequence reaches is left out. `router_aux_loss_coef` becomes the factor of the same strength, unless `overrides` say
    /// `balance_loss` ([`Self::router_aux_loss_coef`]).
    ///
    /// # Errors
    /// Text that is no JSON object, a missing field, a field of another type, a field that changes the computation in a
    /// way that a [`Model`] cannot express, an unknown field; those of [`ModelFile::set`] and [`ModelFile::validate`].
    pub fn from_hugging_face(text: &str, overrides: &[(String, String)]) -> Result<Self, SpecError> {
        let mut fields = Fields::new(text)?;
        let (family, mut file) = described(&mut fields)?;
        fields.check_all_known()?;
        overrides.iter().try_for_each(|(field, value)| file.set(field, value))?;
        let mut model = file.clone().validate()?;
        let says_factor = overrides.iter().any(|(field, _)| field == "balance_loss");
        if JOINS_BLOCKS.contains(&family) && !says_factor {
            file.balance_loss = file.balance_loss.map(|coefficient| per_block(coefficient, &model));
            model = file.validate()?;
        }
        let reached = |window: &usize| *window < model.seq_len;
        let blocks = model.blocks.each(|block| block.attention.window = block.attention.window.filter(reached));
        Ok(Self { blocks, ..model })
    }
}

/// Reads the fields of a family.
type Reader = fn(&mut Fields) -> Result<ModelFile, SpecError>;

/// The families that are read.
const FAMILIES: [(&str, Reader); 17] = [
    ("deepseek_v3", deepseek_v3),
    ("gemma", gemma),
    ("gemma2", gemma2),
    ("gemma3_text", gemma3),
    ("gpt2", gpt2),
    ("gpt_neox", gpt_neox),
    ("kimi_k2", deepseek_v3),
    ("llama", llama),
    ("mistral", mistral),
    ("mixtral", mixtral),
    ("olmo2", olmo2),
    ("olmoe", olmoe),
    ("phi3", phi3),
    ("qwen2", qwen2),
    ("qwen3", qwen3),
    ("qwen3_moe", qwen3_moe),
    ("starcoder2", starcoder2),
];

/// Families that are known and cannot be expressed: why, and what to do instead.
const REFUSED: [(&str, &str, &str); 2] = [
    (
        "gemma3",
        "it reads images, too; a model here is that of texts, gemma3_text",
        "give the configuration inside it that text_config is",
    ),
    (
        "vit",
        "ViT has a class token and a classifier; a model of patches here predicts patches",
        "describe one in TOML, with patch_values",
    ),
];

/// Family, and model file with the library's factor of the balance loss.
fn described(fields: &mut Fields) -> Result<(&'static str, ModelFile), SpecError> {
    let Some(family) = fields.text("model_type")? else {
        let rule = "it says which fields the configuration has";
        return Err(SpecError::invalid("model_type", "none", rule, "give a configuration of one model"));
    };
    if let Some((name, reader)) = FAMILIES.into_iter().find(|(name, _)| *name == family) {
        return Ok((name, reader(fields)?));
    }
    match REFUSED.into_iter().find(|(name, ..)| *name == family) {
        Some((name, rule, remedy)) => Err(SpecError::invalid("model_type", name, rule, remedy)),
        None => {
            let known = FAMILIES.map(|(name, _)| name.to_owned()).to_vec();
            Err(SpecError::Unknown { what: "model_type", name: cut(&family), known })
        }
    }
}
