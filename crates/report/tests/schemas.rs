//! Schemas of documents in the book are those of the reports' types, and documents are read back as they were written.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use quadrille_cost::native::Framework;
use quadrille_plan::native::{Answer, Question, Wanted};
use quadrille_report::plan::{PlanPage, PlanReport};
use quadrille_report::schemas::{ReportSchema, schemas};
use quadrille_spec::{Cluster, Model};

/// The book's folder.
const BOOK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src");

/// Text of the page before its table.
const PAGE: &str = "\
# Documents

<!-- Written by `UPDATE_DOCS=1 cargo test -p quadrille-report --test schemas`. -->

Every `--json` prints one document, and a page that a command writes holds one. Its first field is `version`: fields may be added to a
version, while a field that is renamed, removed or means something else makes a new one. Names say units: `_s` and `seconds` are
seconds, `bytes` are bytes, `percent` is percent; parts and shares are between 0 and 1. Other times are in seconds, other sizes in
bytes. Text and tables show the same numbers.

Each document has a JSON schema (draft 2020-12), which says what its fields mean:

| command | schema |
|---|---|
";

fn folder() -> PathBuf {
    Path::new(BOOK).join("schemas")
}

fn text(report: &ReportSchema) -> String {
    serde_json::to_string_pretty(&report.schema).unwrap() + "\n"
}

fn page(all: &[ReportSchema]) -> String {
    let row = |report: &ReportSchema| {
        format!("| `quadrille {}` | [{name}.json](../schemas/{name}.json) |\n", report.command, name = report.name)
    };
    PAGE.to_owned() + &all.iter().map(row).collect::<String>()
}

#[test]
fn schemas_in_the_book_are_those_of_the_types() {
    let all = schemas();
    let page_path = Path::new(BOOK).join("reference/documents.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::create_dir_all(folder()).unwrap();
        for report in &all {
            fs::write(folder().join(format!("{}.json", report.name)), text(report)).unwrap();
        }
        fs::write(page_path, page(&all)).unwrap();
        return;
    }
    let remedy = "run\n  UPDATE_DOCS=1 cargo test -p quadrille-report --test schemas";
    for report in &all {
        let written = fs::read_to_string(folder().join(format!("{}.json", report.name))).unwrap_or_default();
        assert!(written == text(report), "{}.json is not the schema of its type; {remedy}", report.name);
    }
    assert!(fs::read_to_string(page_path).unwrap_or_default() == page(&all), "documents.md is another page; {remedy}");
    let names: BTreeSet<String> = all.iter().map(|report| format!("{}.json", report.name)).collect();
    let files = fs::read_dir(folder()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    assert_eq!(files.collect::<BTreeSet<_>>(), names, "files without a report");
}

#[test]
fn every_field_of_a_schema_is_documented() {
    for report in schemas() {
        let document = serde_json::to_value(&report.schema).unwrap();
        let properties = document["properties"].as_object().unwrap_or_else(|| panic!("{}", report.name));
        assert!(properties.contains_key("version"), "{}", report.name);
        for (name, field) in properties {
            let is_documented = field.get("description").is_some() || field.get("$ref").is_some();
            assert!(is_documented, "{}: {name}", report.name);
        }
    }
}

#[test]
fn a_plan_is_read_back_as_it_was_written() {
    let model = Model::preset("gpt2-124m").unwrap();
    let cluster = Cluster::preset("selene").unwrap();
    let question = Question::new(model, cluster, Framework::MEGATRON, 4, 16);
    let wanted = Wanted { top: 2, front_over: Some(vec![2, 4]), explain: true, ..Wanted::default() };
    let answer = Answer::new(&question, &wanted).unwrap();
    let written = serde_json::to_string(&PlanReport::new(&answer).unwrap()).unwrap();
    let read: PlanReport = serde_json::from_str(&written).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), written);
    let page = serde_json::to_value(PlanPage::with_drawings(&answer).unwrap()).unwrap();
    let read: PlanPage = serde_json::from_value(page.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), page);
}
