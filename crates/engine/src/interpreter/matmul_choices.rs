//! Storage in which each product runs: as its operands are stored, or, where a measurement says so, with operands
//! transposed first (AxoNN SC24, section V-C). A device whose library has several algorithms chooses among these instead.

use std::time::Instant;

use quadrille_spec::{AxisSet, ElementType, Layout};
use quadrille_step::{ChunkProgram, GemmStorage, Product, StepProgram};
use serde::{Deserialize, Serialize};

use super::{shape, transpose};
use crate::backend::Kind;
use crate::communicators::Communicators;
use crate::{Algorithms, Backend, EngineError};

/// The measured choices of a run; products that are not in it run as stored.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatmulChoices {
    choices: Vec<Choice>,
    /// On a device, in place of those. Written in any case: between processes fields have no names.
    #[serde(default)]
    algorithms: Option<Algorithms>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Choice {
    product: Product,
    run_as: GemmStorage,
    /// Seconds as NN, NT and TN, summed over ranks.
    seconds: [f64; 3],
}

const STORAGES: [GemmStorage; 3] = [GemmStorage::Nn, GemmStorage::Nt, GemmStorage::Tn];

impl MatmulChoices {
    /// The way that `product` runs.
    pub fn choice(&self, product: &Product) -> GemmStorage {
        let found = self.choices.iter().find(|choice| choice.product == *product);
        found.map_or(product.storage, |choice| choice.run_as)
    }

    /// A product of the program that was not measured, if there is one; a device's are of types, too.
    pub fn missing(&self, program: &StepProgram) -> Option<Product> {
        let is_measured = |product: &Product| match &self.algorithms {
            None => self.choices.iter().any(|of| of.product == *product),
            Some(algorithms) => {
                let result = result_type(&program.layout, product);
                algorithms.products.iter().any(|of| (of.product, of.result) == (*product, result))
            }
        };
        products(program).into_iter().find(|product| !is_measured(product))
    }

    /// The algorithms that a device has chosen.
    pub fn algorithms(&self) -> Option<&Algorithms> {
        self.algorithms.as_ref()
    }

    /// How many products run otherwise than stored, of how many measured.
    pub fn changed(&self) -> (usize, usize) {
        let changed = self.choices.iter().filter(|choice| choice.run_as != choice.product.storage).count();
        (changed, self.choices.len())
    }
}

/// The products of all stages, each once.
fn products(program: &StepProgram) -> Vec<Product> {
    let mut products = Vec::new();
    for stage in &program.stages {
        for section in stage.chunks.iter().flat_map(ChunkProgram::sections) {
            // Those of experts run as they are stored.
            let whole = section.ops.iter().filter(|op| op.operation.groups(stage) == 1);
            for product in whole.filter_map(|op| op.operation.product(stage)) {
                if !products.contains(&product) {
                    products.push(product);
                }
            }
        }
    }
    products
}

/// What a product's result is stored in: gradients of weights are what is made of products that are stored as TN.
fn result_type(layout: &Layout, product: &Product) -> ElementType {
    if product.storage == GemmStorage::Tn { layout.gradients } else { layout.dtype }
}

/// Runs of each variant; the fastest counts.
const TRIALS: usize = 3;

impl MatmulChoices {
    /// Times NN, NT and TN of every product of the program, of all stages, transposition of operands included, and chooses
    /// the fastest. The times are summed over all ranks: every rank decides alike. A device that has algorithms to choose
    /// from does so instead.
    pub(crate) fn measure<B: Backend>(
        program: &StepProgram,
        backend: &B,
        communicators: &Communicators<'_>,
    ) -> Result<Self, EngineError> {
        let layout = &program.layout;
        let products = products(program);
        let typed: Vec<_> = products.iter().map(|product| (*product, result_type(layout, product))).collect();
        if let Some(algorithms) = backend.choose_algorithms(&typed)? {
            return Ok(Self { choices: Vec::new(), algorithms: Some(algorithms) });
        }
        let mut seconds = Vec::with_capacity(3 * products.len());
        for product in &products {
            seconds.extend(time(layout, backend, product)?);
        }
        let seconds = communicators.sum(AxisSet::WORLD, seconds)?;
        communicators.context.take_ledger();
        let choices = products.iter().zip(seconds.chunks_exact(3)).map(|(product, seconds)| {
            let faster = |best: usize, at: usize| if seconds[at] < seconds[best] { at } else { best };
            let fastest = (0..3).fold(product.storage as usize, faster);
            let seconds = [seconds[0], seconds[1], seconds[2]];
            Choice { product: *product, run_as: STORAGES[fastest], seconds }
        });
        let choices = Self { choices: choices.collect(), algorithms: None };
        choices.prepare(program, backend)?;
        Ok(choices)
    }

    /// Prepares a backend for the choices of an earlier run.
    pub(crate) fn adopt<B: Backend>(&self, program: &StepProgram, backend: &B) -> Result<(), EngineError> {
        match &self.algorithms {
            Some(algorithms) => backend.use_algorithms(algorithms),
            None => self.prepare(program, backend),
        }
    }

    /// Allocates what the chosen ways need once, before the first step.
    fn prepare<B: Backend>(&self, program: &StepProgram, backend: &B) -> Result<(), EngineError> {
        let products = products(program).into_iter();
        let products = products.map(|product| (shape(&product), transpose(self.choice(&product))));
        backend.prepare_matmuls(&products.collect::<Vec<_>>())
    }
}

/// Seconds of a product as NN, NT and TN.
fn time<B: Backend>(layout: &Layout, backend: &B, product: &Product) -> Result<[f64; 3], EngineError> {
    let [m, n, k] = [product.m, product.n, product.k];
    let allocate = |elements: usize, each: usize| backend.allocate((elements * each) as u64);
    let stored = size_of::<B::Stored>();
    let wide = result_type(layout, product) != layout.dtype;
    let (kind, each) = if wide { (Kind::Real, size_of::<B::Real>()) } else { (Kind::Stored, stored) };
    let a = allocate(m * k, stored)?;
    let b = allocate(k * n, stored)?;
    let mut c = allocate(m * n, each)?;
    let mut fastest = [f64::INFINITY; 3];
    for (fastest, run_as) in fastest.iter_mut().zip(STORAGES) {
        for _ in 0..TRIALS {
            let start = Instant::now();
            let a = B::view(&a, Kind::Stored, 0..m * k);
            let b = B::view(&b, Kind::Stored, 0..k * n);
            let c = &mut B::view_mut(&mut c, kind, 0..m * n);
            backend.matmul(shape(product), transpose(run_as), a, b, c, false)?;
            backend.settle()?;
            *fastest = fastest.min(start.elapsed().as_secs_f64());
        }
    }
    Ok(fastest)
}
