//! Which way each product runs: as its operands are stored, or, where a measurement says so, with operands
//! transposed first (AxoNN SC24, section V-C).

use std::time::Instant;

use quadrille_comm::Reduction;
use quadrille_spec::AxisSet;
use quadrille_step::{ChunkProgram, GemmStorage, Product, StepProgram};
use quadrille_tensor::{Buffer, matmul_as, matmul_as_scratch};
use serde::{Deserialize, Serialize};

use crate::execute::transpose;
use crate::{EngineError, RankEngine, Real};

/// The measured choices of a run; products that are not in it run as stored.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatmulChoices {
    choices: Vec<Choice>,
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

    /// A product of the program that was not measured, if there is one.
    pub fn missing(&self, program: &StepProgram) -> Option<Product> {
        products(program).into_iter().find(|product| !self.choices.iter().any(|choice| choice.product == *product))
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
            for product in section.ops.iter().filter_map(|op| op.operation.product(stage)) {
                if !products.contains(&product) {
                    products.push(product);
                }
            }
        }
    }
    products
}

/// Runs of each variant; the fastest counts.
const TRIALS: usize = 3;

impl<T: Real> RankEngine<'_, T> {
    /// Times NN, NT and TN of every product of the program, of all stages, transposition of operands
    /// included, and uses the fastest from now on. The times are summed over all ranks: every rank decides alike.
    ///
    /// # Errors
    /// The job was stopped.
    pub fn tune_matmuls(&mut self) -> Result<MatmulChoices, EngineError> {
        let products = products(self.whole);
        let seconds: Vec<f64> = products.iter().flat_map(|product| self.time(*product)).collect();
        let world = &self.groups[&AxisSet::WORLD];
        let seconds = self.context.all_reduce(world, Reduction::Sum, seconds).wait()?;
        self.context.take_ledger();
        let choices = products.iter().zip(seconds.chunks_exact(3)).map(|(product, seconds)| {
            let faster = |best: usize, at: usize| if seconds[at] < seconds[best] { at } else { best };
            let fastest = (0..3).fold(product.storage as usize, faster);
            let seconds = [seconds[0], seconds[1], seconds[2]];
            Choice { product: *product, run_as: STORAGES[fastest], seconds }
        });
        self.matmuls = MatmulChoices { choices: choices.collect() };
        self.reserve_scratch();
        Ok(self.matmuls.clone())
    }

    /// Uses the choices of an earlier run.
    pub fn use_matmuls(&mut self, choices: MatmulChoices) {
        self.matmuls = choices;
        self.reserve_scratch();
    }

    /// Allocates the scratch for transposed operands once, before the first step.
    fn reserve_scratch(&mut self) {
        let needed = products(self.whole).into_iter().map(|product| {
            let run_as = transpose(self.matmuls.choice(&product));
            matmul_as_scratch(run_as, transpose(product.storage), product.m, product.n, product.k)
        });
        self.scratch = Buffer::new(needed.max().unwrap_or(0));
    }

    fn time(&mut self, product: Product) -> [f64; 3] {
        let Product { storage, m, n, k } = product;
        let (a, b, mut c) = (Buffer::new(m * k), Buffer::new(k * n), Buffer::new(m * n));
        STORAGES.map(|run_as| {
            let once = || {
                let start = Instant::now();
                let (run_as, stored) = (transpose(run_as), transpose(storage));
                matmul_as(&self.pool, run_as, stored, m, n, k, &a, &b, &mut c, false, &mut self.scratch);
                start.elapsed().as_secs_f64()
            };
            std::iter::repeat_with(once).take(TRIALS).fold(f64::INFINITY, f64::min)
        })
    }
}
