//! Measured steps: products become as fast as makes their prices those.

use std::ops::RangeInclusive;

use quadrille_cost::native::{Framework, Price, Problem};
use quadrille_spec::{Cluster, Efficiency, Layout, Model, Origin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{MeasureError, Refusal, Setting};

/// Seconds that a measured step may have taken.
const SECONDS: RangeInclusive<f64> = 1e-9..=1e9;
/// The least factor that is tried.
const LEAST: f64 = 1e-6;
/// Halvings of the interval of the factor's logarithm: to the last digits.
const HALVINGS: usize = 80;

/// A step that somebody measured.
#[derive(Debug, Clone)]
pub struct Step {
    /// What messages and reports call it, e.g. `gpt2-124m layout.toml`.
    pub name: String,
    /// The model.
    pub model: Model,
    /// How it was cut.
    pub layout: Layout,
    /// Seconds that it took.
    pub seconds: f64,
}

/// The seconds of a measured step as they are written; `name` is what messages call the step.
///
/// # Errors
/// What is no number of seconds between a nanosecond and a billion of seconds.
pub fn seconds(name: &str, text: &str) -> Result<f64, Refusal> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| SECONDS.contains(seconds));
    let refusal = || format!(" {name} {text}: give a positive number of seconds");
    seconds.ok_or_else(|| Refusal::of(Setting::MeasuredStep).text(refusal()))
}

/// A step before and after.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Matched {
    /// Model and layout.
    pub step: String,
    /// Seconds that were measured.
    pub measured_seconds: f64,
    /// The price on the cluster as it was, in seconds.
    pub seconds_before: f64,
    /// The price now, in seconds.
    pub seconds: f64,
}

/// The factor and what it does.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Scaled {
    /// Of the fractions of the peak that products reach.
    pub factor: f64,
    /// The largest of these fractions before.
    pub most_before: f64,
    /// The largest now.
    pub most: f64,
    /// Every step.
    pub steps: Vec<Matched>,
}

impl Step {
    fn price(&self, cluster: &Cluster, framework: &Framework) -> Result<Price, MeasureError> {
        let layout = &self.layout;
        let model = &self.model;
        let problem = Problem::new(model, cluster, *framework, layout.global_batch, layout.seq_len)?;
        Ok(problem.price_layout(layout)?)
    }
}

/// Multiplies the fractions that products reach by the factor for which the steps' prices are what was measured: on
/// geometric mean, of one step exactly.
///
/// # Errors
/// Steps that cannot be priced; that take less than their communication alone, or than they would at the peak.
pub fn scale(cluster: &mut Cluster, framework: &Framework, steps: &[Step]) -> Result<Scaled, MeasureError> {
    let before = prices(cluster, framework, steps)?;
    let Some(products) = cluster.device.as_ref().map(|device| framework.products(device).clone()) else {
        let rule = format!(" {} does not say which device it has", cluster.name);
        return Err(Refusal::of(Setting::Cluster).text(rule).into());
    };
    let most = products.largest();
    let peak = prices(&with(cluster, framework, products.scaled(1.0 / most)), framework, steps)?;
    for (step, price) in steps.iter().zip(&peak) {
        check(step, price)?;
    }
    // The mean logarithm of predicted over measured: falls while products become faster.
    let excess = |factor: f64| -> Result<f64, MeasureError> {
        let prices = prices(&with(cluster, framework, products.scaled(factor)), framework, steps)?;
        Ok(steps.iter().zip(&prices).map(|(step, price)| (price.seconds / step.seconds).ln()).sum())
    };
    let mut low = LEAST.ln();
    let mut high = -most.ln();
    if excess(LEAST)? < 0.0 {
        let rule = "with products a million times slower than the cluster's, steps would still be faster than measured";
        let rule = format!(": {rule}; are the seconds those of one step?");
        return Err(Refusal::of(Setting::MeasuredStep).text(rule).into());
    }
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if excess(middle.exp())? > 0.0 { low = middle } else { high = middle }
    }
    // The end of the interval itself is the peak, of which a product of rounded numbers may be more.
    let factor = high.exp().min(1.0 / most);
    *cluster = with(cluster, framework, products.scaled(factor));
    let after = prices(cluster, framework, steps)?;
    let matched = steps.iter().zip(before.iter().zip(&after)).map(|(step, (before, after))| Matched {
        step: step.name.clone(),
        measured_seconds: step.seconds,
        seconds_before: before.seconds,
        seconds: after.seconds,
    });
    Ok(Scaled { factor, most_before: most, most: most * factor, steps: matched.collect() })
}

/// Refuses a step that no speed of products can explain.
fn check(step: &Step, at_peak: &Price) -> Result<(), Refusal> {
    let Step { name, seconds, .. } = step;
    let refusal = |rule: String| Refusal::of(Setting::MeasuredStep).text(format!(" {name} {seconds}: {rule}"));
    let communication: f64 = at_peak.parts.communication.iter().sum();
    if communication >= *seconds {
        let rule = format!("communication alone takes {communication:.6} s on this cluster; fit its tiers first, by ");
        return Err(refusal(rule).name(Setting::NcclTests).text(" or ").name(Setting::Osu));
    }
    if at_peak.seconds > *seconds {
        let all = at_peak.seconds;
        let rule = format!("with every product at the peak the step would still take {all:.6} s; is the device of ");
        let refusal = refusal(rule).name(Setting::Cluster).text(", the layout or ").name(Setting::Framework);
        return Err(refusal.text(" another one?"));
    }
    Ok(())
}

fn prices(cluster: &Cluster, framework: &Framework, steps: &[Step]) -> Result<Vec<Price>, MeasureError> {
    steps.iter().map(|step| step.price(cluster, framework)).collect()
}

/// The cluster whose device reaches this in the framework's products.
fn with(cluster: &Cluster, framework: &Framework, products: Efficiency) -> Cluster {
    let mut cluster = cluster.clone();
    if let Some(device) = &mut cluster.device {
        framework.set_products(device, products, Origin::Fitted);
    }
    cluster
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(cluster: &Cluster, factor: f64) -> Vec<Step> {
        let model = Model::preset("gpt3-1.3b").unwrap();
        let device = cluster.device.as_ref().unwrap();
        let faster = with(cluster, &Framework::MEGATRON, device.products.scaled(factor));
        ["x=4,data=8", "x=8,pipe=4"]
            .map(|grid| {
                let mut request = quadrille_spec::LayoutRequest::new(grid.parse().unwrap(), 64);
                (request.per_node, request.microbatch) = (Some(8), Some(1));
                let layout = Layout::new(&model, &request).unwrap();
                let mut step = Step { name: grid.to_owned(), model: model.clone(), layout, seconds: 1.0 };
                step.seconds = step.price(&faster, &Framework::MEGATRON).unwrap().seconds;
                step
            })
            .to_vec()
    }

    #[test]
    fn the_factor_of_the_prices_is_found_again() {
        let selene = Cluster::preset("selene").unwrap();
        for factor in [0.25, 0.8, 1.2] {
            let steps = steps(&selene, factor);
            for steps in [&steps[..1], &steps[..]] {
                let mut cluster = selene.clone();
                let scaled = scale(&mut cluster, &Framework::MEGATRON, steps).unwrap();
                assert!((scaled.factor / factor - 1.0).abs() < 1e-6, "{scaled:?}");
                for step in &scaled.steps {
                    assert!((step.seconds / step.measured_seconds - 1.0).abs() < 1e-6, "{step:?}");
                }
                cluster.check().unwrap();
            }
        }
    }

    /// Of a device with a table for 16 bits, that one is scaled where the framework's operands have as many.
    #[test]
    fn products_of_the_frameworks_operands_are_scaled() {
        let mut cluster = Cluster::preset("selene").unwrap();
        let device = cluster.device.as_mut().unwrap();
        let products = device.products.clone();
        device.half_products = Some(products.scaled(0.9));
        let steps = steps(&cluster, 0.8);
        assert_eq!(cluster.origin("device.half_products.ceiling"), Origin::Assumed);
        let scaled = scale(&mut cluster, &Framework::MEGATRON, &steps).unwrap();
        assert_eq!(cluster.origin("device.half_products.ceiling"), Origin::Fitted);
        assert!((scaled.factor - 0.8 / 0.9).abs() < 1e-6, "{scaled:?}");
        let device = cluster.device.unwrap();
        assert_eq!(device.products, products);
        assert!((device.half_products.unwrap().largest() / products.largest() - 0.8).abs() < 1e-6);
    }

    #[test]
    fn steps_that_products_cannot_explain_are_refused() {
        let selene = Cluster::preset("selene").unwrap();
        let refusal = |seconds: f64, cluster: &Cluster| {
            let step = Step { seconds, ..steps(&selene, 1.0)[0].clone() };
            scale(&mut cluster.clone(), &Framework::MEGATRON, &[step]).unwrap_err().to_string()
        };
        let mut slow = selene.clone();
        slow.tiers.iter_mut().for_each(|tier| tier.bandwidth /= 1e4);
        assert!(refusal(0.5, &slow).contains("communication alone takes"));
        // What products at the peak give, less a little.
        let most = selene.device.as_ref().unwrap().products.largest();
        let fastest = 0.999 * steps(&selene, 1.0 / most)[0].seconds;
        assert!(refusal(fastest, &selene).contains("every product at the peak"));
        assert!(refusal(1e9, &selene).contains("a million times slower"));
    }
}
