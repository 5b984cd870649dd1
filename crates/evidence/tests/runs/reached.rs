//! How well the built-in rows are met, and that what is said of it is of this program.

use quadrille_cost::native::Framework;
use quadrille_evidence::{BUILT_IN, Entry, Fitted, Known, Oversized, Summary, Times, Unmapped, evaluate, read};

#[test]
fn as_many_built_in_rows_are_predicted_as_said() {
    let rows = read(BUILT_IN).unwrap();
    let evaluation = evaluate(&rows).unwrap();
    assert_eq!((evaluation.entries.len(), rows.len()), (2023, 2667));
    assert!(evaluation.entries.iter().all(|entry| entry.price.seconds.is_finite() && entry.price.seconds > 0.0));
    // The table of error bands is of the same runs and of this program's numbers: who changes them makes it anew
    // (`validate published --cross --table`).
    let known = Known::all();
    let timed: Vec<_> = evaluation.entries.iter().filter(|entry| entry.is_time()).collect();
    assert_eq!(known.len(), timed.len());
    for (known, entry) in known.iter().zip(timed) {
        let pair = entry.pair().unwrap();
        assert_eq!((known.line, known.source.as_str()), (entry.row.line, entry.run.source.name));
        let now = pair.predicted / pair.measured;
        assert!((known.built_in / now - 1.0).abs() < 2e-3, "line {}: {} then, {now} now", known.line, known.built_in);
    }
}

/// The table that plans tell of is of these rows and of this program's numbers: `UPDATE_DATA=1` writes it anew. Megatron-Bridge's recipes
/// of mixtures ran, and so did those of dense models.
#[test]
fn few_published_runs_are_called_too_large() {
    let rows = read(BUILT_IN).unwrap();
    let evaluation = evaluate(&rows).unwrap();
    let counted = Oversized::of(&evaluation.entries);
    if std::env::var_os("UPDATE_DATA").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/data/oversized.csv");
        std::fs::write(path, Oversized::to_csv(&counted)).unwrap();
    } else {
        assert_eq!(Oversized::all(), counted, "make it anew with UPDATE_DATA=1");
    }
    let of = |is_wanted: &dyn Fn(&Entry) -> bool| {
        let ran: Vec<&Entry> = evaluation.entries.iter().filter(|it| it.is_time() && is_wanted(it)).collect();
        (ran.iter().filter(|entry| entry.run.is_called_too_large(&entry.price)).count(), ran.len())
    };
    let (too_large, mixtures) =
        of(&|entry| entry.run.source.name == "Megatron-Bridge" && entry.run.model.has_experts());
    assert_eq!(mixtures, 28);
    assert!(10 * too_large <= mixtures, "{too_large} of {mixtures} mixtures");
    let bounds = [("GB200", 0.2), ("GB300", 0.05), ("H100", 0.15)];
    for (device, most) in bounds {
        let (too_large, ran) = of(&|entry| entry.row.gpu.starts_with(device));
        assert!(ran > 20 && too_large as f64 <= most * ran as f64, "{too_large} of {ran} on {device}");
    }
    let (too_large, ran) = of(&|entry| entry.run.source.name == "llm-foundry");
    assert!(ran == 91 && 20 * too_large <= ran, "{too_large} of {ran} by FSDP");
}

/// A row of sizes that cannot be counted is one that is not predicted.
#[test]
fn a_row_that_is_too_large_hides_no_other() {
    let mut rows = read(BUILT_IN).unwrap();
    rows.truncate(2);
    rows[1].sizes.seq_len = Some(1 << 24);
    let evaluation = evaluate(&rows).unwrap();
    assert_eq!((evaluation.entries.len(), evaluation.unmapped[0].1), (1, Unmapped::Layout));
}

/// What is reached, with a little room. A change that makes the model worse fails here; one that makes it better should
/// lower the bound.
#[test]
fn reached_errors_hold() {
    let rows = read(BUILT_IN).unwrap();
    let summary = Summary::of(&evaluate(&rows).unwrap());
    // Source, table, mean absolute error of seconds in percent.
    let times = [
        ("Korthikanti", None, 2.2),
        ("PTD-P", Some("Table 1"), 1.9),
        ("PTD-P", Some("Table 2"), 2.3),
        ("vTrain multi-node", None, 7.6),
        ("vTrain single-node", None, 5.7),
        ("BigScience", None, 4.4),
        ("Hagemann", None, 5.2),
        ("InternEvo", None, 5.0),
        ("llm-foundry", None, 5.6),
        ("fms-fsdp", None, 3.7),
        ("DGX Cloud", None, 5.6),
        ("Grok-1", None, 6.2),
        ("Megatron-Bridge", None, 11.8),
        ("NeMo", None, 1.7),
    ];
    let memory = [("BigScience", None, 5.0), ("Megatron CI", None, 4.4), ("torchtitan", None, 6.5)];
    for (known, found) in [(&times[..], &summary.times), (&memory[..], &summary.memory)] {
        for (source, table, bound) in known {
            let of = |line: &&Times| line.source == *source && line.table.as_deref() == *table;
            let line = found.iter().find(of).unwrap_or_else(|| panic!("{source} {table:?}"));
            let error = 100.0 * line.errors.mean_absolute;
            assert!(error <= *bound, "{source} {table:?}: {error:.2} %");
        }
    }
    let judged = summary.judged;
    assert!(50 * judged.called_fitting <= judged.out_of_memory, "{judged:?}");
    assert!(12 * judged.called_too_large <= judged.ran, "{judged:?}");
    // What frameworks take beside tensors is what all tables say.
    let [mean, deviation] =
        [Framework::MEGATRON.reserved_bytes, Framework::MEGATRON.reserved_deviation].map(|it| it as f64);
    assert!(
        (judged.of_all.mean - mean).abs() <= 1e9 && (judged.of_all.deviation - deviation).abs() <= 1e9,
        "{judged:?}"
    );
    let fits = summary.fits;
    assert!(50 * fits.called_fitting <= fits.out_of_memory, "{fits:?}");
    assert!(15 * fits.called_too_large <= fits.ran, "{fits:?}");
    let order = |source: &str| {
        let sources = &summary.ranking.sources;
        sources.iter().find(|order| order.source.as_deref() == Some(source)).unwrap()
    };
    let llama = order("Hagemann");
    assert!(llama.mean_regret <= 0.01 && llama.largest_regret <= 0.07 && llama.mean_tau > Some(0.71), "{llama:?}");
    let multi = order("vTrain multi-node");
    assert!(multi.mean_regret <= 0.01 && multi.mean_tau > Some(0.8), "{multi:?}");
}

#[test]
fn fitted_sources_are_labelled() {
    let rows = read(BUILT_IN).unwrap();
    let summary = Summary::of(&evaluate(&rows).unwrap());
    let label = |source, table: Option<&str>| {
        let line = summary.times.iter().find(|line| line.source == source && line.table.as_deref() == table);
        line.unwrap_or_else(|| panic!("{source} {table:?}")).fitted
    };
    // Times of all are among those of the one fit.
    assert!(summary.times.iter().all(|line| line.fitted == Fitted::Yes));
    assert_eq!((label("Korthikanti", None), label("PTD-P", Some("Table 2"))), (Fitted::Yes, Fitted::Yes));
    let memory = |source, table: Option<&str>| {
        let line = summary.memory.iter().find(|line| line.source == source && line.table.as_deref() == table);
        line.unwrap_or_else(|| panic!("{source} {table:?}")).fitted
    };
    assert_eq!((memory("torchtitan", None), memory("Megatron CI", None)), (Fitted::No, Fitted::Partly));
    assert_eq!(memory("Megatron CI", Some("between steps")), Fitted::Yes);
    assert_eq!(memory("BigScience", Some("GBS Variations")), Fitted::No);
}
