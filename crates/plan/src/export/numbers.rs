//! Types of gradients, moments and operands of products in other frameworks' words.
//!
//! The table of [`crate::frameworks`] says which of them each framework has, and by which option.

use std::fmt::Display;

use quadrille_cost::native::{Moments, NarrowFormat, Numbers};
use quadrille_spec::{ElementType, Layout, SpecError};

use super::fields::Fields;
use super::{Framework, Precision, Target};
use crate::frameworks::{Capability, Support};

/// Types that an export writes, and those that its framework lacks.
pub(super) struct Types {
    /// Types that are written.
    pub numbers: Numbers,
    /// True if attention is to store its scores.
    pub stores_scores: bool,
    /// Types with which the layout was planned that are not written, and operands that are cast in another way.
    pub gaps: Vec<String>,
}

/// A type that a framework lacks.
struct Lack {
    rule: String,
    remedy: &'static str,
}

/// A framework with what its types depend on.
struct Writer {
    framework: Framework,
    precision: Precision,
    /// True if ZeRO of DeepSpeed is on.
    shards: bool,
}

impl Types {
    /// Types that were asked for, and where nothing was asked for those with which the layout was planned. `shards`: ZeRO of
    /// DeepSpeed is on.
    ///
    /// # Errors
    /// A type that was asked for and that the framework lacks; moments that it does not store with states sharded so.
    pub fn new(framework: Framework, layout: &Layout, target: &Target, shards: bool) -> Result<Self, SpecError> {
        let writer = Writer { framework, precision: target.precision, shards };
        let asked = target.numbers;
        let planned = planned(layout, target);
        framework.check_moments(asked.moments.or(planned.moments), layout)?;
        let mut gaps = Vec::new();
        let products =
            settled("products", asked.products, planned.products, |it| writer.lack_of_products(it), &mut gaps)?;
        let moments = settled("moments", asked.moments, planned.moments, |it| writer.lack_of_moments(it), &mut gaps)?;
        let gradients =
            settled("gradients", asked.gradients, planned.gradients, |it| writer.lack_of_gradients(it), &mut gaps)?;
        let cast = products.map(|format| (format, framework.support(Capability::Products(format))));
        if let Some((format, Support::Partial(instead))) = cast {
            gaps.push(format!("products = {format}: {instead}"));
        }
        if layout.dtype == ElementType::F64 || layout.dtype == ElementType::F16 && target.precision != Precision::F16 {
            gaps.push(format!("dtype = {}: {} trains in {}", layout.dtype, framework.title(), target.precision));
        }
        let stores_scores = target.stores_scores();
        if let (true, Support::Absent(instead)) = (stores_scores, framework.support(Capability::StoredScores)) {
            gaps.push(format!("attention = stored scores: {instead}"));
        }
        Ok(Self { numbers: Numbers { gradients, moments, products }, stores_scores, gaps })
    }
}

impl Types {
    /// True if moments have a type of their own, which the distributed optimizer alone stores.
    pub fn has_narrow_moments(&self) -> bool {
        self.numbers.moments.is_some_and(|moments| moments != Moments::F32)
    }
}

/// The types with which a layout was planned; those of gradients may be the layout's own.
fn planned(layout: &Layout, target: &Target) -> Numbers {
    let own = (layout.gradients != layout.dtype.real().into()).then_some(layout.gradients);
    match target.planned.filter(|planned| !planned.is_own()) {
        Some(planned) => Numbers { gradients: own.or(Some(planned.gradients)), ..planned.numbers },
        None => Numbers { gradients: own, ..Numbers::default() },
    }
}

/// The asked type, an error if the framework lacks it; else the planned one, a gap if the framework lacks it.
fn settled<T: Copy + Display>(
    field: &str,
    asked: Option<T>,
    planned: Option<T>,
    lack: impl Fn(T) -> Option<Lack>,
    gaps: &mut Vec<String>,
) -> Result<Option<T>, SpecError> {
    let Some(value) = asked.or(planned) else { return Ok(None) };
    match (lack(value), asked) {
        (None, _) => Ok(Some(value)),
        (Some(Lack { rule, remedy }), Some(_)) => Err(SpecError::invalid(field, value, rule, remedy)),
        (Some(Lack { rule, .. }), None) => {
            gaps.push(format!("{field} = {value}: {rule}"));
            Ok(None)
        }
    }
}

impl Writer {
    fn lack_of_products(&self, format: NarrowFormat) -> Option<Lack> {
        self.lack_of_sixteen_bits().or_else(|| self.absent(Capability::Products(format)))
    }

    fn lack_of_gradients(&self, gradients: ElementType) -> Option<Lack> {
        let Self { framework, precision, shards, .. } = *self;
        let title = framework.title();
        match gradients {
            ElementType::Bf16 => self.lack_of_sixteen_bits().or_else(|| self.absent(Capability::NarrowGradients)),
            // Without ZeRO gradients have the type of the weights (engine.py, _do_optimizer_sanity_check).
            ElementType::F32 if framework == Framework::DeepSpeed && precision != Precision::F32 && !shards => {
                let rule = "DeepSpeed sums gradients in the type of the weights where ZeRO is off".to_owned();
                Some(Lack { rule, remedy: "shard states, e.g. --zero 1, or export in f32" })
            }
            ElementType::F32 => None,
            ElementType::F64 | ElementType::F16 => {
                let rule = format!("{title} sums gradients in f32 or bf16");
                Some(Lack { rule, remedy: "use one of them" })
            }
        }
    }

    fn lack_of_moments(&self, moments: Moments) -> Option<Lack> {
        if moments == Moments::F32 {
            return None;
        }
        self.absent(Capability::Moments(moments))
    }

    /// Narrow products and gradients go with weights in bf16.
    fn lack_of_sixteen_bits(&self) -> Option<Lack> {
        let weights = match self.precision {
            Precision::Bf16 => return None,
            Precision::F16 => "in bf16",
            Precision::F32 => "of 16 bits",
        };
        let rule = format!("{} has them beside weights and activations {weights}", self.framework.title());
        Some(Lack { rule, remedy: "export in bf16" })
    }

    fn absent(&self, capability: Capability) -> Option<Lack> {
        match self.framework.support(capability) {
            Support::Absent(instead) => {
                let rule = format!("not in {}: {instead}", self.framework.title());
                Some(Lack { rule, remedy: "leave it out, or export to megatron" })
            }
            Support::Whole | Support::Partial(_) => None,
        }
    }
}

/// Range and recipe of Transformer Engine's narrow products, by whether they are of 8 or of 4 bits.
fn of_transformer_engine(format: NarrowFormat) -> (&'static str, &'static str, &'static str) {
    match format {
        NarrowFormat::Fp8 => ("fp8", "hybrid", "tensorwise"),
        NarrowFormat::Fp8Block => ("fp8", "e4m3", "blockwise"),
        NarrowFormat::Mxfp8 => ("fp8", "e4m3", "mxfp8"),
        NarrowFormat::Nvfp4 => ("fp4", "e2m1", "nvfp4"),
    }
}

/// Fields of Megatron-LM.
pub(super) fn of_megatron(numbers: Numbers) -> Fields {
    let mut fields = Fields::default();
    if let Some(format) = numbers.products {
        let (kind, range, recipe) = of_transformer_engine(format);
        let [range_field, recipe_field] =
            if kind == "fp8" { ["fp8_format", "fp8_recipe"] } else { ["fp4_format", "fp4_recipe"] };
        fields.say(range_field, range);
        fields.say(recipe_field, recipe);
    }
    fields.switch("grad_reduce_in_bf16", numbers.gradients == Some(ElementType::Bf16));
    let narrow = numbers.moments.filter(|moments| *moments != Moments::F32);
    fields.switch("use_precision_aware_optimizer", narrow.is_some());
    if let Some(moments) = narrow {
        fields.say("exp_avg_dtype", moments);
        fields.say("exp_avg_sq_dtype", moments);
    }
    fields
}

/// `mixed_precision` of Megatron Bridge: a recipe, which decides what gradients are summed in whatever the section `ddp` says,
/// or where no recipe has them the fields of one; nothing in f32.
pub(super) fn mixed_precision_of_bridge(precision: Precision, numbers: Numbers) -> Option<String> {
    match precision {
        Precision::Bf16 => {}
        Precision::F16 => return Some("mixed_precision: fp16_mixed\n".to_owned()),
        Precision::F32 => return None,
    }
    if numbers.gradients != Some(ElementType::Bf16) {
        let recipe = match numbers.products {
            None => "bf16_mixed",
            Some(NarrowFormat::Fp8) => "bf16_with_fp8_current_scaling_mixed",
            Some(NarrowFormat::Fp8Block) => "bf16_with_fp8_subchannel_scaling_mixed",
            Some(NarrowFormat::Mxfp8) => "bf16_with_mxfp8_mixed",
            Some(NarrowFormat::Nvfp4) => "bf16_with_nvfp4_mixed",
        };
        return Some(format!("mixed_precision: {recipe}\n"));
    }
    let bf16 = "{ _target_: torch.bfloat16, _call_: false }";
    let mut text = format!(
        "mixed_precision:\n  _target_: megatron.bridge.training.mixed_precision.MixedPrecisionConfig\n  bf16: true\n  \
         params_dtype: {bf16}\n  pipeline_dtype: {bf16}\n  grad_reduce_in_fp32: false\n"
    );
    if let Some(format) = numbers.products {
        let (kind, range, recipe) = of_transformer_engine(format);
        text += &format!("  {kind}: {range}\n  {kind}_recipe: {recipe}\n");
    }
    Some(text)
}

/// The section `optimizer` of Megatron Bridge, where moments are narrow or states lie in the host's memory.
pub(super) fn optimizer_of_bridge(numbers: Numbers, offloads: bool) -> Option<String> {
    let dtype = numbers.moments.and_then(|moments| match moments {
        Moments::F32 => None,
        Moments::Bf16 => Some("torch.bfloat16"),
        Moments::Fp8 => Some("torch.uint8"),
    });
    if dtype.is_none() && !offloads {
        return None;
    }
    let mut text = "optimizer:\n  use_precision_aware_optimizer: true\n".to_owned();
    if let Some(dtype) = dtype {
        text += &format!("  exp_avg_dtype: {dtype}\n  exp_avg_sq_dtype: {dtype}\n");
    }
    if offloads {
        text += "  optimizer_cpu_offload: true\n";
    }
    Some(text)
}

/// A key of torchtitan's section `model`, and a section of its own. The head multiplies in 16 bits.
pub(super) fn of_torchtitan(numbers: Numbers) -> (String, String) {
    let converter = match numbers.products {
        Some(NarrowFormat::Fp8) => Some(("float8", "tensorwise")),
        Some(NarrowFormat::Mxfp8) => Some(("mx", "mxfp8_cublas")),
        _ => None,
    };
    let Some((name, recipe)) = converter else { return Default::default() };
    (
        format!("converters = [\"quantize.linear.{name}\"]\n"),
        format!("\n[quantize.linear.{name}]\nrecipe_name = {recipe:?}\nfilter_fqns = [\"output\"]\n"),
    )
}

/// A line of DeepSpeed's configuration.
pub(super) fn of_deepspeed(numbers: Numbers) -> Option<String> {
    let name = |gradients| if gradients == ElementType::Bf16 { "bf16" } else { "fp32" };
    numbers.gradients.map(|it| format!("\"data_types\": {{ \"grad_accum_dtype\": {:?} }}", name(it)))
}
