//! The time of SUMMA products: the next panels travel under this panel's product, its result is reduced under the next.

use quadrille_spec::CollectiveKind;

use super::meter::Meter;
use super::operations::{Panels, Product, Sweep, Travel};

impl Meter<'_> {
    /// With `P` panels: copies and products of all, the first broadcast, `P - 1` times what of a broadcast or reduction a
    /// product does not hide, and the last reduction. Overlap chunks follow each other as further panels.
    pub(super) fn summa(&mut self, panels: &Panels) {
        let chunks = self.chunks();
        // Panels of tokens are issued on a single rank, too.
        let mut travels = panels.broadcasts.into_iter().flatten().chain(panels.reduce);
        if travels.any(|travel| !travel.once) {
            self.memory.issued();
        }
        let count = panels.count as f64;
        let shape = panels.shape.map(|size| size as f64);
        let product = self.rates.product(shape);
        self.flops += count * chunks * 2.0 * shape[0] * shape[1] * shape[2];
        let computed = chunks * product.seconds();
        let mut all = product.times(count * chunks);
        let (mut copies, mut first, mut travelling) = (0.0, (0.0, 0), (0.0, 0));
        for travel in panels.broadcasts.into_iter().flatten() {
            let copy = self.panel_copy(Sweep::CopyPanel, &travel);
            let times = if travel.once { 1.0 } else { chunks };
            all += copy.times(count * times);
            let seconds = self.panel_seconds(CollectiveKind::Broadcast, &travel);
            // The first travels while the second is copied.
            first.0 = f64::max(0.0, first.0 - copy.seconds());
            first = later(first, (seconds, self.axis_of(travel.group)));
            travelling = later(travelling, (seconds * times, self.axis_of(travel.group)));
            copies += copy.seconds() * times;
        }
        let last = panels.reduce.map(|travel| {
            let store = self.panel_copy(Sweep::StorePanel, &travel);
            let times = if travel.once { 1.0 } else { chunks };
            all += store.times(count * times);
            let seconds = self.panel_seconds(CollectiveKind::Reduce, &travel);
            travelling = later(travelling, (seconds * times, self.axis_of(travel.group)));
            (seconds, self.axis_of(travel.group))
        });
        self.spend(all);
        if panels.product == Product::WeightGradient {
            self.weighs(all, 1.0);
        }
        // What OAR has left under way of the input gradient is waited for behind the first product.
        if let Some((seconds, axis)) = self.reducing.take() {
            self.expose(axis, seconds - first.0 - copies / count - product.seconds());
        }
        self.expose(first.1, first.0);
        self.expose(travelling.1, (count - 1.0) * (travelling.0 - computed).max(0.0));
        match last {
            Some(last) if panels.product == Product::InputGradient && self.s.overlap.all_reduce => {
                self.reducing = Some(last);
            }
            Some((seconds, axis)) => self.expose(axis, seconds),
            None => {}
        }
    }

    fn panel_seconds(&self, kind: CollectiveKind, travel: &Travel) -> f64 {
        let bytes = travel.elements * self.s.framework.activation_bytes;
        self.links[travel.group as usize].seconds(kind, bytes as f64)
    }

    fn panel_copy(&self, sweep: Sweep, travel: &Travel) -> super::rates::Taken {
        let bytes = 2 * travel.elements * self.s.framework.activation_bytes;
        self.rates.sweep(sweep, travel.elements as f64, bytes as f64)
    }
}

fn later(a: (f64, usize), b: (f64, usize)) -> (f64, usize) {
    if b.0 > a.0 { b } else { a }
}
