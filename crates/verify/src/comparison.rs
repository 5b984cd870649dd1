//! What `verify` finds: a layout's steps beside the serial model's.

use std::collections::BTreeMap;

use quadrille_engine::{Evaluation, Held, ObservedStep, Predictions, assemble};
use quadrille_oracle::{Decisions, Tensors};
use quadrille_spec::{Axis, LedgerDifference, RankLedger};
use quadrille_step::{Loads, Parameter, StageProgram, StepProgram, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Tolerance;
use crate::decisions::{DecisionsReport, decisions};
use crate::reference::{SerialStep, rounded};

/// What stands between a block's name and a tensor's that works through scores alone: of norms of queries and keys, and, in latent
/// attention, of what makes queries and the key that all heads share.
const OF_SCORES: [&str; 6] =
    [".query_norm.", ".key_norm.", ".query_latent.", ".query_latent_norm.", ".queries.", ".shared_key."];
/// The products of a block that make values.
const OF_VALUES: [&str; 2] = ["qkv.weight", "keys_values.weight"];

/// The largest differences of a layout from the serial model over all steps: max|a-b| / max|serial| per tensor, what
/// works through scores alone beside the gradient of the product that makes values; in 16 bits by the root of squares, see [`Tolerance::by_norm`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VerifyReport {
    /// The grid.
    pub grid: String,
    /// The activation layout.
    pub activations: String,
    /// Of the loss.
    pub loss_diff: f64,
    /// Of every parameter's gradient; the three parts of a qkv bias are one tensor.
    pub grad_diff: f64,
    /// The parameter with that difference.
    pub grad_diff_in: String,
    /// Of each parameter's gradient.
    pub gradients: BTreeMap<String, f64>,
    /// Of the gradient norm.
    pub norm_diff: f64,
    /// Of the updated weights, relative to the model's largest weight.
    pub weight_diff: f64,
    /// Of the losses of routers, relative to the loss; 0 where there are none.
    pub router_diff: f64,
    /// Which experts were chosen; `None`: the model has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decisions: Option<DecisionsReport>,
    /// Of the loss of an evaluation after the last step, over a batch and a sample more.
    pub evaluation_diff: f64,
    /// The most that loss, gradients and norm were allowed to differ by.
    pub limits: [f64; 3],
    /// Whether replicas on different ranks are equal in every bit.
    pub replicas_equal: bool,
    /// Whether every weight that has a master copy is that copy, rounded.
    pub masters_rounded: bool,
    /// Whether predicted and counted ledgers are equal.
    pub ledger_equal: bool,
    /// Whether all of it is within tolerance.
    pub ok: bool,
    /// What is not, for people.
    pub failures: Vec<String>,
}

/// Raises `most` to `value`, NaN above all and as the largest number; whether it rose.
fn raise(most: &mut f64, value: f64) -> bool {
    let value = if value.is_finite() { value } else { f64::MAX };
    let rises = value > *most;
    if rises {
        *most = value;
    }
    rises
}

/// No distance is no difference, also where the reference is exactly zero.
fn ratio(distance: f64, reference: f64) -> f64 {
    if distance == 0.0 { 0.0 } else { distance / reference }
}

/// How far a number is from the reference, as a multiple of it.
fn relative(value: f64, reference: f64) -> f64 {
    ratio((value - reference).abs(), reference.abs())
}

/// The largest absolute element.
fn largest(tensor: &[f64]) -> f64 {
    tensor.iter().fold(0.0, |most, element| most.max(element.abs()))
}

/// What differences of a gradient are measured by: its largest element. Gradients that come out of the softmax alone, of norms of
/// queries and keys and of what makes them apart from values, are taken together with that of the product that makes values:
/// a softmax' gradient is a difference. Where all keys weigh alike it is zero in exact arithmetic, and in heads of few numbers
/// it may be as small as the rounding of what is subtracted. That of a router is a difference of what experts give, and taken
/// together with theirs.
fn gradient_size(name: &str, gradients: &Tensors) -> f64 {
    let own = largest(&gradients[name]);
    let of_scores = OF_SCORES.iter().find_map(|part| name.split_once(part)).map(|(block, _)| (block, &OF_VALUES[..]));
    let of_router = name.split_once(".router.").map(|(block, _)| (block, &["experts.down.weight"][..]));
    let beside = of_scores.or(of_router).into_iter().flat_map(|(block, products)| {
        products.iter().filter_map(move |product| gradients.get(&format!("{block}.{product}")))
    });
    beside.fold(own, |most, gradient| most.max(largest(gradient)))
}

/// Part of the whole gradient's norm that a gradient is measured by at least: where so much is pruned that nothing comes through,
/// it is zero but for the rounding of what is added up.
const NEXT_TO_NOTHING: f64 = 1e-4;

/// The largest gap between elements; NaN if any gap is, or if the lengths differ.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    if a.len() != b.len() {
        return f64::NAN;
    }
    let gaps = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    gaps.fold(0.0, |most: f64, gap| if most.is_nan() || gap.is_nan() { f64::NAN } else { most.max(gap) })
}

/// The root of the sum of the squares.
fn norm(tensor: &[f64]) -> f64 {
    tensor.iter().map(|element| element * element).sum::<f64>().sqrt()
}

/// That of what is between two tensors; NaN if any gap is, or if the lengths differ.
fn norm_of_gap(a: &[f64], b: &[f64]) -> f64 {
    if a.len() != b.len() {
        return f64::NAN;
    }
    norm(&a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<_>>())
}

/// The comparison of one layout's steps.
pub(crate) struct Comparison<'a> {
    program: &'a StepProgram,
    tolerance: Tolerance,
    report: VerifyReport,
    weight_diff_in: String,
    /// The first parameter with unequal replicas, and two ranks that hold them.
    replicas_differ: Option<(String, [usize; 2])>,
    /// Why ranks have not decided on experts together.
    undecided: Option<String>,
    /// The first stored weight that is not its master, rounded.
    not_rounded: Option<String>,
    /// The first count that is not the predicted one.
    difference: Option<LedgerDifference>,
    /// How far rounding the serial model's weights has moved its loss, a gradient and their norm.
    moved: [f64; 3],
}

impl<'a> Comparison<'a> {
    pub fn new(program: &'a StepProgram, tolerance: Tolerance) -> Self {
        let report = VerifyReport {
            grid: program.layout.grid.to_string(),
            activations: program.layout.activations.to_string(),
            loss_diff: 0.0,
            grad_diff: 0.0,
            grad_diff_in: String::new(),
            gradients: BTreeMap::new(),
            norm_diff: 0.0,
            weight_diff: 0.0,
            router_diff: 0.0,
            decisions: program.model.has_experts().then_some(DecisionsReport::NONE),
            evaluation_diff: 0.0,
            limits: [0.0; 3],
            replicas_equal: true,
            masters_rounded: true,
            ledger_equal: true,
            ok: false,
            failures: Vec::new(),
        };
        Self {
            program,
            tolerance,
            report,
            weight_diff_in: String::new(),
            replicas_differ: None,
            undecided: None,
            not_rounded: None,
            difference: None,
            moved: [0.0; 3],
        }
    }

    /// The serial model beside itself with other roundings of its weights. What is not finite says nothing of a layout.
    pub fn roundings(&mut self, serial: &SerialStep, others: &[SerialStep]) {
        for other in others {
            let gradient = |(name, gradient): (&String, &Vec<f64>)| self.gradient_gap(name, gradient, serial);
            let gradients = other.gradients.iter().map(gradient).fold(0.0, |most: f64, gap| most.max(gap) + 0.0 * gap);
            let moved = [relative(other.loss, serial.loss), gradients, relative(other.norm, serial.norm)];
            let finite = self.moved.iter_mut().zip(moved).filter(|(_, moved)| moved.is_finite());
            finite.for_each(|(most, moved)| *most = most.max(moved));
        }
    }

    /// How far a gradient is from the serial model's, as the tolerance measures it.
    fn gradient_gap(&self, name: &str, gradient: &[f64], serial: &SerialStep) -> f64 {
        let reference = &serial.gradients[name];
        if self.tolerance.by_norm {
            ratio(norm_of_gap(gradient, reference), norm(reference).max(0.1 * serial.norm))
        } else {
            let size = gradient_size(name, &serial.gradients).max(NEXT_TO_NOTHING * serial.norm);
            ratio(distance(gradient, reference), size)
        }
    }

    /// The experts that a step's tokens have chosen; `present` is false for padding. `None`: the model has no experts, or ranks
    /// have decided differently.
    pub fn decisions(&mut self, present: &[bool], ranks: &[&ObservedStep]) -> Option<Decisions> {
        self.report.decisions?;
        let chosen = ranks.iter().map(|rank| &rank.choices);
        match decisions(&self.program.model, present, chosen) {
            Ok(decisions) => Some(decisions),
            Err(reason) => {
                self.undecided.get_or_insert(reason);
                None
            }
        }
    }

    /// What was chosen, beside what the serial model has.
    fn compare_decisions(&mut self, own: Option<&Decisions>, serial: &SerialStep) {
        let (Some(report), Some(own)) = (&mut self.report.decisions, own) else { return };
        report.made += own.made(&self.program.model);
        report.differing += own.differing(&serial.decisions, &self.program.model);
        report.smallest_margin = report.smallest_margin.min(serial.margin);
    }

    pub fn step(&mut self, ranks: &[&ObservedStep], serial: &SerialStep, decisions: Option<&Decisions>) {
        self.scalars(ranks, serial);
        self.compare_decisions(decisions, serial);
        let largest_weight = serial.weights.values().map(|weights| largest(weights)).fold(0.0, f64::max);
        for (stage, index, parameter) in self.parameters() {
            let name = &parameter.name;
            if let Some(gradients) = self.whole(stage, parameter, ranks, |rank| &rank.gradients[index]) {
                let difference = self.gradient_gap(name, &gradients, serial);
                raise(self.report.gradients.entry(name.clone()).or_default(), difference);
                if raise(&mut self.report.grad_diff, difference) {
                    self.report.grad_diff_in.clone_from(name);
                }
            }
            let weights = self.whole(stage, parameter, ranks, |rank| &rank.weights[index]);
            let master = self.master(stage, index, parameter, ranks);
            if let (Some(stored), Some(master)) = (&weights, &master) {
                self.compare_rounded(name, stored, master);
            }
            if let Some(weights) = master.or(weights) {
                let difference = ratio(distance(&weights, &serial.weights[name]), largest_weight);
                if raise(&mut self.report.weight_diff, difference) {
                    self.weight_diff_in.clone_from(name);
                }
            }
        }
        self.compare_copies(ranks);
    }

    /// Every stored weight is its master, rounded.
    fn compare_rounded(&mut self, name: &str, stored: &[f64], master: &[f64]) {
        let dtype = self.program.layout.dtype;
        let pairs = stored.iter().zip(master);
        let unequal = |(stored, master): &(&f64, &f64)| stored.to_bits() != rounded(**master, dtype).to_bits();
        if let Some((stored, master)) = pairs.into_iter().find(unequal) {
            self.not_rounded.get_or_insert(format!("{name}: {stored:e} is stored where the master is {master:e}"));
        }
    }

    /// The evaluation of one rank; `loss` and `targets` are the serial model's.
    pub fn evaluation(&mut self, found: Option<Evaluation>, (loss, targets): (f64, u64)) {
        let same = found.filter(|found| found.targets == targets);
        raise(&mut self.report.evaluation_diff, relative(same.map_or(f64::NAN, |found| found.loss), loss));
    }

    /// What ranks have counted, in their order, in a step with this verdict and these loads of experts, beside what was predicted.
    pub fn ledgers<'l>(
        &mut self,
        predictions: &Predictions<'_>,
        verdict: Verdict,
        counted: impl Iterator<Item = Option<(&'l RankLedger, &'l Loads)>>,
    ) {
        let mut differences = counted.enumerate().filter_map(|(rank, counted)| {
            let (ledger, loads) = counted?;
            predictions.of_rank(rank, verdict, loads).difference(ledger)
        });
        self.difference = self.difference.take().or_else(|| differences.next());
    }

    /// Every parameter of every stage, with its number there.
    fn parameters(&self) -> impl Iterator<Item = (&'a StageProgram, usize, &'a Parameter)> + use<'a> {
        let stages = self.program.stages.iter();
        stages.flat_map(|stage| stage.parameters.iter().enumerate().map(move |(index, each)| (stage, index, each)))
    }

    /// Both copies of a tied table must be equal in every bit.
    fn compare_copies(&mut self, ranks: &[&ObservedStep]) {
        let bits = |tensor: Vec<f64>| tensor.into_iter().map(f64::to_bits).collect::<Vec<_>>();
        for (stage, index, copy) in self.parameters().filter(|(.., parameter)| parameter.copy) {
            let original = self.parameters().find(|(.., other)| !other.copy && other.name == copy.name);
            let Some((first, at, original)) = original else { continue };
            let a = self.whole(first, original, ranks, |rank| &rank.weights[at]);
            let b = self.whole(stage, copy, ranks, |rank| &rank.weights[index]);
            if a.map(bits) != b.map(bits) {
                let rank = |stage| self.ranks_of(stage).next().unwrap_or_default();
                self.replicas_differ.get_or_insert((copy.name.clone(), [rank(first), rank(stage)]));
            }
        }
    }

    fn ranks_of(&self, stage: &'a StageProgram) -> impl Iterator<Item = usize> + use<'a> {
        let grid = *stage.grid();
        (0..grid.ranks()).filter(move |rank| grid.coordinate(*rank).on(Axis::Pipe) == stage.stage)
    }

    /// A logical tensor, if its replicas agree.
    fn whole<'s>(
        &mut self,
        stage: &'a StageProgram,
        parameter: &Parameter,
        ranks: &[&'s ObservedStep],
        held: impl Fn(&'s ObservedStep) -> &'s Held,
    ) -> Option<Vec<f64>> {
        match assemble(parameter, self.ranks_of(stage).map(|rank| (rank, held(ranks[rank])))) {
            Ok(tensor) => Some(tensor),
            Err(ranks) => {
                self.replicas_differ.get_or_insert((parameter.name.clone(), ranks));
                None
            }
        }
    }

    /// The logical master copy of a parameter, if it has one.
    fn master(
        &mut self,
        stage: &'a StageProgram,
        index: usize,
        parameter: &Parameter,
        ranks: &[&ObservedStep],
    ) -> Option<Vec<f64>> {
        let first = self.ranks_of(stage).next()?;
        ranks[first].masters[index].as_ref()?;
        let held = self.ranks_of(stage).filter_map(|rank| Some((rank, ranks[rank].masters.get(index)?.as_ref()?)));
        match assemble(parameter, held) {
            Ok(tensor) => Some(tensor),
            Err(ranks) => {
                self.replicas_differ.get_or_insert((format!("the master of {}", parameter.name), ranks));
                None
            }
        }
    }

    /// What the optimizer has updated in a step, as logical tensors.
    pub fn masters(&mut self, ranks: &[&ObservedStep]) -> Tensors {
        let mut tensors = self.weights(ranks);
        for (stage, index, parameter) in self.parameters().filter(|(.., parameter)| !parameter.copy) {
            if let Some(master) = self.master(stage, index, parameter, ranks) {
                tensors.insert(parameter.name.clone(), master);
            }
        }
        tensors
    }

    /// The logical weights after a step.
    pub fn weights(&mut self, ranks: &[&ObservedStep]) -> Tensors {
        self.tensors(ranks, |rank| &rank.weights)
    }

    /// The logical gradients of a step.
    pub fn gradients(&mut self, ranks: &[&ObservedStep]) -> Tensors {
        self.tensors(ranks, |rank| &rank.gradients)
    }

    /// Logical tensors; not numbers where replicas differ.
    fn tensors(&mut self, ranks: &[&ObservedStep], held: fn(&ObservedStep) -> &Vec<Held>) -> Tensors {
        let mut tensors = Tensors::new();
        for (stage, index, parameter) in self.parameters().filter(|(.., parameter)| !parameter.copy) {
            let whole = self.whole(stage, parameter, ranks, |rank| &held(rank)[index]);
            tensors.insert(
                parameter.name.clone(),
                whole.unwrap_or_else(|| vec![f64::NAN; parameter.rows * parameter.cols]),
            );
        }
        tensors
    }

    /// What every rank says of the whole step, and has counted.
    fn scalars(&mut self, ranks: &[&ObservedStep], serial: &SerialStep) {
        for rank in ranks {
            raise(&mut self.report.loss_diff, relative(rank.outcome.loss, serial.loss));
            raise(&mut self.report.norm_diff, relative(rank.outcome.gradient_norm, serial.norm));
            let [balance, z] = rank.outcome.router.map_or([0.0; 2], |router| [router.balance, router.z]);
            for (loss, reference) in [balance, z].into_iter().zip(serial.router) {
                raise(&mut self.report.router_diff, ratio((loss - reference).abs(), serial.loss.abs()));
            }
        }
    }

    pub fn report(mut self) -> VerifyReport {
        let mut report = self.report;
        let tolerance = self.tolerance.or_moved(self.moved);
        report.limits = [tolerance.loss, tolerance.gradients, tolerance.norm];
        let mut check = |what: String, difference: f64, limit: f64| {
            if difference > limit {
                report.failures.push(format!("{what} differs by {difference:.1e}, more than {limit:.0e}"));
            }
        };
        check("loss".to_owned(), report.loss_diff, tolerance.loss);
        check(format!("gradient of {}", report.grad_diff_in), report.grad_diff, tolerance.gradients);
        check("gradient norm".to_owned(), report.norm_diff, tolerance.norm);
        check(format!("updated {}", self.weight_diff_in), report.weight_diff, tolerance.weights);
        check("loss of an evaluation".to_owned(), report.evaluation_diff, tolerance.loss);
        check("loss of routers".to_owned(), report.router_diff, tolerance.loss);
        if let Some(DecisionsReport { made, differing, smallest_margin }) = report.decisions {
            if differing > 0 {
                report.failures.push(format!("{differing} of {made} choices of experts are other ones"));
            }
            if smallest_margin < -tolerance.margin {
                let rule = format!("more than {:.0e} of the largest key", tolerance.margin);
                report
                    .failures
                    .push(format!("a chosen expert's key is below another one by {:.1e}, {rule}", -smallest_margin));
            }
        }
        report.failures.extend(self.undecided.take());
        if let Some((name, [a, b])) = self.replicas_differ.take() {
            report.replicas_equal = false;
            report.failures.push(format!("replicas of {name} on ranks {a} and {b} differ"));
        }
        if let Some(weight) = self.not_rounded.take() {
            report.masters_rounded = false;
            report.failures.push(format!("a stored weight is not its master, rounded: {weight}"));
        }
        if let Some(difference) = self.difference.take() {
            report.ledger_equal = false;
            report.failures.push(format!("counted and predicted ledgers differ: {difference}"));
        }
        report.ok = report.failures.is_empty();
        report
    }
}

#[cfg(test)]
mod tests {
    use quadrille_engine::StepOutcome;
    use quadrille_oracle::Tensors;
    use quadrille_spec::{Layout, LayoutRequest, Model};
    use quadrille_step::predict_rank;

    use super::*;

    fn rank(program: &StepProgram, loss: f64, gradient_norm: f64) -> ObservedStep {
        let outcome =
            StepOutcome { loss, gradient_norm, learning_rate: 1.0, router: None, applied: true, repeated: false };
        let ledger = predict_rank(program, 0);
        let (gradients, weights, masters, choices, loads) = Default::default();
        ObservedStep { outcome, gradients, weights, masters, choices, loads, ledger }
    }

    fn serial(loss: f64, norm: f64, gradients: Tensors) -> SerialStep {
        let decisions = Decisions::default();
        let margin = f64::INFINITY;
        let weights = Tensors::new();
        SerialStep { loss, gradients, norm, router: [0.0; 2], decisions, margin, weights }
    }

    /// A gradient that is nothing but rounding is measured by the whole gradient.
    #[test]
    fn next_to_nothing_is_measured_by_all() {
        let model = Model::preset("gpt-tiny").unwrap();
        let layout = Layout::new(&model, &LayoutRequest::new("data=2".parse().unwrap(), 2)).unwrap();
        let program = StepProgram::new(&model, &layout).unwrap();
        let comparison = Comparison::new(&program, Tolerance::F64);
        let gap = |found: f64, size: f64| {
            let serial = serial(1.0, 2.0, [("a".to_owned(), vec![size])].into());
            comparison.gradient_gap("a", &[found], &serial)
        };
        assert!((gap(0.0, 1e-17) / 5e-14 - 1.0).abs() < 1e-9, "of 2e-4");
        assert!((gap(1e-3 + 2e-14, 1e-3) / 2e-11 - 1.0).abs() < 1e-3, "of its own size");
    }

    /// One rank of several that is wrong is enough, whichever it is.
    #[test]
    fn the_loss_and_norm_of_every_rank_count() {
        let model = Model::preset("gpt-tiny").unwrap();
        let layout = Layout::new(&model, &LayoutRequest::new("data=2".parse().unwrap(), 2)).unwrap();
        let program = StepProgram::new(&model, &layout).unwrap();
        let serial = serial(4.0, 2.0, Tensors::new());
        let [right, other_loss, other_norm] =
            [[4.0, 2.0], [5.0, 2.0], [4.0, 3.0]].map(|[loss, norm]| rank(&program, loss, norm));
        let found = |ranks: [&ObservedStep; 2]| {
            let mut comparison = Comparison::new(&program, Tolerance::F32);
            comparison.scalars(&ranks, &serial);
            (comparison.report.loss_diff, comparison.report.norm_diff)
        };
        assert_eq!(found([&right, &right]), (0.0, 0.0));
        assert_eq!(found([&right, &other_loss]), (0.25, 0.0));
        assert_eq!(found([&other_loss, &right]), (0.25, 0.0));
        assert_eq!(found([&right, &other_norm]), (0.0, 0.5));
    }

    /// Beside the products that they norm the columns of, and no others.
    #[test]
    fn gradients_of_norms_of_queries_and_keys_are_measured_by_their_product() {
        let sizes = [("qkv.weight", 2.0), ("query_norm.gamma", 1e-9), ("key_norm.beta", 0.0), ("norm1.gamma", 1e-9)];
        let named = |block: usize, scale: f64| {
            sizes.map(|(name, size)| (format!("block.{block}.{name}"), vec![0.0, -scale * size]))
        };
        let gradients: Tensors = named(1, 1.0).into_iter().chain(named(12, 100.0)).collect();
        for (name, size) in sizes {
            let size = if name.contains("y_norm.") { 2.0 } else { size };
            assert_eq!(gradient_size(&format!("block.1.{name}"), &gradients), size, "{name}");
        }
        let latent = ["queries.weight", "query_latent_norm.gamma", "shared_key.weight", "key_value_latent.weight"];
        let latent = latent.map(|name| (format!("block.0.{name}"), vec![1e-9]));
        let values = ("block.0.keys_values.weight".to_owned(), vec![3.0]);
        let gradients: Tensors = latent.clone().into_iter().chain([values]).collect();
        assert_eq!(latent.map(|(name, _)| gradient_size(&name, &gradients)), [3.0, 3.0, 3.0, 1e-9]);
    }

    /// The serial model's own numbers may be none at other roundings: that allows nothing.
    #[test]
    fn roundings_that_end_in_no_numbers_loosen_nothing() {
        let model = Model::preset("gpt-tiny").unwrap();
        let layout = Layout::new(&model, &LayoutRequest::new("data=2".parse().unwrap(), 2)).unwrap();
        let program = StepProgram::new(&model, &layout).unwrap();
        let step = |loss: f64, gradient: f64, norm| {
            let gradients: Tensors = [("a".to_owned(), vec![1.0]), ("b".to_owned(), vec![gradient])].into();
            serial(loss, norm, gradients)
        };
        let limits = |other: SerialStep| {
            let mut comparison = Comparison::new(&program, Tolerance::BF16);
            comparison.roundings(&step(4.0, 1.0, 2.0), &[other]);
            comparison.report().limits
        };
        let Tolerance { loss, gradients, norm, .. } = Tolerance::BF16;
        assert_eq!(limits(step(f64::NAN, f64::NAN, f64::INFINITY)), [loss, gradients, norm]);
        assert_eq!(limits(step(5.0, 2.0, 3.0)), [2.5, 10.0, 5.0]);
    }

    #[test]
    fn nothing_slips_through_a_nan() {
        assert!(distance(&[f64::NAN, 1.0], &[0.0, 1.0]).is_nan());
        assert!(distance(&[1.0, f64::NAN], &[1.0, 0.0]).is_nan());
        assert!(distance(&[1.0], &[1.0, 2.0]).is_nan());
        let mut most = 0.0;
        assert!(raise(&mut most, f64::NAN) && most == f64::MAX);
    }

    #[test]
    fn equal_zeros_are_no_difference() {
        assert_eq!(ratio(0.0, 0.0), 0.0);
        assert_eq!(ratio(1.0, 0.0), f64::INFINITY);
    }
}
