//! Cluster files that are written: what was measured comes back as it was, and nothing else is taken for it.

use proptest::prelude::*;
use quadrille_spec::{
    Algorithm, Calibration, Cluster, CollectiveKind, ElementType, MeasuredCollective, MeasuredOperation, RateUnit,
};

fn calibration(seconds: f64, rate: f64, bytes: u64) -> Calibration {
    let collective = |collective, inner, group| MeasuredCollective {
        collective,
        algorithm: Algorithm::Ring,
        inner,
        group,
        bytes,
        seconds,
        spread: 0.125,
    };
    let operation = MeasuredOperation {
        operation: "product tn".to_owned(),
        dtype: ElementType::F64,
        shape: vec![16, 64, 1024],
        rate,
        unit: RateUnit::Flops,
        spread: 0.0,
    };
    Calibration {
        ranks: 8,
        per_node: 4,
        threads: 2,
        runs: 7,
        dtype: ElementType::F32,
        collectives: vec![collective(CollectiveKind::AllToAll, 1, 8), collective(CollectiveKind::Send, 4, 2)],
        operations: vec![operation],
    }
}

fn measured(seconds: f64, rate: f64, bytes: u64) -> Cluster {
    Cluster { calibration: Some(calibration(seconds, rate, bytes)), ..Cluster::preset("perlmutter").unwrap() }
}

#[test]
fn presets_are_written_and_read_back() {
    for name in Cluster::preset_names() {
        let cluster = Cluster::preset(name).unwrap();
        assert_eq!(Cluster::from_toml(&cluster.to_toml().unwrap()).unwrap(), cluster, "{name}");
    }
}

#[test]
fn what_was_measured_is_read_back() {
    let cluster = measured(1.0 / 3.0, 1e9 / 7.0, 4096);
    let text = cluster.to_toml().unwrap();
    assert_eq!(Cluster::from_toml(&text).unwrap(), cluster);
    assert!(
        text.contains("[[calibration.collectives]]\ncollective = \"all_to_all\"\nalgorithm = \"ring\"\n"),
        "{text}"
    );
    assert!(text.contains("unit = \"FLOP/s\""), "{text}");
}

#[test]
fn unknown_fields_and_bad_values_are_refused() {
    let text = measured(0.5, 1e9, 4096).to_toml().unwrap();
    for (from, to, expected) in [
        ("\nper_node = 4", "\nper_node = 4\nwhen = 1", "unknown field `when`"),
        ("spread = 0.125", "spread = 0.125\nhost = \"a\"", "unknown field `host`"),
        ("unit = \"FLOP/s\"", "unit = \"FLOP\"", "unknown variant `FLOP`"),
        ("collective = \"send\"", "collective = \"gossip\"", "unknown variant `gossip`"),
        ("\nper_node = 4", "\nper_node = 0", "calibration.per_node = 0"),
        ("group = 8", "group = 9", "calibration.collectives[0] = inner 1, group 9"),
        ("seconds = 0.5", "seconds = -0.5", "calibration.collectives[0].seconds = -0.5"),
        ("rate = 1000000000.0", "rate = nan", "calibration.operations[0].rate = NaN"),
    ] {
        assert!(text.contains(from), "{from}: {text}");
        let message = Cluster::from_toml(&text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(message.contains(expected), "{to}: {message}");
    }
}

#[test]
fn what_cannot_be_written_is_refused() {
    let message = measured(f64::NAN, 1e9, 1).to_toml().unwrap_err().to_string();
    assert!(message.contains("calibration.collectives[0].seconds = NaN"), "{message}");
    let message = measured(1.0, 1e9, u64::MAX).to_toml().unwrap_err().to_string();
    assert!(message.contains("calibration.collectives[0].bytes = 18446744073709551615"), "{message}");
}

proptest! {
    #[test]
    fn any_legal_measurement_is_read_back(seconds in 1e-9..1e3f64, rate in 1.0..1e18f64, bytes in 0u64..1 << 50) {
        let cluster = measured(seconds, rate, bytes);
        prop_assert_eq!(Cluster::from_toml(&cluster.to_toml().unwrap()).unwrap(), cluster);
    }

    #[test]
    fn damaged_files_do_not_panic(at in 0usize..4000, with in "\\PC{0,8}", cut in 0usize..40) {
        let text = measured(0.5, 1e9, 4096).to_toml().unwrap();
        let at = at.min(text.len());
        let end = (at + cut).min(text.len());
        let damaged = format!("{}{with}{}", &text[..at], &text[end..]);
        let _ = Cluster::from_toml(&damaged);
    }
}
