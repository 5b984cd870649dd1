//! How much of a long training is useful work where devices fail: checkpoints are written at the best interval, and after a
//! failure the job restarts from the last one.
//!
//! Failures come as a Poisson process. A segment of work with its checkpoint is repeated until no failure falls into it, and so
//! is a restart. Its expected time is exact (J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart
//! dumps", Future Generation Computer Systems 22, 2006), and so is the interval of least expected time. J. W. Young's of 1974,
//! `sqrt(2 * checkpoint * time between failures)`, is its first term.

/// Mean device-hours between failures of one device in the training of Llama 3 405B: 419 unexpected interruptions in 54 days on
/// 16,384 H100 (Llama Team, "The Llama 3 Herd of Models", 2024, section 3.3.4).
pub const MTBF_HOURS: f64 = 16_384.0 * 54.0 * 24.0 / 419.0;

/// Bytes per second of storage for each device of the same training: 2 TB/s for 16,384 (section 3.3.1).
pub const CHECKPOINT_BANDWIDTH: f64 = 2e12 / 16_384.0;

/// Seconds from a failure until training goes on from a checkpoint: assumed.
pub const RESTART_SECONDS: f64 = 600.0;

/// What it takes to write a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CheckpointTime {
    /// Seconds.
    Seconds(f64),
    /// The states of a rank at so many bytes per second.
    Bandwidth(f64),
}

impl CheckpointTime {
    /// Seconds for so many bytes of a rank.
    pub fn seconds(self, bytes: u64) -> f64 {
        match self {
            Self::Seconds(seconds) => seconds,
            Self::Bandwidth(bandwidth) => bytes as f64 / bandwidth,
        }
    }
}

/// How often devices fail, and what that costs; all numbers are positive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Failures {
    /// Mean device-hours between failures of one device, each of which ends the job.
    pub mtbf_hours: f64,
    /// What it takes to write a checkpoint, during which nothing is computed.
    pub checkpoint: CheckpointTime,
    /// Seconds from a failure until training goes on.
    pub restart_seconds: f64,
}

impl Failures {
    /// Those of the training of Llama 3 405B, with an assumed time of restarts.
    pub const MEASURED_ELSEWHERE: Self = Self {
        mtbf_hours: MTBF_HOURS,
        checkpoint: CheckpointTime::Bandwidth(CHECKPOINT_BANDWIDTH),
        restart_seconds: RESTART_SECONDS,
    };

    /// Failures of a job in a second.
    pub fn rate(&self, devices: usize) -> f64 {
        devices as f64 / (self.mtbf_hours * 3600.0)
    }
}

/// What failures leave of the time of a training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goodput {
    /// Seconds to write a checkpoint.
    pub checkpoint_seconds: f64,
    /// Steps between two checkpoints, at least 1: those of the least expected time.
    pub interval_steps: u64,
    /// Seconds of them.
    pub interval_seconds: f64,
    /// Failures of the job that are expected in a day.
    pub failures_per_day: f64,
    /// The part of the expected time that is useful: steps that are not repeated. 0 where failures are so frequent that the
    /// training never ends.
    pub share: f64,
}

impl Goodput {
    /// Of a job of so many devices, whose steps take so long and whose ranks have at most so many bytes of states.
    pub fn new(failures: &Failures, devices: usize, step_seconds: f64, state_bytes: u64) -> Self {
        let rate = failures.rate(devices);
        let checkpoint = failures.checkpoint.seconds(state_bytes);
        let share = |steps: f64| {
            let work = steps * step_seconds;
            work / expected_seconds(rate, work, checkpoint, failures.restart_seconds)
        };
        // Expected times are convex in the interval: of whole steps one of the two nearest is best.
        let fewer = (optimal_interval(rate, checkpoint) / step_seconds).floor().max(1.0);
        let steps = if share(fewer + 1.0) > share(fewer) { fewer + 1.0 } else { fewer };
        Self {
            checkpoint_seconds: checkpoint,
            interval_steps: steps as u64,
            interval_seconds: steps * step_seconds,
            failures_per_day: rate * 86_400.0,
            share: share(steps),
        }
    }
}

/// Expected seconds until `work` seconds of useful work and a checkpoint of `checkpoint` seconds are done, with `rate` failures
/// a second and `restart` seconds after each, in which the job may fail again.
pub fn expected_seconds(rate: f64, work: f64, checkpoint: f64, restart: f64) -> f64 {
    (rate * restart).exp() * (rate * (work + checkpoint)).exp_m1() / rate
}

/// Seconds of useful work between checkpoints for which a second of it takes least expected time.
///
/// It is where the derivative of [`expected_seconds`] over the work is 0: with `u` and `d` the work and the checkpoint in mean
/// times between failures, `(1 - u) e^u = e^-d`. What restarts take does not matter.
pub fn optimal_interval(rate: f64, checkpoint: f64) -> f64 {
    let wanted = (-rate * checkpoint).exp_m1();
    // Falls from 0 to -1 in u from 0 to 1.
    let reached = |u: f64| u.exp_m1() - u * u.exp();
    let mut low = 0.0_f64;
    let mut high = 1.0_f64;
    loop {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            return middle / rate;
        }
        if reached(middle) > wanted { low = middle } else { high = middle }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Daly's higher order estimate: three terms of a series, less the checkpoint.
    fn by_daly(rate: f64, checkpoint: f64) -> f64 {
        let part = checkpoint * rate / 2.0;
        (2.0 * checkpoint / rate).sqrt() * (1.0 + part.sqrt() / 3.0 + part / 9.0) - checkpoint
    }

    #[test]
    fn the_best_interval_is_that_of_young_and_daly_where_failures_are_rare() {
        for (rate, checkpoint) in [(1e-4, 1e-3), (1e-5, 1.0), (1e-4, 60.0), (1e-3, 60.0)] {
            let exact = optimal_interval(rate, checkpoint);
            let ratio = (rate * checkpoint).sqrt();
            let young = (2.0 * checkpoint / rate).sqrt();
            assert!((exact / young - 1.0).abs() < ratio, "{exact} and {young}");
            let daly = by_daly(rate, checkpoint);
            assert!((exact / daly - 1.0).abs() < 0.01 * ratio, "{exact} and {daly}");
        }
    }

    #[test]
    fn no_other_interval_takes_less() {
        for (rate, checkpoint, restart) in [(1e-4, 30.0, 600.0), (1e-2, 100.0, 10.0), (1.0, 3.0, 1.0)] {
            let best = optimal_interval(rate, checkpoint);
            let cost = |work: f64| expected_seconds(rate, work, checkpoint, restart) / work;
            for factor in [0.5, 0.9, 0.99, 1.01, 1.1, 2.0] {
                assert!(cost(best) < cost(best * factor), "{factor} times {best}");
            }
        }
    }

    #[test]
    fn without_failures_only_checkpoints_take_time() {
        let close = |one: f64, other: f64| assert!((one / other - 1.0).abs() < 1e-4, "{one} and {other}");
        close(expected_seconds(1e-14, 100.0, 7.0, 600.0), 107.0);
        // One failure is expected in a mean time between failures, and takes half a segment and a restart.
        let rate = 1e-7;
        let segment = 100.0;
        let restart = 50.0;
        close((expected_seconds(rate, 90.0, 10.0, restart) - segment) / (rate * segment), segment / 2.0 + restart);
    }

    /// Uniform numbers in (0, 1], from a seed (splitmix64).
    struct Draws(u64);

    impl Draws {
        fn exponential(&mut self, rate: f64) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            let uniform = ((mixed ^ mixed >> 31) >> 11) as f64 + 1.0;
            -(uniform / (1_u64 << 53) as f64).ln() / rate
        }

        /// Seconds until `wanted` seconds pass without a failure; after each there is a restart.
        fn seconds_of(&mut self, rate: f64, wanted: f64, restart: f64) -> f64 {
            let mut passed = 0.0;
            loop {
                let failure = self.exponential(rate);
                if failure >= wanted {
                    return passed + wanted;
                }
                passed += failure;
                // A restart that fails begins again.
                loop {
                    let failure = self.exponential(rate);
                    passed += failure.min(restart);
                    if failure >= restart {
                        break;
                    }
                }
            }
        }
    }

    #[test]
    fn simulated_failures_take_what_is_expected() {
        for (seed, (rate, work, checkpoint, restart)) in
            [(1e-4, 1500.0, 120.0, 600.0), (1e-3, 700.0, 50.0, 900.0), (2e-3, 300.0, 20.0, 30.0)]
                .into_iter()
                .enumerate()
        {
            let mut draws = Draws(seed as u64);
            let runs = 200_000;
            let times: Vec<f64> = (0..runs).map(|_| draws.seconds_of(rate, work + checkpoint, restart)).collect();
            let mean = times.iter().sum::<f64>() / f64::from(runs);
            let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / f64::from(runs - 1);
            let error = (variance / f64::from(runs)).sqrt();
            let expected = expected_seconds(rate, work, checkpoint, restart);
            assert!((mean - expected).abs() < 3.0 * error, "{mean} and {expected}, of a standard error of {error}");
            assert!(error < 0.01 * expected, "{error} tells nothing of {expected}");
        }
    }

    #[test]
    fn checkpoints_come_after_whole_steps() {
        let failures = Failures { checkpoint: CheckpointTime::Seconds(30.0), ..Failures::MEASURED_ELSEWHERE };
        let of = |step| Goodput::new(&failures, 16_384, step, 0);
        let short = of(10.0);
        let long = of(1e5);
        // One failure in three hours: every 13 minutes.
        assert_eq!((short.interval_steps, short.interval_seconds), (80, 800.0), "{short:?}");
        assert!((short.failures_per_day - 419.0 / 54.0).abs() < 1e-9);
        // More than 90% of the time of that training was useful.
        assert!((0.85..0.95).contains(&short.share), "{short:?}");
        assert_eq!(long.interval_steps, 1);
        assert!(long.share < 0.01, "{long:?}");
        let best = (1..400).map(|steps| {
            let work = f64::from(steps) * 10.0;
            work / expected_seconds(failures.rate(16_384), work, 30.0, 600.0)
        });
        assert_eq!(best.fold(0.0, f64::max), short.share);
        // States of 1 GB at 100 MB/s.
        let by_bandwidth = Failures { checkpoint: CheckpointTime::Bandwidth(1e8), ..failures };
        assert_eq!(Goodput::new(&by_bandwidth, 64, 1.0, 1_000_000_000).checkpoint_seconds, 10.0);
    }

    #[test]
    fn jobs_that_always_fail_have_no_useful_time() {
        let failures = Failures { mtbf_hours: 1e-6, ..Failures::MEASURED_ELSEWHERE };
        assert_eq!(Goodput::new(&failures, 1 << 24, 1e3, 1 << 40).share, 0.0);
    }
}
