//! The documents of `quadrille bench pipeline` and `bench simulation`: their fields, that these fit together, and what
//! holds however fast the machine is.

use std::path::Path;

use serde_json::Value;

use crate::common;

/// A field that is a finite number, not negative.
fn number(value: &Value, field: &str) -> f64 {
    let number = value[field].as_f64().unwrap_or_else(|| panic!("no number {field} in {value}"));
    assert!(number.is_finite() && number >= 0.0, "{field} = {number}");
    number
}

fn numbers(value: &Value, field: &str) -> Vec<f64> {
    value[field].as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn assert_close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * b.abs(), "{a} and {b}");
}

#[test]
fn paced_steps_have_their_closed_forms_and_take_no_less() {
    let p = 3.0;
    let m = 6.0;
    let t = 1.5;
    let document = common::json("bench pipeline --stages 3 --microbatches 6 --pass-ms 1.5 --steps 1");
    assert_eq!([&document["stages"], &document["microbatches"], &document["steps"]], [3, 6, 1]);
    assert_eq!(document["pass_ms"], t);
    let runs = document["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 20);
    for scenario in runs.chunks(5) {
        assert_eq!(scenario[0]["schedule"], "1f1b");
        for run in scenario {
            assert_eq!(run["scenario"], scenario[0]["scenario"]);
            let step = number(run, "step_ms");
            let schedule = run["schedule"].as_str().unwrap();
            assert_eq!(numbers(run, "step_ms_each"), [step]);
            assert_close(number(run, "relative_to_1f1b"), step / number(&scenario[0], "step_ms"));
            let slow = ["slow stage", "both"].contains(&run["scenario"].as_str().unwrap());
            let delays = ["varying delays", "both"].contains(&run["scenario"].as_str().unwrap());
            let ideal = number(run, "ideal_ms");
            assert_close(ideal, 3.0 * m * t * if slow { 1.5 } else { 1.0 });
            assert!(step >= ideal, "{run}");
            if delays && schedule == "interleaved" {
                assert!(run["simulated_ms"].is_null(), "{run}");
                continue;
            }
            let simulated = number(run, "simulated_ms");
            assert!(simulated >= ideal, "{run}");
            // Passes in a given order cannot be faster than without any other work and with free messages.
            assert!(delays || schedule == "message-driven" || step >= simulated, "{run}");
            if !slow && !delays {
                let bubble = match schedule {
                    "zb-h1" => 1.0,
                    "interleaved" => 1.5,
                    _ => 3.0,
                };
                assert_close(simulated, t * (3.0 * m + (p - 1.0) * bubble));
            }
        }
    }
}

#[test]
fn interleaving_is_left_out_where_stages_do_not_divide_microbatches() {
    let document = common::json("bench pipeline --stages 2 --microbatches 3 --pass-ms 0.5 --steps 1");
    let runs = document["runs"].as_array().unwrap();
    let schedules: Vec<&str> = runs[..4].iter().map(|run| run["schedule"].as_str().unwrap()).collect();
    assert_eq!((runs.len(), schedules), (16, vec!["1f1b", "gpipe", "zb-h1", "message-driven"]));
}

const TINY: &str = "bench simulation --set hidden=16 --set heads=2 --set vocab=32 --set seq_len=8 --steps 3";

#[test]
fn simulated_steps_stand_beside_measured_ones() {
    let document = common::json(TINY);
    assert_eq!((&document["model"]["hidden"], &document["global_batch"]), (&16.into(), &8.into()));
    let calibrations = document["calibration_each"].as_array().unwrap();
    assert_eq!(calibrations.len(), 2);
    for constant in document["calibration"].as_object().unwrap().keys() {
        let [before, after] = [0, 1].map(|at| number(&calibrations[at], constant));
        assert!(before > 0.0 && after > 0.0, "{constant}");
        assert_close(number(&document["calibration"], constant), (before + after) / 2.0);
    }
    let rows = document["layouts"].as_array().unwrap();
    let layouts: Vec<&str> = rows.iter().map(|row| row["layout"].as_str().unwrap()).collect();
    assert_eq!(layouts.len(), 10);
    for layout in ["x=2", "context=2", "pipe=2 1f1b, 4 microbatches", "x=2,y=2 summa", "pipe=4 zb-h1, 8 microbatches"] {
        assert!(layouts.contains(&layout), "{layout} is not in {layouts:?}");
    }
    let mut errors = Vec::new();
    for row in rows {
        let simulated = number(row, "simulated_ms");
        let measured = number(row, "measured_ms");
        let mut each = numbers(row, "measured_ms_each");
        each.sort_by(f64::total_cmp);
        assert_eq!((each.len(), each[1]), (3, measured), "{row}");
        let error = row["error_percent"].as_f64().unwrap();
        assert_close(error, 100.0 * (simulated / measured - 1.0));
        errors.push(error.abs());
        assert!(simulated > 0.0 && number(row, "crowding") >= 1.0, "{row}");
        assert!((2.0..=8.0).contains(&number(row, "ranks")), "{row}");
        for share in ["simulated_waiting_percent", "waiting_percent"] {
            assert!(number(row, share) < 100.0, "{row}");
        }
    }
    assert_close(number(&document, "mean_absolute_error_percent"), errors.iter().sum::<f64>() / 10.0);
    assert_close(number(&document, "largest_absolute_error_percent"), errors.into_iter().fold(0.0, f64::max));
    assert!(document["not_modelled"].as_str().unwrap().contains("cores"));
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for (line, reason) in [
        ("pipeline --stages 1", "--stages"),
        ("pipeline --microbatches 0", "--microbatches"),
        ("pipeline --steps 0", "--steps"),
        ("pipeline --pass-ms 0", "--pass-ms 0"),
        ("pipeline --pass-ms -1", "--pass-ms -1"),
        ("pipeline --pass-ms nan", "--pass-ms NaN"),
        ("pipeline --pass-ms 1e9", "10000 at most"),
        ("simulation --steps 0", "--steps"),
        ("simulation --global-batch 12", "a multiple of 8"),
        ("simulation --global-batch 0", "a multiple of 8"),
        ("simulation --set layers", "key=value"),
        ("simulation --set width=4", "width"),
        ("simulation --set layers=1", "pipe"),
        ("simulation --set heads=1", "x=2"),
    ] {
        let output = common::run(Path::new("."), &format!("bench {line}"));
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(output.stdout.is_empty(), "{line}");
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains(reason), "{line}: {message}");
    }
}

#[test]
fn tables_show_the_same() {
    let text = |line: &str| String::from_utf8(common::run(Path::new("."), line).stdout).unwrap();
    let pipeline = text("bench pipeline --stages 2 --microbatches 2 --pass-ms 0.5 --steps 1");
    for words in ["slow stage", "interleaved, 2 chunks", "message-driven against 1f1b: equal stages"] {
        assert!(pipeline.contains(words), "{words} is not in {pipeline}");
    }
    let simulation = text(TINY);
    for words in ["x=2,y=2,z=2", "error %", "absolute error", "crowding", "not modelled"] {
        assert!(simulation.contains(words), "{words} is not in {simulation}");
    }
}
