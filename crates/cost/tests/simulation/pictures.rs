//! Timelines and traces.

use std::collections::BTreeMap;

use quadrille_cost::simulation::{DeviceRates, RingNetwork, Simulation, UniformMachine, simulate, timeline};
use quadrille_cost::trace::{Trace, chrome_trace};
use quadrille_spec::{Axis, LayoutRequest, Schedule};
use serde_json::Value;

use crate::common::{BlocksOnly, ideal, program};

fn drawn(schedule: Schedule, microbatches: usize, columns: usize) -> Vec<String> {
    let program = program(3, "pipe=3", microbatches, |request| request.schedule = schedule);
    timeline(&ideal(&program), columns).lines().map(str::to_owned).collect()
}

#[test]
fn timelines_show_the_textbook_pictures() {
    // 8 tokens * 2 * 12 * 16^2 FLOPs in a forward: 46.875 ms, a column; a backward takes two, weight gradients of their own one of them.
    assert_eq!(
        drawn(Schedule::Gpipe, 3, 15)[..4],
        [
            "stage 0 |012......aabbcc|",
            "stage 1 |.012...aabbcc..|",
            "stage 2 |..012aabbcc....|",
            "703.125 ms in 15 columns"
        ]
    );
    assert_eq!(
        drawn(Schedule::OneForwardOneBackward, 4, 18)[..3],
        ["stage 0 |012....aa3bb.cc.dd|", "stage 1 |.01..aa2bb3cc.dd..|", "stage 2 |..0aa1bb2cc3dd....|"]
    );
    assert_eq!(
        drawn(Schedule::ZeroBubble, 4, 14)[..3],
        ["stage 0 |012..aA3bBcCdD|", "stage 1 |.01.a2bA3cBdCD|", "stage 2 |..0a1b2cA3dBCD|"]
    );
}

fn measured_kinds() -> Simulation {
    let program = program(4, "x=2,y=2,z=2,pipe=2", 4, |request: &mut LayoutRequest| {
        (request.schedule, request.chunks) = (Schedule::Interleaved, 2);
    });
    let rates = DeviceRates {
        gemm_flop_per_s: 1e12,
        attention_flop_per_s: 1e11,
        memory_bytes_per_s: 1e10,
        operation_latency_s: 1e-6,
    };
    let network = RingNetwork { latency_s: 2e-6, bandwidths: [1e9; Axis::COUNT] };
    simulate(&program, &UniformMachine { rates, network }).unwrap()
}

#[test]
fn traces_are_json_without_overlaps_on_a_lane() {
    let simulation = measured_kinds();
    let trace = Trace::from(&simulation);
    let text = serde_json::to_string(&chrome_trace(&trace)).unwrap();
    let parsed: Value = serde_json::from_str(&text).unwrap();
    let events = parsed["traceEvents"].as_array().unwrap();
    let mut names = BTreeMap::new();
    let mut lanes: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
    for event in events {
        let lane = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        match event["ph"].as_str().unwrap() {
            "M" => drop(names.insert(lane, event["args"]["name"].as_str().unwrap())),
            "X" => {
                let ts = event["ts"].as_f64().unwrap();
                let dur = event["dur"].as_f64().unwrap();
                assert!(ts >= 0.0 && dur >= 0.0);
                lanes.entry(lane).or_default().push((ts, ts + dur));
            }
            other => panic!("phase {other}"),
        }
    }
    for (lane, mut spans) in lanes {
        assert!(names.contains_key(&lane), "lane {lane:?} has no name");
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 1e-6), "{}", names[&lane]);
    }
    assert_eq!(names[&(1, 0)], "stage 1");
    let named = |name: &str| names.values().any(|known| *known == name);
    assert!(["passes", "compute", "collectives x", "collectives world", "messages to stage 1"].into_iter().all(named));
    let complete = events.iter().filter(|event| event["ph"] == "X").count();
    assert_eq!(complete, simulation.passes.len() + simulation.events.len());
}

#[test]
fn neighbouring_element_wise_operations_are_one_event() {
    let simulation = measured_kinds();
    let on_compute = |pair: &[quadrille_cost::simulation::Event]| {
        let [a, b] = pair else { return false };
        (a.stage, a.lane, a.layer, a.action, a.name) == (b.stage, b.lane, b.layer, b.action, b.name)
            && a.name == "element-wise"
            && a.end_s == b.start_s
    };
    // Only an issue may stand between two of them.
    let split = simulation.events.windows(2).filter(|pair| on_compute(pair)).count();
    assert!(split * 10 < simulation.events.len(), "{split} of {}", simulation.events.len());
}

#[test]
fn a_step_without_time_is_drawn_idle() {
    let program = program(1, "x=1", 1, |_| {});
    let machine = BlocksOnly { slowdown: |_, _| 0.0, ..BlocksOnly::default() };
    let text = timeline(&simulate(&program, &machine).unwrap(), 0);
    assert!(text.starts_with("stage 0 |.|\n0.000 us in 1 columns\n"), "{text}");
}
