//! Types of numbers with which a layout was planned: exported, or named as what a framework lacks.

use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use quadrille_cost::native::{self, Moments, NarrowFormat, Numbers};
use quadrille_plan::export::{Export, Framework, Precision, Target, export};
use quadrille_spec::{Axis, ElementType, Grid, Layout, LayoutFile, LayoutRequest, Model, Zero};

use crate::export::TARGET;

/// The types that a framework reads in an exported text.
fn read(framework: Framework, text: &str) -> Numbers {
    match framework {
        Framework::Megatron => read_flags(text),
        Framework::Nemo => read_overrides(text),
        Framework::Torchtitan => Numbers { products: read_converters(&text.parse().unwrap()), ..Numbers::default() },
        Framework::DeepSpeed => {
            let file: serde_json::Value = serde_json::from_str(text).unwrap();
            let gradients = file["data_types"]["grad_accum_dtype"].as_str().map(|name| match name {
                "bf16" => ElementType::Bf16,
                "fp32" => ElementType::F32,
                other => panic!("{other} is no type of data_types"),
            });
            Numbers { gradients, ..Numbers::default() }
        }
        Framework::Axonn => Numbers::default(),
    }
}

/// The recipe of Transformer Engine as a format.
fn recipe(name: &str) -> NarrowFormat {
    match name {
        "tensorwise" => NarrowFormat::Fp8,
        "blockwise" => NarrowFormat::Fp8Block,
        "mxfp8" => NarrowFormat::Mxfp8,
        "nvfp4" => NarrowFormat::Nvfp4,
        other => panic!("{other} is no recipe"),
    }
}

fn read_flags(text: &str) -> Numbers {
    let flags: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace).collect();
    let value = |name: &str| flags.iter().position(|flag| *flag == name).map(|at| flags[at + 1]);
    let moments = value("--exp-avg-dtype").map(|name| name.parse::<Moments>().unwrap());
    assert_eq!(moments.is_some(), flags.contains(&"--use-precision-aware-optimizer"));
    assert!(moments.is_none() || flags.contains(&"--use-distributed-optimizer"), "{text}");
    Numbers {
        gradients: flags.contains(&"--grad-reduce-in-bf16").then_some(ElementType::Bf16),
        moments,
        products: value("--fp8-recipe").or(value("--fp4-recipe")).map(recipe),
    }
}

/// Keys of two levels of YAML: `section.key`.
fn read_overrides(text: &str) -> Numbers {
    let mut section = String::new();
    let mut values = std::collections::BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (key, value) = line.trim().split_once(':').unwrap();
        match (line.starts_with(' '), value.trim()) {
            (false, "") => section = key.to_owned(),
            (false, value) => _ = values.insert(key.to_owned(), value.to_owned()),
            (true, value) => _ = values.insert(format!("{section}.{key}"), value.to_owned()),
        }
    }
    let value = |key: &str| values.get(key).map(String::as_str);
    let of_recipe = value("mixed_precision").and_then(|name| match name {
        "bf16_mixed" => None,
        "bf16_with_fp8_current_scaling_mixed" => Some(NarrowFormat::Fp8),
        "bf16_with_fp8_subchannel_scaling_mixed" => Some(NarrowFormat::Fp8Block),
        "bf16_with_mxfp8_mixed" => Some(NarrowFormat::Mxfp8),
        "bf16_with_nvfp4_mixed" => Some(NarrowFormat::Nvfp4),
        other => panic!("{other} is no recipe"),
    });
    let of_fields = value("mixed_precision.fp8_recipe").or(value("mixed_precision.fp4_recipe")).map(recipe);
    let narrow = value("mixed_precision.grad_reduce_in_fp32") == Some("false");
    assert_eq!(value("ddp.grad_reduce_in_fp32") == Some("false"), narrow, "{text}");
    let moments = value("optimizer.exp_avg_dtype").map(|name| match name {
        "torch.bfloat16" => Moments::Bf16,
        "torch.uint8" => Moments::Fp8,
        other => panic!("{other} is no type of moments"),
    });
    Numbers { gradients: narrow.then_some(ElementType::Bf16), moments, products: of_recipe.or(of_fields) }
}

fn read_converters(file: &toml::Table) -> Option<NarrowFormat> {
    let converters = file["model"].as_table().unwrap().get("converters")?.as_array().unwrap();
    let linear = &file["quantize"]["linear"];
    match converters.as_slice() {
        [only] if only.as_str() == Some("quantize.linear.float8") => {
            assert_eq!(linear["float8"]["recipe_name"].as_str(), Some("tensorwise"));
            Some(NarrowFormat::Fp8)
        }
        [only] if only.as_str() == Some("quantize.linear.mx") => {
            assert_eq!(linear["mx"]["recipe_name"].as_str(), Some("mxfp8_cublas"));
            Some(NarrowFormat::Mxfp8)
        }
        other => panic!("{other:?} are no converters"),
    }
}

/// Every type is read back as it was planned, or named; a type that is every framework's usual one needs no word.
fn check_types(framework: Framework, planned: Numbers, export: &Export) {
    let Export { text, cannot_express } = export;
    let found = read(framework, text);
    let is_named =
        |field: &str, value: String| cannot_express.iter().any(|gap| gap.starts_with(&format!("{field} = {value}: ")));
    let Numbers { gradients, moments, products } = planned;
    if let Some(format) = products {
        assert!(found.products == Some(format) || is_named("products", format.to_string()), "{framework}: {export:?}");
    }
    if let Some(moments) = moments.filter(|moments| *moments != Moments::F32) {
        assert!(found.moments == Some(moments) || is_named("moments", moments.to_string()), "{framework}: {export:?}");
    }
    match gradients {
        Some(gradients @ ElementType::Bf16) => {
            assert!(found.gradients == Some(gradients) || is_named("gradients", gradients.to_string()), "{export:?}");
        }
        _ => assert_ne!(found.gradients, Some(ElementType::Bf16), "{framework}: {export:?}"),
    }
    // Nothing is written that was not planned.
    assert!(found.products.is_none() || found.products == products, "{framework}: {text}");
    assert!(found.moments.is_none() || found.moments == moments, "{framework}: {text}");
}

fn numbers() -> impl Strategy<Value = Numbers> {
    let formats = NarrowFormat::ALL.map(|(_, format)| format).to_vec();
    let moments = Moments::ALL.map(|(_, moments)| moments).to_vec();
    let gradients = vec![ElementType::F32, ElementType::Bf16];
    (option::of(select(gradients)), option::of(select(moments)), option::of(select(formats)))
        .prop_map(|(gradients, moments, products)| Numbers { gradients, moments, products })
}

proptest! {
    /// A layout goes through its file: the types are those of the table `planned`.
    #[test]
    fn planned_types_are_exported_or_named(
        ranks in 1_usize..=16, pick in any::<prop::sample::Index>(), planned in numbers(), wide in any::<bool>(),
        priced in select(vec![native::Framework::MEGATRON, native::Framework::MEGATRON_STORED, native::Framework::FSDP]),
        zero in select(Zero::ALL.map(|(_, zero)| zero).to_vec()),
    ) {
        let model = Model::preset("llama-tiny").unwrap();
        let grids = Grid::all_over(ranks, [Axis::X, Axis::Z, Axis::Data, Axis::Pipe].into_iter().collect());
        let grid = grids[pick.index(grids.len())];
        let batch = 2 * grid.size(Axis::Z) * grid.size(Axis::Pipe) * grid.batch_shares();
        let request = LayoutRequest { zero, ..LayoutRequest::new(grid, batch) };
        let Ok(layout) = Layout::new(&model, &request) else { return Ok(()) };
        let text = LayoutFile::of(&layout).planned_for(priced.in_formats(planned).planned()).to_toml().unwrap();
        let file = LayoutFile::from_toml(&text).unwrap();
        let read = native::Framework::by_name(&file.planned().unwrap().framework).unwrap();
        let read = read.in_formats(Numbers::planned(file.planned().unwrap()).unwrap());
        let precision = if wide { Precision::F32 } else { Precision::Bf16 };
        let target = Target { gpus_per_node: ranks, precision, planned: Some(read), ..TARGET };
        for (_, framework) in Framework::ALL {
            let Ok(exported) = export(framework, &model, &file.validate(&model).unwrap(), &target) else { continue };
            check_types(framework, planned, &exported);
        }
    }
}

/// Types that are asked for win over planned ones.
#[test]
fn asked_types_win_over_planned_ones() {
    let model = Model::preset("llama-tiny").unwrap();
    let request = LayoutRequest { zero: Zero::Optimizer, ..LayoutRequest::new("data=2".parse().unwrap(), 4) };
    let layout = Layout::new(&model, &request).unwrap();
    let of = |products, moments| Numbers { products, moments, gradients: Some(ElementType::Bf16) };
    let planned = native::Framework::MEGATRON.in_formats(of(Some(NarrowFormat::Fp8), Some(Moments::Bf16)));
    let asked = Numbers { gradients: None, ..of(Some(NarrowFormat::Mxfp8), Some(Moments::Fp8)) };
    let target = Target { numbers: asked, planned: Some(planned), ..TARGET };
    for framework in [Framework::Megatron, Framework::Nemo] {
        let Export { text, .. } = export(framework, &model, &layout, &target).unwrap();
        assert_eq!(read(framework, &text), of(Some(NarrowFormat::Mxfp8), Some(Moments::Fp8)), "{text}");
    }
}

/// Attention that stores its scores, and types that only this program's engine has, are written or named.
#[test]
fn attention_and_values_of_a_plan_are_exported_or_named() {
    let model = Model::preset("llama-tiny").unwrap();
    let stored = Target { planned: Some(native::Framework::MEGATRON_STORED), ..TARGET };
    let layout = Layout::new(&model, &LayoutRequest::new("data=2".parse().unwrap(), 4)).unwrap();
    for (name, framework) in Framework::ALL {
        let Export { text, cannot_express } = export(framework, &model, &layout, &stored).unwrap();
        let is_named = cannot_express.iter().any(|gap| gap.starts_with("attention = stored scores: "));
        assert!(text.contains("--attention-backend unfused") != is_named, "{name}: {cannot_express:?}");
    }
    for dtype in [ElementType::F16, ElementType::F64] {
        let request = LayoutRequest { dtype, ..LayoutRequest::new("data=2".parse().unwrap(), 4) };
        let layout = Layout::new(&model, &request).unwrap();
        for (name, framework) in Framework::ALL {
            let Export { cannot_express, .. } = export(framework, &model, &layout, &TARGET).unwrap();
            let is_named = cannot_express.iter().any(|gap| gap.starts_with(&format!("dtype = {dtype}: ")));
            assert!(is_named, "{name}: {cannot_express:?}");
        }
    }
}

/// Without ZeRO DeepSpeed sums gradients in the type of the weights, whatever the configuration says.
#[test]
fn deepspeed_sums_in_f32_only_where_zero_is_on() {
    let model = Model::preset("llama-tiny").unwrap();
    let exported = |zero, target: &Target| {
        let request = LayoutRequest { zero, ..LayoutRequest::new("data=2".parse().unwrap(), 4) };
        export(Framework::DeepSpeed, &model, &Layout::new(&model, &request).unwrap(), target)
    };
    let planned = Target { planned: Some(native::Framework::MEGATRON), ..TARGET };
    let asked = Target { numbers: Numbers { gradients: Some(ElementType::F32), ..Numbers::default() }, ..TARGET };
    let off = |gap: &String| gap.starts_with("gradients = ");
    let Export { text, cannot_express } = exported(Zero::Optimizer, &planned).unwrap();
    assert!(text.contains("\"grad_accum_dtype\": \"fp32\"") && !cannot_express.iter().any(off), "{text}");
    let Export { text, cannot_express } = exported(Zero::Off, &planned).unwrap();
    let is_named = cannot_express.iter().any(|gap| gap.starts_with("gradients = f32: "));
    assert!(!text.contains("grad_accum_dtype") && is_named, "{text}");
    let message = exported(Zero::Off, &asked).unwrap_err().to_string();
    assert!(message.starts_with("gradients = f32: "), "{message}");
}
