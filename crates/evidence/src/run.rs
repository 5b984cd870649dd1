//! A row as a problem and a layout of the native model, and what was measured of it.

use quadrille_cost::native::{Candidate, Framework, Memory, NarrowFormat, Numbers, Price, PriceError, Problem};
use quadrille_plan::native::Reserve;
use quadrille_spec::{Cluster, Model};
use quadrille_step::FoldedProgram;

use crate::convention::Convention;
use crate::row::{Metric, Row};
use crate::sources::{Facts, Reading, Source};
use crate::unmapped::Unmapped;
use crate::{layout, machine, model};

/// A row that can be predicted.
#[derive(Debug, Clone)]
pub struct Run {
    /// Its source.
    pub source: &'static Source,
    /// What is trained.
    pub model: Model,
    /// On what.
    pub cluster: Cluster,
    /// By what.
    pub framework: Framework,
    /// How.
    pub candidate: Candidate,
    /// Sequences of a step.
    pub global_batch: usize,
    /// Tokens of a sequence.
    pub seq_len: usize,
    /// Bytes of libraries' workspaces that count among the allocated.
    pub workspace: u64,
    /// The part of blocks whose activations wait in the host's memory.
    pub offloaded: f64,
    /// What was measured.
    pub measured: Measured,
}

/// What was measured of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Measured {
    /// Seconds of a step.
    Seconds(f64),
    /// Bytes of the device that has most, at the worst moment.
    PeakBytes(f64, Reading),
    /// Bytes of a device between steps.
    RestBytes(f64),
    /// It did not fit.
    OutOfMemory,
}

impl Run {
    /// What a row says.
    ///
    /// # Errors
    /// Why it cannot be predicted.
    pub fn of(row: &Row) -> Result<Self, Unmapped> {
        if !row.measured {
            return Err(Unmapped::NotMeasured);
        }
        match row.metric {
            Metric::LayerForward
            | Metric::LayerBackward
            | Metric::PhaseSeconds
            | Metric::ActivationPercent
            | Metric::PredictionError
            | Metric::Configuration => return Err(Unmapped::Metric(row.metric.name())),
            _ => {}
        }
        let source = Source::of(row)?;
        let facts = source.facts(row)?;
        let size = |column, size: Option<usize>| size.ok_or(Unmapped::Missing(column));
        let has_experts = row.sizes.ep.is_some_and(|experts| experts > 1) || row.model_name.contains("MoE");
        if has_experts && facts.experts.is_none() {
            return Err(Unmapped::Experts);
        }
        let model = model::model(row, &facts)?;
        let cluster = machine::cluster(row, &facts)?;
        let narrow = narrow(row);
        let has = |narrow: NarrowFormat| cluster.device.as_ref().is_some_and(|it| narrow.peak(&it.peak).is_some());
        if narrow.is_some_and(|narrow| !has(narrow)) {
            return Err(Unmapped::Narrow);
        }
        let candidate = layout::candidate(row, &facts, &model, &cluster)?;
        Ok(Self {
            source,
            candidate,
            framework: facts
                .framework
                .in_formats(Numbers { products: narrow, ..Numbers::default() })
                .on_devices(candidate.devices()),
            offloaded: facts.offloaded as f64 / model.layers() as f64,
            global_batch: size("global_batch", row.sizes.global_batch)?,
            seq_len: size("seq_len", row.sizes.seq_len)?,
            workspace: facts.workspace,
            measured: measured(row, &facts)?,
            model,
            cluster,
        })
    }

    /// Whether it has several nodes, or domains of the innermost network.
    pub fn has_several_nodes(&self) -> bool {
        let domain = self.cluster.fast_domain();
        domain.is_some_and(|domain| self.candidate.devices() > domain)
    }

    /// The program that its framework runs.
    ///
    /// # Errors
    /// A layout that has no program.
    pub fn program(&self) -> Result<FoldedProgram, PriceError> {
        let problem = Problem::new(&self.model, &self.cluster, self.framework, self.global_batch, self.seq_len)?;
        let layout = self.candidate.layout(self.model.layers(), self.global_batch, self.seq_len)?;
        Ok(problem.folded(&layout)?)
    }

    /// What the native model says of it; of memory that one rank allocated: of that rank.
    ///
    /// # Errors
    /// A cluster that does not describe its device and networks, a layout that has no program.
    pub fn price(&self) -> Result<Price, PriceError> {
        let problem = Problem::new(&self.model, &self.cluster, self.framework, self.global_batch, self.seq_len)?;
        let on_last = matches!(self.measured, Measured::RestBytes(_) | Measured::PeakBytes(_, Reading::Allocated));
        let mut program = self.program()?;
        let price = problem.price_program(&mut program)?;
        let memory = problem.memories(&mut program).pop().filter(|_| on_last).unwrap_or(price.memory);
        let activations = ((1.0 - self.offloaded) * memory.activations as f64) as u64;
        Ok(Price { memory: Memory { activations, ..memory }, ..price })
    }

    /// Whether a price fits into the device.
    pub fn fits(&self, price: &Price) -> bool {
        self.cluster.device_memory.is_none_or(|memory| price.memory.total() <= memory)
    }

    /// True if a plan that lets the usual part of runs fit ([`Reserve::USUAL_RUNS`]) calls a price too large for the device.
    pub fn is_called_too_large(&self, price: &Price) -> bool {
        let usual = |memory| self.framework.reserve_of_runs(Reserve::USUAL_RUNS, memory);
        self.cluster.device_memory.is_some_and(|memory| price.memory.total() + usual(memory) > memory)
    }

    /// What the price says about what was measured, in its unit; `None` of a run out of memory.
    pub fn predicted(&self, price: &Price) -> Option<f64> {
        let memory = &price.memory;
        match self.measured {
            Measured::Seconds(_) => Some(price.seconds),
            Measured::PeakBytes(_, Reading::Allocated) => {
                Some((memory.total() - memory.framework + self.workspace) as f64)
            }
            Measured::PeakBytes(_, Reading::Reserved) => {
                Some((memory.total() - self.framework.reserved_on(self.cluster.device_memory)) as f64)
            }
            Measured::PeakBytes(_, Reading::Device) => Some(memory.total() as f64),
            Measured::RestBytes(_) => {
                Some((memory.parameters + memory.gradients + memory.optimizer + self.workspace) as f64)
            }
            Measured::OutOfMemory => None,
        }
    }
}

/// What operands of products are cast to: the column `dtype` says it. 'FP8 (see page)' and what else is no block format is one
/// scale a tensor, from the present one ('CS') or former ones.
fn narrow(row: &Row) -> Option<NarrowFormat> {
    let dtype = row.dtype.to_ascii_lowercase();
    let formats = [
        ("nvfp4", NarrowFormat::Nvfp4),
        ("mxfp8", NarrowFormat::Mxfp8),
        ("fp8-mx", NarrowFormat::Mxfp8),
        ("fp8", NarrowFormat::Fp8),
    ];
    formats
        .into_iter()
        .find(|(word, _)| dtype.starts_with(word) || dtype.starts_with(&format!("amp_{word}")))
        .map(|(_, it)| it)
}

fn measured(row: &Row, facts: &Facts) -> Result<Measured, Unmapped> {
    let value = row.value.ok_or(Unmapped::Missing("value"))?;
    Ok(match row.metric {
        Metric::OutOfMemory => Measured::OutOfMemory,
        Metric::PeakMemory => Measured::PeakBytes(facts.memory.bytes(value), facts.memory),
        Metric::RestMemory => Measured::RestBytes(Reading::Allocated.bytes(value)),
        _ => Measured::Seconds(Convention::of(row)?.seconds(row, value)?),
    })
}
