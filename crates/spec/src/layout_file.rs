//! What a layout file says, or flags in its place.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::{
    Axis, Dispatch, ElementType, Field, FieldValue, Kind, Layout, LayoutRequest, Linear, Model, Offload, Planned,
    Schedule, SpecError, toml_text,
};

/// The fields of a layout that a file says. Each is written as on the command line, and may be left out; unknown fields
/// are errors. A table `planned` says what the layout was planned for.
///
/// ```
/// use quadrille_spec::{Field, LayoutFile};
///
/// let file = LayoutFile::from_toml(
///     "grid = \"x=2,pipe=2\"\nschedule = \"1f1b\"\nrecompute = \"full:2\"\nmicrobatch = 1\n",
/// )?;
/// assert_eq!(file.get(Field::Grid).unwrap().to_string(), "x=2,pipe=2");
/// assert!(LayoutFile::from_toml("pipes = 2").is_err());
/// # Ok::<(), quadrille_spec::SpecError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LayoutFile {
    said: BTreeMap<Field, FieldValue>,
    planned: Option<Planned>,
}

impl LayoutFile {
    /// Reads a file's text.
    ///
    /// # Errors
    /// Names the line that is no layout.
    pub fn from_toml(text: &str) -> Result<Self, SpecError> {
        toml_text::read("a layout", text)
    }

    /// All choices of a layout; types and the place of states only where they are not the usual ones.
    pub fn of(layout: &Layout) -> Self {
        let said = Field::ALL.into_iter().filter(|field| match field {
            Field::SummaPanels => layout.linear == Linear::Summa,
            Field::ExpertsOver => !layout.experts_over.is_empty() || layout.grid.size(Axis::Expert) > 1,
            Field::Dispatch => layout.dispatch != Dispatch::Dropped,
            Field::ExpertRows => layout.expert_rows != 0,
            Field::MicrobatchGroup => layout.schedule == Schedule::Interleaved,
            Field::Offload | Field::Bucket | Field::OptimizerOverlap => layout.offload != Offload::None,
            Field::Dtype => layout.dtype != ElementType::F32,
            Field::Gradients => layout.gradients != layout.dtype.real().into(),
            _ => true,
        });
        Self { said: said.map(|field| (field, field.of(layout))).collect(), planned: None }
    }

    /// What is said of a field.
    pub fn get(&self, field: Field) -> Option<&FieldValue> {
        self.said.get(&field)
    }

    /// The number that is said of a field.
    pub fn size(&self, field: Field) -> Option<usize> {
        match self.get(field) {
            Some(FieldValue::Size(size)) => Some(*size),
            _ => None,
        }
    }

    /// Every field of which something is said, with it.
    pub fn iter(&self) -> impl Iterator<Item = (Field, &FieldValue)> {
        self.said.iter().map(|(field, value)| (*field, value))
    }

    /// What the layout was planned for, where the file says it.
    pub fn planned(&self) -> Option<&Planned> {
        self.planned.as_ref()
    }

    /// The same, planned for this.
    #[must_use]
    pub fn planned_for(self, planned: Planned) -> Self {
        Self { planned: Some(planned), ..self }
    }

    /// The same, and a field has this value.
    #[must_use]
    pub fn with(mut self, field: Field, value: FieldValue) -> Self {
        self.said.insert(field, value);
        self
    }

    /// The same, and nothing is said of a field.
    #[must_use]
    pub fn without(mut self, field: Field) -> Self {
        self.said.remove(&field);
        self
    }

    /// What either says; where both do, this one wins. With the other's offloading goes what is said of it.
    #[must_use]
    pub fn over(&self, other: &Self) -> Self {
        let mut both = other.clone();
        if self.get(Field::Offload) == Some(&FieldValue::Name(Offload::None.to_string())) {
            [Field::Bucket, Field::OptimizerOverlap].iter().for_each(|field| _ = both.said.remove(field));
        }
        both.said.extend(self.said.clone());
        both.planned = self.planned.clone().or(both.planned);
        both
    }

    /// The layout that the file alone says, held against the model's sizes; what it leaves out has its usual value.
    ///
    /// # Errors
    /// No `grid` or `global_batch`, a choice that is not known, a rule of layouts that is broken.
    pub fn validate(&self, model: &Model) -> Result<Layout, SpecError> {
        for field in [Field::Grid, Field::GlobalBatch] {
            if self.get(field).is_none() {
                return Err(SpecError::invalid(field.key(), "none", "a whole layout says it", "add it"));
            }
        }
        Layout::new(model, &self.request()?)
    }

    /// What the file alone asks for; what it leaves out has its usual value, on one rank with one sequence.
    ///
    /// # Errors
    /// Names the first choice that is not known.
    pub fn request(&self) -> Result<LayoutRequest, SpecError> {
        let mut request = LayoutRequest::new("x=1".parse()?, 1);
        self.apply(&mut request)?;
        Ok(request)
    }

    /// Sets what the file says in `request`.
    ///
    /// # Errors
    /// Names the first choice that is not known.
    pub fn apply(&self, request: &mut LayoutRequest) -> Result<(), SpecError> {
        self.iter().try_for_each(|(field, value)| field.set(request, value))
    }

    /// The file's text.
    ///
    /// # Errors
    /// None that is known: every field is text, a number, a truth or a list of numbers.
    pub fn to_toml(&self) -> Result<String, SpecError> {
        let grid = self.get(Field::Grid).map_or(String::new(), FieldValue::to_string);
        toml_text::write("a layout file", &grid, self)
    }
}

impl Serialize for LayoutFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.iter().try_for_each(|(field, value)| map.serialize_entry(field.key(), value))?;
        self.planned.iter().try_for_each(|planned| map.serialize_entry(Planned::KEY, planned))?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for LayoutFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = LayoutFile;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("the fields of a layout")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LayoutFile, A::Error> {
                let mut file = LayoutFile::default();
                while let Some(Key(field)) = map.next_key()? {
                    let Some(field) = field else {
                        if file.planned.replace(map.next_value()?).is_some() {
                            return Err(A::Error::duplicate_field(Planned::KEY));
                        }
                        continue;
                    };
                    let Some(value) = map.next_value_seed(field.kind())? else { continue };
                    if file.said.insert(field, value).is_some() {
                        return Err(A::Error::duplicate_field(field.key()));
                    }
                }
                Ok(file)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

impl JsonSchema for LayoutFile {
    fn schema_name() -> Cow<'static, str> {
        "LayoutFile".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let fields = Field::ALL.into_iter().map(|field| {
            let types: &[&str] = match field.kind() {
                Kind::Size => &["integer"],
                Kind::Length | Kind::Batch => &["integer", "string"],
                Kind::Truth => &["boolean"],
                Kind::Sizes => &["array"],
                Kind::Name => &["string"],
            };
            (field.key().to_owned(), json_schema!({ "description": field.help().trim(), "type": types }).to_value())
        });
        let planned = generator.subschema_for::<Planned>().to_value();
        let fields: Map<String, Value> = fields.chain([(Planned::KEY.to_owned(), planned)]).collect();
        json_schema!({
            "description": "Fields of a layout file.",
            "type": "object",
            "properties": fields,
            "additionalProperties": false,
        })
    }
}

/// A field by its key; `None`: the table of what was planned for.
struct Key(Option<Field>);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let key = String::deserialize(deserializer)?;
        if key == Planned::KEY {
            return Ok(Self(None));
        }
        let field = Field::ALL.into_iter().find(|field| field.key() == key);
        field.map(|field| Self(Some(field))).ok_or_else(|| D::Error::unknown_field(&key, &Field::KEYS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_is_read_as_it_was_written() {
        let model = Model::gpt(8, 48, 4, 101, 32);
        let lines = "grid = 'x=2,y=2,context=2,data=2,pipe=2'\norder = 'pipe,x,y,z,data'\nper_node = 4\n\
                     schedule = 'interleaved'\nchunks = 2\nrecompute = 'full:2'\ncac = true\nzero = 2\nmicrobatch = 2";
        let summa = "grid = 'x=2,y=2'\nlinear = 'summa'\nkeep_weights = 'step'\noverlap = 'oar'\nglobal_batch = 16";
        let offloaded = "grid = 'data=2'\noffload = 'host'\nbucket = 64\nglobal_batch = 16";
        let none = LayoutFile::from_toml("offload = 'none'").unwrap().over(&LayoutFile::from_toml(offloaded).unwrap());
        assert_eq!((none.get(Field::Bucket), none.request().is_ok()), (None, true));
        for text in [lines, summa, offloaded] {
            let read = |text: &str| {
                let mut request = LayoutRequest::new("x=1".parse().unwrap(), 32);
                LayoutFile::from_toml(text).unwrap().apply(&mut request).unwrap();
                Layout::new(&model, &request).unwrap()
            };
            let layout = read(text);
            assert_eq!(read(&LayoutFile::of(&layout).to_toml().unwrap()), layout);
            assert_eq!(LayoutFile::of(&layout).validate(&model).unwrap(), layout);
        }
    }

    #[test]
    fn what_was_planned_for_is_kept_beside_the_layout() {
        let text = "grid = 'x=2'\nglobal_batch = 4\n[planned]\nframework = 'megatron'\nproducts = 'fp8'";
        let file = LayoutFile::from_toml(text).unwrap();
        let planned =
            Planned { framework: "megatron".to_owned(), products: Some("fp8".to_owned()), ..Planned::default() };
        assert_eq!(file.planned(), Some(&planned));
        assert_eq!(LayoutFile::from_toml(&file.to_toml().unwrap()).unwrap(), file);
        let model = Model::gpt(8, 48, 4, 101, 32);
        let layout = file.validate(&model).unwrap();
        assert_eq!(LayoutFile::of(&layout).planned(), None);
        // What is said last wins, and choices alone leave it.
        let flags = LayoutFile::from_toml("microbatch = 1").unwrap();
        assert_eq!(flags.over(&file).planned(), Some(&planned));
        let other = Planned { framework: "fsdp".to_owned(), ..Planned::default() };
        assert_eq!(flags.planned_for(other.clone()).over(&file).planned(), Some(&other));
        let message = |text| LayoutFile::from_toml(text).unwrap_err().to_string();
        let unknown = message("[planned]\nframework = 'fsdp'\nfloors = 2");
        assert!(unknown.contains("unknown field `floors`"), "{unknown}");
        assert!(message("[planned]\nproducts = 'fp8'").contains("missing field `framework`"));
    }

    #[test]
    fn what_a_whole_layout_needs_is_named() {
        let model = Model::gpt(8, 48, 4, 101, 32);
        let message = |text| LayoutFile::from_toml(text).unwrap().validate(&model).unwrap_err().to_string();
        assert_eq!(message("global_batch = 4"), "grid = none: a whole layout says it; add it");
        assert_eq!(message("grid = 'x=2'"), "global_batch = none: a whole layout says it; add it");
        assert!(message("grid = 'x=5'\nglobal_batch = 4").contains("x=5 does not divide heads = 4"));
    }

    /// 4 x 1024 x 1024 tokens are 512 sequences of 8,192; where the file does not say their length, the model does.
    #[test]
    fn a_batch_of_tokens_follows_from_the_length_of_sequences() {
        let model = Model { seq_len: 8192, ..Model::gpt(8, 48, 4, 101, 32) };
        let batch = |text: &str| {
            let layout = LayoutFile::from_toml(&format!("grid = 'x=2'\n{text}")).unwrap().validate(&model);
            layout.map(|layout| (layout.global_batch, layout.seq_len)).map_err(|error| error.to_string())
        };
        assert_eq!(batch("global_batch = '4M'\nseq_len = '8k'"), Ok((512, 8192)));
        assert_eq!(batch("global_batch = '4M'"), Ok((512, 8192)));
        assert_eq!(batch("global_batch = '0.5M'\nseq_len = 1024"), Ok((512, 1024)));
        assert_eq!(batch("global_batch = 4e3\nseq_len = '2k'"), Ok((4000, 2048)));
        assert_eq!(batch("global_batch = '32 tokens'\nseq_len = 16"), Ok((2, 16)));
        let told = "global-batch = 4194304 tokens: a step has whole sequences, of 1000 tokens each; give \"4194000 tokens\" (4194 \
                    sequences) or \"4195000 tokens\" (4195 sequences), or another `layout.seq_len`";
        assert_eq!(batch("global_batch = '4M'\nseq_len = 1000"), Err(told.to_owned()));
        assert!(batch("global_batch = '1k'").unwrap_err().contains("give at least 8192 tokens"));
        // As it is written it is read.
        let file = LayoutFile::from_toml("global_batch = '4M'\nseq_len = '8k'").unwrap();
        assert_eq!(file.get(Field::GlobalBatch), Some(&FieldValue::Tokens(4_194_304)));
        assert_eq!(LayoutFile::from_toml(&file.to_toml().unwrap()), Ok(file.clone()));
        let json: LayoutFile = serde_json::from_str(&serde_json::to_string(&file).unwrap()).unwrap();
        assert_eq!(json, file);
        for (text, part) in
            [("global_batch = '4MB'", "\"4MB\": it is a whole number of sequences"), ("seq_len = -1", "a whole number")]
        {
            let told = LayoutFile::from_toml(text).unwrap_err().to_string();
            assert!(told.contains("line 1") && told.contains(part), "{told}");
        }
    }

    #[test]
    fn what_is_no_layout_is_named_with_its_line() {
        let message = |text| LayoutFile::from_toml(text).unwrap_err().to_string();
        let unknown = message("zero = 1\npipes = 2");
        assert!(
            unknown.contains("line 2: unknown field `pipes`, expected one of `grid`, `order`, `per_node`"),
            "{unknown}"
        );
        assert!(message("chunks = 'two'").contains("line 1: invalid type: string \"two\", expected a whole number"));
        let read = serde_json::from_str::<LayoutFile>("{\"summa_panels\": null, \"chunks\": 2}").unwrap();
        assert_eq!(read, LayoutFile::default().with(Field::Chunks, 2.into()));
        let twice = serde_json::from_str::<LayoutFile>("{\"chunks\": 2, \"chunks\": 3}").unwrap_err().to_string();
        assert!(twice.contains("duplicate field `chunks`"), "{twice}");
    }
}
