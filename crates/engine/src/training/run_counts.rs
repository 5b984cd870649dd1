//! Counts of a rank over its steps, and the comparison of counted and predicted ledgers.

use std::collections::BTreeMap;

use quadrille_spec::{AxesLedger, LedgerDifference, RankLedger};

use crate::{
    Backend, DeviceUse, MatmulChoices, Predictions, RankEngine, RankReport, RankStep, RankTrace, StepOutcome,
    StepRecord,
};

/// Counts of a rank over its steps.
pub(super) struct RunCounts<'a> {
    predictions: &'a Predictions<'a>,
    rank: usize,
    predicted: Option<RankLedger>,
    ledger: Option<RankLedger>,
    total: AxesLedger,
    difference: Option<LedgerDifference>,
    pub records: Vec<StepRecord>,
    steps: Vec<RankStep>,
    breakdown: BTreeMap<&'static str, f64>,
    chosen: Vec<u64>,
}

impl<'a> RunCounts<'a> {
    pub fn new(predictions: &'a Predictions<'a>, rank: usize) -> Self {
        Self {
            predictions,
            rank,
            predicted: None,
            ledger: None,
            total: AxesLedger::new(),
            difference: None,
            records: Vec::new(),
            steps: Vec::new(),
            breakdown: BTreeMap::new(),
            chosen: Vec::new(),
        }
    }

    /// Adds a step that took `seconds`.
    pub fn add<B: Backend>(&mut self, engine: &mut RankEngine<B>, outcome: &StepOutcome, seconds: f64, first: bool) {
        let of_step = engine.take_breakdown();
        self.steps.push(RankStep::new(seconds, &of_step));
        if !first {
            of_step.into_iter().for_each(|(name, seconds)| *self.breakdown.entry(name).or_default() += seconds);
        }
        self.chosen.resize(engine.loads_of_step().len(), 0);
        self.chosen.iter_mut().zip(engine.loads_of_step()).for_each(|(sum, chosen)| *sum += chosen);
        let counted = engine.take_ledger();
        let loads = engine.take_loads();
        let predicted = self.predictions.of_rank(self.rank, outcome.verdict(), &loads).into_owned();
        self.difference = self.difference.take().or_else(|| predicted.difference(&counted));
        for (axes, kinds) in &counted.axes {
            for (kind, transfer) in kinds {
                *self.total.entry(axes.clone()).or_default().entry(*kind).or_default() += *transfer;
            }
        }
        (self.predicted, self.ledger) = (Some(predicted), Some(counted));
    }

    pub fn report(
        self,
        trace: Option<RankTrace>,
        matmuls: MatmulChoices,
        device_memory: Option<DeviceUse>,
    ) -> RankReport {
        RankReport {
            predicted: self.predicted,
            ledger: self.ledger,
            total: self.total,
            difference: self.difference,
            steps: self.steps,
            breakdown: self.breakdown.into_iter().map(|(name, seconds)| (name.to_owned(), seconds)).collect(),
            chosen: self.chosen,
            matmuls,
            trace,
            device_memory,
            device_graphs: None,
            records: self.records,
        }
    }
}
