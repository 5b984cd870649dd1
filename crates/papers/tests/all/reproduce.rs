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

/// The lines that list the parts name every one.
#[test]
fn documents_list_every_part() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let lists = [
        ("docs/src/reference/commands.md", "[WORK]  Which work"),
        ("docs/src/reference/overview.md", "| `reproduce` |"),
        ("docs/src/glossary.md", "whose models `plan --cost` and `reproduce` compute"),
        ("CHANGELOG.md", "**`reproduce`**"),
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
