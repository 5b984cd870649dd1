//! Every mutant of `mutants/*.toml` is found by some test of the workspace, or the list says why none can see it.
//!
//! Takes about an hour. Run it with `cargo test --release -p quadrille-proofs --features long --test mutants`, and some of
//! the mutants with `-- WORDS`: those whose name, file or crate has one of the words. A copy of the workspace with all
//! mutants is built once, in the target folder; each mutant then runs the test binaries until one fails.

mod binaries;
mod memory;
mod order;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use binaries::{Outcome, TestBinary};
use memory::Memory;
use quadrille_proofs::{Mutant, MutantList, copied_workspace, workspace};

/// What a test binary may take, beyond this many times what it takes without a mutant: it hangs.
const PATIENCE: (Duration, u32) = (Duration::from_secs(60), 5);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    match run(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all is as the list says.
fn run(words: &[String]) -> Result<bool, String> {
    let list = MutantList::read()?;
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants");
    let copy = copied_workspace(&list.schemata(&workspace())?, &target)?;
    let tests = binaries::build(&list, &copy, &target)?;
    let mut memory = Memory::read(&target);
    let mut wrong = Vec::new();
    let chosen = |mutant: &Mutant| {
        let texts = [&mutant.name, &mutant.file, &mutant.package];
        words.is_empty() || words.iter().any(|word| texts.iter().any(|text| text.contains(word)))
    };
    let numbered = list.mutants.iter().enumerate().filter(|(_, mutant)| chosen(mutant));
    let mut count = 0;
    for (index, mutant) in numbered {
        let start = Instant::now();
        let tests = order::of(&tests, mutant, &memory);
        let finder = find(&tests, index + 1, &mut memory)?;
        let by = finder.as_ref().map_or("-".to_owned(), |(test, failed)| format!("{} {failed}", test.name()));
        let verdict = match (&finder, &mutant.equivalent) {
            (Some(_), None) => "found",
            (None, Some(_)) => "equivalent",
            (None, None) => "SURVIVES",
            (Some(_), Some(_)) => "FOUND, though the list says that no test can see it",
        };
        let seconds = start.elapsed().as_secs_f64();
        println!("{:4} {:11} {:5.1} s  {}: {}  [{by}]", index + 1, verdict, seconds, mutant.package, mutant.name);
        if finder.is_some() != mutant.equivalent.is_none() {
            wrong.push(format!("{verdict}: {} ({}/{})", mutant.name, mutant.package, mutant.file));
        }
        memory.note_finder(mutant, finder.map(|(test, _)| test))?;
        count += 1;
    }
    println!("{count} mutants, {} not as the list says", wrong.len());
    wrong.iter().for_each(|line| println!("  {line}"));
    Ok(wrong.is_empty() && count > 0)
}

/// The first binary that fails under the mutant of this number, and what fails of it.
fn find<'a>(
    tests: &[&'a TestBinary],
    number: usize,
    memory: &mut Memory,
) -> Result<Option<(&'a TestBinary, String)>, String> {
    for test in tests {
        let time = match memory.time(test) {
            Some(time) => time,
            None => {
                let time = whole(test)?;
                memory.note_time(test, time)?;
                time
            }
        };
        let (least, times) = PATIENCE;
        if let Outcome::Failed(failed) = test.run(Some(number), least + times * time) {
            return Ok(Some((test, failed)));
        }
    }
    Ok(None)
}

/// How long the binary takes without a mutant: it has to pass.
fn whole(test: &TestBinary) -> Result<Duration, String> {
    let start = Instant::now();
    match test.run(None, Duration::from_secs(1800)) {
        Outcome::Passed => Ok(start.elapsed()),
        Outcome::Failed(failed) => Err(format!("{} fails without a mutant: {failed}", test.name())),
    }
}
