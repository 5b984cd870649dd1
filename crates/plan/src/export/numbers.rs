//! Types of gradients, moments and operands of products in other frameworks' words.
//!
//! Megatron Core: `fp8`, `fp4` and their recipes, `grad_reduce_in_bf16` and the precision-aware optimizer, of the distributed one.
//! Megatron Bridge: recipes of `training/mixed_precision.py`, of 2026. torchtitan 0.2: `components/quantization`. DeepSpeed 0.19.8:
//! `data_types`.

use quadrille_cost::native::{Moments, NarrowFormat, Numbers};
use quadrille_spec::{ElementType, SpecError};

use super::fields::Fields;
use super::{Precision, Target};

/// What Megatron-LM is told; `sharded`: whether states of the optimizer are.
pub(super) fn of_megatron(target: &Target, sharded: bool) -> Result<Fields, SpecError> {
    check_sixteen_bits("Megatron-LM", target)?;
    let Numbers { gradients, moments, products } = target.numbers;
    let mut fields = Fields::default();
    if let Some(format) = products {
        let (kind, range, recipe) = match format {
            NarrowFormat::Fp8 => ("fp8", "hybrid", "tensorwise"),
            NarrowFormat::Fp8Block => ("fp8", "e4m3", "blockwise"),
            NarrowFormat::Mxfp8 => ("fp8", "e4m3", "mxfp8"),
            NarrowFormat::Nvfp4 => ("fp4", "e2m1", "nvfp4"),
        };
        let [range_field, recipe_field] =
            if kind == "fp8" { ["fp8_format", "fp8_recipe"] } else { ["fp4_format", "fp4_recipe"] };
        fields.say(range_field, range);
        fields.say(recipe_field, recipe);
    }
    fields.switch("grad_reduce_in_bf16", gradients == Some(ElementType::Bf16));
    let narrow = match moments {
        None | Some(Moments::F32) => return Ok(fields),
        Some(Moments::Bf16) => "bf16",
        Some(Moments::Fp8) => "fp8",
    };
    if !sharded {
        let rule = "Megatron-LM has such moments in its distributed optimizer";
        return Err(SpecError::invalid("moments", narrow, rule, "shard states: --zero 1, with data above 1"));
    }
    fields.switch("use_precision_aware_optimizer", true);
    fields.say("exp_avg_dtype", narrow);
    fields.say("exp_avg_sq_dtype", narrow);
    Ok(fields)
}

/// The recipe of Megatron Bridge, and what it does besides; `None`: f32 throughout. A recipe says what gradients are summed in,
/// whatever other sections say.
pub(super) fn recipe_of_bridge(target: &Target) -> Result<Option<(&'static str, &'static str)>, SpecError> {
    check_sixteen_bits("Megatron Bridge", target)?;
    check_gradients("Megatron Bridge", target)?;
    check_moments("Megatron Bridge", target)?;
    Ok(match (target.precision, target.numbers.products) {
        (Precision::F32, _) => None,
        (Precision::Bf16, None) => Some(("bf16_mixed", "")),
        (Precision::Bf16, Some(NarrowFormat::Fp8)) => Some((
            "bf16_with_fp8_current_scaling_mixed",
            "the first and the last block multiply in 16 bits, and weights are stored and gathered in 8",
        )),
        (Precision::Bf16, Some(NarrowFormat::Fp8Block)) => Some(("bf16_with_fp8_subchannel_scaling_mixed", "")),
        (Precision::Bf16, Some(NarrowFormat::Mxfp8)) => {
            Some(("bf16_with_mxfp8_mixed", "weights are stored and gathered in 8 bits"))
        }
        (Precision::Bf16, Some(NarrowFormat::Nvfp4)) => Some(("bf16_with_nvfp4_mixed", "")),
    })
}

/// A key of torchtitan's section `model`, and a section of its own.
pub(super) fn of_torchtitan(target: &Target) -> Result<(String, String), SpecError> {
    check_sixteen_bits("torchtitan", target)?;
    check_moments("torchtitan", target)?;
    check_gradients("torchtitan", target)?;
    let (name, recipe) = match target.numbers.products {
        None => return Ok(Default::default()),
        Some(NarrowFormat::Fp8) => ("float8", "tensorwise"),
        Some(NarrowFormat::Mxfp8) => ("mx", "mxfp8_cublas"),
        Some(format @ (NarrowFormat::Fp8Block | NarrowFormat::Nvfp4)) => {
            let rule = "torchtitan casts to 8 bits with a scale for a tensor (fp8), or for 32 elements (mxfp8)";
            return Err(SpecError::invalid("products", format, rule, "use one of them, or export to megatron"));
        }
    };
    let converters = format!("converters = [\"quantize.linear.{name}\"]\n");
    // The head multiplies in 16 bits.
    Ok((converters, format!("\n[quantize.linear.{name}]\nrecipe_name = {recipe:?}\nfilter_fqns = [\"output\"]\n")))
}

/// Lines of DeepSpeed's configuration.
pub(super) fn of_deepspeed(target: &Target) -> Result<Option<String>, SpecError> {
    check_products("DeepSpeed", target)?;
    check_moments("DeepSpeed", target)?;
    let name = |gradients| if gradients == ElementType::Bf16 { "bf16" } else { "fp32" };
    Ok(target.numbers.gradients.map(|it| format!("\"data_types\": {{ \"grad_accum_dtype\": {:?} }}", name(it))))
}

/// Refuses whatever is said.
pub(super) fn check_none(who: &str, target: &Target) -> Result<(), SpecError> {
    check_products(who, target)?;
    check_gradients(who, target)?;
    check_moments(who, target)
}

/// Narrow products and gradients go with weights of 16 bits.
fn check_sixteen_bits(who: &str, target: &Target) -> Result<(), SpecError> {
    let Numbers { gradients, products, .. } = target.numbers;
    let narrow = products.map(|format| ("products", format.to_string()));
    let narrow = narrow.or(gradients.filter(|it| *it == ElementType::Bf16).map(|it| ("gradients", it.to_string())));
    match narrow.filter(|_| target.precision == Precision::F32) {
        Some((field, value)) => {
            let rule = format!("{who} has them beside weights and activations of 16 bits");
            Err(SpecError::invalid(field, value, rule, "export in bf16"))
        }
        None => Ok(()),
    }
}

fn check_products(who: &str, target: &Target) -> Result<(), SpecError> {
    refuse("products", target.numbers.products, who, "multiplies in the type of the weights")
}

fn check_gradients(who: &str, target: &Target) -> Result<(), SpecError> {
    let narrow = target.numbers.gradients.filter(|gradients| *gradients != ElementType::F32);
    refuse("gradients", narrow, who, "sums gradients in f32, or as its code says")
}

fn check_moments(who: &str, target: &Target) -> Result<(), SpecError> {
    let narrow = match target.numbers.moments {
        None | Some(Moments::F32) => None,
        Some(Moments::Bf16) => Some("bf16"),
        Some(Moments::Fp8) => Some("fp8"),
    };
    refuse("moments", narrow, who, "has no word for what moments are stored in")
}

fn refuse(field: &str, said: Option<impl std::fmt::Display>, who: &str, rule: &str) -> Result<(), SpecError> {
    said.map_or(Ok(()), |said| {
        Err(SpecError::invalid(field, said, format!("{who} {rule}"), "leave it out, or export to megatron"))
    })
}
