//! Runs with their programs, which no number that is fitted changes.

use std::collections::BTreeMap;

use quadrille_cost::native::{PriceError, Problem};
use quadrille_step::FoldedProgram;

use super::parameter::Parameter;
use crate::evaluate::Entry;
use crate::run::{Measured, Run};

/// A run whose step was timed.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Its line in the file of rows.
    pub line: u64,
    /// The name of its source.
    pub source: &'static str,
    /// The table there.
    pub table: String,
    /// What the source says.
    pub run: Run,
    /// Seconds of a step.
    pub seconds: f64,
    program: FoldedProgram,
}

impl Sample {
    /// The natural logarithm of predicted over measured seconds, where the `numbers` of `parameters` are those of the run that
    /// has them; in logarithms.
    ///
    /// # Errors
    /// A program that cannot be simulated.
    pub fn difference(&self, parameters: &[&Parameter], numbers: &[f64]) -> Result<f64, PriceError> {
        let mut run = self.run.clone();
        for (parameter, number) in parameters.iter().zip(numbers) {
            if let Some(place) = parameter.of(&mut run) {
                *place = number.exp().clamp(parameter.least, parameter.most);
            }
        }
        let problem = Problem::new(&run.model, &run.cluster, run.framework, run.global_batch, run.seq_len)?;
        Ok((problem.seconds_of_program(&self.program, &|| false)? / self.seconds).ln())
    }

    /// The same with some numbers changed for good; in logarithms.
    #[must_use]
    pub fn with(&self, numbers: &[(&Parameter, f64)]) -> Self {
        let mut changed = self.clone();
        for (parameter, number) in numbers {
            if let Some(place) = parameter.of(&mut changed.run) {
                *place = number.exp();
            }
        }
        changed
    }

    /// The name of the network between its nodes, if it has several.
    pub fn network(&self) -> Option<&str> {
        let outer = self.run.cluster.tiers.get(1).filter(|_| self.run.has_several_nodes());
        outer.map(|tier| tier.name.as_str())
    }

    /// Whether its price depends on a number.
    pub fn has(&self, parameter: &Parameter) -> bool {
        parameter.of(&mut self.run.clone()).is_some()
    }
}

/// The entries whose steps were timed.
///
/// # Errors
/// A layout that has no program.
pub fn samples(entries: &[Entry]) -> Result<Vec<Sample>, PriceError> {
    let timed = entries.iter().filter_map(|entry| match entry.run.measured {
        Measured::Seconds(seconds) => Some((entry, seconds)),
        _ => None,
    });
    timed
        .map(|(entry, seconds)| {
            Ok(Sample {
                line: entry.row.line,
                source: entry.run.source.name,
                table: entry.row.table.clone(),
                run: entry.run.clone(),
                seconds,
                program: entry.run.program()?,
            })
        })
        .collect()
}

/// Of each source at most `most` samples: every so many.
pub fn thinned<'s>(samples: impl IntoIterator<Item = &'s Sample>, most: usize) -> Vec<&'s Sample> {
    let mut sources: BTreeMap<&str, Vec<&Sample>> = BTreeMap::new();
    samples.into_iter().for_each(|sample| sources.entry(sample.source).or_default().push(sample));
    let every = |samples: Vec<&'s Sample>| {
        let step = samples.len().div_ceil(most).max(1);
        samples.into_iter().step_by(step)
    };
    sources.into_values().flat_map(every).collect()
}
