//! What this machine can run: memory and threads, held against a program before anything is allocated.

use quadrille_comm::memory;
use quadrille_spec::{Axis, MemoryClass, RankLedger};
use quadrille_step::{StepProgram, predict_rank};

use crate::units::bytes;
use crate::{Processes, Refusal, RunError, StatesSpec};

/// More thread ranks than this are refused: each takes two threads of the system, and more for its pool.
const MAX_RANKS: usize = 512;

/// Refuses a program whose ranks do not fit into this machine: too many threads, or more memory than is free. Of ranks that
/// are processes, those on this node count, by the mean of all.
/// `beside` are the bytes of what runs beside the ranks; states that lie in files take no memory that is not given back.
///
/// # Errors
/// One that says what is too much, and what there is.
pub fn check(
    program: &StepProgram,
    threads: usize,
    processes: &Processes,
    states: &StatesSpec,
    beside: u64,
) -> Result<(), Refusal> {
    let ranks = program.layout.grid.ranks();
    let dtype = program.layout.dtype;
    if !processes.device.stores(dtype) {
        let rule =
            format!("`layout.dtype` {dtype}: devices do not store values in it; use `layout.dtype` bf16, f32 or f64");
        return Err(Refusal::new(rule));
    }
    let here = processes.ranks_here(ranks);
    if processes.world.is_none() && (ranks > MAX_RANKS || ranks * threads > 4 * MAX_RANKS) {
        return Err(Refusal::new(format!(
            "{ranks} ranks of {threads} threads are too many for one process: at most {MAX_RANKS} ranks and {} threads; use \
             a smaller grid, or 'explain' and 'plan', which run nothing",
            4 * MAX_RANKS
        )));
    }
    let of_this_machine = |bytes: u128| bytes * here as u128 / ranks as u128;
    let offloaded = if states.is_memory() { of_all_ranks(program, offloaded) } else { 0 };
    let allocated = allocated(program);
    let beside = u128::from(beside);
    let of_devices = processes
        .device
        .free(here)
        .map_err(|error| Refusal::new(format!("{error}; without a device ranks compute on the processor")))?;
    let Some(free) = of_devices else {
        return holds(program, of_this_machine(allocated + offloaded) + beside, memory::available());
    };
    // What runs beside the ranks is partly on the devices and partly not: both are to have room for it.
    holds(program, of_this_machine(allocated) + beside, Some(free))?;
    holds(program, of_this_machine(offloaded) + beside, memory::available())
}

/// Refuses what needs more bytes than are free, if that is known.
fn holds(program: &StepProgram, needed: u128, free: Option<u64>) -> Result<(), Refusal> {
    let Some(free) = free.filter(|free| needed > u128::from(*free)) else { return Ok(()) };
    Err(Refusal::new(format!(
        "{} on {} needs {} of memory, and {} are free; use a smaller model, batch or seq-len, or 'explain' and 'plan', \
         which run nothing",
        program.model.name,
        program.layout.grid,
        bytes(u64::try_from(needed).unwrap_or(u64::MAX)),
        bytes(free)
    )))
}

/// Bytes that evaluations take beside the ranks that train `program`.
///
/// # Errors
/// A layout that has no evaluation.
pub fn beside_training(program: &StepProgram) -> Result<u64, RunError> {
    let evaluation = StepProgram::evaluation(&program.model, &program.layout)?;
    Ok(u64::try_from(allocated(&evaluation)).unwrap_or(u64::MAX / 2))
}

/// Bytes of all ranks' buffers.
pub fn allocated(program: &StepProgram) -> u128 {
    of_all_ranks(program, |ledger| ledger.memory.allocated)
}

/// Bytes of a rank's states that do not lie on its device.
fn offloaded(ledger: &RankLedger) -> u64 {
    ledger.memory.peak_of.get(&MemoryClass::Host).copied().unwrap_or(0)
}

/// Bytes of all ranks: those of a stage have as many.
fn of_all_ranks(program: &StepProgram, bytes: impl Fn(&RankLedger) -> u64) -> u128 {
    let grid = &program.layout.grid;
    let stages = grid.size(Axis::Pipe);
    let first_of = |stage| (0..grid.ranks()).find(|rank| grid.coordinate(*rank).on(Axis::Pipe) == stage);
    let per_rank = (0..stages).filter_map(first_of).map(|rank| predict_rank(program, rank));
    let one_of_each: u128 = per_rank.map(|ledger| u128::from(bytes(&ledger))).sum();
    one_of_each * (grid.ranks() / stages) as u128
}
