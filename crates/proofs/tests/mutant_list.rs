//! The list of mutants fits the sources.

use std::collections::BTreeSet;
use std::path::Path;

use quadrille_proofs::MutantList;

#[test]
fn every_mutant_has_its_place_in_the_sources() {
    let list = MutantList::read().unwrap();
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    list.schemata(&workspace).unwrap();
    let names: BTreeSet<_> = list.mutants.iter().map(|mutant| &mutant.name).collect();
    assert_eq!(names.len(), list.mutants.len(), "two mutants of one name");
}
