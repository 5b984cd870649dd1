//! The transport.
//!
//! | file | holds |
//! |---|---|
//! | `library` | the functions of the MPI library that are used |
//! | `port` | who is inside the library when; the progress thread |
//! | `link` | the port as a job's transport, and as its processes |
//! | `exchange`, `segments`, `native`, `messages` | the data: steps of algorithms, the library's collectives, messages |
//! | `packet`, `control` | what ranks tell each other beside: signs of life, failures, questions |
//! | `inquiry` | who is late |
//! | `alarm` | the end after a failure |
//! | `job`, `gather` | running a job, and sharing what its ranks return |

mod alarm;
mod control;
mod exchange;
mod gather;
mod inquiry;
mod job;
mod library;
mod link;
mod messages;
mod native;
mod pace;
mod packet;
mod port;
mod segments;

use std::sync::Arc;
use std::thread::Builder;

use quadrille_comm::World;

use crate::mpi::library::Library;
use crate::mpi::link::Link;
use crate::mpi::port::Port;

/// Initialises the library and starts the threads that see to it. Collective, once per process.
pub(crate) fn open() -> Result<World, String> {
    let port = Arc::new(Port::open(Library::initialize()?).map_err(|error| error.to_string())?);
    let started = |error: std::io::Error| format!("a thread could not be started: {error}");
    let progress = port.clone();
    Builder::new().name("mpi progress".into()).spawn(move || progress.progress()).map_err(started)?;
    let watchdog = port.clone();
    Builder::new().name("mpi watchdog".into()).spawn(move || watchdog.alarm.watch(&watchdog)).map_err(started)?;
    Ok(World::new(Arc::new(Link(port))))
}
