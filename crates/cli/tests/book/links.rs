//! What documents link to and name is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, Tag, TagEnd};

use crate::page::{BOOK, Page, root};

#[test]
fn links_lead_somewhere() {
    let pages = Page::all();
    let anchors: BTreeMap<&str, BTreeSet<String>> =
        pages.iter().map(|page| (page.name.as_str(), anchors(page))).collect();
    let mut broken = Vec::new();
    for page in &pages {
        for (line, target) in targets(page) {
            if let Some(why) = fault(page, &target, &anchors) {
                broken.push(format!("{}:{line}: {target} {why}", page.name));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn broken_links_are_found() {
    let page = Page { name: format!("{BOOK}tutorials/a.md"), text: "## One `two`, three".to_owned() };
    let anchors = BTreeMap::from([(page.name.as_str(), anchors(&page))]);
    let fault = |target| fault(&page, target, &anchors);
    assert_eq!(fault("../nothing.md"), Some("is not there"));
    assert_eq!(fault("../../../README.md"), Some("leads out of the book, where only a checkout has it"));
    assert_eq!(fault("../glossary.md#no-such-word"), Some("names no heading"));
    assert_eq!(fault("#two"), Some("names no heading"));
    assert_eq!(["../glossary.md", "#one-two-three", "https://example.com"].map(fault), [None; 3]);
}

/// Where links and pictures lead, with their lines.
fn targets(page: &Page) -> Vec<(usize, String)> {
    let target = |(event, line)| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some((line, dest_url.to_string())),
        _ => None,
    };
    page.events().filter_map(target).collect()
}

/// What is wrong with a target.
fn fault(page: &Page, target: &str, anchors: &BTreeMap<&str, BTreeSet<String>>) -> Option<&'static str> {
    if target.contains("://") {
        return None;
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let name = if path.is_empty() { page.name.clone() } else { beside(&page.name, path) };
    if !path.is_empty() && !root().join(&name).exists() {
        return Some("is not there");
    }
    if page.name.starts_with(BOOK) && !name.starts_with(BOOK) {
        return Some("leads out of the book, where only a checkout has it");
    }
    let known = anchor.is_none_or(|anchor| anchors.get(name.as_str()).is_some_and(|all| all.contains(anchor)));
    (!known).then_some("names no heading")
}

/// A path as it is seen from a document.
fn beside(document: &str, path: &str) -> String {
    let mut found = PathBuf::new();
    for component in Path::new(document).parent().unwrap().join(path).components() {
        match component {
            Component::ParentDir => _ = found.pop(),
            other => found.push(other),
        }
    }
    found.to_str().unwrap().to_owned()
}

/// The names by which links find a page's headings, as mdBook makes them.
fn anchors(page: &Page) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut heading: Option<String> = None;
    for (event, _) in page.events() {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => found.extend(heading.take().map(|text| anchor(&text))),
            Event::Text(text) | Event::Code(text) => heading.iter_mut().for_each(|heading| heading.push_str(&text)),
            _ => {}
        }
    }
    found
}

fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ' '));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// Folders of the repository with which the path of a file begins that a document names.
const FOLDERS: [&str; 5] = [".ci/", "benchmarks/", "crates/", "docs/", "scripts/"];

/// The map of the architecture names files from their crates, so it is left out.
#[test]
fn files_that_documents_name_are_there() {
    let mut missing = Vec::new();
    for page in Page::all().into_iter().filter(|page| page.name != "ARCHITECTURE.md") {
        for (event, line) in page.events() {
            let Event::Code(code) = event else { continue };
            let plain = code.chars().all(|c| c.is_ascii_alphanumeric() || "./-_".contains(c));
            let is_path = plain && FOLDERS.iter().any(|folder| code.starts_with(folder));
            if is_path && !root().join(&*code).exists() {
                missing.push(format!("{}:{line}: {code}", page.name));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn pictures_are_shown() {
    let shown: BTreeSet<String> =
        Page::all().iter().flat_map(|page| targets(page).into_iter().map(|(_, to)| beside(&page.name, &to))).collect();
    for entry in fs::read_dir(root().join("docs/src/pictures")).unwrap() {
        let name = format!("docs/src/pictures/{}", entry.unwrap().file_name().to_str().unwrap());
        assert!(shown.contains(&name), "no page shows {name}");
    }
}
