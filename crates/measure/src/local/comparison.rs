//! Measured beside predicted steps.

use quadrille_cost::native::PriceError;
use quadrille_plan::local::{Measured, Predicted, Summary, places};
use quadrille_plan::statistics::Pair;
use quadrille_spec::Layout;

use crate::MeasureError;
use crate::timing::median;

/// What was measured, and how well it was predicted.
#[derive(Debug)]
pub struct Comparison {
    /// The fastest measured first.
    pub rows: Vec<Row>,
    /// Of those that were predicted.
    pub summary: Summary,
}

/// A layout that ran.
#[derive(Debug, Clone)]
pub struct Row {
    /// The layout.
    pub layout: Layout,
    /// What was predicted, or why nothing was.
    pub predicted: Result<Predicted, PriceError>,
    /// Its steps on the slowest rank.
    pub measured: Measured,
    /// Whether all transfers of all steps were the predicted ones.
    pub ledger_equal: bool,
    /// The predicted and the measured place among those that were predicted, the fastest at 1.
    pub places: [Option<usize>; 2],
}

impl Row {
    /// Predicted and measured seconds of the step; `None` without a prediction.
    pub fn pair(&self) -> Option<Pair> {
        let predicted = self.predicted.as_ref().ok()?.seconds;
        Some(Pair { predicted, measured: self.measured.seconds })
    }

    /// Seconds of compute, exposed communication and other of a step.
    pub fn predicted_parts(&self) -> Option<[f64; 3]> {
        self.predicted.as_ref().ok().map(|step| [step.compute, step.exposed(), step.other])
    }

    /// Seconds of the same parts, measured.
    pub fn measured_parts(&self) -> [f64; 3] {
        [self.measured.compute, self.measured.exposed, self.measured.other]
    }
}

impl Comparison {
    /// Compares and sorts.
    ///
    /// # Errors
    /// None of the rows has a prediction.
    pub fn new(mut rows: Vec<Row>) -> Result<Self, MeasureError> {
        let compared: Vec<usize> = (0..rows.len()).filter(|at| rows[*at].predicted.is_ok()).collect();
        let pairs: Vec<Pair> = compared.iter().filter_map(|at| rows[*at].pair()).collect();
        let summary = Summary::of(&pairs).ok_or(MeasureError::Unpredicted)?;
        let predicted = places(&pairs.iter().map(|pair| pair.predicted).collect::<Vec<_>>());
        let measured = places(&pairs.iter().map(|pair| pair.measured).collect::<Vec<_>>());
        for (at, places) in compared.into_iter().zip(predicted.into_iter().zip(measured)) {
            rows[at].places = [Some(places.0), Some(places.1)];
        }
        rows.sort_by(|a, b| a.measured.seconds.total_cmp(&b.measured.seconds));
        Ok(Self { rows, summary })
    }

    /// The layout that is predicted to be fastest.
    pub fn predicted_best(&self) -> Option<&Row> {
        self.rows.iter().find(|row| row.places[0] == Some(1))
    }

    /// The fastest one of those that were predicted.
    pub fn measured_best(&self) -> Option<&Row> {
        self.rows.iter().find(|row| row.places[1] == Some(1))
    }

    /// How many count as the best: ten, of fewer than twenty layouts half.
    pub fn best(&self) -> usize {
        self.summary.agreement.last().map_or(1, |agreement| agreement.best)
    }

    /// The median over layouts of the steps' standard deviation over their mean: what differs by less is no difference.
    /// `None` where a single step was measured.
    pub fn noise(&self) -> Option<f64> {
        let each = self.rows.iter().filter_map(|row| Some(row.measured.deviation? / row.measured.seconds));
        let each: Vec<f64> = each.collect();
        (!each.is_empty()).then(|| median(each))
    }

    /// Holds the counted ledgers against the predicted ones.
    ///
    /// # Errors
    /// A run sent, computed or held other than predicted: its times are those of another program.
    pub fn check_ledgers(&self) -> Result<(), MeasureError> {
        match self.rows.iter().find(|row| !row.ledger_equal) {
            None => Ok(()),
            Some(row) => Err(MeasureError::Ledger { grid: row.layout.grid.to_string() }),
        }
    }
}
