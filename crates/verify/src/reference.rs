//! The serial model's own training run, computed once and compared with any number of layouts.
//!
//! The schedule, the initial values, dropout and the mean of an evaluation are the oracle's own, as the model and the
//! optimizer are. What it has in common with the layouts: the description of the model, the samples, and the words of
//! [`quadrille_spec::RandomStream`].

use std::collections::BTreeMap;

use half::{bf16, f16};
use quadrille_engine::{Hyper, Samples, fill_randomly};
use quadrille_oracle::{
    self as oracle, AdamW, Batch, Decisions, DropoutSeed, LearningRate, Objective, State, Tensors, gradient_norm,
    margins, mean_loss, objective, update,
};
use quadrille_spec::{ElementType, Model, ModelParameter, RandomStream, Sparsity};
use quadrille_step::StepProgram;

use crate::VerifyOptions;
use crate::decisions::smallest;

/// One step of the serial model.
#[derive(Debug, Clone)]
pub(crate) struct SerialStep {
    pub loss: f64,
    pub gradients: Tensors,
    pub norm: f64,
    /// Losses of routers, balance and z, which are part of what is minimised.
    pub router: [f64; 2],
    /// Which experts were chosen, by the serial model or as it was told.
    pub decisions: Decisions,
    /// How clear that was: [`smallest`].
    pub margin: f64,
    /// After the update.
    pub weights: Tensors,
}

/// The serial model beside a layout: before each step it has the layout's weights.
pub(crate) struct Beside {
    /// As they are stored.
    pub weights: Tensors,
    /// What the optimizer updates.
    pub masters: Tensors,
    /// What the optimizer remembers of the layout's gradients.
    state: State,
}

/// A number as it is stored.
pub(crate) fn rounded(number: f64, dtype: ElementType) -> f64 {
    match dtype {
        ElementType::F64 => number,
        ElementType::F32 => f64::from(number as f32),
        ElementType::Bf16 => bf16::from_f32(number as f32).to_f64(),
        ElementType::F16 => f16::from_f32(number as f32).to_f64(),
    }
}

/// Whether a tensor is stored in 16 bits where values are: matrices and tables are, biases, parameters of norms and routers are
/// not.
fn is_narrowed(name: &str) -> bool {
    [".weight", ".table", ".positions"].iter().any(|ending| name.ends_with(ending)) && !name.contains(".router.")
}

/// The serial model's trajectory for a model, batch, seed and optimizer; steps are computed when they are asked for.
pub struct Reference {
    model: Model,
    sequences: usize,
    seq_len: usize,
    seed: u64,
    hyper: Hyper,
    /// What training starts from.
    initial: Tensors,
    /// Which elements of pruned tensors are kept.
    masks: BTreeMap<String, Vec<bool>>,
    state: State,
    steps: Vec<SerialStep>,
    /// The evaluation after so many steps, over so many samples.
    evaluated: Option<([u64; 2], (f64, u64))>,
}

impl Reference {
    /// At least what the serial model of so many steps holds in f64, in bytes: initial weights, two moments, and per step
    /// weights and gradients.
    pub fn bytes(model: &Model, steps: u64) -> u64 {
        model.parameters().saturating_mul(steps.saturating_mul(2).saturating_add(3)).saturating_mul(8)
    }

    /// The trajectory that layouts with this program's model and batch must follow.
    pub fn new(program: &StepProgram, options: &VerifyOptions) -> Self {
        let masks = options.sparsity.map(|sparsity| masks(&program.model, options.seed, sparsity)).unwrap_or_default();
        let mut initial = oracle::initial(&program.model, options.seed, true);
        prune(&masks, &mut initial);
        Self {
            model: program.model.clone(),
            sequences: program.layout.global_batch,
            seq_len: program.layout.seq_len,
            seed: options.seed,
            hyper: options.hyper,
            initial,
            masks,
            state: State::new(&program.model),
            steps: Vec::new(),
            evaluated: None,
        }
    }

    /// The free-running step `step`, counted from 1.
    pub(crate) fn step(&mut self, step: u64) -> &SerialStep {
        while (self.steps.len() as u64) < step {
            let mut weights = self.steps.last().map_or(&self.initial, |last| &last.weights).clone();
            let next = self.steps.len() as u64 + 1;
            let serial = self.before_update(next, &weights, None);
            let constants = self.constants(next);
            update(&self.model, &constants, &mut self.state, &mut weights, &serial.gradients);
            self.steps.push(SerialStep { weights, ..serial });
        }
        &self.steps[step as usize - 1]
    }

    /// The loss after the free-running step `step` over the first `samples` samples, and how many targets it is of.
    pub(crate) fn evaluation(&mut self, step: u64, samples: u64) -> (f64, u64) {
        let of = [step, samples];
        if let Some((_, evaluation)) = self.evaluated.filter(|(known, _)| *known == of) {
            return evaluation;
        }
        let weights = self.step(step).weights.clone();
        let evaluation = self.evaluate(&weights, samples);
        self.evaluated = Some((of, evaluation));
        evaluation
    }

    /// The serial model before the first step of a layout whose values are of type `dtype`.
    pub(crate) fn beside(&self, dtype: ElementType) -> Beside {
        let rounded = |tensors: &Tensors, to: ElementType, of: fn(&str) -> bool| -> Tensors {
            let round = |name: &str, number: f64| if of(name) { rounded(number, to) } else { number };
            let tensor = |name: &String, tensor: &Vec<f64>| tensor.iter().map(|number| round(name, *number)).collect();
            tensors.iter().map(|(name, numbers)| (name.clone(), tensor(name, numbers))).collect()
        };
        let masters = rounded(&self.initial, dtype.real().into(), |_| true);
        let weights = rounded(&masters, dtype, is_narrowed);
        Beside { weights, masters, state: State::new(&self.model) }
    }

    /// Step `step` from the layout's weights; what is updated with are the layout's gradients.
    pub(crate) fn step_beside(
        &self,
        step: u64,
        beside: &mut Beside,
        gradients_of_layout: &Tensors,
        decisions: Option<&Decisions>,
    ) -> SerialStep {
        let serial = self.before_update(step, &beside.weights, decisions);
        let mut weights = std::mem::take(&mut beside.masters);
        update(&self.model, &self.constants(step), &mut beside.state, &mut weights, gradients_of_layout);
        SerialStep { weights, ..serial }
    }

    /// Step `step` from weights of which those that are stored in 16 bits are moved by half the distance to a neighbour, up or
    /// down by chance: what the model makes of roundings. None for wider types.
    pub(crate) fn other_roundings(
        &self,
        step: u64,
        beside: &Beside,
        dtype: ElementType,
        decisions: Option<&Decisions>,
    ) -> Vec<SerialStep> {
        let half_unit = match dtype {
            ElementType::F64 | ElementType::F32 => return Vec::new(),
            ElementType::Bf16 => bf16::EPSILON.to_f64() / 2.0,
            ElementType::F16 => f16::EPSILON.to_f64() / 2.0,
        };
        let moved = |turn: u64| {
            let stream = RandomStream::new(self.seed, "other roundings").substream(turn);
            let mut weights = beside.weights.clone();
            let narrow = weights.iter_mut().filter(|(name, _)| is_narrowed(name));
            for (index, weight) in narrow.flat_map(|(_, tensor)| tensor).enumerate() {
                let up = stream.below(index as u64, 2) == 0;
                *weight *= 1.0 + if up { half_unit } else { -half_unit };
            }
            SerialStep { weights: Tensors::new(), ..self.before_update(step, &weights, decisions) }
        };
        [0, 1].map(moved).into()
    }

    /// The loss of weights over the first `samples` samples, and how many targets it is of.
    pub(crate) fn evaluate(&self, weights: &Tensors, samples: u64) -> (f64, u64) {
        let of_batch = self.sequences as u64;
        let batch = |at: u64| self.batch(at + 1, (samples - at * of_batch).min(of_batch) as usize);
        let batches: Vec<SerialBatch> = (0..samples.div_ceil(of_batch)).map(batch).collect();
        mean_loss(&self.model, weights, batches.iter().map(SerialBatch::get))
    }

    /// A step as far as it goes without its update; experts are chosen by the decisions, if there are some.
    fn before_update(&self, step: u64, weights: &Tensors, decisions: Option<&Decisions>) -> SerialStep {
        let dropout = Some(DropoutSeed { seed: self.seed, step });
        let batch = self.batch(step, self.sequences);
        let of_step = objective(&self.model, weights, &batch.get(), dropout, decisions);
        let Objective { loss, balance, router_z, mut gradients, decisions, .. } = of_step;
        prune(&self.masks, &mut gradients);
        let margin = if self.model.has_experts() {
            smallest(&margins(&self.model, weights, &batch.get(), dropout, &decisions))
        } else {
            f64::INFINITY
        };
        let norm = gradient_norm(&gradients);
        SerialStep { loss, gradients, norm, router: [balance, router_z], decisions, margin, weights: Tensors::new() }
    }

    /// By token of a step's batch: false for padding.
    pub(crate) fn present(&self, step: u64) -> Vec<bool> {
        self.batch(step, self.sequences).get().present()
    }

    /// The first sequences of a step's batch.
    fn batch(&self, step: u64, sequences: usize) -> SerialBatch {
        let fill = |samples: Samples| fill_randomly(&self.model, self.seed, self.seq_len, step, 0, samples);
        SerialBatch::new(&self.model, sequences, self.seq_len, fill)
    }

    fn constants(&self, step: u64) -> AdamW {
        let Hyper { learning_rate: peak, final_fraction, warmup_steps, steps, .. } = self.hyper;
        let Hyper { beta1, beta2, epsilon, weight_decay, clip, .. } = self.hyper;
        let learning_rate = LearningRate { peak, final_fraction, warmup_steps, steps }.at(step);
        AdamW { learning_rate, beta1, beta2, epsilon, weight_decay, clip }
    }
}

/// The masks of a model whose matrices and tables are pruned by chance.
fn masks(model: &Model, seed: u64, sparsity: Sparsity) -> BTreeMap<String, Vec<bool>> {
    let is_pruned = |it: &ModelParameter| it.decay && it.part != "positions" && it.layer != "router";
    let pruned = model.all_parameters().filter(is_pruned);
    let mask = |name: String, elements: usize| {
        let stream = RandomStream::new(seed, &format!("mask {name}"));
        let kept =
            (0..elements as u64).map(|element| f64::from(stream.word(element)) / 4_294_967_296.0 >= sparsity.part());
        let kept = kept.collect();
        (name, kept)
    };
    pruned.map(|parameter| mask(parameter.name(), parameter.rows * parameter.cols)).collect()
}

/// Makes zero what is pruned: of weights, and of gradients, so that the optimizer leaves it zero.
fn prune(masks: &BTreeMap<String, Vec<bool>>, tensors: &mut Tensors) {
    for (name, mask) in masks {
        let elements = tensors.get_mut(name).into_iter().flatten().zip(mask);
        elements.filter(|(_, kept)| !**kept).for_each(|(element, _)| *element = 0.0);
    }
}

/// A batch as the serial model reads it, with its memory; what the model does not read is empty.
#[derive(Debug, Clone)]
pub struct SerialBatch {
    tokens: [Vec<u32>; 2],
    patches: [Vec<f64>; 2],
    sequences: usize,
    seq_len: usize,
}

impl SerialBatch {
    /// So many sequences, which `fill` fills in.
    pub fn new(model: &Model, sequences: usize, seq_len: usize, fill: impl FnOnce(Samples)) -> Self {
        let rows = sequences * seq_len;
        let [of_tokens, of_patches] = match model.patch_values {
            None => [rows, 0],
            Some(values) => [0, rows * values],
        };
        let mut tokens = [(); 2].map(|()| vec![0; of_tokens]);
        let mut patches = [(); 2].map(|()| vec![0.0; of_patches]);
        let [inputs, targets] = &mut tokens;
        let [numbers, wanted] = &mut patches;
        fill(match model.patch_values {
            None => Samples::Tokens { inputs, targets },
            Some(_) => Samples::Patches { inputs: numbers, targets: wanted },
        });
        Self { tokens, patches, sequences, seq_len }
    }

    /// The batch.
    pub fn get(&self) -> Batch<'_> {
        let [inputs, targets] = &self.tokens;
        let [numbers, wanted] = &self.patches;
        let samples = if numbers.is_empty() {
            oracle::Samples::Tokens { inputs, targets }
        } else {
            oracle::Samples::Patches { inputs: numbers, targets: wanted }
        };
        Batch { samples, sequences: self.sequences, seq_len: self.seq_len }
    }
}
