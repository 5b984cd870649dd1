//! Holds Megatron-LM's analysis against the paper's tables, its schedules against the simulation's counts elsewhere, and
//! the takeaways against the configurations that the paper chose.

use proptest::prelude::*;
use quadrille_papers::atp::{Counts, Mesh, Workload};
use quadrille_papers::axonn;
use quadrille_papers::megatron::{
    Advice, Configuration, Machine, Recomputation, activation_bytes, advise, best_checkpoints, check_described,
    checkpoint_bytes, flops, layer_flops, memory, modelled_pass_seconds, parameters, training_seconds,
    training_seconds_by_flops,
};
use quadrille_spec::{Activations, Axis, Cluster, Device, Layout, LayoutRequest, Model, Norm, Positions, SpecError};

const DAY: f64 = 86_400.0;

fn preset(name: &str) -> Model {
    Model::preset(name).unwrap()
}

fn configuration(tensor: usize, pipeline: usize, data: usize, microbatch: usize) -> Configuration {
    Configuration::new(tensor, pipeline, data, microbatch).unwrap()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * a.abs().max(b.abs())
}

/// Whether `value` is `printed` to its decimals.
fn rounds_to(value: f64, printed: &str) -> bool {
    let decimals = printed.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    format!("{value:.decimals$}") == printed
}

#[test]
fn equation_2_counts_all_but_the_final_norm() {
    for name in Model::preset_names().filter(|name| name.starts_with("megatron")) {
        let model = preset(name);
        assert!(close(parameters(&model), (model.parameters() - 2 * model.hidden as u64) as f64), "{name}");
        let printed = name.trim_start_matches("megatron-").trim_end_matches('b');
        let digits = if printed == "1008" { "1008.0" } else { printed };
        assert!(rounds_to(parameters(&model) / 1e9, digits), "{name}");
    }
}

#[test]
fn equation_3_is_products_and_attention_of_four_passes() {
    let model = preset("megatron-1.7b");
    let layers = 24.0;
    let h = 2304.0;
    let s = 2048.0;
    let vocab = 51_200.0;
    let batch = 512.0;
    let printed = 96.0 * batch * s * layers * h * h * (1.0 + s / (6.0 * h) + vocab / (16.0 * layers * h));
    assert!(close(flops(&model, 512, Recomputation::Full), printed));
    // A pass: 2 FLOPs of 12 h^2 weights a token, 4 s h of attention; the head: three products of 2 h V.
    let pass = batch * s * layers * (24.0 * h * h + 4.0 * s * h);
    let head = 6.0 * batch * s * h * vocab;
    assert!(close(flops(&model, 512, Recomputation::Full), 4.0 * pass + head));
    assert!(close(flops(&model, 512, Recomputation::None), 3.0 * pass + head));
    assert!(close(
        4.0 * layer_flops(3, 64, 32, Recomputation::None),
        3.0 * layer_flops(3, 64, 32, Recomputation::Full)
    ));
}

#[test]
fn estimates_of_days_are_the_printed_ones() {
    let gpt3 = Model { vocab: 51_200, ..preset("gpt3-175b") };
    assert!(rounds_to(parameters(&gpt3) / 1e9, "174.6"));
    let days = |parameters, tokens, devices, rate| training_seconds(parameters, tokens, devices, rate) / DAY;
    assert!(rounds_to(days(parameters(&gpt3), 300e9, 1024, 140e12), "34"));
    let trillion = preset("megatron-1008b");
    assert!(rounds_to(days(parameters(&trillion), 450e9, 3072, 163e12), "84"));
    // Table 2's days follow from equation 3, of which equation 4 leaves out attention and logits.
    let by_flops = |devices: f64, rate| training_seconds_by_flops(&gpt3, 300e9, devices * rate) / DAY;
    assert!(rounds_to(by_flops(384.0, 144e12), "90") && rounds_to(by_flops(1536.0, 141e12), "23"));
    let approximate = days(parameters(&gpt3), 300e9, 384, 144e12);
    assert!(approximate < by_flops(384.0, 144e12) && approximate > 0.97 * by_flops(384.0, 144e12));
    // 13.8 TB are printed.
    assert!((checkpoint_bytes(parameters(&trillion)) / 13.8e12 - 1.0).abs() < 0.03);
}

#[test]
fn bubbles_in_sizes_of_either_kind() {
    // Section 2.2: 4 stages, 8 microbatches.
    assert_eq!(configuration(1, 4, 1, 1).bubble(8).unwrap(), 3.0 / 8.0);
    assert_eq!(configuration(1, 4, 1, 1).interleaved_bubble(8, 2).unwrap(), 3.0 / 16.0);
    // Section 3.2: n = 64, d = 1; section 3.3.1: n = 32, t = 1, b' = 128.
    for tensor in [1, 2, 4, 8] {
        let bubble = configuration(tensor, 64 / tensor, 1, 1).bubble(16).unwrap();
        assert!(close(bubble, (64.0 / tensor as f64 - 1.0) / 16.0));
    }
    for data in [1, 2, 4, 8, 16, 32] {
        let bubble = configuration(1, 32 / data, data, 2).bubble(256).unwrap();
        assert!(close(bubble, (32.0 - data as f64) / 128.0));
    }
}

#[test]
fn a_batch_takes_its_microbatches_and_the_bubble() {
    let configuration = configuration(8, 4, 2, 4);
    // B/(b d) = 16 microbatches, p - 1 = 3 more.
    assert_eq!(configuration.microbatches(128).unwrap(), 16);
    assert_eq!(configuration.batch_seconds(128, 0.5).unwrap(), 19.0 * 0.5);
    assert_eq!((configuration.model_parallel(), configuration.devices()), (32, 64));
    let ideal = 16.0 * 0.5;
    let bubble = configuration.batch_seconds(128, 0.5).unwrap() / ideal - 1.0;
    assert!(close(bubble, configuration.bubble(128).unwrap()));
}

#[test]
fn volumes_are_those_of_section_3_2() {
    let model = preset("megatron-39.1b");
    let configuration = configuration(8, 2, 32, 3);
    let bsh = 3.0 * 2048.0 * 8192.0;
    assert_eq!(configuration.boundary_elements(&model, 1), bsh);
    assert_eq!(configuration.boundary_elements(&model, 4), 4.0 * bsh);
    assert_eq!(configuration.scattered_boundary_elements(&model, 2), 2.0 * bsh / 8.0);
    assert!(close(configuration.tensor_elements(&model), 24.0 * 8.0 * bsh * 7.0 / 8.0));
}

/// Tensor parallelism in three papers: AxoNN's x axis, ATP's DeviceMesh(t, 1), Megatron-LM's `8 b s h (t-1)/t` a layer.
#[test]
fn three_models_agree_on_megatrons_volume() {
    let model = preset("megatron-1.7b").reshaped(|m| m.layers = 2);
    for tensor in [2, 4, 8] {
        let elements = configuration(tensor, 1, 1, 4).tensor_elements(&model);
        let request = LayoutRequest {
            activations: Activations::Replicated,
            ..LayoutRequest::new(format!("x={tensor}").parse().unwrap(), 4)
        };
        let layout = Layout::new(&model, &request).unwrap();
        let price = axonn::price(&model, &layout, &Cluster::preset("local").unwrap(), 1).unwrap();
        assert!(close(price.on(Axis::X).bytes, elements));
        for counts in [Counts::Paper, Counts::Exact] {
            let workload = Workload { model: &model, batch: 4, seq_len: 2048, element_bytes: 1, counts };
            assert!(close(workload.flat_seconds(Mesh { d1: tensor, d2: 1 }, 1.0), elements));
        }
    }
}

#[test]
fn checkpoints_have_an_optimum() {
    let layers = 24;
    let input = 3.0;
    let intermediate = 50.0;
    let best = best_checkpoints(layers, input, intermediate);
    assert_eq!(best, 20.0);
    let least = activation_bytes(layers, best, input, intermediate);
    assert_eq!(least, 20.0 * 3.0 + 24.0 / 20.0 * 50.0);
    for checkpoints in [1.0, 10.0, 19.0, 21.0, 24.0] {
        assert!(activation_bytes(layers, checkpoints, input, intermediate) > least);
    }
}

#[test]
fn memory_has_the_terms_of_section_3_5() {
    let model = preset("megatron-18.4b");
    let configuration = configuration(8, 4, 2, 2);
    let memory = memory(&model, &configuration, 64, 1).unwrap();
    let bsh = 2.0 * 2048.0 * 6144.0;
    assert!(close(memory.states, 20.0 * parameters(&model) / 32.0));
    // 4 of 16 microbatches in flight, 10 layers a stage.
    assert!(close(memory.inputs, 4.0 * 10.0 * 2.0 * bsh));
    assert!(close(memory.intermediate, 2.0 * (bsh * 5.5 + 2.0 * 48.0 * 2048.0 * 2048.0 / 8.0)));
    assert!(close(memory.total(), memory.states + memory.inputs + memory.intermediate));
}

/// Nodes of eight A100-80GB, as Selene's.
fn selene(devices: usize) -> Machine {
    Machine { devices, per_node: 8, device_memory: (80_u64 << 30) as f64 }
}

fn advice(name: &str, devices: usize, batch: usize) -> Advice {
    advise(&preset(name), &selene(devices), batch, |configuration| configuration.microbatch() as f64).unwrap()
}

/// Table 1 states `t` and `p` for ten models. The takeaways' least size that fits is the paper's in six rows, and in the
/// others the next smaller legal one: the paper left more memory free there.
#[test]
fn takeaways_choose_as_table_1_or_one_size_smaller() {
    let rows = [
        ("megatron-1.7b", 32, 512, (1, 1), (1, 1)),
        ("megatron-3.6b", 64, 512, (2, 1), (1, 1)),
        ("megatron-7.5b", 128, 512, (4, 1), (2, 1)),
        ("megatron-18.4b", 256, 1024, (8, 1), (8, 1)),
        ("megatron-39.1b", 512, 1536, (8, 2), (8, 2)),
        ("megatron-76.1b", 1024, 1792, (8, 4), (8, 4)),
        ("megatron-145.6b", 1536, 2304, (8, 8), (8, 8)),
        ("megatron-310.1b", 1920, 2160, (8, 16), (8, 12)),
        ("megatron-529.6b", 2520, 2520, (8, 35), (8, 21)),
        ("megatron-1008b", 3072, 3072, (8, 64), (8, 64)),
    ];
    for (name, devices, batch, published, ours) in rows {
        let Advice { configuration, memory, .. } = advice(name, devices, batch);
        assert_eq!((configuration.tensor(), configuration.pipeline()), ours, "{name}");
        assert_eq!((configuration.devices(), configuration.microbatch()), (devices, 1), "{name}");
        assert!(memory.total() <= selene(devices).device_memory);
        assert!(ours.0 * ours.1 <= published.0 * published.1);
    }
}

#[test]
fn reasons_name_the_choice_and_what_it_rests_on() {
    let [tensor, pipeline, data, microbatch, chunks] = advice("megatron-39.1b", 512, 1536).reasons;
    assert_eq!(tensor, "tensor=8: as far as a node of 8 and the heads allow (takeaway 1)");
    let expected =
        "pipeline=2: the least that fits, 50.7 GB of 85.9 GB: tensor=8 pipeline=1 needs 99.7 GB (takeaway 2)";
    assert_eq!(pipeline, expected);
    assert_eq!(data, "data=32: all other devices hold copies (takeaway 2)");
    assert!(microbatch.starts_with("microbatch=1: the fastest batch of those that fit, 1, 2, 3, 4"), "{microbatch}");
    let expected = "chunks=2: interleaved, the bubble falls from 2.1 % to 1.0 % of the ideal time, and 2 times as much is \
                    sent between stages (section 2.2.2)";
    assert_eq!(chunks, expected);
    let [tensor, pipeline, ..] = advice("megatron-1.7b", 32, 512).reasons;
    assert!(tensor.starts_with("tensor=1: a copy of the model fits, 3"), "{tensor}");
    assert!(pipeline.contains("suffices"), "{pipeline}");
}

#[test]
fn the_microbatch_balances_rate_and_bubble() {
    // Section 3.4: faster in proportion up to four sequences, then no more; the bubble grows with them.
    let seconds = |configuration: &Configuration| 0.25_f64.max(configuration.microbatch() as f64 / 16.0);
    let of = |batch| {
        let advice = advise(&preset("megatron-39.1b"), &selene(64), batch, seconds).unwrap();
        (advice.configuration.pipeline(), advice.configuration.microbatch())
    };
    assert_eq!((of(512), of(32)), ((2, 4), (2, 4)));
    // Without a gain, one sequence leaves the smallest bubble.
    let linear =
        advise(&preset("megatron-39.1b"), &selene(64), 512, |configuration| configuration.microbatch() as f64).unwrap();
    assert_eq!(linear.configuration.microbatch(), 1);
}

#[test]
fn layers_are_interleaved_where_the_schedule_allows_it_and_it_fits() {
    let model = preset("megatron-39.1b");
    let advised = |layers: usize, machine: Machine, batch| {
        advise(&model.reshaped(|m| m.layers = layers), &machine, batch, |configuration| {
            configuration.microbatch() as f64
        })
        .unwrap()
    };
    let chunks = |layers, devices, batch| advised(layers, selene(devices), batch).chunks;
    // Two stages; 24 layers each are cut in two, 25 in five.
    assert_eq!((chunks(48, 16, 16), chunks(50, 16, 16)), (2, 5));
    // An odd number of microbatches; one stage.
    let odd = advised(48, selene(16), 17);
    assert_eq!((odd.chunks, odd.configuration.pipeline()), (1, 2));
    assert_eq!(odd.reasons[4], "chunks=1: 17 microbatches are no multiple of 2 stages (section 2.2.2)");
    assert_eq!(advice("megatron-18.4b", 256, 1024).reasons[4], "chunks=1: one stage has no bubble");
    // What interleaving keeps does not fit any more.
    let all = advised(48, selene(16), 16);
    let plain = memory(&model, &all.configuration, 16, 1).unwrap();
    assert!(plain.total() < all.memory.total());
    let tight = advised(48, Machine { device_memory: plain.total(), ..selene(16) }, 16);
    assert_eq!((tight.configuration, tight.chunks, tight.memory), (all.configuration, 1, plain));
    assert!(tight.reasons[4].starts_with("chunks=1: 2 of them keep more in flight, "), "{}", tight.reasons[4]);
}

/// In flight on the first stage: `2(p-1) + (v-1)p + 1` pairs of microbatch and chunk, never more than there are.
#[test]
fn memory_of_interleaved_layers() {
    let model = preset("megatron-39.1b");
    let inputs = |batch, chunks| memory(&model, &configuration(8, 4, 1, 1), batch, chunks).unwrap().inputs;
    let layer = 2.0 * 2048.0 * 8192.0;
    assert_eq!((inputs(64, 1), inputs(64, 2)), (4.0 * 12.0 * layer, 11.0 * 6.0 * layer));
    assert_eq!((inputs(4, 1), inputs(4, 2)), (4.0 * 12.0 * layer, 4.0 * 12.0 * layer));
    assert!(memory(&model, &configuration(8, 4, 1, 1), 64, 0).unwrap_err().to_string().starts_with("chunks = 0"));
    // Logits are on the first stage if it is the only one.
    let logits = |pipeline| memory(&model, &configuration(8, pipeline, 1, 2), 64, 1).unwrap().logits;
    assert_eq!((logits(1), logits(2)), (6.0 * 2.0 * 2048.0 * 51_200.0 / 8.0, 0.0));
}

#[test]
fn passes_are_modelled_by_the_shape_of_products() {
    let model = preset("megatron-39.1b");
    let device = Device::preset("a100-80").unwrap();
    let seconds = |tensor, pipeline, b| modelled_pass_seconds(&model, &configuration(tensor, pipeline, 1, b), &device);
    let product = device.products.at([2048.0, 4.0 * 8192.0 / 8.0, 8192.0]);
    let flops = layer_flops(1, 2048, 8192, Recomputation::Full) * 48.0 / 16.0;
    assert!(close(seconds(8, 2, 1), device.launch_seconds + flops / (312e12 * product)));
    // More sequences are faster each, narrower shares slower.
    assert!(seconds(8, 2, 2) < 2.0 * seconds(8, 2, 1) && seconds(8, 2, 1) > seconds(4, 4, 1));
}

#[test]
fn models_that_the_equations_do_not_count() {
    let gpt = preset("megatron-1.7b");
    let vit = preset("vit-era5");
    assert_eq!(check_described(&gpt), Ok(()));
    for (model, words) in [
        (preset("llama2-7b"), ["activation = swiglu", "two products"]),
        (vit, ["patch_values = ", "vocabulary"]),
        (gpt.reshaped(|m| m.kv_heads = 2), ["kv_heads = 2", "every head"]),
        (gpt.reshaped(|m| m.ffn = 1000), ["ffn = 1000", "four times hidden"]),
        (gpt.reshaped(|m| m.positions = Positions::Rotary), ["positions = rotary", "table of positions"]),
        (gpt.reshaped(|m| m.norm = Norm::Rms), ["norm = rms", "layer norms"]),
        (gpt.reshaped(|m| m.biases = false), ["biases = false", "every linear layer"]),
        (Model { tied_head: false, ..gpt.clone() }, ["tied_head = false", "once"]),
    ] {
        let message = check_described(&model).unwrap_err().to_string();
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
        assert_eq!(advise(&model, &selene(8), 8, |_| 1.0).unwrap_err().to_string(), message);
    }
    // What is described is what is counted: all parameters but those of the final norm.
    assert_eq!(parameters(&gpt).round() as u64 + 2 * gpt.hidden as u64, gpt.parameters());
}

#[test]
fn refusals_name_what_is_wrong() {
    let message = |result: Result<Configuration, SpecError>| result.unwrap_err().to_string();
    assert!(message(Configuration::new(0, 1, 1, 1)).starts_with("tensor = 0: it is at least 1"));
    assert!(message(Configuration::new(1, 1, 1, 0)).starts_with("microbatch = 0"));
    assert!(message(Configuration::new(1 << 23, 2, 2, 1)).starts_with("devices = 8388608*2*2: there are at most 2^24"));
    assert!(message(Configuration::new(usize::MAX, 2, 2, 1)).starts_with("devices"));
    let error = |result: Result<f64, SpecError>| result.unwrap_err().to_string();
    let two = configuration(1, 4, 2, 3);
    assert_eq!(error(two.bubble(16)), "microbatch*data=6 does not divide batch = 16; try microbatch*data=4 or 8");
    assert!(error(two.bubble(0)).starts_with("batch = 0"));
    assert!(error(two.interleaved_bubble(36, 2)).starts_with("pipeline=4 does not divide microbatches = 6"));
    assert!(error(two.interleaved_bubble(24, 0)).starts_with("chunks = 0"));

    let model = preset("megatron-1008b");
    let refused = |machine: Machine, batch| {
        advise(&model, &machine, batch, |configuration| configuration.microbatch() as f64).unwrap_err().to_string()
    };
    let small = refused(selene(64), 64);
    assert!(
        small.starts_with("device_memory = 85.9 GB: shared by 64 devices, megatron-1008b still takes 3"),
        "{small}"
    );
    assert!(refused(selene(97), 64).starts_with("devices = 97: tensor sizes divide a node of 8 and 160 heads"));
    assert!(refused(selene(0), 64).starts_with("devices = 0"));
    assert!(refused(Machine { per_node: 0, ..selene(8) }, 64).starts_with("per-node = 0"));
    assert!(refused(selene(8), usize::MAX).starts_with("batch = "));
    assert!(refused(Machine { device_memory: f64::NAN, ..selene(8) }, 8).starts_with("device_memory = NaN"));
}

proptest! {
    #[test]
    fn bubbles_fall_with_microbatches_and_chunks(pipeline in 2_usize..40, m in 1_usize..40, more in 2_usize..5, chunks in 2_usize..6) {
        let pipe = configuration(1, pipeline, 1, 1);
        let batch = m * pipeline;
        prop_assert!(pipe.bubble(batch * more).unwrap() < pipe.bubble(batch).unwrap());
        prop_assert!(pipe.interleaved_bubble(batch, chunks).unwrap() < pipe.bubble(batch).unwrap());
        prop_assert!(close(pipe.interleaved_bubble(batch, 1).unwrap(), pipe.bubble(batch).unwrap()));
    }

    #[test]
    fn no_checkpoints_keep_less_than_the_optimum(layers in 1_usize..200, input in 1.0..1e9_f64, ratio in 0.01..1e3_f64, c in 0.1..1e3_f64) {
        let best = best_checkpoints(layers, input, ratio * input);
        let least = activation_bytes(layers, best, input, ratio * input);
        prop_assert!(activation_bytes(layers, c, input, ratio * input) >= least * (1.0 - 1e-12));
    }

    /// Whatever is advised is legal, uses every device and fits; more memory never takes more devices for a copy.
    #[test]
    fn advice_is_legal_and_fits(exponent in 0_u32..10, node in 0_u32..5, memory_gib in 1_u64..200, batch in 1_usize..600) {
        let model = preset("megatron-7.5b");
        let of = |gib: u64| Machine { devices: 1 << exponent, per_node: 1 << node, device_memory: (gib << 30) as f64 };
        let machine = of(memory_gib);
        let larger = of(2 * memory_gib);
        if let Ok(Advice { configuration, memory, .. }) = advise(&model, &machine, batch, |configuration| configuration.microbatch() as f64) {
            prop_assert_eq!(configuration.devices(), machine.devices);
            prop_assert!(memory.total() <= machine.device_memory);
            prop_assert!(configuration.microbatches(batch).is_ok() && configuration.tensor() <= machine.per_node);
            let relaxed = advise(&model, &larger, batch, |configuration| configuration.microbatch() as f64).unwrap();
            prop_assert!(relaxed.configuration.model_parallel() <= configuration.model_parallel());
        }
    }

    #[test]
    fn no_machine_panics(devices in any::<usize>(), per_node in any::<usize>(), device_memory in any::<f64>(), batch in any::<usize>()) {
        let machine = Machine { devices, per_node, device_memory };
        let _ = advise(&preset("megatron-1.7b"), &machine, batch, |configuration| configuration.microbatch() as f64);
        let _ = Configuration::new(devices, per_node, batch, batch).map(|sizes| sizes.interleaved_bubble(batch, devices));
    }
}
