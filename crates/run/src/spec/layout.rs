//! How a step is spread over ranks, and what of it nobody has asked for.

use quadrille_spec::{ElementType, Field, Layout, LayoutFile, Linear, Model, Offload, Schedule, SpecError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A layout, and what becomes of it when a part of it is changed.
#[derive(Debug, Clone, PartialEq)]
pub struct LayoutSpec {
    /// Every choice.
    pub layout: Layout,
    /// Choices that nobody has made: they have followed from the others, and follow anew where a command line changes others.
    /// [`crate::RunChanges::layout`] replaces all of them.
    pub open: Vec<Field>,
    /// The cluster that they follow from: a preset's name or a file.
    pub cluster: String,
}

impl LayoutSpec {
    /// The cluster of layouts where nobody names one.
    pub const CLUSTER: &str = "local";
    /// Choices that may follow from others.
    pub const MAY_FOLLOW: [Field; 6] = [
        Field::Grid,
        Field::PerNode,
        Field::SummaPanels,
        Field::MicrobatchGroup,
        Field::StageBlocks,
        Field::Microbatch,
    ];

    /// A layout of which every choice was made.
    pub fn of(layout: Layout) -> Self {
        Self { layout, open: Vec::new(), cluster: Self::CLUSTER.to_owned() }
    }

    /// The choices that were made, the type of the values among them.
    pub fn made(&self) -> LayoutFile {
        self.open.iter().fold(self.all(), |file, field| file.without(*field))
    }

    /// All choices, whether they were made or have followed.
    pub fn all(&self) -> LayoutFile {
        choices(&self.layout)
    }
}

/// All choices of a layout, the type of its values among them.
fn choices(layout: &Layout) -> LayoutFile {
    [Field::Dtype, Field::Gradients, Field::Offload]
        .into_iter()
        .fold(LayoutFile::of(layout), |file, field| file.with(field, field.of(layout)))
}

/// The same as text, not yet held against a model.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LayoutText {
    choices: LayoutFile,
    open: Vec<String>,
    cluster: String,
}

impl From<LayoutSpec> for LayoutText {
    fn from(spec: LayoutSpec) -> Self {
        let open = spec.open.iter().map(|field| field.key().to_owned()).collect();
        Self { choices: choices(&spec.layout), open, cluster: spec.cluster }
    }
}

impl LayoutText {
    /// Holds it against the model.
    pub(super) fn validate(self, model: &Model) -> Result<LayoutSpec, SpecError> {
        let layout = self.choices.validate(model)?;
        let field = |key: String| {
            let field = LayoutSpec::MAY_FOLLOW.into_iter().find(|field| field.key() == key);
            field.ok_or_else(|| SpecError::Unknown {
                what: "choice that follows from others",
                name: key,
                known: LayoutSpec::MAY_FOLLOW.map(|field| field.key().to_owned()).to_vec(),
            })
        };
        let open = self.open.into_iter().map(field).collect::<Result<_, _>>()?;
        Ok(LayoutSpec { layout, open, cluster: self.cluster })
    }
}

/// Fields of a layout in reports: all of them; panels, groups and buckets where there are some.
pub fn shown_layout(layout: &Layout) -> LayoutFile {
    let shown = Field::ALL.into_iter().filter(|field| match field {
        Field::SummaPanels => layout.linear == Linear::Summa,
        Field::MicrobatchGroup => layout.schedule == Schedule::Interleaved,
        Field::Offload | Field::Bucket | Field::OptimizerOverlap => layout.offload != Offload::None,
        _ => true,
    });
    shown.fold(LayoutFile::default(), |file, field| file.with(field, field.of(layout)))
}

/// What a document shows of a layout, as a layout file says it: types only where they are not the usual ones.
///
/// # Errors
/// A field that no layout has, or a value of another kind than its field's.
pub fn layout_of_json(document: Value) -> Result<LayoutFile, serde_json::Error> {
    let shown: LayoutFile = serde_json::from_value(document)?;
    let of_type = |field, usual: ElementType| shown.get(field).is_some_and(|it| it.to_string() == usual.to_string());
    let dtype = shown.get(Field::Dtype).map_or(Ok(ElementType::F32), |dtype| dtype.to_string().parse::<ElementType>());
    let usual_gradients = dtype.is_ok_and(|dtype| of_type(Field::Gradients, dtype.real().into()));
    let usual_values = of_type(Field::Dtype, ElementType::F32);
    let shown = if usual_gradients { shown.without(Field::Gradients) } else { shown };
    Ok(if usual_values { shown.without(Field::Dtype) } else { shown })
}

#[cfg(test)]
mod tests {
    use quadrille_spec::LayoutRequest;
    use serde_json::json;

    use super::*;

    fn shown_json(layout: &Layout) -> Value {
        serde_json::to_value(shown_layout(layout)).unwrap()
    }

    #[test]
    fn what_documents_show_is_read_as_files_say_it() {
        let model = Model::preset("gpt-tiny").unwrap();
        for (dtype, gradients) in [
            (ElementType::F32, None),
            (ElementType::F64, None),
            (ElementType::Bf16, None),
            (ElementType::Bf16, Some(ElementType::Bf16)),
        ] {
            let request = LayoutRequest { dtype, gradients, ..LayoutRequest::new("x=2,pipe=2".parse().unwrap(), 4) };
            let layout = Layout::new(&model, &request).unwrap();
            let read = layout_of_json(shown_json(&layout)).unwrap();
            assert_eq!(read.validate(&model).unwrap(), layout);
            // As files are read, but for types that a file says where they are not the usual ones.
            let shown: LayoutFile = serde_json::from_value(shown_json(&layout)).unwrap();
            assert_eq!(shown.validate(&model).unwrap(), layout);
            let mut grouped = shown_json(&layout);
            grouped["microbatch_group"] = json!(2);
            let error = layout_of_json(grouped).unwrap().validate(&model).unwrap_err().to_string();
            assert!(error.contains("only the interleaved schedule has groups"), "{error}");
            let file = LayoutFile::of(&layout);
            assert_eq!(
                [Field::Dtype, Field::Gradients].map(|it| read.get(it)),
                [Field::Dtype, Field::Gradients].map(|it| file.get(it))
            );
        }
        assert!(layout_of_json(json!({ "gird": "x=2" })).is_err());
    }
}
