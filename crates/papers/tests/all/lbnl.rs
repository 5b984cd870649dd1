//! Holds the LBNL model against the numbers of its authors' code, and against what must hold for any numbers.
//!
//! The code's output lies in `tests/data/lbnl` and `published` of this crate.

use std::collections::HashMap;
use std::path::Path;

use proptest::prelude::{prop, prop_assert, prop_assert_eq, proptest};
use proptest::strategy::Strategy as Generator;
use quadrille_papers::lbnl::{
    Block, Collective, Configuration, Cut, Group, Price, Shape, Strategy, System, Unit, layers, price,
};

const GLOBAL_BATCH: u64 = 4096;

/// A line of a table, by column.
struct Row(HashMap<String, String>);

impl Row {
    fn text(&self, column: &str) -> &str {
        self.0.get(column).unwrap_or_else(|| panic!("no column {column}"))
    }

    fn number(&self, column: &str) -> f64 {
        self.text(column).parse().unwrap()
    }

    fn size(&self, column: &str) -> u64 {
        self.text(column).parse().unwrap()
    }

    fn group(&self, name: &str) -> Group {
        Group { size: self.size(name), fast: self.size(&format!("nvs_{name}")) }
    }

    fn shape(&self) -> Shape {
        Shape::named(self.text("model")).unwrap()
    }

    fn system(&self) -> System {
        System::named(self.text("gpu")).unwrap().with_fast_domain(self.size("nvs")).unwrap()
    }

    fn configuration(&self) -> Configuration {
        let cut = Cut {
            strategy: self.text("strategy").parse().unwrap(),
            hidden: self.group("tp1"),
            sequence: self.group("tp2"),
            microbatch: self.size("microbatch"),
            panels: self.size("summa_nb"),
        };
        Configuration { cut, data: self.group("dp"), pipe: self.group("pp") }
    }

    fn price(&self) -> Price {
        price(&self.shape(), &self.system(), &self.configuration(), GLOBAL_BATCH).unwrap()
    }
}

/// The rows of a file of this crate.
fn table(path: &str) -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let columns: Vec<_> = lines.next().unwrap().split(',').collect();
    let cells = |line: &str| -> HashMap<_, _> {
        columns.iter().map(|column| (*column).to_owned()).zip(line.split(',').map(str::to_owned)).collect()
    };
    lines.map(|line| Row(cells(line))).collect()
}

#[track_caller]
fn assert_close(found: f64, expected: f64, what: &str) {
    assert!((found - expected).abs() <= 1e-9 * expected.abs(), "{what}: {found}, not {expected}");
}

fn system(name: &str, fast_domain: u64) -> System {
    System::named(name).unwrap().with_fast_domain(fast_domain).unwrap()
}

fn group(size: u64, fast: u64) -> Group {
    Group { size, fast }
}

#[test]
fn every_random_configuration_has_the_published_totals() {
    let rows = table("tests/data/lbnl/reference_random.csv");
    assert_eq!(rows.len(), 1205);
    for (at, row) in rows.iter().enumerate() {
        let price = row.price();
        for (column, found) in [
            ("t", price.seconds),
            ("mem", price.memory_bytes() / 1e9),
            ("t_comp", price.compute),
            ("t_mem", price.memory),
            ("t_tp_comm", price.tensor_communication),
            ("t_dp_comm", price.data_communication),
            ("t_pp_comm", price.pipe_communication),
            ("t_bubble", price.bubble),
            ("flops_per_gpu", price.flops / 1e12),
            ("wts_mem", price.weight_bytes / 1e9),
            ("wts_grad_mem", price.gradient_bytes / 1e9),
            ("wts_optimizer_states_mem", price.optimizer_bytes / 1e9),
            ("acts_mem", price.activation_bytes / 1e9),
        ] {
            assert_close(found, row.number(column), &format!("row {at}, {column}"));
        }
    }
}

#[test]
fn every_saved_best_configuration_has_its_published_totals_and_fits() {
    let rows = table("published/lbnl_top10.csv");
    assert_eq!(rows.len(), 2196);
    for (at, row) in rows.iter().enumerate() {
        let price = row.price();
        assert!(price.fits(&row.system()), "row {at}");
        for (column, found) in [
            ("t_iter_s", price.seconds),
            ("mem_gb", price.memory_bytes() / 1e9),
            ("t_comp", price.compute),
            ("t_mem", price.memory),
            ("t_tp_comm", price.tensor_communication),
            ("t_dp_comm", price.data_communication),
            ("t_pp_comm", price.pipe_communication),
            ("t_bubble", price.bubble),
            ("wts_mem", price.weight_bytes / 1e9),
            ("wts_grad_mem", price.gradient_bytes / 1e9),
            ("opt_mem", price.optimizer_bytes / 1e9),
            ("acts_mem", price.activation_bytes / 1e9),
            ("throughput", GLOBAL_BATCH as f64 / price.seconds),
        ] {
            assert_close(found, row.number(column), &format!("row {at}, {column}"));
        }
    }
}

/// The cuts of the three published tables of layers.
fn published_cut(strategy: Strategy) -> Cut {
    let (hidden, sequence, microbatch, panels) = match strategy {
        Strategy::OneD => (group(4, 4), Group::ONE, 1, 0),
        Strategy::TwoD => (group(8, 4), group(2, 1), 1, 0),
        Strategy::Summa => (group(8, 8), group(4, 4), 8, 8),
    };
    Cut { strategy, hidden, sequence, microbatch, panels }
}

#[test]
fn every_layer_has_its_published_numbers() {
    let rows = table("tests/data/lbnl/reference_layers.csv");
    assert_eq!(rows.len(), 42);
    for rows in rows.chunks(14) {
        let cut = published_cut(rows[0].text("strategy").parse().unwrap());
        for (row, layer) in rows.iter().zip(layers(&rows[0].shape(), &rows[0].system(), &cut)) {
            assert_eq!(layer.name, row.text("layer"));
            assert_eq!(layer.unit == Unit::Matrix, row.size("tensor_cores") == 1, "{}", layer.name);
            let f = layer.forward;
            let b = layer.backward;
            for (column, found) in [
                ("op_fwd_tflop", f.flops / 1e12),
                ("op_bwd_tflop", b.flops / 1e12),
                ("mem_fwd_gb", f.traffic_bytes / 1e9),
                ("mem_bwd_gb", b.traffic_bytes / 1e9),
                ("act_gb", layer.activation_bytes / 1e9),
                ("wts_gb", layer.weight_bytes / 1e9),
                ("t_fwd", f.time.total),
                ("t_fwd_comp", f.time.compute),
                ("t_fwd_mem", f.time.memory),
                ("t_fwd_comm", f.time.communication),
                ("t_bwd", b.time.total),
                ("t_bwd_comp", b.time.compute),
                ("t_bwd_mem", b.time.memory),
                ("t_bwd_comm", b.time.communication),
            ] {
                assert_close(found, row.number(column), &format!("{} {column}", layer.name));
            }
        }
    }
}

/// Specification, section 13: B200, fast domains of 8, 0.1 GB.
#[test]
fn communications_have_their_published_times() {
    use Collective::{AllGather, AllReduce, Broadcast, PointToPoint, Reduce, ReduceScatter};
    let b200 = system("b200", 8);
    for (kind, size, fast, seconds) in [
        (AllGather, 8, 8, 0.000156388888889),
        (AllGather, 8, 1, 0.001285),
        (AllGather, 64, 8, 0.00035078125),
        (AllGather, 64, 4, 0.0005465625),
        (ReduceScatter, 64, 4, 0.0005465625),
        (AllReduce, 8, 8, 0.000156388888889),
        (AllReduce, 8, 1, 0.001285),
        (AllReduce, 64, 4, 0.000898125),
        (Broadcast, 8, 8, 0.00017623015873),
        (Broadcast, 64, 4, 0.000552142857143),
        (Reduce, 8, 1, 0.00146357142857),
        (PointToPoint, 2, 1, 0.00143357142857),
        (PointToPoint, 2, 4, 0.00016123015873),
        (PointToPoint, 1, 1, 0.0),
    ] {
        assert_close(b200.communication(kind, 1e8, group(size, fast)), seconds, &format!("{kind:?} {size} {fast}"));
        assert_eq!(b200.communication(kind, 0.0, group(size, fast)), 0.0, "nothing to send");
    }
}

/// More interfaces help only where a group spans both networks.
#[test]
fn interfaces_count_between_fast_domains_only() {
    let one = system("b200", 8);
    let two = System { interfaces: 2.0, ..one.clone() };
    let seconds = |system: &System, fast| system.communication(Collective::AllGather, 1e8, group(64, fast));
    assert!(seconds(&two, 4) < seconds(&one, 4));
    assert_eq!(seconds(&two, 1), seconds(&one, 1));
    // Latencies aside, eight members bring 1120 GB/s of interfaces, and NVLink has 630.
    assert_close(seconds(&two, 8), 63.0 / 64.0 * 1e8 / 630e9 + 7.0 * 5e-6 + 56.0 * 2.5e-6, "bound by the fast network");
}

/// With one device for the sequence the two strategies differ by the output biases alone.
#[test]
fn two_d_without_a_second_group_is_one_d_but_for_two_biases() {
    let shape = Shape::named("gpt3_1T").unwrap();
    let b200 = system("b200", 8);
    let one = published_cut(Strategy::OneD);
    let two = Cut { strategy: Strategy::TwoD, ..one };
    let pairs = layers(&shape, &b200, &one).into_iter().zip(layers(&shape, &b200, &two));
    let differ: Vec<_> = pairs.filter(|(one, two)| one != two).map(|(one, _)| one.name).collect();
    assert_eq!(differ, ["fc2-bias", "vproj-bias"]);
}

#[test]
fn names_are_the_published_ones() {
    assert_eq!(System::named("B200-NEXT").unwrap().name, "B200-next");
    for (name, published) in System::NAMES.into_iter().zip(["A100", "H200", "B200", "B200-next"]) {
        assert_eq!(System::named(name).unwrap().name, published);
    }
    let message = System::named("h100").unwrap_err().to_string();
    assert_eq!(message, "unknown system 'h100' (did you mean 'a100'?); known: a100, h200, b200, b200-next");
    let message = "3d".parse::<Strategy>().unwrap_err().to_string();
    assert_eq!(message, "unknown strategy '3d' (did you mean '1d'?); known: 1d, 2d, summa");
    let trillion = Shape { seq: 2048, embed: 25_600, ffn: 102_400, heads: 160, depth: 128 };
    assert_eq!((Shape::named("gpt3_1T"), Shape::named("gpt3-1t")), (Ok(trillion), Ok(trillion)));
    assert_eq!(trillion.published_name(), Some("gpt3_1T"));
    assert_eq!(Shape { seq: 2047, ..trillion }.published_name(), None);
    let message = Shape::named("gpt4").unwrap_err().to_string();
    assert!(
        message.starts_with("unknown model 'gpt4' (did you mean 'gpt3'?); known: gpt3, gpt3_1T, vit_era5, gpt-tiny, "),
        "{message}"
    );
    let message = Shape::named("llama2-7b").unwrap_err().to_string();
    assert!(message.starts_with("activation = swiglu: ") && message.contains("use activation = gelu"), "{message}");
}

#[test]
fn what_has_no_price_is_refused() {
    let configuration =
        |strategy| Configuration { cut: published_cut(strategy), data: group(16, 1), pipe: group(4, 1) };
    let refusal = |configuration: Configuration| {
        let shape = Shape::named("gpt3_1T").unwrap();
        price(&shape, &system("b200", 8), &configuration, GLOBAL_BATCH).unwrap_err().to_string()
    };
    let one = configuration(Strategy::OneD);
    let with = |cut| Configuration { cut, ..one };
    for (configuration, words) in [
        (Configuration { data: group(0, 1), ..one }, "dp = 0: it is at least 1; use 1 or more"),
        (Configuration { data: group(1 << 25, 1), ..one }, "dp = 33554432"),
        (Configuration { pipe: group(4, 0), ..one }, "nvs_pp = 0"),
        (Configuration { pipe: group(2, 4), ..one }, "nvs_pp = 4: it is 1 to 2, at most pp"),
        (Configuration { data: group(16, 16), ..one }, "nvs_dp = 16: it is 1 to 8, at most nvs"),
        (Configuration { pipe: group(129, 1), ..one }, "pp = 129: it is 1 to 128, at most the layers of the model"),
        (Configuration { data: group(4097, 1), ..one }, "dp*microbatch = 4097"),
        (with(Cut { sequence: group(2, 1), ..one.cut }), "tp2 = 2"),
        (with(Cut { panels: 4, ..one.cut }), "summa_nb = 4: strategy 1d has no panels; use 0"),
        (with(Cut { microbatch: 0, ..one.cut }), "microbatch = 0"),
        (with(Cut { hidden: group(161, 1), ..one.cut }), "tp1 = 161: it is 1 to 160, at most the heads"),
        (with(Cut { panels: 0, ..configuration(Strategy::Summa).cut }), "summa_nb = 0"),
        (with(Cut { sequence: group(2049, 1), ..configuration(Strategy::TwoD).cut }), "tp2 = 2049"),
        (
            Configuration {
                data: group(16, 8),
                ..with(Cut { sequence: group(2, 2), ..configuration(Strategy::TwoD).cut })
            },
            "nvs_dp*nvs_tp2 = 16",
        ),
    ] {
        let message = refusal(configuration);
        assert!(message.starts_with(words), "{message}, not {words}");
    }
}

/// Some configuration of a published model that [`price`] accepts, and of S = 8; sizes need not divide anything.
fn configurations() -> impl Generator<Value = (Shape, Configuration)> {
    let sizes = (1u64..=16, 1u64..=16, 1u64..=40, 1u64..=48, 1u64..=8, 1u64..=32);
    let fast = prop::array::uniform4(prop::sample::select(vec![1u64, 2]));
    (0..3usize, 0..3usize, sizes, fast).prop_map(|(model, strategy, (m1, m2, d, p, b, panels), fast)| {
        let strategy = Strategy::ALL[strategy];
        let cut = |size: u64, at: usize| group(size, fast[at].min(size));
        let cut = Cut {
            strategy,
            hidden: cut(m1, 0),
            sequence: if strategy == Strategy::OneD { Group::ONE } else { cut(m2, 1) },
            microbatch: b,
            panels: if strategy == Strategy::Summa { panels } else { 0 },
        };
        let [data, pipe] = [group(d, fast[2].min(d)), group(p, fast[3].min(p))];
        (Shape::named(Shape::PUBLISHED[model].0).unwrap(), Configuration { cut, data, pipe })
    })
}

proptest! {
    #[test]
    fn a_step_is_the_sum_of_its_parts((shape, configuration) in configurations(), at in 0..4usize) {
        let system = system(System::NAMES[at], 8);
        let price = price(&shape, &system, &configuration, GLOBAL_BATCH).unwrap();
        let parts = [
            price.compute, price.memory, price.tensor_communication, price.data_communication,
            price.pipe_communication, price.bubble,
        ];
        prop_assert!(parts.iter().all(|part| *part >= 0.0) && price.compute > 0.0);
        assert_close(parts.iter().sum(), price.seconds, "sum of parts");
        // Every layer starts twice for every microbatch.
        let microbatches = GLOBAL_BATCH / configuration.data.size / configuration.cut.microbatch;
        let blocks = shape.depth / configuration.pipe.size;
        prop_assert!(price.compute >= (microbatches * blocks * 28) as f64 * 2e-5);
    }

    /// Whatever is twice as fast, no step gets slower: what hides behind a shorter pass is exposed, but never longer than
    /// the pass was.
    #[test]
    fn a_faster_system_is_not_slower((shape, configuration) in configurations(), at in 0..4usize) {
        let slow = system(System::NAMES[at], 8);
        let seconds = |system: &System| price(&shape, system, &configuration, GLOBAL_BATCH).unwrap().seconds;
        let before = seconds(&slow);
        let faster = |change: fn(&mut System)| {
            let mut system = slow.clone();
            change(&mut system);
            system
        };
        for system in [
            faster(|system| system.fast.bandwidth *= 2.0),
            faster(|system| system.slow.bandwidth *= 2.0),
            faster(|system| system.fast.latency /= 2.0),
            faster(|system| system.slow.latency /= 2.0),
            faster(|system| system.interfaces *= 2.0),
            faster(|system| system.matrix_flop_per_s *= 2.0),
            faster(|system| system.vector_flop_per_s *= 2.0),
            faster(|system| system.memory_bandwidth *= 2.0),
        ] {
            prop_assert!(seconds(&system) <= before * (1.0 + 1e-12), "{} and {before} on {system:?}", seconds(&system));
        }
    }

    /// Sizes of data and pipeline change what a step is made of, not the block.
    #[test]
    fn a_block_is_shared_by_all_sizes_of_data_and_pipeline((shape, configuration) in configurations()) {
        let system = system("h200", 8);
        let block = Block::new(&shape, &system, &configuration.cut);
        let alone = Configuration { data: Group::ONE, pipe: Group::ONE, ..configuration };
        let here = block.step(&shape, &system, &configuration, GLOBAL_BATCH);
        let alone = block.step(&shape, &system, &alone, GLOBAL_BATCH);
        let blocks = (shape.depth / configuration.pipe.size) as f64 / shape.depth as f64;
        assert_close(here.weight_bytes, blocks * alone.weight_bytes, "weights");
        prop_assert!(here.optimizer_bytes <= 6.0 * here.weight_bytes);
        prop_assert_eq!((alone.pipe_communication, alone.bubble), (0.0, 0.0));
    }
}
