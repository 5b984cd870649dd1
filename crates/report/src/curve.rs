//! Values over steps, few enough for a page however long a run was.

/// A step with a value; `None` where it is not finite. In documents `[step, value]`.
pub type CurvePoint = (u64, Option<f64>);

/// Points of a curve that a page holds at most.
const MOST: usize = 1200;

/// Values over ascending steps. Of long runs, steps are taken
/// together, evenly, and of each part the least and the largest value are kept, in their order, so that what stands out stays.
pub fn curve(points: impl Iterator<Item = (u64, f64)>) -> Vec<CurvePoint> {
    let points: Vec<(u64, f64)> = points.collect();
    let together = points.len().div_ceil(MOST / 2).max(2);
    let kept = points.chunks(if points.len() > MOST { together } else { 1 }).flat_map(ends);
    kept.map(|(step, value)| (step, rounded(value))).collect()
}

/// The least and the largest of steps, in their order; one alone where all are equal, or not finite.
fn ends(steps: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let finite = || steps.iter().filter(|(_, value)| value.is_finite());
    let least = finite().min_by(|a, b| a.1.total_cmp(&b.1));
    let most = finite().max_by(|a, b| a.1.total_cmp(&b.1));
    let (Some(least), Some(most)) = (least, most) else { return steps.iter().take(1).copied().collect() };
    let mut ends = vec![*least, *most];
    ends.sort_by_key(|(step, _)| *step);
    ends.dedup_by(|a, b| a.1 == b.1);
    ends
}

/// Seven digits, of which no chart shows more.
fn rounded(value: f64) -> Option<f64> {
    Some(value).filter(|value| value.is_finite()).and_then(|value| format!("{value:.6e}").parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_runs_are_whole_and_long_ones_keep_what_stands_out() {
        let short = curve([(1, 0.5), (2, f64::NAN), (3, 1.0 / 3.0)].into_iter());
        assert_eq!(short, [(1, Some(0.5)), (2, None), (3, Some(0.3333333))]);
        let spiked = (1..=100_000).map(|step| (step, if step == 77_777 { 1e6 } else { 1.0 / step as f64 }));
        let long = curve(spiked);
        assert!((MOST / 2..=MOST).contains(&long.len()), "{}", long.len());
        assert!(long.contains(&(77_777, Some(1e6))) && long.contains(&(1, Some(1.0))), "a value is gone");
        assert!(long.is_sorted_by_key(|(step, _)| *step));
    }

    #[test]
    fn parts_without_a_number_stay_gaps() {
        let long = curve((1..=10_000).map(|step| (step, if step > 5000 { f64::NAN } else { 2.0 })));
        let gaps = long.iter().filter(|(_, value)| value.is_none()).count();
        assert!(gaps > 100, "{gaps}");
    }
}
