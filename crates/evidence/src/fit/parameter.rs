//! The numbers that are fitted: efficiencies of devices and networks, constants of frameworks.

use quadrille_spec::{Axis, Device, Efficiency};

use crate::run::Run;

/// A number that some runs have, with the bounds between which it is sought.
pub struct Parameter {
    /// What it is called.
    pub name: String,
    /// Its least value.
    pub least: f64,
    /// Its largest value.
    pub most: f64,
    /// Where it is sought from: a round value that no row was asked for.
    pub start: f64,
    place: Box<Place>,
}

type Place = dyn Fn(&mut Run) -> Option<&mut f64> + Send + Sync;

impl Parameter {
    fn new(
        name: impl Into<String>,
        [least, start, most]: [f64; 3],
        place: impl Fn(&mut Run) -> Option<&mut f64> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), least, most, start, place: Box::new(place) }
    }

    /// The number in a run that has it.
    pub fn of<'r>(&self, run: &'r mut Run) -> Option<&'r mut f64> {
        (self.place)(run)
    }

    /// All of them; `networks` are the names of those between nodes.
    pub fn all(networks: &[String]) -> Vec<Self> {
        let mut list = Vec::new();
        list.extend(AMPERE.numbers());
        list.extend(HOPPER.numbers());
        list.extend(BLACKWELL.numbers());
        list.extend([
            Self::new("attention.half_m", [1.0, 500.0, 4000.0], |run| of_curve(&mut device(run)?.attention, 1)),
            Self::new("memory_efficiency", [0.3, 0.65, 1.0], |run| Some(&mut device(run)?.memory_efficiency)),
            Self::new("host_seconds", [2.5e-5, 5e-5, 1e-4], |run| nonzero(&mut run.framework.host_seconds)),
            Self::new("dispatch_seconds", [1e-6, 1e-4, 3e-4], |run| nonzero(&mut run.framework.dispatch_seconds)),
            Self::new("product_rate of Hopper's first libraries", [0.6, 0.9, 1.0], |run| {
                let rate = &mut run.framework.product_rate;
                if *rate < 1.0 { Some(rate) } else { None }
            }),
            Self::new("unaligned_rate", [0.1, 0.4, 1.0], |run| {
                let columns = run.model.vocab / run.candidate.size(Axis::X);
                (!columns.is_multiple_of(4)).then_some(&mut run.framework.unaligned_rate)
            }),
            Self::new("compute_share of fsdp", [0.5, 0.8, 1.0], |run| {
                run.framework.gathers_blocks.then_some(&mut run.framework.compute_share)
            }),
        ]);
        list.extend(networks.iter().map(|name| {
            let wanted = name.clone();
            Self::new(format!("efficiency of {name}"), [0.03, 0.7, 1.0], move |run| {
                outer(run).filter(|tier| tier.name == wanted).map(|tier| &mut tier.efficiency)
            })
        }));
        list
    }
}

/// Devices of one generation, which have their ceilings together.
struct Generation {
    name: &'static str,
    devices: &'static [&'static str],
}

const AMPERE: Generation = Generation { name: "a100", devices: &["a100-80", "a100-40"] };
const HOPPER: Generation = Generation { name: "h100", devices: &["h100", "h200", "gh200"] };
const BLACKWELL: Generation = Generation { name: "b200", devices: &["b200", "gb200", "b300", "gb300"] };

impl Generation {
    fn numbers(&self) -> [Parameter; 4] {
        let Self { name, devices } = *self;
        let is_one = move |device: &&mut Device| devices.contains(&device.name.as_str());
        [
            Parameter::new(format!("products.ceiling of {name}"), [0.3, 0.7, 1.0], move |run| {
                of_curve(&mut device(run).filter(is_one)?.products, 0)
            }),
            Parameter::new(format!("attention.ceiling of {name}"), [0.2, 0.5, 1.0], move |run| {
                of_curve(&mut device(run).filter(is_one)?.attention, 0)
            }),
            Parameter::new(format!("narrow_products.ceiling of {name}"), [0.2, 0.65, 1.0], move |run| {
                run.framework.numbers.products?;
                of_curve(device(run).filter(is_one)?.narrow_products.as_mut()?, 0)
            }),
            Parameter::new(format!("tiers[0].efficiency of {name}"), [0.3, 0.7, 1.0], move |run| {
                device(run).filter(is_one)?;
                Some(&mut run.cluster.tiers.get_mut(0)?.efficiency)
            }),
        ]
    }
}

fn device(run: &mut Run) -> Option<&mut Device> {
    run.cluster.device.as_mut()
}

/// The network between nodes, of a run on several.
fn outer(run: &mut Run) -> Option<&mut quadrille_spec::Tier> {
    let several = run.has_several_nodes();
    run.cluster.tiers.get_mut(1).filter(|_| several)
}

/// One of the four numbers of a curve.
fn of_curve(curve: &mut Efficiency, at: usize) -> Option<&mut f64> {
    let Efficiency::Curve { ceiling, half_m, half_n, half_k } = curve else { return None };
    [ceiling, half_m, half_n, half_k].into_iter().nth(at)
}

/// A constant that only some frameworks have.
fn nonzero(value: &mut f64) -> Option<&mut f64> {
    if *value > 0.0 { Some(value) } else { None }
}
