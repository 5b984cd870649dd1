//! Why a layout is refused, with remedies on the devices that are searched.

use quadrille_spec::{Axis, Change, Layout, LayoutRequest, Refusal, Remedy, SpecError};

use super::count::Refused;
use super::search::Search;
use super::setting::Setting;
use super::space::divisors;

impl Search<'_> {
    /// The message of the rule that a refused layout breaks.
    pub fn refusal(&self, refused: &Refused) -> Option<SpecError> {
        let Setting { model, global_batch, seq_len, .. } = self.setting;
        let request = match refused.example.request(global_batch, seq_len) {
            Ok(request) => request,
            Err(error) => return Some(error),
        };
        // A microbatch that z does not divide is no reason where larger ones were to be tried.
        let shared = Some(request.grid.size(Axis::Z)).filter(|z| request.microbatch.is_some_and(|size| size < *z));
        let larger = LayoutRequest { microbatch: shared.or(request.microbatch), ..request.clone() };
        let of_framework = |layout: Layout| self.space.runs_in?.framework.check(model, &layout).err();
        let broken = Layout::new(model, &larger).ok().and_then(of_framework);
        let error = broken.or_else(|| Layout::new(model, &request).err())?;
        match error {
            SpecError::Refused(refusal) => Some(SpecError::Refused(Box::new(self.on_devices(*refusal, &request)))),
            error => Some(error),
        }
    }

    /// The same with sizes of axes for remedies that divide the number of devices, which is given here: other axes take the rest.
    fn on_devices(&self, refusal: Refusal, request: &LayoutRequest) -> Refusal {
        let of_axis = |remedy: &Remedy| match remedy.change {
            Change::Axis(axis, size) => Some((axis, size)),
            _ => None,
        };
        let mut sizes = refusal.remedies.iter().filter_map(of_axis);
        let Some((axis, _)) = sizes.find(|(_, size)| !self.devices.is_multiple_of(*size)) else { return refusal };
        let change = |size: usize| Change::Axis(axis, size);
        let keeps = |size: &usize| {
            let changed = change(*size).apply(request);
            match changed.and_then(|changed| Layout::new(self.setting.model, &changed)) {
                Ok(_) => true,
                Err(SpecError::Refused(other)) => other.field != refusal.field,
                Err(_) => false,
            }
        };
        let present = request.grid.size(axis);
        let sizes = divisors(self.devices);
        let below = sizes.iter().rev().copied().filter(|size| *size < present).find(keeps);
        let above = sizes.iter().copied().filter(|size| *size > present).find(keeps);
        let remedies = below.into_iter().chain(above).map(|size| Remedy { change: change(size), then: None }).collect();
        Refusal { remedies, ..refusal }
    }
}
