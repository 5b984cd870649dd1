//! The MPI library: the functions that are used, their errors, the handles.
//!
//! At most one thread is inside the library at a time (`MPI_THREAD_SERIALIZED`): every call needs the one [`Library`].

use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::ptr::{null_mut, without_provenance};

use mpi::ffi;

use quadrille_comm::{ElementKind, Reduction};

/// Most bytes that one MPI message carries; counts are C integers.
pub(super) const MOST_BYTES: usize = 1 << 30;

/// A call that the library refused.
#[derive(Debug, Clone)]
pub(super) struct MpiError {
    call: &'static str,
    text: String,
}

impl fmt::Display for MpiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.text)
    }
}

/// Turns a return code into a result; `call` is named in the error.
pub(super) fn checked(call: &'static str, code: c_int) -> Result<(), MpiError> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let text = text(|text, length| {
        // SAFETY: the buffer is as long as the library's longest text.
        unsafe { ffi::MPI_Error_string(code, text, length) }
    });
    Err(MpiError { call, text })
}

/// A text that the library writes into a buffer.
fn text(write: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> String {
    // No MPI library's limits of texts exceed this (Open MPI 256, MPICH 8192).
    let mut buffer = vec![0u8; 16 << 10];
    let mut length = 0;
    write(buffer.as_mut_ptr().cast(), &mut length);
    buffer.truncate(usize::try_from(length).unwrap_or(0));
    String::from_utf8_lossy(&buffer).trim().to_owned()
}

/// What separates kinds of traffic: each has a communicator of its own, so that no tag of one matches another's.
#[derive(Clone, Copy)]
pub(super) enum Lane {
    Collectives,
    Messages,
    Control,
}

/// A send, receive or collective under way.
pub(super) struct Request(ffi::MPI_Request);

// SAFETY: a handle; the library is entered with it under the `Library` only.
unsafe impl Send for Request {}

/// A communicator of a group.
#[derive(Clone, Copy)]
pub(super) struct Communicator(pub(super) ffi::MPI_Comm);

// SAFETY: as `Request`.
unsafe impl Send for Communicator {}

/// Who sent what arrived, and how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrived {
    pub(super) from: usize,
    pub(super) bytes: usize,
}

/// Combines elements of the first buffer into the second; never unwinds.
pub(super) type Operation = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut ffi::MPI_Datatype);

/// The initialised library, and this process's place in it.
pub(super) struct Library {
    lanes: [ffi::MPI_Comm; 3],
    pub(super) rank: usize,
    pub(super) size: usize,
    tags: u64,
    in_place: *const c_void,
    operators: Vec<((ElementKind, Reduction), ffi::MPI_Op)>,
}

// SAFETY: handles and a constant; see `Request`.
unsafe impl Send for Library {}

impl Library {
    /// Initialises the library. Collective; from the main thread, once per process.
    pub(super) fn initialize() -> Result<Self, String> {
        let mut initialized = 0;
        // SAFETY: may be called at any time; null arguments are allowed since MPI-2.
        unsafe {
            ffi::MPI_Initialized(&mut initialized);
            if initialized != 0 {
                return Err("MPI has been initialised in this process already".into());
            }
            let mut provided = 0;
            let code = ffi::MPI_Init_thread(null_mut(), null_mut(), ffi::RSMPI_THREAD_SERIALIZED, &mut provided);
            checked("MPI_Init_thread", code).map_err(|error| error.to_string())?;
            if provided < ffi::RSMPI_THREAD_SERIALIZED {
                return Err("the MPI library does not support calls from several threads in turn \
                    (MPI_THREAD_SERIALIZED); use one built with thread support"
                    .into());
            }
        }
        Self::open().map_err(|error| error.to_string())
    }

    fn open() -> Result<Self, MpiError> {
        let mut rank = 0;
        let mut size = 0;
        // SAFETY: the library is initialised; all results live on this stack.
        unsafe {
            let world = ffi::RSMPI_COMM_WORLD;
            // Communicators made from this one inherit that errors are returned.
            checked("MPI_Comm_set_errhandler", ffi::MPI_Comm_set_errhandler(world, ffi::RSMPI_ERRORS_RETURN))?;
            checked("MPI_Comm_rank", ffi::MPI_Comm_rank(world, &mut rank))?;
            checked("MPI_Comm_size", ffi::MPI_Comm_size(world, &mut size))?;
            let duplicate = || {
                let mut lane = ffi::RSMPI_COMM_NULL;
                checked("MPI_Comm_dup", ffi::MPI_Comm_dup(world, &mut lane)).map(|()| lane)
            };
            let lanes = [duplicate()?, duplicate()?, duplicate()?];
            let rank = rank as usize;
            let size = size as usize;
            Ok(Self { lanes, rank, size, tags: largest_tag(lanes[0])?, in_place: in_place(), operators: Vec::new() })
        }
    }

    /// The tag of a hash: as many of its bits as the library has for tags, 22 at least in those in use.
    pub(super) fn tag(&self, hash: u64) -> i32 {
        ((hash ^ (hash >> 32)) & self.tags) as i32
    }

    /// What stands for a buffer that is input and output.
    pub(super) fn in_place(&self) -> *const c_void {
        self.in_place
    }

    pub(super) fn communicator(&self, lane: Lane) -> Communicator {
        Communicator(self.lanes[lane as usize])
    }

    /// Starts to send `bytes` at `data`.
    ///
    /// # Safety
    /// The bytes are there and do not change until the request is done.
    pub(super) unsafe fn send(
        &mut self,
        lane: Lane,
        data: *const u8,
        bytes: usize,
        to: usize,
        tag: i32,
    ) -> Result<Request, MpiError> {
        assert!(bytes <= MOST_BYTES, "longer data are sent in segments");
        let mut request = Request(null_request());
        let lane = self.lanes[lane as usize];
        // SAFETY: the caller's.
        let code = unsafe {
            ffi::MPI_Isend(data.cast(), bytes as c_int, ffi::RSMPI_UINT8_T, to as c_int, tag, lane, &mut request.0)
        };
        checked("MPI_Isend", code).map(|()| request)
    }

    /// Starts to receive at most `bytes` at `data`, from anybody where `from` is `None`.
    ///
    /// # Safety
    /// Nobody else reads or writes there until the request is done.
    pub(super) unsafe fn receive(
        &mut self,
        lane: Lane,
        data: *mut u8,
        bytes: usize,
        from: Option<usize>,
        tag: i32,
    ) -> Result<Request, MpiError> {
        assert!(bytes <= MOST_BYTES, "longer data are received in segments");
        let mut request = Request(null_request());
        let lane = self.lanes[lane as usize];
        // SAFETY: the caller's.
        let code = unsafe {
            let from = from.map_or(ffi::RSMPI_ANY_SOURCE, |from| from as c_int);
            ffi::MPI_Irecv(data.cast(), bytes as c_int, ffi::RSMPI_UINT8_T, from, tag, lane, &mut request.0)
        };
        checked("MPI_Irecv", code).map(|()| request)
    }

    /// Starts what `start` asks of the library, a nonblocking collective named `call`.
    pub(super) fn start(
        &mut self,
        call: &'static str,
        start: impl FnOnce(*mut ffi::MPI_Request) -> c_int,
    ) -> Result<Request, MpiError> {
        let mut request = Request(null_request());
        checked(call, start(&mut request.0)).map(|()| request)
    }

    /// Lets the library work; what arrived if the request is done. It is not to be tested again then.
    pub(super) fn test(&mut self, request: &mut Request) -> Result<Option<Arrived>, MpiError> {
        let mut done = 0;
        // SAFETY: a status is plain integers; the library fills it when the request is done.
        let mut status: ffi::MPI_Status = unsafe { std::mem::zeroed() };
        // SAFETY: the request has not been tested since it was done, or is the null request by then, which is allowed.
        checked("MPI_Test", unsafe { ffi::MPI_Test(&mut request.0, &mut done, &mut status) })?;
        if done == 0 {
            return Ok(None);
        }
        let mut bytes = 0;
        // SAFETY: the status is that of a finished request; of a send, its count means nothing.
        checked("MPI_Get_count", unsafe { ffi::MPI_Get_count(&status, ffi::RSMPI_UINT8_T, &mut bytes) })?;
        Ok(Some(Arrived { from: status.MPI_SOURCE.max(0) as usize, bytes: bytes.max(0) as usize }))
    }

    /// Gives up a receive that nothing has come for.
    pub(super) fn cancel(&mut self, mut request: Request) {
        // SAFETY: the request is under way. An error leaves it so, which harms nobody: its memory is never freed.
        unsafe {
            ffi::MPI_Cancel(&mut request.0);
            ffi::MPI_Request_free(&mut request.0);
        }
    }

    /// A commutative operation of our own, made once.
    pub(super) fn operator(
        &mut self,
        name: (ElementKind, Reduction),
        function: Operation,
    ) -> Result<ffi::MPI_Op, MpiError> {
        if let Some((_, known)) = self.operators.iter().find(|(known, _)| *known == name) {
            return Ok(*known);
        }
        // SAFETY: a constant of the library, replaced by the call.
        let mut made = unsafe { ffi::RSMPI_SUM };
        // SAFETY: the function is of the kind that the library asks for.
        checked("MPI_Op_create", unsafe { ffi::MPI_Op_create(Some(function), 1, &mut made) })?;
        self.operators.push((name, made));
        Ok(made)
    }

    /// A communicator of the ranks, in this order. Blocking and collective over them; `tag` tells apart groups that are
    /// made at the same time.
    pub(super) fn group(&mut self, ranks: &[usize], tag: i32) -> Result<Communicator, MpiError> {
        let ranks: Vec<c_int> = ranks.iter().map(|rank| *rank as c_int).collect();
        let world = self.lanes[Lane::Collectives as usize];
        // SAFETY: the ranks are distinct and exist (`member_index`); handles live on this stack.
        unsafe {
            let mut all = ffi::RSMPI_GROUP_NULL;
            let mut group = ffi::RSMPI_GROUP_NULL;
            let mut communicator = ffi::RSMPI_COMM_NULL;
            checked("MPI_Comm_group", ffi::MPI_Comm_group(world, &mut all))?;
            let code = ffi::MPI_Group_incl(all, ranks.len() as c_int, ranks.as_ptr(), &mut group);
            checked("MPI_Group_incl", code)?;
            let code = ffi::MPI_Comm_create_group(world, group, tag, &mut communicator);
            ffi::MPI_Group_free(&mut group);
            ffi::MPI_Group_free(&mut all);
            checked("MPI_Comm_create_group", code).map(|()| Communicator(communicator))
        }
    }

    /// Every rank's node, by the least rank on it. Collective and blocking.
    pub(super) fn nodes(&mut self) -> Result<Vec<usize>, MpiError> {
        let world = self.lanes[Lane::Collectives as usize];
        let own = self.rank as c_int;
        let mut first = 0;
        let mut nodes = vec![0 as c_int; self.size];
        // SAFETY: buffers have the lengths that are given; all ranks call this.
        unsafe {
            let mut node = ffi::RSMPI_COMM_NULL;
            let shared = ffi::RSMPI_COMM_TYPE_SHARED;
            let info = ffi::RSMPI_INFO_NULL;
            checked("MPI_Comm_split_type", ffi::MPI_Comm_split_type(world, shared, own, info, &mut node))?;
            let from = (&raw const own).cast();
            let to = (&raw mut first).cast();
            let code = ffi::MPI_Allreduce(from, to, 1, ffi::RSMPI_INT32_T, ffi::RSMPI_MIN, node);
            checked("MPI_Allreduce", code)?;
            ffi::MPI_Comm_free(&mut node);
            let from = (&raw const first).cast();
            let to = nodes.as_mut_ptr().cast();
            let code = ffi::MPI_Allgather(from, 1, ffi::RSMPI_INT32_T, to, 1, ffi::RSMPI_INT32_T, world);
            checked("MPI_Allgather", code)?;
        }
        Ok(nodes.into_iter().map(|node| node as usize).collect())
    }

    /// Every rank's host. Collective and blocking.
    pub(super) fn hosts(&mut self) -> Result<Vec<String>, MpiError> {
        const WIDTH: usize = 256;
        let world = self.lanes[Lane::Collectives as usize];
        let name = text(|text, length| {
            // SAFETY: the buffer is as long as the library's longest name.
            unsafe { ffi::MPI_Get_processor_name(text, length) }
        });
        let mut own = name.into_bytes();
        own.resize(WIDTH, 0);
        let mut all = vec![0u8; WIDTH * self.size];
        let width = WIDTH as c_int;
        // SAFETY: buffers have the lengths that are given; all ranks call this.
        let code = unsafe {
            let from = own.as_ptr().cast();
            let to = all.as_mut_ptr().cast();
            ffi::MPI_Allgather(from, width, ffi::RSMPI_UINT8_T, to, width, ffi::RSMPI_UINT8_T, world)
        };
        checked("MPI_Allgather", code)?;
        let name = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
        Ok(all.chunks(WIDTH).map(name).collect())
    }

    /// Ends the use of the library. Collective and blocking; nothing of it may be called any more.
    pub(super) fn finalize(&mut self) -> Result<(), MpiError> {
        // SAFETY: the caller holds the library and lets nobody else have it again.
        checked("MPI_Finalize", unsafe { ffi::MPI_Finalize() })
    }
}

fn null_request() -> ffi::MPI_Request {
    // SAFETY: a constant of the library.
    unsafe { ffi::RSMPI_REQUEST_NULL }
}

/// The tags that can be used, as a mask: the largest power of two that fits, less one.
fn largest_tag(lane: ffi::MPI_Comm) -> Result<u64, MpiError> {
    let mut value: *mut c_int = null_mut();
    let mut found: c_int = 0;
    // SAFETY: the attribute's value is the address of an integer that the library keeps.
    let most = unsafe {
        let key = ffi::MPI_TAG_UB as c_int;
        let code = ffi::MPI_Comm_get_attr(lane, key, (&raw mut value).cast(), &mut found);
        checked("MPI_Comm_get_attr", code)?;
        // 32767 is what the standard guarantees.
        if found != 0 && !value.is_null() { *value } else { 32767 }
    };
    let most = u64::try_from(most).unwrap_or(32767);
    Ok((1 << (most + 1).ilog2()) - 1)
}

/// `MPI_IN_PLACE`, a macro in C that bindings do not carry: 1 in Open MPI and what descends from it, -1 in MPICH and all
/// that share its binary interface.
fn in_place() -> *const c_void {
    let version = text(|text, length| {
        // SAFETY: the buffer is as long as the library's longest text.
        unsafe { ffi::MPI_Get_library_version(text, length) }
    });
    let open_mpi = ["Open MPI", "Spectrum MPI", "OpenMPI"].iter().any(|name| version.contains(name));
    without_provenance(if open_mpi { 1 } else { usize::MAX })
}
