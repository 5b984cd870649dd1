//! The rule by which one of several algorithms is taken: a pure function of what was measured.

/// How many times the fastest's seconds an algorithm may take and still be taken before it, if the library thinks better of it:
/// differences below this are noise.
const EQUAL: f64 = 1.02;

/// What is known of a candidate.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Bytes of workspace that it needs.
    pub workspace: usize,
    /// Seconds of each trial; none if it failed.
    pub trials: Vec<f64>,
}

impl Measured {
    /// The least seconds of all trials, where all have a time and the workspace is not larger than there is.
    pub fn seconds(&self, workspace: usize) -> Option<f64> {
        let usable = self.workspace <= workspace && self.trials.iter().all(|trial| trial.is_finite() && *trial > 0.0);
        self.trials.iter().copied().min_by(f64::total_cmp).filter(|_| usable)
    }
}

/// The candidate that is taken, of several in the library's order: the first that is as fast as the fastest, within what
/// measuring tells apart. `None`: none can be used with so many bytes of workspace.
pub fn fastest(candidates: &[Measured], workspace: usize) -> Option<usize> {
    let seconds = || candidates.iter().map(|candidate| candidate.seconds(workspace));
    let least = seconds().flatten().min_by(f64::total_cmp)?;
    seconds().position(|seconds| seconds.is_some_and(|seconds| seconds <= least * EQUAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 100;

    fn chosen(candidates: &[(usize, &[f64])]) -> Option<usize> {
        let measured =
            |(workspace, trials): &(usize, &[f64])| Measured { workspace: *workspace, trials: trials.to_vec() };
        fastest(&candidates.iter().map(measured).collect::<Vec<_>>(), ROOM)
    }

    #[test]
    fn the_least_time_of_all_trials_counts() {
        assert_eq!(chosen(&[(0, &[3.0, 3.0]), (0, &[9.0, 2.0]), (0, &[2.5, 2.5])]), Some(1));
    }

    #[test]
    fn of_equal_ones_the_librarys_first_is_taken() {
        assert_eq!(chosen(&[(0, &[2.0]), (0, &[1.0]), (0, &[1.0])]), Some(1));
        // One that is hardly slower than the fastest is as good; one that is slower is not.
        assert_eq!(chosen(&[(0, &[1.019]), (0, &[1.0])]), Some(0));
        assert_eq!(chosen(&[(0, &[1.021]), (0, &[1.0])]), Some(1));
        // What counts is the distance to the fastest of all, not to the next.
        assert_eq!(chosen(&[(0, &[1.03]), (0, &[1.015]), (0, &[1.0])]), Some(1));
    }

    #[test]
    fn what_failed_or_has_no_time_is_not_taken() {
        assert_eq!(chosen(&[(0, &[]), (0, &[5.0])]), Some(1));
        assert_eq!(chosen(&[(0, &[1.0, f64::NAN]), (0, &[5.0])]), Some(1));
        assert_eq!(chosen(&[(0, &[f64::NAN, 1.0]), (0, &[0.0]), (0, &[-1.0]), (0, &[f64::INFINITY])]), None);
        assert_eq!(chosen(&[]), None);
    }

    #[test]
    fn what_needs_too_much_workspace_is_not_taken() {
        assert_eq!(chosen(&[(ROOM + 1, &[1.0]), (ROOM, &[5.0])]), Some(1));
        assert_eq!(chosen(&[(ROOM + 1, &[1.0])]), None);
    }
}
