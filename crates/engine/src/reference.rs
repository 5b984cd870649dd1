//! The serial model's own training run, computed once and compared with any number of layouts.

use quadrille_oracle::{AdamW, Batch, DropoutSeed, Samples, State, Tensors, loss_and_gradients, update};
use quadrille_spec::{Model, RandomStream};
use quadrille_step::{Parameter, StepProgram};

use crate::{Hyper, InitialValues, Real, VerifyOptions, initial_tensor, schedule};

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

/// One step of the serial model.
#[derive(Debug, Clone)]
pub(crate) struct SerialStep {
    pub loss: f64,
    pub gradients: Tensors,
    pub norm: f64,
    /// After the update.
    pub weights: Tensors,
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
    state: State,
    steps: Vec<SerialStep>,
}

impl Reference {
    /// The trajectory that layouts with this program's model and batch must follow.
    pub fn new(program: &StepProgram, options: &VerifyOptions) -> Self {
        let initial = |parameter: &Parameter| initial_tensor(parameter, options.seed, InitialValues::Perturbed);
        Self {
            model: program.model.clone(),
            sequences: program.layout.global_batch,
            seq_len: program.layout.seq_len,
            seed: options.seed,
            hyper: options.hyper,
            initial: program.parameters().map(|(_, each)| (each.name.clone(), initial(each))).collect(),
            state: State::new(&program.model),
            steps: Vec::new(),
        }
    }

    /// The free-running step `step`, counted from 1.
    pub(crate) fn step(&mut self, step: u64) -> &SerialStep {
        while (self.steps.len() as u64) < step {
            let before = self.steps.last().map_or(&self.initial, |last| &last.weights).clone();
            let next = self.steps.len() as u64 + 1;
            let mut state = std::mem::replace(&mut self.state, State::new(&self.model));
            self.steps.push(self.run(next, before, &mut state));
            self.state = state;
        }
        &self.steps[step as usize - 1]
    }

    /// Step `step` from given weights; `state` is carried from step to step.
    pub(crate) fn at(&self, step: u64, weights: Tensors, state: &mut State) -> SerialStep {
        self.run(step, weights, state)
    }

    /// The initial weights as a run in `T` holds them.
    pub(crate) fn initial<T: Real>(&self) -> Tensors {
        let rounded = |tensor: &Vec<f64>| tensor.iter().map(|element| T::from_f64(*element).to_f64()).collect();
        self.initial.iter().map(|(name, tensor)| (name.clone(), rounded(tensor))).collect()
    }

    fn run(&self, step: u64, mut weights: Tensors, state: &mut State) -> SerialStep {
        let elements = self.sequences * self.seq_len;
        let (mut tokens, mut targets) = (vec![0; elements], vec![0; elements]);
        random_batch(self.model.vocab, self.seed, self.seq_len)(step, 0, &mut tokens, &mut targets);
        let samples = Samples::Tokens { inputs: &tokens, targets: &targets };
        let batch = Batch { samples, sequences: self.sequences, seq_len: self.seq_len };
        let dropout = DropoutSeed { seed: self.seed, step };
        let (loss, gradients) = loss_and_gradients(&self.model, &weights, &batch, Some(dropout));
        let hyper = &self.hyper;
        let constants = AdamW {
            learning_rate: schedule(hyper, step),
            beta1: hyper.beta1,
            beta2: hyper.beta2,
            epsilon: hyper.epsilon,
            weight_decay: hyper.weight_decay,
            clip: hyper.clip,
        };
        let norm = update(&self.model, &constants, state, &mut weights, &gradients);
        SerialStep { loss, gradients, norm, weights }
    }
}
