//! Planning question as plain data: what the command line, files, the server's bodies and Python's keywords all fill.

mod assignments;
mod budget;
mod framework;
mod resolve;
mod scalar;
mod source;

use quadrille_cost::native::{Moments, NarrowFormat};
use quadrille_spec::quantities::BatchSize;
use quadrille_spec::{ElementType, Field, FieldValue, FlopsConvention, Imbalance, LayoutFile, Sparsity, SpecError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::budget::Currency;
use super::question::Reserve;

pub use assignments::Assignments;
pub use framework::framework;
pub use resolve::Resolved;
pub use scalar::part_of;
pub use source::{ClusterSource, ModelSource};

/// Question that the planner answers: which layouts of a model on a number of devices are the fastest.
///
/// Every field has a default. The names are those of the options of `quadrille plan`, with `_` in place of `-`; choices of a
/// layout (`global_batch`, `seq_len`, `schedule`, ...) are fields like the others and are kept by the search. In files numbers
/// may be written as text, too (`tokens = "15T"`, `global_batch = "4M"`). A request names no files: models and clusters are presets or
/// tables.
///
/// ```
/// use quadrille_plan::native::PlanRequest;
///
/// let request = PlanRequest::from_toml(
///     "model = 'llama2-7b'\ncluster = 'dgx-h100'\ngpus = 16\nglobal_batch = 128\nmax = { pipe = 4 }",
/// )?;
/// assert_eq!(request, PlanRequest { max: "pipe=4".parse()?, ..PlanRequest::new("llama2-7b", "dgx-h100", 16, 128) });
/// assert!(PlanRequest::from_toml("gpu = 16").is_err());
/// # Ok::<(), quadrille_spec::SpecError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(
    description = "Question to the planner: which layouts of a model on a number of devices are the fastest. Fields have the \
                          names of the options of `quadrille plan`, with `_` in place of `-`; numbers may be text."
)]
#[serde(default)]
pub struct PlanRequest {
    /// Version of this format: [`PlanRequest::VERSION`].
    pub version: u32,
    /// Model to train; GPT-3 175B if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<scalar::DescriptionSchema>")]
    pub model: Option<ModelSource>,
    /// Fields of the model that replace its own, e.g. `layers = 4`.
    #[serde(skip_serializing_if = "Assignments::is_empty")]
    #[schemars(with = "scalar::AssignmentsSchema")]
    pub set: Assignments,
    /// Cluster; Selene if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<scalar::DescriptionSchema>")]
    pub cluster: Option<ClusterSource>,
    /// Number of devices, or several in ascending order, which `pareto` compares and `days` chooses from; 1,024, or as many as the
    /// grid of `layout` has, if left out.
    #[schemars(with = "scalar::CountsSchema")]
    #[serde(with = "scalar::counts", skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<usize>,
    /// Number of nodes (hosts) whose devices are all used, or several, in place of `gpus`.
    #[schemars(with = "scalar::CountsSchema")]
    #[serde(with = "scalar::counts", skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<usize>,
    /// Devices of a fast domain, in place of the cluster's own number.
    #[schemars(with = "Option<scalar::NumberSchema>")]
    #[serde(with = "scalar::number", skip_serializing_if = "Option::is_none")]
    pub nvs: Option<usize>,
    /// Framework that trains: megatron, megatron-stored, fsdp or quadrille; megatron if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framework: Option<String>,
    /// Part of the matrices of blocks that is pruned, for this program's engine.
    #[schemars(with = "Option<String>")]
    #[serde(with = "scalar::text", skip_serializing_if = "Option::is_none")]
    pub sparsity: Option<Sparsity>,
    /// Element type of the values, for this program's engine; f32 if left out.
    #[schemars(with = "Option<String>")]
    #[serde(with = "scalar::text", skip_serializing_if = "Option::is_none")]
    pub dtype: Option<ElementType>,
    /// Format to which operands of products are cast: fp8, fp8-block, mxfp8 or nvfp4.
    #[schemars(with = "Option<String>")]
    #[serde(with = "scalar::text", skip_serializing_if = "Option::is_none")]
    pub products: Option<NarrowFormat>,
    /// Element type of the optimizer's moments: f32, bf16 or fp8.
    #[schemars(with = "Option<String>")]
    #[serde(with = "scalar::text", skip_serializing_if = "Option::is_none")]
    pub moments: Option<Moments>,
    /// Rows of experts on the fullest rank over their mean; of a measured run by number of ranks. 1 if left out.
    #[schemars(with = "Option<scalar::ImbalanceSchema>")]
    #[serde(with = "scalar::imbalance", skip_serializing_if = "Option::is_none")]
    pub imbalance: Option<Imbalance>,
    /// True if layouts and types are searched that the framework lacks.
    #[serde(skip_serializing_if = "is_false")]
    pub any_layout: bool,
    /// Layout whose choices the search keeps, as in a layout file; of its grid the number of ranks counts.
    #[serde(skip_serializing_if = "is_empty")]
    pub layout: LayoutFile,
    /// Choices that the search keeps, e.g. `schedule = "1f1b"` or `x = 8`.
    #[serde(skip_serializing_if = "Assignments::is_empty")]
    #[schemars(with = "scalar::AssignmentsSchema")]
    pub fix: Assignments,
    /// Upper bounds of sizes, e.g. `pipe = 16`.
    #[serde(skip_serializing_if = "Assignments::is_empty")]
    #[schemars(with = "scalar::AssignmentsSchema")]
    pub max: Assignments,
    /// Lower bounds of sizes.
    #[serde(skip_serializing_if = "Assignments::is_empty")]
    #[schemars(with = "scalar::AssignmentsSchema")]
    pub min: Assignments,
    /// Memory of each device that stays free: `10%`, `4GB`, or `runs:97%` for as much that 97% of published runs would fit.
    #[schemars(with = "Option<String>")]
    #[serde(with = "scalar::text", skip_serializing_if = "Option::is_none")]
    pub memory_reserve: Option<Reserve>,
    /// Bound of the search's work: 1 for each bound and at least 64 for each price; unlimited if left out.
    #[schemars(with = "Option<scalar::NumberSchema>")]
    #[serde(with = "scalar::number", skip_serializing_if = "Option::is_none")]
    pub search_limit: Option<u64>,
    /// Tokens of the whole training.
    #[schemars(with = "Option<scalar::NumberSchema>")]
    #[serde(with = "scalar::amount", skip_serializing_if = "Option::is_none")]
    pub tokens: Option<f64>,
    /// Price of a device for an hour, in `currency`.
    #[schemars(with = "Option<scalar::NumberSchema>")]
    #[serde(with = "scalar::number", skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<f64>,
    /// Currency of prices, as three letters; USD if left out.
    #[schemars(with = "Option<String>")]
    #[serde(with = "scalar::text", skip_serializing_if = "Option::is_none")]
    pub currency: Option<Currency>,
    /// Days within which the training ends; of several numbers of devices the smallest is planned that does it.
    #[schemars(with = "Option<scalar::NumberSchema>")]
    #[serde(with = "scalar::number", skip_serializing_if = "Option::is_none")]
    pub days: Option<f64>,
    /// True if failures of devices are counted, as often as in the training of Llama 3 405B unless `mtbf` is given.
    #[serde(skip_serializing_if = "is_false")]
    pub goodput: bool,
    /// Device-hours between two failures of one device.
    #[schemars(with = "Option<scalar::NumberSchema>")]
    #[serde(with = "scalar::number", skip_serializing_if = "Option::is_none")]
    pub mtbf: Option<f64>,
    /// Bytes per second at which each device writes its states into a checkpoint.
    #[schemars(with = "Option<scalar::NumberSchema>")]
    #[serde(with = "scalar::number", skip_serializing_if = "Option::is_none")]
    pub checkpoint_bandwidth: Option<f64>,
    /// Seconds that a checkpoint takes, in place of `checkpoint_bandwidth`.
    #[schemars(with = "Option<scalar::NumberSchema>")]
    #[serde(with = "scalar::number", skip_serializing_if = "Option::is_none")]
    pub checkpoint_seconds: Option<f64>,
    /// Seconds from a failure until training continues.
    #[schemars(with = "Option<scalar::NumberSchema>")]
    #[serde(with = "scalar::number", skip_serializing_if = "Option::is_none")]
    pub restart_seconds: Option<f64>,
    /// Convention by which the FLOPs of TFLOP/s and MFU are counted: native, megatron or torchtitan.
    #[schemars(with = "Option<String>")]
    #[serde(with = "scalar::text", skip_serializing_if = "Option::is_none")]
    pub flops_convention: Option<FlopsConvention>,
    /// Number of layouts in the report; 10 if left out.
    #[schemars(with = "Option<scalar::NumberSchema>")]
    #[serde(with = "scalar::number", skip_serializing_if = "Option::is_none")]
    pub top: Option<usize>,
    /// True if variants of a layout are listed, which differ in neither sizes of axes nor the spreading of experts.
    #[serde(skip_serializing_if = "is_false")]
    pub variants: bool,
    /// True if the front of devices, time and memory is searched, over `gpus` or over all divisors of their number.
    #[serde(skip_serializing_if = "is_false")]
    pub pareto: bool,
    /// True if the fastest layout is recommended, however complex it is.
    #[serde(skip_serializing_if = "is_false")]
    pub exotic: bool,
    /// Part of the fastest layout's time by which a recommended simpler one may be slower, e.g. `5%`.
    #[schemars(with = "Option<scalar::NumberSchema>")]
    #[serde(with = "scalar::part", skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
    /// True if the recommended layout is explained.
    #[serde(skip_serializing_if = "is_false")]
    pub explain: bool,
    /// Choices of the layout, each with the name of its option: `global_batch`, `seq_len`, `schedule`, ...
    #[schemars(flatten, with = "LayoutFile")]
    #[serde(flatten, deserialize_with = "scalar::choices")]
    pub choices: LayoutFile,
}

impl Default for PlanRequest {
    fn default() -> Self {
        Self {
            version: Self::VERSION,
            model: None,
            set: Assignments::default(),
            cluster: None,
            gpus: Vec::new(),
            nodes: Vec::new(),
            nvs: None,
            framework: None,
            sparsity: None,
            dtype: None,
            products: None,
            moments: None,
            imbalance: None,
            any_layout: false,
            layout: LayoutFile::default(),
            fix: Assignments::default(),
            max: Assignments::default(),
            min: Assignments::default(),
            memory_reserve: None,
            search_limit: None,
            tokens: None,
            price_per_hour: None,
            currency: None,
            days: None,
            goodput: false,
            mtbf: None,
            checkpoint_bandwidth: None,
            checkpoint_seconds: None,
            restart_seconds: None,
            flops_convention: None,
            top: None,
            variants: false,
            pareto: false,
            exotic: false,
            tolerance: None,
            explain: false,
            choices: LayoutFile::default(),
        }
    }
}

impl PlanRequest {
    /// Version of the format.
    pub const VERSION: u32 = 1;

    /// Preset of the model where none is named.
    pub const MODEL: &str = "gpt3-175b";

    /// Preset of the cluster where none is named.
    pub const CLUSTER: &str = "selene";

    /// Number of layouts in a report where none is given.
    pub const TOP: usize = 10;

    /// The ten fastest layouts for Megatron-LM of a model on a number of devices of a cluster, for a number of sequences a step.
    pub fn new(
        model: impl Into<ModelSource>,
        cluster: impl Into<ClusterSource>,
        gpus: usize,
        global_batch: usize,
    ) -> Self {
        Self {
            model: Some(model.into()),
            cluster: Some(cluster.into()),
            gpus: vec![gpus],
            choices: LayoutFile::default().with(Field::GlobalBatch, global_batch.into()),
            ..Self::default()
        }
    }

    /// This request with a choice of the layout, as the option of that name takes it: `("schedule", "1f1b")`.
    ///
    /// # Errors
    /// No such option; text that is no value of it.
    pub fn with(self, option: &str, value: &str) -> Result<Self, SpecError> {
        let field = Field::ALL.into_iter().find(|field| field.key() == option);
        let field = field.ok_or_else(|| SpecError::Unknown {
            what: "choice of a layout",
            name: option.to_owned(),
            known: Field::KEYS.map(str::to_owned).to_vec(),
        })?;
        let choices = self.choices.with(field, field.parse(value)?);
        Ok(Self { choices, ..self })
    }

    /// Reads a request from TOML.
    ///
    /// # Errors
    /// Names the field, or the line, that is no part of a request.
    pub fn from_toml(text: &str) -> Result<Self, SpecError> {
        let read = toml::Deserializer::parse(text).map_err(|error| refused(text, &error))?;
        serde_path_to_error::deserialize(read).map_err(|error| of_field(text, error.path(), error.inner().message()))
    }

    /// Reads a request from JSON.
    ///
    /// # Errors
    /// Names the field, or the place, that is no part of a request.
    pub fn from_json(text: &str) -> Result<Self, SpecError> {
        let read = &mut serde_json::Deserializer::from_str(text);
        let named = |error: serde_path_to_error::Error<serde_json::Error>| {
            of_field(text, error.path(), &error.inner().to_string())
        };
        let request = serde_path_to_error::deserialize(&mut *read).map_err(named)?;
        read.end().map_err(|error| refused(text, &error))?;
        Ok(request)
    }

    /// This request as JSON, without fields that have their default.
    ///
    /// # Errors
    /// None that is known: every field is text, a number, a truth or a table of them.
    pub fn to_json(&self) -> Result<String, SpecError> {
        serde_json::to_string_pretty(self).map_err(|error| refused("", &error))
    }

    /// This request, whose fields replace those of `other` (a merge patch, RFC 7396). Descriptions and layouts are replaced as a whole,
    /// and a field replaces the one that excludes it.
    ///
    /// # Errors
    /// As [`Self::from_json`].
    pub fn over(&self, other: &Self) -> Result<Self, SpecError> {
        let value = |request: &Self| serde_json::to_value(request.scalars()).map_err(|error| refused("", &error));
        let mut merged = value(&self.without_excluded(other))?;
        scalar::merge(&mut merged, value(self)?);
        let merged = Self::from_json(&merged.to_string())?;
        let is_layout_given = self.layout != LayoutFile::default();
        Ok(Self {
            model: self.model.clone().or(other.model.clone()),
            cluster: self.cluster.clone().or(other.cluster.clone()),
            imbalance: self.imbalance.clone().or(other.imbalance.clone()),
            layout: if is_layout_given { self.layout.clone() } else { other.layout.clone() },
            set: self.set.over(&other.set),
            fix: self.fix.over(&other.fix),
            max: self.max.over(&other.max),
            min: self.min.over(&other.min),
            ..merged
        })
    }

    /// This request without the fields that are tables.
    fn scalars(&self) -> Self {
        let assignments = Assignments::default;
        let layout = LayoutFile::default();
        let [set, fix, max, min] = [assignments(), assignments(), assignments(), assignments()];
        Self { model: None, cluster: None, imbalance: None, layout, set, fix, max, min, ..self.clone() }
    }

    /// `other` without fields that exclude fields of this request.
    fn without_excluded(&self, other: &Self) -> Self {
        let mut other = other.clone();
        if !(self.gpus.is_empty() && self.nodes.is_empty()) {
            other.gpus.clear();
            other.nodes.clear();
        }
        if self.checkpoint_seconds.or(self.checkpoint_bandwidth).is_some() {
            other.checkpoint_seconds = None;
            other.checkpoint_bandwidth = None;
        }
        if self.exotic || self.tolerance.is_some() {
            other.exotic = false;
            other.tolerance = None;
        }
        other
    }

    /// Number of sequences or tokens of a step, if it is given.
    pub fn batch(&self) -> Option<BatchSize> {
        match self.choices.over(&self.layout).get(Field::GlobalBatch)? {
            FieldValue::Size(sequences) => Some(BatchSize::Sequences(*sequences)),
            FieldValue::Tokens(tokens) => Some(BatchSize::Tokens(*tokens)),
            _ => None,
        }
    }
}

fn refused(text: &str, error: &dyn std::fmt::Display) -> SpecError {
    let text: String = text.lines().next().unwrap_or_default().chars().take(40).collect();
    SpecError::Syntax { what: "a plan request", text, reason: error.to_string().trim_end().to_owned() }
}

/// The error of a field, by its path; fields of layouts have their names in the message.
fn of_field(text: &str, path: &serde_path_to_error::Path, error: &str) -> SpecError {
    let path = path.to_string();
    let message = error.split(" at line ").next().unwrap_or_default().trim_end();
    let (path, reason) = match message.split_once(": \"") {
        Some((name, _)) if path == "." && !name.contains(' ') => (name.to_owned(), &message[name.len() + 2..]),
        _ => (path, message),
    };
    let quoted = reason.strip_prefix('"').and_then(|rest| rest.split_once("\": "));
    match (path.as_str(), quoted) {
        (".", _) => refused(text, &error),
        (path, Some((value, rule))) => {
            let (rule, remedy) = rule.split_once("; ").unwrap_or((rule, "`quadrille help plan` describes it"));
            SpecError::invalid(path, value, rule, remedy)
        }
        (path, None) => refused(text, &format!("{path}: {error}")),
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_empty(file: &LayoutFile) -> bool {
    *file == LayoutFile::default()
}
