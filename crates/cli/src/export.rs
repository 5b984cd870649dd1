//! `quadrille export`: a layout as another framework's flags or configuration.

use clap::{Args, ValueEnum};
use quadrille_cost::native::{self, NarrowFormat, Numbers};
use quadrille_plan::export::{Export, Framework, Precision, Target, export};
use quadrille_report::ReportVersion;
use quadrille_report::conversion::OptionsReport;
use quadrille_run::{LayoutDefaults, SaidLayout};
use quadrille_spec::{
    AxisOrder, Cluster, Device, ElementType, Field, Layout, LayoutFile, LayoutRequest, Planned, SpecError,
};

use crate::arguments::ModelArguments;
use crate::explain::MODEL;
use crate::failure::Failure;
use crate::layout_arguments::LayoutArguments;
use crate::numbers::NumberArguments;
use crate::output::{print_json, print_text, remark};
use crate::parse::whole;

/// Types that every framework trains in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportType {
    /// bf16 with master weights in f32.
    Bf16,
    /// f16 with master weights in f32 and a scaled loss.
    F16,
    /// f32 throughout.
    F32,
}

#[derive(Debug, Args)]
pub struct ExportArguments {
    #[command(flatten)]
    pub model: ModelArguments,
    /// The framework: megatron (flags), torchtitan (TOML), deepspeed (JSON), nemo (Megatron Bridge, YAML) or axonn
    /// (Python)
    #[arg(long, value_name = "FRAMEWORK")]
    pub to: Framework,
    /// Devices of a node [default: ranks that share a node in the layout; where neither it nor a --cluster says, at most 8]
    #[arg(long, value_name = "N", value_parser = whole::<usize>(..))]
    pub gpus_per_node: Option<usize>,
    /// Type to train in [default: bf16; of a layout file that was planned for quadrille, or names a dtype, that type; f16 for a
    /// --cluster, or a layout planned for one, whose devices have no bf16]
    #[arg(long, value_enum, value_name = "TYPE")]
    pub dtype: Option<ExportType>,
    #[command(flatten)]
    pub numbers: NumberArguments,
    /// Fail (exit code 1) if a part of the layout cannot be expressed, instead of warning
    #[arg(long)]
    pub strict: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    #[command(flatten, next_help_heading = "Layout")]
    pub layout: LayoutArguments,
}

/// What gradients are to be summed in: the framework's choice, not the layout's.
fn gradients(said: &SaidLayout) -> Result<Option<ElementType>, Failure> {
    let mut request = LayoutRequest::new("x=1".parse()?, 1);
    let said = said.choices.get(Field::Gradients);
    said.map_or(Ok(()), |gradients| Field::Gradients.set(&mut request, gradients))?;
    match request.gradients {
        Some(gradients @ (ElementType::F64 | ElementType::F16)) => Err(Failure::usage(format!(
            "--gradients {gradients}: other frameworks sum them in f32 or bf16; give one of them"
        ))),
        gradients => Ok(gradients),
    }
}

/// The framework that a layout file was planned for, with the types of its numbers.
fn planned(file: &LayoutFile, layout: &Layout) -> Result<Option<native::Framework>, Failure> {
    let framework = |planned: &Planned| Ok(native::Framework::of_planned(planned)?.in_types_of(layout));
    file.planned().map(framework).transpose()
}

/// The type to train in.
fn precision(
    typed: Option<ExportType>,
    file: &LayoutFile,
    layout: &Layout,
    planned: Option<&native::Framework>,
    cluster: &Cluster,
) -> Precision {
    let is_said = file.get(Field::Dtype).is_some() || planned.is_some_and(native::Framework::is_own);
    match typed {
        Some(ExportType::F16) => Precision::F16,
        Some(ExportType::F32) => Precision::F32,
        None if is_said => Precision::of(layout.dtype),
        None => Precision::of(planned.unwrap_or(&native::Framework::MEGATRON).on(cluster).dtype),
        Some(ExportType::Bf16) => Precision::Bf16,
    }
}

/// Checks that a device has products of the types that are exported for it.
fn check_device(device: &Device, precision: Precision, products: Option<NarrowFormat>) -> Result<(), SpecError> {
    let dtype = match precision {
        Precision::Bf16 => ElementType::Bf16,
        Precision::F16 => ElementType::F16,
        Precision::F32 => ElementType::F32,
    };
    if device.peak.of(dtype).is_none() {
        let rule = format!("{} has no products of {dtype}", device.name);
        return Err(SpecError::invalid("dtype", dtype, rule, "give another type, or name another cluster"));
    }
    products.map_or(Ok(()), |products| products.check_on(device))
}

/// Devices of a node where nothing says how many: most machines have as many.
const USUAL_NODE: usize = 8;

/// The most devices of a usual node that share `ranks` evenly.
fn usual_node(ranks: usize) -> usize {
    (1..=USUAL_NODE).rev().find(|devices| ranks.is_multiple_of(*devices)).unwrap_or(1)
}

/// Prints the text to standard output, what it leaves out to standard error.
pub fn run(arguments: &ExportArguments) -> Result<(), Failure> {
    let model = arguments.model.described(MODEL)?;
    let said = arguments.layout.said(None);
    let file = said.read()?;
    let numbers = Numbers { gradients: gradients(&said)?, ..arguments.numbers.said() };
    let said = SaidLayout { choices: said.choices.without(Field::Gradients), ..said };
    let order = AxisOrder::usual_of(&arguments.to.to_string());
    let usual = LayoutDefaults { vocab_multiple: arguments.to.vocab_multiple(), order, ..LayoutDefaults::USUAL };
    let open = said.open(&usual)?;
    let says_nodes = open.request.per_node.is_some() || said.cluster.is_some();
    let layout = arguments.layout.held(&arguments.model, MODEL, open.resolve(&model))?;
    open.check_node(&layout)?;
    let ranks = layout.grid.ranks();
    let assumed = (arguments.gpus_per_node.is_none() && !says_nodes && ranks > USUAL_NODE).then(|| usual_node(ranks));
    let gpus_per_node = arguments.gpus_per_node.or(assumed).unwrap_or(layout.per_node);
    let planned = planned(&file, &layout)?;
    let precision = precision(arguments.dtype, &file, &layout, planned.as_ref(), &open.cluster);
    if arguments.dtype.is_some() && !arguments.to.trains_in(precision) {
        return Err(Failure::usage(format!("--dtype {precision}: not in {}; give bf16 or f32", arguments.to)));
    }
    if let (Some(_), Some(device)) = (&said.cluster, &open.cluster.device) {
        let products = numbers.products.or(planned.and_then(|planned| planned.numbers.products));
        check_device(device, precision, products)?;
    }
    let target = Target { gpus_per_node, precision, numbers, planned };
    let Export { text, cannot_express } = export(arguments.to, &model, &layout, &target)?;
    if arguments.strict && !cannot_express.is_empty() {
        let parts = cannot_express.join("\n  ");
        return Err(Failure::run(format!("--strict: {} cannot express\n  {parts}", arguments.to)));
    }
    if let Some(devices) = assumed {
        remark(
            "note",
            &format!("{devices} devices of a node are assumed; --gpus-per-node or --cluster says how many there are"),
        );
    }
    if let Some(planned) = planned.filter(|planned| !arguments.to.is_priced_as(planned)) {
        remark(
            "note",
            &format!("the layout was planned for {}; its time and memory are other ones here", planned.name),
        );
    }
    for part in &cannot_express {
        remark("warning", &format!("{} cannot express {part}", arguments.to));
    }
    if arguments.json {
        let framework = arguments.to.to_string();
        let version = ReportVersion::CURRENT;
        return print_json(&OptionsReport { version, framework, text, cannot_express });
    }
    print_text(&text)
}
