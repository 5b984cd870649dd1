//! The devices that the ranks of this process compute on.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::peers::reached;
use super::switches::Switches;
use crate::driver::{Driver, Fault};
use crate::gpu::Gpu;

/// A kind of device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceKind {
    /// NVIDIA's: rank r has number r modulo how many there are.
    #[default]
    Cuda,
    /// Emulated ones, likewise, in builds with the feature `emulator`: one, if the environment does not ask for more.
    Emulated,
}

/// What ranks that start from now on compute on, and the devices that ranks use, by number.
struct Devices {
    chosen: DeviceKind,
    used: Vec<(DeviceKind, usize, Weak<dyn Driver>)>,
    /// Real devices are opened once: a command asks for their memory and names before ranks use them.
    kept: Vec<Arc<Gpu>>,
    /// The one rank that this process has; `None`: it has all.
    only: Option<usize>,
    /// How many processes the job has.
    processes: usize,
    apart: bool,
}

static DEVICES: Mutex<Devices> = Mutex::new(Devices {
    chosen: DeviceKind::Cuda,
    used: Vec::new(),
    kept: Vec::new(),
    only: None,
    processes: 1,
    apart: false,
});

/// From now on this process has this rank alone, of so many processes: it opens no other rank's device.
pub fn have_rank(rank: usize, processes: usize) {
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    (devices.only, devices.processes) = (Some(rank), processes);
}

/// From now on ranks of this process use no memory of each other's devices, as if they were processes: for tests.
pub fn keep_apart() {
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner).apart = true;
}

/// Whether ranks are kept apart.
pub(super) fn are_apart() -> bool {
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner).apart
}

/// The device of the first rank that this process has.
pub(super) fn first() -> Result<Arc<dyn Driver>, Fault> {
    let only = DEVICES.lock().unwrap_or_else(PoisonError::into_inner).only;
    of_rank(only.unwrap_or(0))
}

/// Chooses what ranks of this process compute on that start from now on.
pub fn choose(kind: DeviceKind) {
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner).chosen = kind;
}

/// Ranks on the emulated device of a number get this one from now on, as long as it lives.
pub fn emulate_by(number: usize, device: &Arc<dyn Driver>) {
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    devices.used.retain(|(kind, at, _)| (*kind, *at) != (DeviceKind::Emulated, number));
    devices.used.push((DeviceKind::Emulated, number, Arc::downgrade(device)));
}

/// The device of a rank of the job: the same for all ranks that share it.
pub(super) fn of_rank(rank: usize) -> Result<Arc<dyn Driver>, Fault> {
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let kind = devices.chosen;
    let number = match kind {
        DeviceKind::Cuda => rank % Gpu::count()?,
        DeviceKind::Emulated => rank % emulated()?,
    };
    let same = |(of, at, _): &&(DeviceKind, usize, Weak<dyn Driver>)| (*of, *at) == (kind, number);
    if let Some(device) = devices.used.iter().find(same).and_then(|(.., device)| device.upgrade()) {
        return Ok(device);
    }
    let device: Arc<dyn Driver> = match kind {
        DeviceKind::Cuda => {
            let device = Arc::new(Gpu::open(number)?);
            devices.kept.push(device.clone());
            connect(&devices.kept)?;
            device
        }
        DeviceKind::Emulated => emulator(number)?,
    };
    devices.used.retain(|(.., device)| device.strong_count() > 0);
    devices.used.push((kind, number, Arc::downgrade(&device)));
    Ok(device)
}

/// Lets kernels of the devices that are open reach each other's memory, where the machine can.
fn connect(open: &[Arc<Gpu>]) -> Result<(), Fault> {
    let numbers: Vec<usize> = open.iter().map(|device| device.number()).collect();
    let device = |number: usize| open.iter().find(|device| device.number() == number).expect("it is open");
    let can = |from, to| device(from).can_reach(device(to));
    reached(&numbers, can).into_iter().try_for_each(|(from, to)| device(from).reach(device(to)))
}

#[cfg(emulated)]
fn emulator(number: usize) -> Result<Arc<dyn Driver>, Fault> {
    Ok(Arc::new(crate::emulator::Emulator::seeded(number)?))
}

/// How many emulated devices there are.
#[cfg(emulated)]
fn emulated() -> Result<usize, Fault> {
    crate::emulator::Emulator::count()
}

#[cfg(not(emulated))]
fn emulated() -> Result<usize, Fault> {
    Ok(1)
}

#[cfg(not(emulated))]
fn emulator(_number: usize) -> Result<Arc<dyn Driver>, Fault> {
    let text = "this build has none: build it with the feature `emulator`, on Linux, where there is a C++ compiler";
    Err(Fault { library: "emulated device", code: -1, text: text.into() })
}

/// How many devices so many ranks compute on: ranks that are processes have one each, or are refused when they meet.
pub(super) fn count(ranks: usize) -> Result<usize, Fault> {
    let (kind, only) = {
        let devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        (devices.chosen, devices.only)
    };
    if only.is_some() {
        return Ok(ranks);
    }
    Ok(ranks.min(if kind == DeviceKind::Emulated { emulated()? } else { Gpu::count()? }))
}

/// What is switched on, where the device and the processes allow it.
pub(super) fn switches(device: &dyn Driver) -> Result<Switches, Fault> {
    let switches = Switches::told()?;
    switches.check(device.device())?;
    if switches.graphs {
        let processes = DEVICES.lock().unwrap_or_else(PoisonError::into_inner).processes;
        check_graphs(device, processes)?;
    }
    Ok(switches)
}

/// Between processes a message's receive may run on the device long before its sender comes. Whether the first run of a graph, or
/// other words for its kernels, wait for that, and so for the sender, has not been measured.
fn check_graphs(device: &dyn Driver, processes: usize) -> Result<(), Fault> {
    if processes > 1 {
        let text = format!(
            "kernels are not sent in graphs where ranks are {processes} processes: messages between them may hold graphs up: give graphs=off"
        );
        return Err(Fault { library: "quadrille", code: -1, text });
    }
    device.check_graphs()
}

/// Bytes that are free on the devices of so many ranks; `None`: they have the host's memory. Devices of other processes are
/// taken to have as many as that of this one.
pub(super) fn free(ranks: usize) -> Result<Option<u64>, Fault> {
    let first = first()?;
    switches(first.as_ref())?; // before the run, too
    let (chosen, only, processes) = {
        let devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        (devices.chosen, devices.only, devices.processes)
    };
    if processes > 1 {
        first.device().collectives()?; // a library that is missing is told of before the run
    }
    if chosen == DeviceKind::Emulated {
        return Ok(None);
    }
    let of = |driver: &dyn Driver| driver.device().memory().map(|memory| (memory.total - memory.used) as u64);
    if only.is_some() {
        // Each has its own, or the ranks are refused when they meet.
        return Ok(Some(of(first.as_ref())? * ranks as u64));
    }
    let others = (1..count(ranks)?).map(|rank| of(of_rank(rank)?.as_ref()));
    let others: u64 = others.sum::<Result<u64, Fault>>()?;
    Ok(Some(of(first.as_ref())? + others))
}

#[cfg(all(test, emulated))]
mod tests {
    use super::*;
    use crate::emulator::Emulator;

    #[test]
    fn graphs_are_refused_between_processes() {
        let device = Emulator::new(1);
        assert!(check_graphs(&device, 1).is_ok());
        let fault = check_graphs(&device, 4).unwrap_err().to_string();
        assert!(fault.contains("4 processes") && fault.contains("give graphs=off"), "{fault}");
    }
}
