//! The proof: a layout's losses, gradients, norms and updated weights held against the serial model's.

use std::time::Duration;

use quadrille_comm::{JobOptions, run_ranks};
use quadrille_oracle::{AdamW, Batch, DropoutSeed, State, Tensors, loss_and_gradients, update};
use quadrille_spec::{Layout, Model, RandomStream};
use quadrille_step::{Parameter, StepProgram, predict};
use serde::Serialize;

use crate::{EngineError, Hyper, InitialValues, RankEngine, Real, StepOutcome, assemble, initial_tensor, schedule};

/// How a layout is verified.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// Optimizer steps.
    pub steps: u64,
    /// Keys weights, tokens and dropout.
    pub seed: u64,
    /// Optimizer and schedule.
    pub hyper: Hyper,
    /// Threads of each rank.
    pub threads: usize,
    /// How long a collective may wait for a rank.
    pub timeout: Duration,
}

/// The largest differences allowed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// For loss, gradients and norm.
    pub values: f64,
    /// For updated weights; `None`: not compared.
    pub weights: Option<f64>,
}

impl Tolerance {
    /// 1e-11 for everything: f64 runs.
    pub const F64: Self = Self { values: 1e-11, weights: Some(1e-11) };
    /// 5e-5 for loss, gradients and norm: f32 runs. AdamW divides small gradients by their own size, so that
    /// updated weights are no measure there.
    pub const F32: Self = Self { values: 5e-5, weights: None };
}

/// The largest differences of a layout from the serial model over all steps: max|a-b| / max|serial| per tensor.
#[derive(Debug, Clone, PartialEq, Serialize)]
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
    /// Of the gradient norm.
    pub norm_diff: f64,
    /// Of the updated weights, relative to the model's largest weight.
    pub weight_diff: f64,
    /// Whether replicas on different ranks are equal in every bit.
    pub replicas_equal: bool,
    /// Whether predicted and counted ledgers are equal.
    pub ledger_equal: bool,
    /// Whether all of it is within tolerance.
    pub ok: bool,
}

/// Tokens and targets of a sequence that depend on (seed, step, sequence) only; for proofs and benches.
pub fn random_batch(vocab: usize, seed: u64, seq_len: usize) -> impl Fn(u64, usize, &mut [u32], &mut [u32]) + Sync {
    move |step, first, tokens, targets| {
        let stream = RandomStream::new(seed, "random tokens").substream(step);
        for (offset, (tokens, targets)) in tokens.chunks_mut(seq_len).zip(targets.chunks_mut(seq_len)).enumerate() {
            let start = ((first + offset) * (seq_len + 1)) as u64;
            let token = |at: usize| stream.below(start + at as u64, vocab as u64) as u32;
            for (at, (token_out, target_out)) in tokens.iter_mut().zip(targets).enumerate() {
                (*token_out, *target_out) = (token(at), token(at + 1));
            }
        }
    }
}

/// What the ranks found in one step.
struct RankStep {
    outcome: StepOutcome,
    gradients: Vec<Vec<f64>>,
    weights: Vec<Vec<f64>>,
    ledger_equal: bool,
}

/// Runs the serial model and the layout for some steps and compares them after each.
///
/// # Errors
/// A rank that failed.
pub fn verify<T: Real>(
    program: &StepProgram,
    options: &VerifyOptions,
    tolerance: Tolerance,
) -> Result<VerifyReport, EngineError> {
    let runs = run_layout::<T>(program, options)?;
    let mut serial = Serial::new(program, options);
    let mut report = VerifyReport {
        grid: program.layout.grid.to_string(),
        activations: program.layout.activations.to_string(),
        loss_diff: 0.0,
        grad_diff: 0.0,
        grad_diff_in: String::new(),
        norm_diff: 0.0,
        weight_diff: 0.0,
        replicas_equal: true,
        ledger_equal: true,
        ok: false,
    };
    for step in 1..=options.steps {
        let ranks: Vec<&RankStep> = runs.iter().map(|steps| &steps[step as usize - 1]).collect();
        serial.step(&program.model, &program.layout, options, step);
        compare(program, &ranks, &serial, &mut report);
    }
    let within = |difference: f64, limit: f64| difference <= limit;
    report.ok = report.replicas_equal
        && report.ledger_equal
        && [report.loss_diff, report.grad_diff, report.norm_diff].iter().all(|diff| within(*diff, tolerance.values))
        && tolerance.weights.is_none_or(|limit| within(report.weight_diff, limit));
    Ok(report)
}

fn run_layout<T: Real>(program: &StepProgram, options: &VerifyOptions) -> Result<Vec<Vec<RankStep>>, EngineError> {
    let predicted = predict(program);
    let tokens = random_batch(program.model.vocab, options.seed, program.layout.seq_len);
    let batch = |step: u64, first: usize, input: &mut [u32], targets: &mut [u32]| {
        tokens(step, first, input, targets);
        Ok(())
    };
    let job = JobOptions { ranks: program.layout.grid.ranks(), timeout: options.timeout };
    Ok(run_ranks(&job, |context| {
        let initial = InitialValues::Perturbed;
        let mut engine = RankEngine::<T>::new(program, context, options.threads, options.hyper, options.seed, initial)?;
        let mut steps = Vec::new();
        for _ in 0..options.steps {
            let outcome = engine.step(&batch)?;
            let ledger_equal = engine.take_ledger() == predicted.ranks[context.rank()];
            let (gradients, weights) = (engine.shards(true)?, engine.shards(false)?);
            steps.push(RankStep { outcome, gradients, weights, ledger_equal });
        }
        Ok(steps)
    })?)
}

/// The serial model's own trajectory.
struct Serial {
    weights: Tensors,
    state: State,
    loss: f64,
    gradients: Tensors,
    norm: f64,
}

impl Serial {
    fn new(program: &StepProgram, options: &VerifyOptions) -> Self {
        let initial = |parameter: &Parameter| initial_tensor(parameter, options.seed, InitialValues::Perturbed);
        let weights = program.parameters.iter().map(|parameter| (parameter.name.clone(), initial(parameter))).collect();
        let state = State::new(&program.model);
        Self { weights, state, loss: 0.0, gradients: Tensors::new(), norm: 0.0 }
    }

    fn step(&mut self, model: &Model, layout: &Layout, options: &VerifyOptions, step: u64) {
        let (sequences, seq_len) = (layout.global_batch, layout.seq_len);
        let (mut tokens, mut targets) = (vec![0; sequences * seq_len], vec![0; sequences * seq_len]);
        random_batch(model.vocab, options.seed, seq_len)(step, 0, &mut tokens, &mut targets);
        let batch = Batch { tokens: &tokens, targets: &targets, sequences, seq_len };
        let dropout = DropoutSeed { seed: options.seed, step };
        (self.loss, self.gradients) = loss_and_gradients(model, &self.weights, &batch, Some(dropout));
        let hyper = &options.hyper;
        let constants = AdamW {
            learning_rate: schedule(hyper, step),
            beta1: hyper.beta1,
            beta2: hyper.beta2,
            epsilon: hyper.epsilon,
            weight_decay: hyper.weight_decay,
            clip: hyper.clip,
        };
        self.norm = update(model, &constants, &mut self.state, &mut self.weights, &self.gradients);
    }
}

fn compare(program: &StepProgram, ranks: &[&RankStep], serial: &Serial, report: &mut VerifyReport) {
    let relative = |value: f64, reference: f64| ratio((value - reference).abs(), reference.abs());
    for rank in ranks {
        report.ledger_equal &= rank.ledger_equal;
        raise(&mut report.loss_diff, relative(rank.outcome.loss, serial.loss));
        raise(&mut report.norm_diff, relative(rank.outcome.gradient_norm, serial.norm));
    }
    let largest_weight = serial.weights.values().map(|weights| largest(weights)).fold(0.0, f64::max);
    for (index, parameter) in program.parameters.iter().enumerate() {
        let mut whole = |shards: Vec<&[f64]>| {
            assemble(program, parameter, &shards).unwrap_or_else(|_| {
                report.replicas_equal = false;
                Vec::new()
            })
        };
        let gradients = whole(ranks.iter().map(|rank| rank.gradients[index].as_slice()).collect());
        let weights = whole(ranks.iter().map(|rank| rank.weights[index].as_slice()).collect());
        let reference = &serial.gradients[&parameter.name];
        if raise(&mut report.grad_diff, ratio(distance(&gradients, reference), largest(reference))) {
            report.grad_diff_in.clone_from(&parameter.name);
        }
        let distance = distance(&weights, &serial.weights[&parameter.name]);
        raise(&mut report.weight_diff, ratio(distance, largest_weight));
    }
}

/// No distance is no difference, also where the reference is exactly zero.
fn ratio(distance: f64, reference: f64) -> f64 {
    if distance == 0.0 { 0.0 } else { distance / reference }
}

/// Raises `most` to `value`, NaN above all; whether it rose.
fn raise(most: &mut f64, value: f64) -> bool {
    let rises = value > *most || value.is_nan();
    if rises {
        *most = if value.is_nan() { f64::INFINITY } else { value };
    }
    rises
}

fn largest(tensor: &[f64]) -> f64 {
    tensor.iter().fold(0.0, |most, element| most.max(element.abs()))
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, |most, gap| if gap.is_nan() { f64::NAN } else { most.max(gap) })
}
