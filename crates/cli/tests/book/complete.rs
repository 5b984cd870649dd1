//! Lists of the documents have everything that the program has.

use quadrille_spec::{Cluster, Device, Field, Model, ModelFile};

use crate::page::{BOOK, Page};

/// Fails for names that do not stand in a page as code.
fn lists<'a>(page: &str, names: impl IntoIterator<Item = &'a str>) {
    let page = Page::read(&format!("{BOOK}{page}"));
    let missing: Vec<&str> = names.into_iter().filter(|name| !page.text.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "{} does not tell {missing:?}", page.name);
}

#[test]
fn every_chapter_is_in_the_summary() {
    let summary = Page::read(&format!("{BOOK}SUMMARY.md")).text;
    for page in Page::book().iter().filter(|page| !page.name.ends_with("SUMMARY.md")) {
        let path = page.name.strip_prefix(BOOK).unwrap();
        assert!(summary.contains(&format!("({path})")), "{path} is in no chapter of the summary");
    }
}

#[test]
fn the_page_of_models_has_all_presets_and_fields() {
    lists("reference/models.md", Model::preset_names());
    lists("reference/models.md", ModelFile::FIELDS);
}

#[test]
fn the_page_of_layouts_has_all_fields() {
    lists("reference/layouts.md", Field::KEYS);
}

#[test]
fn the_page_of_clusters_has_all_presets() {
    lists("reference/clusters.md", Cluster::preset_names());
    lists("reference/clusters.md", Device::preset_names());
}
