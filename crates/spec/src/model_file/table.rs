//! Blocks that differ: tables of a model's file that say which blocks they are of and what these have instead.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ModelFile;
use super::experts::feed_forward_fields;
use crate::choices::QkNorm;
use crate::{Block, Blocks, Model, Positions, Rotary, RotaryScaling, SpecError};

/// What a key of `--set` begins with that is of some blocks.
pub(super) const PREFIX: &str = "blocks.";

/// Fields that leave others out ([`ModelFile::set`]), and so come before them.
const LEAVING: [&str; 4] = ["experts", "key_value_latent", "positions", "rotary_scaling"];

/// The fields that all blocks share; blocks may differ in every other one.
const OF_ALL: [&str; 12] = [
    "name",
    "layers",
    "hidden",
    "vocab",
    "seq_len",
    "patch_values",
    "tied_head",
    "embedding_scale",
    "logit_cap",
    "dropout",
    "expert_every",
    "expert_first",
];

/// The fields that blocks may differ in.
fn of_blocks() -> impl Iterator<Item = &'static str> {
    ModelFile::FIELDS.into_iter().filter(|field| !OF_ALL.contains(field))
}

/// What some blocks have instead of what the file says of all: `at` lists them, or `from` is the first and `every` the
/// distance to the next ones (left out: it is the only one). Of several tables for one block the last counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlockTable {
    /// The blocks, by number from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Vec<usize>>,
    /// The first block.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<usize>,
    /// Every so many blocks after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    every: Option<usize>,
    /// Fields of the file with the values that these blocks have.
    #[serde(flatten)]
    fields: BTreeMap<String, Scalar>,
}

/// A value of a field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a field of some blocks is a number, text in quotes, true or false")]
pub(super) enum Scalar {
    Flag(bool),
    Size(u64),
    Number(f64),
    Name(String),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => flag.fmt(f),
            Self::Size(size) => size.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

impl BlockTable {
    /// The table that `--set blocks.FROM.FIELD=VALUE` or `--set blocks.FROM/EVERY.FIELD=VALUE` asks for.
    ///
    /// # Errors
    /// A key of another form.
    pub(super) fn from_key(key: &str, value: &str) -> Result<Self, SpecError> {
        let (place, field) = key.strip_prefix(PREFIX).and_then(|rest| rest.split_once('.')).unwrap_or_default();
        let (from, every) = match place.split_once('/') {
            Some((from, every)) => (from.parse(), every.parse().map(Some)),
            None => (place.parse(), Ok(None)),
        };
        let (Ok(from), Ok(every)) = (from, every) else {
            let rule = "it names blocks by their numbers, the first being 0";
            let remedy = "write e.g. `model.blocks.3.window`=1024, or blocks.0/2.window=1024 for every second one";
            return Err(SpecError::invalid("blocks", format!("'{key}'"), rule, remedy));
        };
        let fields = [(field.to_owned(), Scalar::Name(value.to_owned()))].into();
        Ok(Self { at: None, from: Some(from), every, fields })
    }

    /// Of these blocks, which have fields with these values.
    pub(crate) fn at<'f>(at: Vec<usize>, fields: impl IntoIterator<Item = (&'f str, String)>) -> Self {
        Self { at: Some(at), from: None, every: None, fields: scalars(fields) }
    }

    /// Of the block `from` and every so many after it.
    pub(crate) fn from<'f>(from: usize, every: usize, fields: impl IntoIterator<Item = (&'f str, String)>) -> Self {
        Self { at: None, from: Some(from), every: Some(every), fields: scalars(fields) }
    }

    /// The blocks, of `layers`, that it is of.
    fn places(&self, layers: usize) -> Result<Vec<usize>, SpecError> {
        let refuse = |value: String, rule: &str| {
            let remedy = format!("write at = [0, 2], or from = 0 and every = 2, with numbers below {layers}");
            Err(SpecError::invalid("blocks", value, rule, remedy))
        };
        let places = match (&self.at, self.from, self.every) {
            (Some(at), None, None) => at.clone(),
            (None, Some(from), None) => vec![from],
            (None, Some(from), Some(every)) if every > 0 && from < layers => (from..layers).step_by(every).collect(),
            (None, Some(from), Some(every)) => {
                return refuse(format!("{from}/{every}"), "it names blocks of the model");
            }
            _ => return refuse("a table".to_owned(), "it says which blocks it is of, in one way"),
        };
        match places.iter().find(|place| **place >= layers) {
            Some(place) => refuse(place.to_string(), "the model has no such block"),
            None => Ok(places),
        }
    }

    /// Writes its fields over those of `file`.
    fn apply(&self, file: &mut ModelFile) -> Result<(), SpecError> {
        // Where a table says that blocks have no such thing, what the file says of it is not of them.
        for field in LEAVING {
            self.fields.get(field).map_or(Ok(()), |value| file.set(field, &value.to_string()))?;
        }
        for (field, value) in &self.fields {
            if !of_blocks().any(|known| known == field) {
                let known = of_blocks().map(str::to_owned).collect();
                return Err(SpecError::Unknown { what: "field of a block", name: field.clone(), known });
            }
            if field == "positions" && value.to_string() == Positions::Learned.to_string() {
                let rule = "learned positions are added to the embedding, for all blocks";
                return Err(SpecError::invalid("positions", "learned", rule, "use rotary or none for a block"));
            }
            if !LEAVING.contains(&field.as_str()) {
                file.set(field, &value.to_string())?;
            }
        }
        Ok(())
    }
}

impl ModelFile {
    /// The blocks that the file describes.
    ///
    /// # Errors
    /// A block that breaks a rule, a table that names no block or no field of one.
    pub(super) fn described_blocks(&self) -> Result<Blocks, SpecError> {
        let usual = self.block()?;
        // By block, the tables that are of it.
        let mut tables = vec![Vec::new(); if self.blocks.is_empty() { 0 } else { self.layers }];
        for (number, table) in self.blocks.iter().enumerate() {
            table.places(self.layers)?.into_iter().for_each(|place| tables[place].push(number));
        }
        self.check_placed()?;
        let key = |place: usize| (self.places_experts_at(place), tables.get(place).map_or(&[][..], Vec::as_slice));
        let mut known = BTreeMap::from([((true, &[][..]), usual)]);
        for (has_experts, of_block) in (0..self.layers).map(key) {
            if let Entry::Vacant(unknown) = known.entry((has_experts, of_block)) {
                unknown.insert(self.block_with(has_experts, of_block)?);
            }
        }
        let block = |place: usize| known.get(&key(place)).copied().unwrap_or(usual);
        Ok(Blocks::new(block(0), (1..self.layers).map(block)))
    }

    /// A block with or without the experts of the file, and what the tables of these numbers say instead.
    fn block_with(&self, has_experts: bool, tables: &[usize]) -> Result<Block, SpecError> {
        let mut file = Self { blocks: Vec::new(), ..self.clone() };
        if !has_experts {
            file.leave_experts();
        }
        tables.iter().try_for_each(|number| self.blocks[*number].apply(&mut file))?;
        file.block()
    }

    /// Says of a model's blocks what the fields so far do not: in fields where all blocks have it, else in tables.
    pub(super) fn tell_blocks(&mut self, model: &Model) {
        let Some(usual) = self.described() else { return };
        let usual = fields_of(model, &usual);
        for (field, value) in fields_of(model, model.blocks.first()) {
            // Norms of the file are the final norm's, too; positions have been said, and only rotary ones have more to say.
            let shared = ["norm", "norm_epsilon", "norm_offset", "positions"].contains(&field);
            let turns = self.positions == Positions::Rotary || !field.starts_with("rotary_");
            if !shared && turns && of(&usual, field) != Some(&value) {
                let _ = self.set(field, &value.to_string());
            }
        }
        let Some(usual) = self.described() else { return };
        let usual = fields_of(model, &usual);
        let kinds = model.blocks.kinds().iter().enumerate();
        self.blocks = kinds
            .filter_map(|(kind, block)| {
                let differs = |(field, value): &(&'static str, Scalar)| of(&usual, field) != Some(value);
                let fields: BTreeMap<_, _> = fields_of(model, block)
                    .into_iter()
                    .filter(differs)
                    .map(|(field, value)| (field.to_owned(), value))
                    .collect();
                let at = (0..model.layers()).filter(|place| model.blocks.kind_of(*place) == kind).collect();
                (!fields.is_empty()).then_some(BlockTable { at: Some(at), from: None, every: None, fields })
            })
            .collect();
    }

    /// The usual block, if it keeps the rules.
    fn described(&self) -> Option<Block> {
        self.block().ok()
    }
}

/// Values as the command line writes them.
fn scalars<'f>(fields: impl IntoIterator<Item = (&'f str, String)>) -> BTreeMap<String, Scalar> {
    fields.into_iter().map(|(field, value)| (field.to_owned(), Scalar::Name(value))).collect()
}

fn of<'a>(fields: &'a [(&'static str, Scalar)], field: &str) -> Option<&'a Scalar> {
    fields.iter().find(|(name, _)| *name == field).map(|(_, value)| value)
}

/// Every field of a block of a model, with its value.
fn fields_of(model: &Model, block: &Block) -> Vec<(&'static str, Scalar)> {
    let Block { attention, feed_forward, norm, norm_place, residual } = block;
    let size = |size: usize| Scalar::Size(size as u64);
    let name = |name: String| Scalar::Name(name);
    let positions = match (attention.rotary, model.learned_positions) {
        (Some(_), _) => "rotary",
        (None, true) => "learned",
        (None, false) => "none",
    };
    let mut fields = vec![
        ("heads", size(attention.heads)),
        ("kv_heads", size(attention.kv_heads)),
        ("head_dim", size(attention.head_dim)),
        ("value_dim", size(attention.value_dim)),
        ("key_value_latent", size(attention.latent.map_or(0, |latent| latent.keys_values))),
        ("qkv_bias", Scalar::Flag(attention.qkv_bias)),
        ("projection_bias", Scalar::Flag(attention.projection_bias)),
        ("norm", name(norm.kind.to_string())),
        ("norm_epsilon", Scalar::Number(norm.epsilon)),
        ("qk_norm", name(QkNorm::of(attention.qk_norm).to_string())),
        ("positions", name(positions.to_owned())),
        ("activation", name(feed_forward.activation().to_string())),
        ("causal", Scalar::Flag(attention.causal)),
        ("window", size(attention.window.unwrap_or(0))),
        ("score_scale", Scalar::Number(attention.score_scale)),
        ("attention_cap", Scalar::Number(attention.cap.unwrap_or(0.0))),
        ("norm_offset", Scalar::Flag(norm.offset)),
        ("norm_place", name(norm_place.to_string())),
        ("residual", name(residual.order.to_string())),
        ("residual_scale", Scalar::Number(residual.scale)),
    ];
    fields.extend(attention.latent.iter().flat_map(|latent| {
        [("query_latent", size(latent.queries.unwrap_or(0))), ("shared_key", size(latent.shared_key))]
    }));
    fields.extend(feed_forward_fields(feed_forward));
    fields.extend(attention.rotary.iter().flat_map(|rotary| rotary_fields(rotary, attention.head_dim)));
    fields
}

fn rotary_fields(rotary: &Rotary, head_dim: usize) -> Vec<(&'static str, Scalar)> {
    let columns = if rotary.columns == head_dim { 0 } else { rotary.columns };
    let number = |field, value| (field, Scalar::Number(value));
    let rule = ("rotary_scaling", Scalar::Name(rotary.scaling.rule().to_string()));
    let mut fields = vec![number("rotary_base", rotary.base), ("rotary_dim", Scalar::Size(columns as u64)), rule];
    match rotary.scaling {
        RotaryScaling::None => {}
        RotaryScaling::Linear { factor } => fields.push(number("rotary_factor", factor)),
        RotaryScaling::Llama3 { factor, low, high, positions }
        | RotaryScaling::Yarn { factor, low, high, positions } => fields.extend([
            number("rotary_factor", factor),
            number("rotary_low", low),
            number("rotary_high", high),
            ("rotary_positions", Scalar::Size(positions as u64)),
        ]),
    }
    fields
}
