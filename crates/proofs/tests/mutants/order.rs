//! Which test binaries a mutant runs first.

use quadrille_proofs::Mutant;

use crate::binaries::TestBinary;
use crate::memory::Memory;

/// All binaries, the one that found the mutant last time first; then those of its crate, the proofs, other crates, the
/// command line; of these the fastest first, as far as is known.
pub fn of<'a>(tests: &'a [TestBinary], mutant: &Mutant, memory: &Memory) -> Vec<&'a TestBinary> {
    let before = memory.finder(mutant);
    let place = |test: &TestBinary| match test.package.as_str() {
        _ if before == Some(test.name().as_str()) => 0,
        package if package == mutant.package => 1,
        "proofs" => 2,
        "quadrille" => 4,
        _ => 3,
    };
    let mut tests: Vec<&TestBinary> = tests.iter().collect();
    tests.sort_by_key(|test| (place(test), memory.time(test)));
    tests
}
