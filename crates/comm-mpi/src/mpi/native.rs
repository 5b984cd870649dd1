//! The library's own collectives, nonblocking and polled, on communicators of groups.
//!
//! In which order elements are summed is the library's choice. A group's communicator is made before its first collective, when all members stand at the door: making it blocks.
//! Beside every collective goes a small one that compares the members' calls, since calls that do not fit may pass
//! unnoticed otherwise.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use mpi::ffi;
use quadrille_comm::transport::{Exchange, Job, Occasion, Receive, Slices};
use quadrille_comm::{Aborted, CollectiveError, Element, ElementKind, Memory, Reduction};
use quadrille_spec::CollectiveKind;

use crate::mpi::exchange::{Look, hash, strand};
use crate::mpi::library::{Communicator, Library, MpiError, Operation, Request};
use crate::mpi::port::Port;

/// Sets the exchanges in which members meet before their communicator is made apart from those of algorithms.
const DOOR: u64 = 1;

impl Port {
    /// Does a collective by the library's own means.
    ///
    /// # Errors
    /// The job was aborted: also by this, if the members' calls do not fit, or one does not come within the timeout.
    pub(crate) fn native(&self, job: &Job, at: Occasion<'_>, slices: Slices<'_>) -> Result<(), Aborted> {
        job.check()?;
        let (input, output) = slices.lengths(at.group.size());
        assert!(
            at.call.kind == slices.kind() && at.call.common_lengths() == Some((input, output)),
            "a call describes its own buffers"
        );
        let Some(kind) = at.call.kind else { unreachable!("calls of this process have a kind") };
        if c_int::try_from(input.max(output)).is_err() {
            let rule = "the MPI library counts elements in 32 bits; use another algorithm than `native`".into();
            let rank = self.rank;
            let group = at.group.shared_name();
            let ranks = at.group.size();
            let error = CollectiveError::Arguments { rank, group, ranks, call: Box::new(*at.call), rule };
            return Err(job.abort_collective(rank, at.call.activity, error));
        }
        let group = self.communicator(job, at)?;
        // A chunk of the buffer that is the input cannot be the output as well.
        let apart = matches!(slices, Slices::OutputWithin(_));
        let bytes = output * kind.bytes();
        let mut own = if apart { vec![0u64; bytes.div_ceil(size_of::<u64>())] } else { Vec::new() };
        let (from, into) = slices.addresses(at.group.size(), at.group.index());
        let to = if apart { own.as_mut_ptr().cast() } else { into };
        let mine = hash(job, &at);
        let mut check = [mine, !mine];
        let mut handed = 0;
        let started = {
            let library = &mut self.enter().library;
            // SAFETY: buffers of the lengths that the call states, and of this function, which does not return or drop them
            // before both requests are done.
            unsafe {
                compare(library, group, &mut check).and_then(|comparison| {
                    let collective = start(library, group, &at, kind, from, to, (input, output), &mut handed)?;
                    Ok(vec![comparison, collective])
                })
            }
        };
        match started {
            Ok(mut requests) => self.finish_call(job, &at, || {
                let before = requests.len();
                let library = &mut self.enter().library;
                for position in (0..before).rev() {
                    if library.test(&mut requests[position]).map_err(|error| error.to_string())?.is_some() {
                        requests.swap_remove(position);
                    }
                }
                Ok(match requests.len() {
                    0 => Look::Done,
                    left if left < before => Look::Progress,
                    _ => Look::Nothing,
                })
            }),
            Err(error) => {
                job.abort_carried(&at, error.to_string());
                strand()
            }
        }
        job.traffic(self.rank).moved(handed * kind.bytes());
        if check != [mine, !mine] {
            let text = "the members' calls do not fit together: all must issue the same operations with the same sizes in \
                the same order";
            return Err(job.abort_carried(&at, text.into()));
        }
        if apart {
            // SAFETY: the output's chunk has as many elements, and is borrowed by this function.
            unsafe { std::ptr::copy_nonoverlapping(own.as_ptr().cast(), into, bytes) };
        }
        job.check()
    }

    /// The group's communicator, made at its first use.
    fn communicator(&self, job: &Job, at: Occasion<'_>) -> Result<Communicator, Aborted> {
        let members = at.group.shared_members();
        if let Some(known) = self.enter().groups.get(&members) {
            return Ok(*known);
        }
        let size = at.group.size();
        let index = at.group.index();
        for round in (0..).take_while(|round| 1 << round < size) {
            let distance = 1 << round;
            let send = Some(((index + distance) % size, Memory::of::<f32>(&mut [])));
            let receive = Some(((index + size - distance) % size, Receive::Into(Memory::of::<f32>(&mut []))));
            self.exchange_as(DOOR ^ hash(job, &at), job, at, Exchange { send, receive })?;
        }
        let mut desk = self.enter();
        let tag = desk.library.tag(at.group.key()) & 0x7fff;
        let made = desk.library.group(&members, tag);
        match made {
            Ok(communicator) => {
                desk.groups.insert(members, communicator);
                Ok(communicator)
            }
            Err(error) => {
                drop(desk);
                Err(job.abort_carried(&at, error.to_string()))
            }
        }
    }
}

/// Starts to find the greatest of every number over the members.
///
/// # Safety
/// The numbers stay where they are until the request is done.
unsafe fn compare(library: &mut Library, group: Communicator, numbers: &mut [u64; 2]) -> Result<Request, MpiError> {
    let in_place = library.in_place();
    library.start("MPI_Iallreduce", |request| {
        // SAFETY: the caller's.
        unsafe {
            let numbers = numbers.as_mut_ptr().cast();
            ffi::MPI_Iallreduce(in_place, numbers, 2, ffi::RSMPI_UINT64_T, ffi::RSMPI_MAX, group.0, request)
        }
    })
}

/// Starts the collective that `at` names, and counts the elements that this member hands in for it.
///
/// # Safety
/// `input` and `output` have as many elements as `lengths` says, are the same where the call is in place, and belong to the
/// library until the request is done.
unsafe fn start(
    library: &mut Library,
    Communicator(group): Communicator,
    at: &Occasion<'_>,
    kind: ElementKind,
    input: *const u8,
    output: *mut u8,
    lengths: (usize, usize),
    handed: &mut usize,
) -> Result<Request, MpiError> {
    let op = match at.call.reduction {
        Some(reduction) => operator(library, kind, reduction)?,
        // SAFETY: a constant of the library; nothing is reduced.
        None => unsafe { ffi::RSMPI_SUM },
    };
    let size = at.group.size();
    let index = at.group.index();
    let root = at.call.peer.unwrap_or(0);
    let in_place = library.in_place();
    let to = output.cast::<c_void>();
    // An all-gather in place has its input at its own chunk of the output.
    let own = match at.call.operation {
        CollectiveKind::AllGather => output.wrapping_add(index * lengths.0 * kind.bytes()).cast_const(),
        _ => output.cast_const(),
    };
    let from = if input == own { in_place } else { input.cast() };
    let kind = datatype(kind);
    // What is handed in, and how the library is told; checked to fit.
    let mut hand = |elements: usize, parts: usize| {
        *handed += elements * parts;
        elements as c_int
    };
    // In all arms: the caller's; counts are those of the call, which `broken_rule` has admitted.
    match at.call.operation {
        CollectiveKind::AllReduce => library.start("MPI_Iallreduce", |request| {
            // SAFETY: as above.
            unsafe { ffi::MPI_Iallreduce(from, to, hand(lengths.0, 1), kind, op, group, request) }
        }),
        CollectiveKind::Reduce => library.start("MPI_Ireduce", |request| {
            // SAFETY: as above.
            unsafe {
                let (from, to) = if index == root { (from, to) } else { (input.cast(), null_mut()) };
                ffi::MPI_Ireduce(from, to, hand(lengths.0, 1), kind, op, root as c_int, group, request)
            }
        }),
        CollectiveKind::ReduceScatter => library.start("MPI_Ireduce_scatter_block", |request| {
            // SAFETY: as above.
            unsafe { ffi::MPI_Ireduce_scatter_block(input.cast(), to, hand(lengths.1, size), kind, op, group, request) }
        }),
        CollectiveKind::AllGather => library.start("MPI_Iallgather", |request| {
            // SAFETY: as above.
            unsafe {
                let each = hand(lengths.0, 1);
                ffi::MPI_Iallgather(from, each, kind, to, each, kind, group, request)
            }
        }),
        CollectiveKind::Broadcast => library.start("MPI_Ibcast", |request| {
            // SAFETY: as above.
            unsafe { ffi::MPI_Ibcast(to, hand(lengths.0, 1), kind, root as c_int, group, request) }
        }),
        CollectiveKind::AllToAll => library.start("MPI_Ialltoall", |request| {
            // SAFETY: as above.
            unsafe {
                let each = hand(lengths.0 / size, size);
                ffi::MPI_Ialltoall(input.cast(), each, kind, to, each, kind, group, request)
            }
        }),
        CollectiveKind::Barrier
        | CollectiveKind::Send
        | CollectiveKind::Receive
        | CollectiveKind::Fetch
        | CollectiveKind::Store => {
            library.start("MPI_Ibarrier", |request| {
                // SAFETY: as above.
                unsafe { ffi::MPI_Ibarrier(group, request) }
            })
        }
    }
}

/// A type of the library that is as long as an element.
fn datatype(kind: ElementKind) -> ffi::MPI_Datatype {
    // SAFETY: constants of the library.
    unsafe {
        match kind {
            ElementKind::Bf16 | ElementKind::F16 => ffi::RSMPI_UINT16_T,
            ElementKind::F32 => ffi::RSMPI_FLOAT,
            ElementKind::F64 => ffi::RSMPI_DOUBLE,
        }
    }
}

/// How the library combines elements: by its own sums where it has the type, else by our arithmetic.
fn operator(library: &mut Library, kind: ElementKind, reduction: Reduction) -> Result<ffi::MPI_Op, MpiError> {
    let own: Operation = match (reduction, kind) {
        // SAFETY: a constant of the library.
        (Reduction::Sum, ElementKind::F32 | ElementKind::F64) => return Ok(unsafe { ffi::RSMPI_SUM }),
        (Reduction::Sum, ElementKind::Bf16) => add::<half::bf16>,
        (Reduction::Sum, ElementKind::F16) => add::<half::f16>,
        (Reduction::Max, ElementKind::F32) => greatest::<f32>,
        (Reduction::Max, ElementKind::F64) => greatest::<f64>,
        (Reduction::Max, ElementKind::Bf16) => greatest::<half::bf16>,
        (Reduction::Max, ElementKind::F16) => greatest::<half::f16>,
    };
    library.operator((kind, reduction), own)
}

unsafe extern "C" fn add<T: Element>(
    from: *mut c_void,
    into: *mut c_void,
    count: *mut c_int,
    _: *mut ffi::MPI_Datatype,
) {
    // SAFETY: the library passes two buffers of so many elements.
    unsafe { combine::<T>(from, into, count, |a, b| T::rounded(a.wide() + b.wide())) }
}

unsafe extern "C" fn greatest<T: Element>(
    from: *mut c_void,
    into: *mut c_void,
    count: *mut c_int,
    _: *mut ffi::MPI_Datatype,
) {
    // NaN on either side stays: it alone differs from itself.
    #[allow(clippy::eq_op)]
    let greater = |a: T, b: T| if b > a || b != b { b } else { a };
    // SAFETY: the library passes two buffers of so many elements.
    unsafe { combine::<T>(from, into, count, greater) }
}

/// # Safety
/// Both buffers have so many elements.
unsafe fn combine<T: Element>(from: *mut c_void, into: *mut c_void, count: *mut c_int, how: impl Fn(T, T) -> T) {
    // SAFETY: the caller's.
    unsafe {
        let from = from.cast::<T>();
        let into = into.cast::<T>();
        for i in 0..usize::try_from(*count).unwrap_or(0) {
            *into.add(i) = how(*from.add(i), *into.add(i));
        }
    }
}
