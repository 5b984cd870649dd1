//! Random cases from a printed seed.

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

/// The variable that repeats a run.
const VARIABLE: &str = "QUADRILLE_SEED";

/// Holds `test` for `cases` random inputs. The seed is printed; the environment variable `QUADRILLE_SEED` repeats a run.
///
/// # Panics
/// If the test fails for an input: with the smallest that was found.
pub fn for_random<S: Strategy>(cases: u32, strategy: S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let given = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed: u64 = given.unwrap_or_else(|| now.map_or(0, |now| now.as_nanos() as u64));
    println!("{VARIABLE}={seed}");
    let bytes: Vec<u8> = (0..4).flat_map(|_| seed.to_le_bytes()).collect();
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    if let Err(error) = TestRunner::new_with_rng(config, random).run(&strategy, test) {
        panic!("{VARIABLE}={seed}: {error}");
    }
}
