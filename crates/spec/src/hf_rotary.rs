//! Rotary positions as a Hugging Face configuration describes them: under the names of version 4 of the library (`rope_theta`,
//! `rope_scaling`), or of version 5 (`rope_parameters`).

use serde_json::Value;

use crate::hf_fields::{Fields, cut, unexpressed, wrong_type};
use crate::{ModelFile, RotaryRule, SpecError};

/// Fields of rotary positions that are scaled by YaRN.
const YARN: [&str; 9] = [
    "beta_fast",
    "beta_slow",
    "factor",
    "mscale",
    "mscale_all_dim",
    "original_max_position_embeddings",
    "rope_type",
    "truncate",
    "type",
];

/// How frequencies may be scaled in most families.
const SCALED: &str = "rotary frequencies are scaled by rope_type \"linear\" or \"llama3\", or not at all";
/// The same where YaRN is known.
const SCALED_BY_YARN: &str =
    "rotary frequencies are scaled by YaRN or not at all: rope_type is \"yarn\" or \"default\"";

/// What a configuration says of rotary positions.
#[derive(Default)]
pub(crate) struct Turning {
    base: Option<f64>,
    /// The part of a head that turns.
    part: Option<f64>,
    scaling: Option<Scaling>,
}

/// How frequencies are scaled.
#[derive(PartialEq)]
struct Scaling {
    rule: RotaryRule,
    factor: f64,
    low: Option<f64>,
    high: Option<f64>,
    positions: Option<usize>,
}

impl Turning {
    /// The same with a base and a part, as older versions say them, where it says none.
    pub fn or(self, (base, part): (Option<f64>, Option<f64>)) -> Self {
        Self { base: self.base.or(base), part: self.part.or(part), ..self }
    }

    /// Adds the fields of another form, which may have fewer.
    ///
    /// # Errors
    /// Another base or scaling.
    pub fn merged(self, other: Self) -> Result<Self, SpecError> {
        let refuse = |value: String| {
            Err(unexpressed("rope_parameters", value, "another rope_theta or rope_scaling in the same configuration"))
        };
        if let Some((own, _)) = self.base.zip(other.base).filter(|(own, other)| own != other) {
            return refuse(format!("rope_theta {own}"));
        }
        if other.scaling.is_some() && self.scaling != other.scaling {
            return refuse("scaling".to_owned());
        }
        Ok(self.or((other.base, other.part)))
    }

    /// A model whose heads turn whole.
    ///
    /// # Errors
    /// Heads that turn in part.
    pub fn whole(self, file: ModelFile) -> Result<ModelFile, SpecError> {
        match self.part.filter(|part| *part != 1.0) {
            Some(part) => Err(unexpressed("partial_rotary_factor", part, "rotary positions turn whole heads")),
            None => Ok(self.written(file)),
        }
    }

    /// A model of whose heads this part turns, or `usual` where nobody says it.
    ///
    /// # Errors
    /// A part that has no pair of a head's columns.
    pub fn in_part(self, file: ModelFile, usual: f64) -> Result<ModelFile, SpecError> {
        let part = self.part.unwrap_or(usual);
        if part == 1.0 {
            return Ok(self.written(file));
        }
        let head_dim = file.head_dim.unwrap_or_else(|| file.hidden.checked_div(file.heads).unwrap_or(0));
        // As the library rounds it.
        let columns = (head_dim as f64 * part) as usize;
        if !(0.0..1.0).contains(&part) || columns < 2 {
            let rule = format!("pairs of a head's {head_dim} numbers turn");
            return Err(unexpressed("partial_rotary_factor", part, rule));
        }
        Ok(ModelFile { rotary_dim: Some(columns), ..self.written(file) })
    }

    fn written(self, file: ModelFile) -> ModelFile {
        let file = ModelFile { rotary_base: self.base, ..file };
        match self.scaling {
            None => file,
            Some(Scaling { rule, factor, low, high, positions }) => ModelFile {
                rotary_scaling: Some(rule),
                rotary_factor: Some(factor),
                rotary_low: low,
                rotary_high: high,
                rotary_positions: positions,
                ..file
            },
        }
    }
}

impl Fields {
    /// What scales rotary frequencies by YaRN, if that does; the base stays for [`Fields::rotary`], which then knows no other
    /// scaling.
    ///
    /// # Errors
    /// An object with a field that YaRN does not have.
    pub fn yarn(&mut self) -> Result<Option<Self>, SpecError> {
        self.knows_yarn = true;
        for field in ["rope_scaling", "rope_parameters"] {
            let Some(Value::Object(map)) = self.map.get_mut(field) else { continue };
            let kind = map.get("rope_type").or_else(|| map.get("type"));
            if kind.is_none_or(|kind| kind != "yarn") {
                continue;
            }
            let mut yarn = std::mem::take(map);
            map.extend(yarn.remove_entry("rope_theta"));
            if let Some(other) = yarn.keys().find(|key| !YARN.contains(&key.as_str())) {
                let rule = format!("YaRN has {}", YARN.join(", "));
                return Err(unexpressed(field, cut(other), rule));
            }
            return Ok(Some(self.inner(yarn, format!("{field} yarn"))));
        }
        Ok(None)
    }

    /// Base, part and scaling, under their names of version 4 or 5.
    ///
    /// # Errors
    /// A scaling that no model here has, a field that it does not have or lacks.
    pub fn rotary(&mut self) -> Result<Turning, SpecError> {
        let mut turning =
            Turning { base: self.number("rope_theta")?, part: self.number("partial_rotary_factor")?, scaling: None };
        for field in ["rope_scaling", "rope_parameters"] {
            let Some(value) = self.take(field) else { continue };
            let Value::Object(map) = &value else { return Err(wrong_type(field, &value, "an object or null")) };
            let refuse = || {
                let rule = if self.knows_yarn { SCALED_BY_YARN } else { SCALED };
                unexpressed(field, cut(&value.to_string()), rule)
            };
            let mut said = self.inner(map.clone(), String::new());
            let base = said.number("rope_theta")?;
            if let Some((before, base)) = turning.base.zip(base).filter(|(before, base)| before != base) {
                let rule = format!("rope_theta is {before} in the same configuration");
                return Err(unexpressed(field, format!("rope_theta {base}"), rule));
            }
            turning.base = base.or(turning.base);
            turning.part = said.number("partial_rotary_factor")?.or(turning.part);
            let kind = said.text("rope_type")?;
            let older = said.text("type")?;
            if kind.is_some() && older.is_some() && kind != older {
                return Err(refuse());
            }
            let is_named_anew = kind.is_some();
            let kind = kind.or(older).unwrap_or_else(|| "default".to_owned());
            let rule = match kind.as_str() {
                "linear" if !self.knows_yarn => RotaryRule::Linear,
                "llama3" if !self.knows_yarn => RotaryRule::Llama3,
                "default" if said.map.is_empty() => continue,
                _ => return Err(refuse()),
            };
            let said = self.inner(said.map, format!("{field} {kind}"));
            let scaling = scaling(said, field, rule)?;
            // Both forms may be there, each as its version writes it.
            if turning.scaling.as_ref().is_some_and(|other| *other != scaling || !is_named_anew) {
                return Err(unexpressed(field, cut(&value.to_string()), "frequencies are scaled once"));
            }
            turning.scaling = Some(scaling);
        }
        Ok(turning)
    }
}

/// A scaling as an object of a configuration says it, which has nothing else.
fn scaling(mut said: Fields, field: &str, rule: RotaryRule) -> Result<Scaling, SpecError> {
    let factor = said.needed_number("factor")?;
    let mut low = None;
    let mut high = None;
    let mut positions = None;
    if rule == RotaryRule::Llama3 {
        low = Some(said.needed_number("low_freq_factor")?);
        high = Some(said.needed_number("high_freq_factor")?);
        positions = Some(said.needed_size("original_max_position_embeddings")?);
    }
    match said.map.keys().next() {
        None => Ok(Scaling { rule, factor, low, high, positions }),
        Some(other) => Err(unexpressed(field, cut(other), format!("rope_type {rule} has no such field"))),
    }
}
