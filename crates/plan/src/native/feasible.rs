//! Which other numbers of devices and of sequences have layouts, where the wanted ones have none: tried, not guessed.

use super::count::Tally;
use super::cuts::cuts;
use super::placement::domain;
use super::pool::Pool;
use super::ranking::Kept;
use super::search::Search;
use super::setting::Setting;
use super::visit::Visit;

/// Numbers that are tried on either side of the wanted one.
const TRIED: usize = 48;

/// A grid has no more ranks, and a step no more sequences.
const MOST: usize = 1 << 24;

/// Numbers near those that have no legal layout.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Feasible {
    /// The next numbers of devices below and above that have a legal layout with the same batch.
    pub devices: Vec<usize>,
    /// The next numbers of sequences below and above that have a legal layout on the same devices.
    pub batches: Vec<usize>,
}

impl Feasible {
    /// Near what a search wanted, unless it is cancelled.
    pub(super) fn near(search: &Search) -> Self {
        let stop = || search.watch.is_cancelled();
        let devices = search.devices;
        let batch = search.setting.global_batch;
        let on_devices = |devices: usize| search.with_devices(devices).has_legal();
        let with_batch = |global_batch: usize| {
            Search { setting: Setting { global_batch, ..search.setting }, ..search.clone() }.has_legal()
        };
        Self { devices: around(devices, 1, on_devices, &stop), batches: around(batch, devices, with_batch, &stop) }
    }
}

/// The next numbers below and above `wanted` that are feasible, of its neighbours and the nearest multiples of `unit`.
fn around(wanted: usize, unit: usize, is_feasible: impl Fn(usize) -> bool, stop: &dyn Fn() -> bool) -> Vec<usize> {
    let below =
        (1..wanted).rev().take(TRIED).chain(Some(wanted.saturating_sub(1) / unit * unit).filter(|below| *below > 0));
    let above = (wanted + 1..=MOST).take(TRIED).chain(Some((wanted / unit + 1) * unit).filter(|above| *above <= MOST));
    let next =
        |mut numbers: Box<dyn Iterator<Item = usize> + '_>| numbers.find(|number| stop() || is_feasible(*number));
    let found = [next(Box::new(below)), next(Box::new(above))];
    if stop() { Vec::new() } else { found.into_iter().flatten().collect() }
}

impl Search<'_> {
    /// Whether there is a legal layout whose states alone fit.
    fn has_legal(&self) -> bool {
        let Ok(problem) = self.setting.problem() else { return false };
        if problem.check_devices(self.devices).is_err() {
            return false;
        }
        let pool = Pool::new(&problem, self.setting.learned);
        let rules = self.setting.rules();
        let domain = domain(self.setting.cluster, self.setting.per_node, self.devices);
        let mut tally = Tally::default();
        let cuts = cuts(&problem, &rules, &self.space, self.devices, domain, &mut tally, None).cuts;
        let kept = || Kept::new(1, false, None, None);
        cuts.iter().any(|cut| Visit::new(self, &pool, rules, cut, kept(), u64::MAX).has_legal())
    }
}
