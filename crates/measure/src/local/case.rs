//! What is compared: layouts with their predictions, and how they are run.

use quadrille_cost::native::{Framework, PriceError, Problem};
use quadrille_engine::{Device, TrainOptions};
use quadrille_plan::local::{Measured, Predicted, RankStep, WARM_UP_STEPS, shuffled};
use quadrille_spec::{Cluster, Layout, Model};
use quadrille_step::{StepError, StepProgram};

use super::comparison::{Comparison, Row};
use crate::step::steps;
use crate::{MeasureError, OnProgress, Progress, Refusal, Setting};

/// Layouts of one model on one machine.
#[derive(Debug)]
pub struct LocalCase {
    /// The model.
    pub model: Model,
    /// What steps are predicted for: a device, which is a rank, and tiers.
    pub cluster: Cluster,
    /// How ranks run, and for how many steps, of which the first two warm up.
    pub options: TrainOptions,
    /// In the order in which they were given.
    pub layouts: Vec<Predictable>,
}

/// A layout that is to be run.
#[derive(Debug, Clone)]
pub struct Predictable {
    /// The layout.
    pub layout: Layout,
    /// Its prediction, or why there is none.
    pub predicted: Result<Predicted, PriceError>,
}

impl LocalCase {
    /// Prices the layouts, all of one batch and in the same types.
    ///
    /// # Errors
    /// Too few steps, no layouts; a cluster for which nothing can be priced.
    pub fn new(
        model: Model,
        cluster: Cluster,
        layouts: Vec<Layout>,
        options: TrainOptions,
    ) -> Result<Self, MeasureError> {
        check_steps(options.steps)?;
        let Some(first) = layouts.first() else { return Err(MeasureError::TooFew { predicted: 0, refused: None }) };
        let problem =
            Problem::new(&model, &cluster, Framework::QUADRILLE.in_types_of(first), first.global_batch, first.seq_len)?;
        let predict = |layout: Layout| {
            let predicted = problem.price_layout(&layout).map(|price| Predicted::from(&price));
            Predictable { layout, predicted }
        };
        let layouts = layouts.into_iter().map(predict).collect();
        Ok(Self { model, cluster, options, layouts })
    }

    /// Refuses layouts that give no comparison.
    ///
    /// # Errors
    /// Fewer than two predictions.
    pub fn check(&self) -> Result<(), MeasureError> {
        let predicted = self.layouts.iter().filter(|layout| layout.predicted.is_ok()).count();
        if predicted < 2 {
            let refused = self.layouts.iter().find_map(|layout| layout.predicted.as_ref().err().cloned());
            return Err(MeasureError::TooFew { predicted, refused });
        }
        Ok(())
    }

    /// The programs that are run, for a look at what they need.
    pub fn programs(&self) -> impl Iterator<Item = Result<StepProgram, StepError>> {
        self.layouts.iter().map(|layout| StepProgram::new(&self.model, &layout.layout))
    }

    /// Runs every layout on the device and compares; tells the grid of the one that comes next. The order is shuffled by the seed of the
    /// options: what disturbs the machine for some time meets layouts that have nothing in common, where neighbours of an
    /// enumeration are alike.
    ///
    /// # Errors
    /// As [`Self::check`]; a rank's failure, with its layout.
    pub fn measure(&self, device: &dyn Device, told: OnProgress) -> Result<Comparison, MeasureError> {
        self.check()?;
        let of = self.layouts.len();
        let mut rows = Vec::with_capacity(of);
        for (done, at) in shuffled(of, self.options.seed).into_iter().enumerate() {
            let Predictable { layout, predicted } = &self.layouts[at];
            let grid = layout.grid.to_string();
            told(Progress { done, of, next: Some(&grid) });
            let (measured, ledger_equal) = self.run(device, layout).map_err(|error| error.of_layout(grid))?;
            let layout = layout.clone();
            let predicted = predicted.clone();
            rows.push((at, Row { layout, predicted, measured, ledger_equal, places: [None; 2] }));
        }
        told(Progress { done: of, of, next: None });
        // Layouts that are predicted to be equal keep the order of their enumeration.
        rows.sort_by_key(|(at, _)| *at);
        Comparison::new(rows.into_iter().map(|(_, row)| row).collect())
    }

    /// Trains for the steps; their times, and whether all transfers were the predicted ones.
    fn run(&self, device: &dyn Device, layout: &Layout) -> Result<(Measured, bool), MeasureError> {
        let program = StepProgram::new(&self.model, layout)?;
        let outcome = steps(device, &program, &self.options)?;
        let step = |step: &quadrille_engine::RankStep| RankStep {
            seconds: step.seconds,
            operations: step.operations,
            waiting: step.waiting,
        };
        let ranks: Vec<Vec<RankStep>> =
            outcome.ranks.iter().map(|rank| rank.steps.iter().map(step).collect()).collect();
        let measured = Measured::of(&ranks).ok_or(MeasureError::NoStep)?;
        Ok((measured, outcome.difference.is_none()))
    }
}

/// Refuses so few steps that none counts.
///
/// # Errors
/// See above.
pub fn check_steps(steps: u64) -> Result<(), Refusal> {
    let least = WARM_UP_STEPS + 1;
    if steps < least as u64 {
        let rule = format!(" {steps}: the first {WARM_UP_STEPS} steps do not count; use at least {least}");
        return Err(Refusal::of(Setting::Steps).text(rule));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use quadrille_engine::{Hyper, Processor};
    use quadrille_spec::LayoutRequest;

    use super::*;

    fn case(grids: &[&str], steps: u64) -> Result<LocalCase, MeasureError> {
        let model = Model::gpt(1, 8, 2, 16, 4);
        let layout = |grid: &&str| Layout::new(&model, &LayoutRequest::new(grid.parse().unwrap(), 4)).unwrap();
        let layouts = grids.iter().map(layout).collect();
        let options = TrainOptions::new(steps, Hyper::default(), 1);
        LocalCase::new(model, Cluster::preset("dgx-a100").unwrap(), layouts, options)
    }

    #[test]
    fn layouts_are_told_as_they_run_and_compared() {
        let case = case(&["x=2", "data=2"], 3).unwrap();
        let mut told = Vec::new();
        let comparison = case.measure(&Processor, &mut |progress| {
            assert_eq!(progress.of, 2);
            told.push((progress.done, progress.next.map(str::to_owned)));
        });
        let comparison = comparison.unwrap();
        assert_eq!(told.iter().map(|(done, _)| *done).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(told[0].1.is_some() && told[1].1.is_some() && told[2].1.is_none());
        let mut grids = comparison.rows.iter().map(|row| row.layout.grid.to_string()).collect::<Vec<_>>();
        grids.sort();
        assert_eq!(grids.len(), 2);
        assert!(comparison.rows[0].measured.seconds <= comparison.rows[1].measured.seconds);
        comparison.check_ledgers().unwrap();
    }

    #[test]
    fn what_gives_no_comparison_is_refused() {
        let refused = case(&["x=2", "data=2"], 2).unwrap_err().to_string();
        assert_eq!(refused, "`steps` 2: the first 2 steps do not count; use at least 3");
        assert!(matches!(case(&[], 3), Err(MeasureError::TooFew { predicted: 0, .. })));
        let one = case(&["x=2"], 3).unwrap().check();
        assert!(matches!(&one, Err(MeasureError::TooFew { predicted: 1, refused: None })), "{one:?}");
    }
}
