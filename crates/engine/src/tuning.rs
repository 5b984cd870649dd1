//! Which way each product runs: as its operands are stored, or, where a measurement says so, with operands
//! transposed first (AxoNN SC24, section V-C).

use std::time::Instant;

use quadrille_comm::Reduction;
use quadrille_spec::AxisSet;
use quadrille_step::{Operation, StepProgram};
use quadrille_tensor::{Buffer, Transpose, matmul_as, matmul_as_scratch};
use serde::{Deserialize, Serialize};

use crate::execute::transpose;
use crate::{EngineError, RankEngine, Real};

/// The shape of a product `[m,k] [k,n]` and how its operands are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Product {
    /// Storage of the operands.
    pub stored: Transpose,
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Contracted size.
    pub k: usize,
}

impl Product {
    /// The local shape of an operation, if it is a product.
    pub(crate) fn of(program: &StepProgram, operation: &Operation) -> Option<Self> {
        let Operation::Gemm { storage, left, output, .. } = *operation else { return None };
        let (left, output) = (program.value(left), program.value(output));
        let stored = transpose(storage);
        let k = if stored == Transpose::Tn { left.local_rows } else { left.local_cols };
        Some(Self { stored, m: output.local_rows, n: output.local_cols, k })
    }
}

/// The measured choices of a run; products that are not in it run as stored.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MatmulChoices {
    choices: Vec<Choice>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Choice {
    stored: Layout,
    m: usize,
    n: usize,
    k: usize,
    run_as: Layout,
    /// Seconds as NN, NT and TN, summed over ranks.
    seconds: [f64; 3],
}

/// [`Transpose`] in files.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Layout {
    Nn,
    Nt,
    Tn,
}

const LAYOUTS: [(Layout, Transpose); 3] =
    [(Layout::Nn, Transpose::Nn), (Layout::Nt, Transpose::Nt), (Layout::Tn, Transpose::Tn)];

impl From<Layout> for Transpose {
    fn from(layout: Layout) -> Self {
        LAYOUTS[layout as usize].1
    }
}

impl From<Transpose> for Layout {
    fn from(transpose: Transpose) -> Self {
        LAYOUTS[transpose as usize].0
    }
}

impl MatmulChoices {
    /// The way that `product` runs.
    pub fn choice(&self, product: &Product) -> Transpose {
        let same = |choice: &&Choice| {
            (Transpose::from(choice.stored), choice.m, choice.n, choice.k)
                == (product.stored, product.m, product.n, product.k)
        };
        self.choices.iter().find(same).map_or(product.stored, |choice| choice.run_as.into())
    }

    /// How many products run otherwise than stored, of how many measured.
    pub fn changed(&self) -> (usize, usize) {
        let changed = self.choices.iter().filter(|choice| choice.run_as != choice.stored).count();
        (changed, self.choices.len())
    }
}

/// Runs of each variant; the fastest counts.
const TRIALS: usize = 3;

impl<T: Real> RankEngine<'_, T> {
    /// Times NN, NT and TN of every product of the program at this rank's shapes, transposition of operands
    /// included, and uses the fastest from now on. The times are summed over all ranks: every rank decides alike.
    ///
    /// # Errors
    /// The job was stopped.
    pub fn tune_matmuls(&mut self) -> Result<MatmulChoices, EngineError> {
        let mut products: Vec<Product> = Vec::new();
        for op in &self.program.pass.ops {
            products.extend(Product::of(self.program, &op.operation).filter(|product| !products.contains(product)));
        }
        let seconds: Vec<f64> = products.iter().flat_map(|product| self.time(*product)).collect();
        let world = &self.groups[&AxisSet::WORLD];
        let seconds = self.context.all_reduce(world, Reduction::Sum, seconds).wait()?;
        self.context.take_ledger();
        let choices = products.iter().zip(seconds.chunks_exact(3)).map(|(product, seconds)| {
            let fastest =
                (0..3).fold(product.stored as usize, |best, at| if seconds[at] < seconds[best] { at } else { best });
            Choice {
                stored: product.stored.into(),
                m: product.m,
                n: product.n,
                k: product.k,
                run_as: LAYOUTS[fastest].0,
                seconds: [seconds[0], seconds[1], seconds[2]],
            }
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
        let products = self.program.pass.ops.iter().filter_map(|op| Product::of(self.program, &op.operation));
        let needed = products.map(|product| {
            matmul_as_scratch(self.matmuls.choice(&product), product.stored, product.m, product.n, product.k)
        });
        self.scratch = Buffer::new(needed.max().unwrap_or(0));
    }

    fn time(&mut self, product: Product) -> [f64; 3] {
        let Product { stored, m, n, k } = product;
        let (a, b, mut c) = (Buffer::new(m * k), Buffer::new(k * n), Buffer::new(m * n));
        LAYOUTS.map(|(_, run_as)| {
            let once = || {
                let start = Instant::now();
                matmul_as(&self.pool, run_as, stored, m, n, k, &a, &b, &mut c, false, &mut self.scratch);
                start.elapsed().as_secs_f64()
            };
            std::iter::repeat_with(once).take(TRIALS).fold(f64::INFINITY, f64::min)
        })
    }
}
