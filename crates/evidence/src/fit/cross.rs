//! What is predicted of a source by numbers that were fitted without it, or without its runs of a model.
//!
//! Without a source, numbers of devices and frameworks are fitted on the rows of all other sources. What the rows of the source
//! alone have (the network of its cluster, a constant of its framework) is fitted on its other tables, as whoever plans for a
//! cluster measures a few steps there; with one table only it keeps the round value from which fits begin.
//!
//! Without a model, a fifth of each source's widths of models is left out at once and all numbers are fitted together on the rest: as
//! somebody plans who has measured other models there. Sources of one width are not left out.

use std::collections::{BTreeMap, BTreeSet};

use quadrille_cost::native::PriceError;

use super::parameter::Parameter;
use super::sample::{Sample, thinned};
use super::solve::fit;

/// Samples of a source at most in a fit.
const MOST: usize = 24;
/// In how many parts the models of each source are left out.
const PARTS: usize = 5;

/// A sample by numbers that were fitted without its source, and without its model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Crossed {
    /// The sample's line in the file of rows.
    pub line: u64,
    /// Predicted over measured seconds by the numbers that come with the program.
    pub built_in: f64,
    /// The same by numbers that were fitted without its source.
    pub crossed: f64,
    /// The same by numbers that were fitted without a fifth of each source's widths of models, its own among them; `None` where its
    /// source has no other.
    pub familiar: Option<f64>,
}

/// Each sample of a source: its line, and predicted over measured seconds by the numbers of the program and by those that were
/// fitted without the source.
type Predicted = Vec<(u64, [f64; 2])>;

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

/// Every sample by numbers that were fitted without its source and without its model, in the order of lines; `told` hears of each
/// fit that is done.
///
/// # Errors
/// A program that cannot be simulated.
pub fn cross(samples: &[Sample], mut told: impl FnMut(&str)) -> Result<Vec<Crossed>, PriceError> {
    let parameters = parameters(samples);
    let sources: BTreeSet<&str> = samples.iter().map(|sample| sample.source).collect();
    let mut crossed = Vec::new();
    for source in sources {
        crossed.extend(without_source(source, samples, &parameters)?);
        told(source);
    }
    let mut familiar = BTreeMap::new();
    for part in 0..PARTS {
        familiar.extend(without_models(part, samples, &parameters)?);
        told("models");
    }
    crossed.sort_by_key(|(line, _)| *line);
    let with = |(line, [built_in, crossed]): (u64, [f64; 2])| {
        let familiar = familiar.get(&line).copied();
        Crossed { line, built_in, crossed, familiar }
    };
    Ok(crossed.into_iter().map(with).collect())
}

/// How many fits [`cross`] makes.
pub fn fits(samples: &[Sample]) -> usize {
    samples.iter().map(|sample| sample.source).collect::<BTreeSet<_>>().len() + PARTS
}

/// Of each source of several model widths the samples of every [`PARTS`]th, by numbers that were fitted on all others.
fn without_models(part: usize, samples: &[Sample], parameters: &[Parameter]) -> Result<Vec<(u64, f64)>, PriceError> {
    let mut widths: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for sample in samples {
        widths.entry(sample.source).or_default().insert(sample.run.model.hidden);
    }
    let is_held = |sample: &Sample| {
        let widths = &widths[sample.source];
        let place = widths.iter().position(|width| *width == sample.run.model.hidden);
        widths.len() > 1 && place.is_some_and(|place| place % PARTS == part)
    };
    let (held, others): (Vec<&Sample>, Vec<&Sample>) = samples.iter().partition(|sample| is_held(sample));
    let (free, alone): (Vec<&Parameter>, Vec<&Parameter>) =
        parameters.iter().partition(|parameter| others.iter().any(|sample| sample.has(parameter)));
    let mut numbers: Vec<f64> = fit(&free, &thinned(others.iter().copied(), MOST))?;
    // What those alone have that are held is where it is sought from.
    numbers.extend(alone.iter().map(|it| it.start.ln()));
    let all: Vec<&Parameter> = free.into_iter().chain(alone).collect();
    held.into_iter().map(|sample| Ok((sample.line, sample.difference(&all, &numbers)?.exp()))).collect()
}

/// The samples of a source by numbers that were fitted without it.
fn without_source(source: &str, samples: &[Sample], parameters: &[Parameter]) -> Result<Predicted, PriceError> {
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
            let [built_in, without] = [sample.difference(&[], &[])?, sample.difference(&all, &numbers)?];
            crossed.push((sample.line, [built_in.exp(), without.exp()]));
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
            let few = row.sizes.n_gpus.is_some_and(|devices| devices <= 1024);
            few && (row.source.starts_with("Korthikanti")
                || row.source.starts_with("Narayanan") && row.table == "Table 1")
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
        let samples = some();
        let held = "Korthikanti";
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

    /// Models of a width of which all steps take twice as long are predicted as before by numbers that know the source's others; these
    /// learn of it.
    #[test]
    fn what_is_predicted_of_a_model_is_not_of_its_own_steps() {
        let samples = some();
        let held = samples.iter().find(|sample| sample.source == "PTD-P").unwrap();
        let is_held =
            |sample: &Sample| (sample.source, sample.run.model.hidden) == (held.source, held.run.model.hidden);
        let slow = |sample: &Sample| taking(sample, if is_held(sample) { 2.0 } else { 1.0 });
        let slower: Vec<Sample> = samples.iter().map(slow).collect();
        let parameters = parameters(&samples);
        let familiar = |samples: &[Sample]| {
            let parts = (0..PARTS).flat_map(|part| without_models(part, samples, &parameters).unwrap());
            parts.collect::<BTreeMap<u64, f64>>()
        };
        let [usual, slow] = [&samples, &slower].map(|samples| familiar(samples));
        assert!(usual.contains_key(&held.line));
        let mut learned = 0;
        for sample in samples.iter().filter(|sample| usual.contains_key(&sample.line)) {
            let ratio = slow[&sample.line] / usual[&sample.line];
            if is_held(sample) {
                assert!((2.0 * ratio - 1.0).abs() < 1e-12, "line {}: {ratio}", sample.line)
            } else {
                learned += usize::from((ratio - 1.0).abs() > 1e-3)
            }
        }
        assert!(learned > 0);
        // A source of one width is not left out.
        let one_width: Vec<Sample> =
            samples.iter().filter(|sample| sample.source != "PTD-P" || is_held(sample)).cloned().collect();
        let left_out = familiar(&one_width);
        assert!(one_width.iter().all(|sample| sample.source != "PTD-P" || !left_out.contains_key(&sample.line)));
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
