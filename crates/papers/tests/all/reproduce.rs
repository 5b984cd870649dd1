//! The figures of the dissertation beside ours, and the documents that list the parts.

use std::fs;
use std::path::Path;

use quadrille_papers::reproduce::{PARTS, Point};

/// Points of a part whose words or sources contain `of`.
fn points(part: &str, of: &str) -> Vec<Point> {
    let part = PARTS.into_iter().find(|candidate| candidate.name == part).unwrap();
    let points = part.points().unwrap().into_iter();
    points.filter(|point| point.what.contains(of) || point.source.contains(of)).collect()
}

/// What agrees and what does not, as printed and as ours, to three decimals.
fn split(points: &[Point]) -> [Vec<String>; 2] {
    let shown = |point: &Point| format!("{} {:.3}", point.published, point.ours);
    [true, false].map(|agrees| points.iter().filter(|point| point.agrees() == agrees).map(shown).collect())
}

#[test]
fn states_in_buckets_are_the_dissertations() {
    let [agree, deviate] = split(&points("axonn", "dissertation 3.3.2"));
    let whole = ["20 20.000", "4 4.000", "16 16.000", "40 40.000", "2.5 2.500", "5 4.845"];
    assert_eq!(agree, [&whole[..], &["4 3.993", "4 4.433", "4 4.000", "4 4.000"]].concat());
    assert_eq!(deviate, ["520 480.000", "130.24 108.288", "4.32 4.340", "13 17.837", "13 14.137"]);
}

/// Where a stage has more than two blocks, equation 3.1 keeps fewer inputs than the programs find best.
#[test]
fn intervals_are_the_equations_and_the_programs() {
    let [agree, deviate] = split(&points("axonn", "eq. 3.1"));
    assert_eq!((agree, deviate), (vec!["2 2.000".to_owned()], vec!["8 2.000".to_owned(); 2]));
}

#[test]
fn savings_of_samo_are_the_figures() {
    let [agree, deviate] = split(&[points("samo", "saves nothing"), points("samo", "figure 4.2")].concat());
    assert_eq!(agree, ["0.25 0.250", "66 66.000", "78 78.000"]);
    assert_eq!(deviate, ["0.25 0.222", "66 65.000", "78 76.250"], "with our states");
    let [agree, deviate] = split(&[points("samo", "figure 4.3"), points("samo", "messages")].concat());
    assert_eq!((agree.join(" "), deviate.len()), ("6 6.000 6 6.000 4 4.000".to_owned(), 0));
}

#[test]
fn speedups_of_samo_follow_from_its_table() {
    let [agree, deviate] = split(&points("samo", "table 4.2"));
    assert_eq!(agree, ["19 18.648", "26 26.129", "34 33.548", "2 2.446"]);
    assert_eq!(deviate, ["16.4 16.479", "2 2.825"]);
    let [agree, deviate] = split(&points("samo", "2.7B, "));
    assert_eq!(agree, ["33 33.000", "10-24 21.000", "40 40.000"]);
    assert_eq!(deviate, ["10-24 30.240", "34 32.000"]);
}

/// Forward and backward in groups of four, with 192 elements in all experts' rows: what a rank's all-to-alls send, and all of
/// its collectives. Ours reduce-scatters where DTD as printed has an all-reduce; scattered activations gather nothing again.
#[test]
fn exchanges_of_ted_are_the_closed_forms() {
    let [agree, deviate] = split(&points("ted", "192 elements"));
    assert_eq!(agree, ["576 576.000", "1152 1152.000", "144 144.000"]);
    assert_eq!(deviate, ["1296 1008.000", "1296 720.000"]);
    let [agree, deviate] = split(&points("ted", "recomput"));
    assert_eq!((agree.join(" "), deviate.len()), ("6 6.000 6 6.000 1.5 1.500".to_owned(), 0));
}

/// DTD and CAC leave `2/(3 G_t)` of what all-to-alls send; the figure is of their time.
#[test]
fn shares_of_ted_are_the_figure_and_the_elements() {
    let [agree, deviate] = split(&points("ted", "figure 7.5"));
    assert_eq!(agree, ["33 33.333", "33 33.333"]);
    assert_eq!(deviate, ["48 75.000", "64.12 83.333", "64.12 65.333", "13.21 15.360", "20.7 26.458"]);
    let [agree, deviate] = split(&points("ted", "speed-ups"));
    assert_eq!((agree.join(" "), deviate.len()), ("4 4.000 3 3.000".to_owned(), 0));
}

#[test]
fn memory_of_ted_is_by_its_equations() {
    let [agree, deviate] = split(&points("ted", "section 7.2"));
    assert_eq!(agree, ["32 32.000", "1 1.000", "3 3.000", "21.75 21.750"]);
    assert_eq!(deviate, ["3 3.818", "1000 7.200", "31.3 28.475", "40 36.325"]);
    let [agree, deviate] = split(&points("ted", "figure 7.4"));
    assert_eq!((agree.len(), deviate), (0, ["4.5 3.825", "4.5 3.582", "1500 7.200"].map(str::to_owned).to_vec()));
    let [agree, deviate] = split(&points("ted", "tensor"));
    assert_eq!(
        (agree.join(" "), deviate.join(" ")),
        ("1 1.000 4 4.000 8 8.000 4 4.000 6 6.000 8 8.000".into(), "2 1.000".into())
    );
}

/// A note names the numbers that the file and the formulas give.
#[test]
fn notes_of_ted_are_computed() {
    let of = |what: &str| points("ted", what).into_iter().filter_map(|point| point.note).collect::<Vec<_>>().join("\n");
    assert!(of("smallest tensor group").contains("leaves 2.2 GB"));
    assert!(of("at most").contains("1.8 million") && of("at most").ends_with("for 250 million"));
    assert!(of("peak, states").contains("41.9 GB"));
    assert!(of("share of peak").ends_with("26.2"));
}

/// The lines that list the parts name every one.
#[test]
fn documents_list_every_part() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let lists = [
        ("docs/src/reference/overview.md", "| `paper` |"),
        ("docs/src/glossary.md", "whose models `paper` computes"),
        ("CHANGELOG.md", "**`paper`**"),
        ("ARCHITECTURE.md", "are the published models"),
    ];
    for (file, start) in lists {
        let text = fs::read_to_string(root.join(file)).unwrap();
        let line = text.lines().find(|line| line.contains(start)).unwrap_or_else(|| panic!("{file}: no '{start}'"));
        for part in PARTS {
            assert!(
                line.to_lowercase().replace("megatron-lm", "megatron").contains(part.name),
                "{file}: {}",
                part.name
            );
        }
    }
}
