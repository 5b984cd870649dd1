//! What a step's time is spent on, as predicted and as measured.

use quadrille_cost::native::Price;
use quadrille_spec::Axis;

/// Steps at the beginning of a run that do not count: caches, pages and thread pools are cold. AxoNN's evaluation leaves
/// out as many (SC24, section VI).
pub const WARM_UP_STEPS: usize = 2;

/// A predicted step, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Predicted {
    /// Of the step, the sum of the others.
    pub seconds: f64,
    /// Arithmetic, memory traffic, launches and the optimizer's update.
    pub compute: f64,
    /// Communication that nothing hides, by axis in the order of `Axis::ALL`; over several axes: under the outermost.
    pub communication: [f64; Axis::COUNT],
    /// Waiting for other stages of a pipeline.
    pub bubble: f64,
    /// What is neither: waiting for tokens.
    pub other: f64,
}

impl Predicted {
    /// What a rank waits for others: communication and, since clocks do not tell them apart, other stages.
    pub fn exposed(&self) -> f64 {
        self.communication.iter().sum::<f64>() + self.bubble
    }
}

impl From<&Price> for Predicted {
    fn from(price: &Price) -> Self {
        let parts = &price.parts;
        Self {
            seconds: price.seconds,
            compute: parts.compute + parts.memory_bound + parts.launch + parts.optimizer,
            communication: parts.communication,
            bubble: parts.bubble,
            other: parts.data_loading,
        }
    }
}

/// A step on one rank, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankStep {
    /// From its begin to its end.
    pub seconds: f64,
    /// Of them, in operations of the step program.
    pub operations: f64,
    /// Of those, in operations in which the rank waits for others.
    pub waiting: f64,
}

/// Measured steps of a run, in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The mean of those that count.
    pub seconds: f64,
    /// Their standard deviation (of a sample: over one less than their number); `None` of a single one.
    pub deviation: Option<f64>,
    /// Those that count, in order: each is the slowest rank's.
    pub each: Vec<f64>,
    /// Operations that are not waiting, the mean over ranks and steps.
    pub compute: f64,
    /// Waiting for other ranks, the same mean.
    pub exposed: f64,
    /// The rest of the step: reading samples, the interpreter, choosing passes as messages arrive, and by how much the mean
    /// rank is faster than the slowest one.
    pub other: f64,
}

impl Measured {
    /// Of the steps of every rank, all alike in number; the first [`WARM_UP_STEPS`] do not count. `None` where no rank or
    /// no step is left.
    pub fn of(ranks: &[Vec<RankStep>]) -> Option<Self> {
        let counted: Vec<&[RankStep]> = ranks.iter().filter_map(|steps| steps.get(WARM_UP_STEPS..)).collect();
        let steps = counted.iter().map(|steps| steps.len()).min().filter(|steps| *steps > 0)?;
        let slowest = |step: usize| counted.iter().map(|steps| steps[step].seconds).fold(0.0, f64::max);
        let each: Vec<f64> = (0..steps).map(slowest).collect();
        let seconds = each.iter().sum::<f64>() / steps as f64;
        let squares: f64 = each.iter().map(|step| (step - seconds).powi(2)).sum();
        let mean = |of: fn(&RankStep) -> f64| {
            counted.iter().flat_map(|rank| &rank[..steps]).map(of).sum::<f64>() / (steps * counted.len()) as f64
        };
        let compute = mean(|step| step.operations - step.waiting);
        let exposed = mean(|step| step.waiting);
        Some(Self {
            seconds,
            deviation: (steps > 1).then(|| (squares / (steps - 1) as f64).sqrt()),
            each,
            compute,
            exposed,
            other: seconds - compute - exposed,
        })
    }
}

#[cfg(test)]
mod tests {
    use quadrille_cost::native::{Memory, Parts};

    use super::*;

    fn step(seconds: f64, operations: f64, waiting: f64) -> RankStep {
        RankStep { seconds, operations, waiting }
    }

    #[test]
    fn the_slowest_rank_counts_after_two_steps() {
        let first = vec![step(90.0, 90.0, 0.0), step(80.0, 80.0, 0.0), step(4.0, 3.0, 1.0), step(6.0, 5.0, 2.0)];
        let second = vec![step(70.0, 70.0, 0.0), step(60.0, 60.0, 0.0), step(5.0, 4.0, 2.0), step(3.0, 2.0, 1.0)];
        let measured = Measured::of(&[first, second]).unwrap();
        assert_eq!(measured.each, [5.0, 6.0]);
        assert_eq!(measured.seconds, 5.5);
        // Deviations of half a second on either side: 2 * 0.25 over 1.
        assert!((measured.deviation.unwrap() - 0.5_f64.sqrt()).abs() < 1e-12);
        // Operations 14 and waiting 6 in four steps of ranks.
        assert_eq!([measured.compute, measured.exposed, measured.other], [2.0, 1.5, 2.0]);
    }

    #[test]
    fn a_single_step_has_no_deviation_and_no_step_no_time() {
        let steps = vec![step(9.0, 0.0, 0.0), step(9.0, 0.0, 0.0), step(1.0, 0.75, 0.25)];
        let measured = Measured::of(std::slice::from_ref(&steps)).unwrap();
        assert_eq!((measured.seconds, measured.deviation, measured.other), (1.0, None, 0.25));
        assert_eq!(Measured::of(&[steps[..2].to_vec()]), None);
        assert_eq!((Measured::of(&[steps[..1].to_vec()]), Measured::of(&[])), (None, None));
    }

    #[test]
    fn a_prediction_has_every_part_of_a_price_once() {
        let parts = Parts {
            compute: 1.0,
            memory_bound: 2.0,
            launch: 4.0,
            communication: [8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0],
            bubble: 1024.0,
            optimizer: 2048.0,
            data_loading: 4096.0,
        };
        let price = Price { seconds: 8191.0, parts, memory: Memory::default(), model_flops: 0.0, executed_flops: 0.0 };
        let predicted = Predicted::from(&price);
        assert_eq!([predicted.compute, predicted.exposed(), predicted.other], [2055.0, 2040.0, 4096.0]);
        assert_eq!(predicted.compute + predicted.exposed() + predicted.other, predicted.seconds);
    }
}
