//! The serial model's own training run, computed once and compared with any number of layouts.

use quadrille_oracle::{self as oracle, AdamW, Batch, DropoutSeed, State, Tensors, loss_and_gradients, update};
use quadrille_spec::Model;
use quadrille_step::{Parameter, StepProgram};

use crate::random_batch::fill_randomly;
use crate::{Hyper, InitialValues, Real, Samples, VerifyOptions, initial_tensor, schedule};

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
        let fill = |samples: Samples| fill_randomly(&self.model, self.seed, self.seq_len, step, 0, samples);
        let rows = self.sequences * self.seq_len;
        let (mut tokens, mut numbers);
        let samples = match self.model.patch_values {
            None => {
                tokens = [(); 2].map(|()| vec![0; rows]);
                let [inputs, targets] = &mut tokens;
                fill(Samples::Tokens { inputs, targets });
                oracle::Samples::Tokens { inputs, targets }
            }
            Some(values) => {
                numbers = [(); 2].map(|()| vec![0.0; rows * values]);
                let [inputs, targets] = &mut numbers;
                fill(Samples::Patches { inputs, targets });
                oracle::Samples::Patches { inputs, targets }
            }
        };
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
