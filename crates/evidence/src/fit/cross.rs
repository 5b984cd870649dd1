//! What is predicted of a source by numbers that were fitted without it.
//!
//! Numbers of devices and frameworks are fitted on the rows of all other sources. What the rows of the source alone have (the
//! network of its cluster, a constant of its framework) is fitted on its other tables, as whoever plans for a cluster measures a
//! few steps there; with one table only it keeps the round value from which fits begin.

use std::collections::BTreeSet;

use quadrille_cost::native::PriceError;

use super::parameter::Parameter;
use super::sample::{Sample, thinned};
use super::solve::fit;

/// Samples of a source at most in a fit.
const MOST: usize = 24;

/// A sample by numbers that were fitted without its source.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Crossed {
    /// The sample's line in the file of rows.
    pub line: u64,
    /// Predicted over measured seconds by the numbers that come with the program.
    pub built_in: f64,
    /// The same by numbers that were fitted without its source.
    pub crossed: f64,
}

/// All parameters that some of the samples have.
fn parameters(samples: &[Sample]) -> Vec<Parameter> {
    let mut networks: Vec<String> = samples.iter().filter_map(Sample::network).map(str::to_owned).collect();
    networks.sort();
    networks.dedup();
    let had = |parameter: &Parameter| samples.iter().any(|sample| sample.has(parameter));
    Parameter::all(&networks).into_iter().filter(had).collect()
}

/// The numbers, by name, that one fit on all samples gives.
///
/// # Errors
/// A program that cannot be simulated.
pub fn on_all(samples: &[Sample]) -> Result<Vec<(String, f64)>, PriceError> {
    let parameters = parameters(samples);
    let all: Vec<&Parameter> = parameters.iter().collect();
    let numbers = fit(&all, &thinned(samples, MOST))?;
    Ok(all.iter().zip(numbers).map(|(parameter, number)| (parameter.name.clone(), number.exp())).collect())
}

/// Every sample by numbers that were fitted without its source, in the order of lines; `told` hears of each source that is done.
///
/// # Errors
/// A program that cannot be simulated.
pub fn cross(samples: &[Sample], mut told: impl FnMut(&str)) -> Result<Vec<Crossed>, PriceError> {
    let parameters = parameters(samples);
    let sources: BTreeSet<&str> = samples.iter().map(|sample| sample.source).collect();
    let mut crossed = Vec::new();
    for source in sources {
        crossed.extend(without(source, samples, &parameters)?);
        told(source);
    }
    crossed.sort_by_key(|it| it.line);
    Ok(crossed)
}

/// The samples of a source by numbers that were fitted without it.
fn without(source: &str, samples: &[Sample], parameters: &[Parameter]) -> Result<Vec<Crossed>, PriceError> {
    let (of_source, others): (Vec<&Sample>, Vec<&Sample>) = samples.iter().partition(|sample| sample.source == source);
    let in_use: Vec<&Parameter> =
        parameters.iter().filter(|parameter| of_source.iter().any(|sample| sample.has(parameter))).collect();
    let (common, own): (Vec<&Parameter>, Vec<&Parameter>) =
        in_use.into_iter().partition(|parameter| others.iter().any(|sample| sample.has(parameter)));
    // All that the others have is free, also what this source does not have.
    let free: Vec<&Parameter> =
        parameters.iter().filter(|parameter| others.iter().any(|sample| sample.has(parameter))).collect();
    let numbers = fit(&free, &thinned(others.iter().copied(), MOST))?;
    let of = |parameter: &Parameter| free.iter().position(|it| it.name == parameter.name).map(|at| numbers[at]);
    let common: Vec<(&Parameter, f64)> = common.into_iter().filter_map(|it| Some((it, of(it)?))).collect();
    let tables: BTreeSet<&str> = of_source.iter().map(|sample| sample.table.as_str()).collect();
    let mut crossed = Vec::new();
    for table in &tables {
        let (held, rest): (Vec<&Sample>, Vec<&Sample>) = of_source.iter().partition(|sample| sample.table == *table);
        let own_numbers = own_numbers(&own, &common, &thinned(rest, MOST))?;
        let all: Vec<&Parameter> = common.iter().map(|(it, _)| *it).chain(own.iter().copied()).collect();
        let numbers: Vec<f64> = common.iter().map(|(_, number)| *number).chain(own_numbers).collect();
        for sample in held {
            crossed.push(Crossed {
                line: sample.line,
                built_in: sample.difference(&[], &[])?.exp(),
                crossed: sample.difference(&all, &numbers)?.exp(),
            });
        }
    }
    Ok(crossed)
}

/// What a source alone has, fitted on some of its samples with all else as it is; where none of them has it, where it begins.
fn own_numbers(own: &[&Parameter], common: &[(&Parameter, f64)], samples: &[&Sample]) -> Result<Vec<f64>, PriceError> {
    let mut numbers: Vec<f64> = own.iter().map(|it| it.start.ln()).collect();
    let had: Vec<usize> = (0..own.len()).filter(|at| samples.iter().any(|sample| sample.has(own[*at]))).collect();
    if had.is_empty() {
        return Ok(numbers);
    }
    let settled: Vec<Sample> = samples.iter().map(|sample| sample.with(common)).collect();
    let free: Vec<&Parameter> = had.iter().map(|at| own[*at]).collect();
    let fitted = fit(&free, &settled.iter().collect::<Vec<_>>())?;
    had.iter().zip(fitted).for_each(|(at, number)| numbers[*at] = number);
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::samples;
    use crate::{BUILT_IN, evaluate, read};

    /// Runs of two sources on A100.
    fn some() -> Vec<Sample> {
        let mut rows = read(BUILT_IN).unwrap();
        rows.retain(|row| {
            row.source.starts_with("Korthikanti") || row.source.starts_with("Narayanan") && row.table == "Table 1"
        });
        samples(&evaluate(&rows).unwrap().entries).unwrap()
    }

    /// A sample whose step takes so many times as long.
    fn taking(sample: &Sample, times: f64) -> Sample {
        let mut other = sample.clone();
        other.seconds *= times;
        other
    }

    /// A source whose steps take twice as long is predicted as before: nothing of it was known. Of the others, which learn of it, at
    /// least one is predicted otherwise.
    #[test]
    fn what_is_predicted_of_a_source_is_not_of_its_own_steps() {
        let (samples, held) = (some(), "Korthikanti");
        let slow = |sample: &Sample| {
            let times = if sample.source == held { 2.0 } else { 1.0 };
            taking(sample, times)
        };
        let slower: Vec<Sample> = samples.iter().map(slow).collect();
        let [usual, slow] = [&samples, &slower].map(|samples| cross(samples, |_| {}).unwrap());
        assert_eq!((usual.len(), slow.len()), (samples.len(), samples.len()));
        let mut learned = 0;
        for ((sample, usual), slow) in samples.iter().zip(&usual).zip(&slow) {
            assert_eq!((sample.line, sample.line), (usual.line, slow.line));
            if sample.source == held {
                assert!((2.0 * slow.crossed / usual.crossed - 1.0).abs() < 1e-12, "line {}", sample.line);
            } else {
                learned += usize::from((slow.crossed / usual.crossed - 1.0).abs() > 1e-3);
            }
        }
        assert!(learned > 0);
    }

    /// Steps that take what some number says lead back to it.
    #[test]
    fn a_number_is_found_again() {
        let samples = some();
        let parameters = parameters(&samples);
        let wanted: Vec<&Parameter> = parameters
            .iter()
            .filter(|it| ["products.ceiling of a100", "memory_efficiency"].contains(&it.name.as_str()))
            .collect();
        let planted = [0.61_f64.ln(), 0.8_f64.ln()];
        let made = |sample: &Sample| {
            let longer = sample.difference(&wanted, &planted).unwrap().exp();
            taking(sample, longer)
        };
        let made: Vec<Sample> = samples.iter().map(made).collect();
        let found = fit(&wanted, &made.iter().collect::<Vec<_>>()).unwrap();
        for (found, planted) in found.iter().zip(planted) {
            assert!((found - planted).abs() < 0.01, "{} instead of {}", found.exp(), planted.exp());
        }
    }
}
