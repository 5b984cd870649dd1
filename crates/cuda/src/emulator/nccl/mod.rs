//! NCCL's functions for emulated devices, whose ranks may be threads or processes: what they send each other lies in files.
//!
//! As the library's they return before they are done, and refuse what is not allowed meanwhile. What a stream does is done in
//! its order, and only when all who take part have come to it.

mod member;
mod shelf;
mod work;

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_void};

use quadrille_comm::{ElementKind, Reduction};

use crate::driver::Stream;
use crate::nccl::{
    Code, Config, Functions, Handle, IN_PROGRESS, INVALID_USAGE, MAGIC, MAXIMUM, OLDEST, SUCCESS, UniqueId, kind_of,
};
pub(super) use member::Device;
use member::Member;
pub use member::{Tally, Trouble};
pub(super) use work::Remote;
use work::{Finish, Work};

/// The functions.
pub(super) static FUNCTIONS: Functions = Functions {
    version,
    unique_id,
    init,
    asynchronous,
    finalize,
    destroy,
    abort,
    error,
    last_error,
    group_start,
    group_end,
    all_reduce,
    reduce,
    broadcast,
    all_gather,
    reduce_scatter,
    send,
    receive,
};

thread_local! {
    /// The device that the thread uses.
    static DEVICE: RefCell<Option<Device>> = const { RefCell::new(None) };
    /// How many groups are open, and what was called in them.
    static OPEN: Cell<usize> = const { Cell::new(0) };
    static CALLED: RefCell<Vec<(Handle, Stream, Work)>> = const { RefCell::new(Vec::new()) };
}

/// Lets the thread use a device.
pub(super) fn enter(device: Device) {
    DEVICE.with_borrow_mut(|current| *current = Some(device));
}

/// Calls with the member that a handle is of.
fn with(handle: Handle, call: impl FnOnce(&mut Member) -> Code) -> Code {
    // SAFETY: handles are those that `init` has given and nobody has freed; one thread at a time uses one.
    unsafe { handle.cast::<Member>().as_mut() }.map_or(INVALID_USAGE, call)
}

/// Calls with a member that is ready, on its own device.
fn with_ready(handle: Handle, call: impl FnOnce(&mut Member) -> Code) -> Code {
    with(handle, |member| {
        let own = DEVICE.with_borrow(|device| device.as_ref().is_some_and(|device| member.is_on(device)));
        if own && member.is_ready() { call(member) } else { INVALID_USAGE }
    })
}

/// Puts work into a stream, at the end of the group.
fn put(handle: Handle, stream: *mut c_void, kind: c_int, work: impl FnOnce(&mut Member, ElementKind) -> Work) -> Code {
    let Some(kind) = kind_of(kind) else { return INVALID_USAGE };
    with_ready(handle, |member| {
        let work = work(member, kind);
        CALLED.with_borrow_mut(|called| called.push((handle, Stream(stream as u64), work)));
        if OPEN.get() == 0 { flush() } else { SUCCESS }
    })
}

/// Puts a message of so many elements into a stream, of which there is none if it is empty.
fn put_message(
    handle: Handle,
    stream: *mut c_void,
    kind: c_int,
    n: usize,
    work: impl FnOnce(&mut Member, usize) -> Work,
) -> Code {
    if n == 0 { SUCCESS } else { put(handle, stream, kind, |member, kind| work(member, n * kind.bytes())) }
}

/// Gives the members what was called, all of one member and stream together.
fn flush() -> Code {
    let called = CALLED.take();
    let mut code = SUCCESS;
    let mut groups: Vec<(Handle, Stream, Vec<Work>)> = Vec::new();
    for (handle, stream, work) in called {
        match groups.iter_mut().find(|(of, on, _)| (*of, *on) == (handle, stream)) {
            Some((.., works)) => works.push(work),
            None => groups.push((handle, stream, vec![work])),
        }
    }
    for (handle, stream, works) in groups {
        with(handle, |member| {
            if member.take(stream, works) == IN_PROGRESS {
                code = IN_PROGRESS;
            }
            SUCCESS
        });
    }
    code
}

fn reduction(how: c_int) -> Reduction {
    if how == MAXIMUM { Reduction::Max } else { Reduction::Sum }
}

unsafe extern "C" fn version(version: *mut c_int) -> Code {
    // SAFETY: the caller's number.
    unsafe { *version = OLDEST };
    SUCCESS
}

unsafe extern "C" fn unique_id(id: *mut UniqueId) -> Code {
    // SAFETY: the caller's id.
    unsafe { *id = shelf::new_id() };
    SUCCESS
}

unsafe extern "C" fn init(to: *mut Handle, ranks: c_int, id: UniqueId, rank: c_int, config: *mut Config) -> Code {
    // SAFETY: the caller's configuration.
    let Config { size, magic, blocking, .. } = unsafe { *config };
    if (size, magic, blocking) != (size_of::<Config>(), MAGIC, 0) {
        return INVALID_USAGE;
    }
    let Some(device) = DEVICE.with_borrow(Clone::clone) else { return INVALID_USAGE };
    let member = Member::new(device, id, ranks as usize, rank as usize);
    // SAFETY: the caller's handle.
    unsafe { *to = Box::into_raw(Box::new(member)).cast() };
    IN_PROGRESS
}

unsafe extern "C" fn asynchronous(handle: Handle, state: *mut Code) -> Code {
    with(handle, |member| {
        // SAFETY: the caller's number.
        unsafe { *state = member.look() };
        SUCCESS
    })
}

unsafe extern "C" fn finalize(handle: Handle) -> Code {
    with_ready(handle, Member::finalize)
}

unsafe extern "C" fn destroy(handle: Handle) -> Code {
    let code = with(handle, |member| if member.is_finalized() { SUCCESS } else { INVALID_USAGE });
    if code == SUCCESS { free(handle, false) } else { code }
}

unsafe extern "C" fn abort(handle: Handle) -> Code {
    free(handle, true)
}

fn free(handle: Handle, aborted: bool) -> Code {
    // SAFETY: as in `with`; the caller has it no more.
    let member = unsafe { Box::from_raw(handle.cast::<Member>()) };
    member.leave(aborted);
    SUCCESS
}

unsafe extern "C" fn error(code: Code) -> *const c_char {
    match code {
        INVALID_USAGE => c"invalid usage",
        work::REMOTE => c"remote process exited or there was a network error",
        _ => c"no error",
    }
    .as_ptr()
}

unsafe extern "C" fn last_error(_handle: Handle) -> *const c_char {
    c"".as_ptr()
}

unsafe extern "C" fn group_start() -> Code {
    OPEN.set(OPEN.get() + 1);
    SUCCESS
}

unsafe extern "C" fn group_end() -> Code {
    match OPEN.get() {
        0 => INVALID_USAGE,
        1 => {
            OPEN.set(0);
            flush()
        }
        open => {
            OPEN.set(open - 1);
            SUCCESS
        }
    }
}

unsafe extern "C" fn all_reduce(
    from: *const c_void,
    to: *mut c_void,
    n: usize,
    kind: c_int,
    how: c_int,
    handle: Handle,
    stream: *mut c_void,
) -> Code {
    put(handle, stream, kind, |member, kind| {
        let finish = Finish::Reduce { how: reduction(how), kind, n, to: to as usize };
        member.collective(|_| Some((from as usize, n * kind.bytes())), |_| true, finish)
    })
}

unsafe extern "C" fn reduce(
    from: *const c_void,
    to: *mut c_void,
    n: usize,
    kind: c_int,
    how: c_int,
    root: c_int,
    handle: Handle,
    stream: *mut c_void,
) -> Code {
    put(handle, stream, kind, |member, kind| {
        let finish = Finish::Reduce { how: reduction(how), kind, n, to: to as usize };
        member.at_root(root as usize, from as usize, n * kind.bytes(), finish)
    })
}

unsafe extern "C" fn broadcast(
    from: *const c_void,
    to: *mut c_void,
    n: usize,
    kind: c_int,
    root: c_int,
    handle: Handle,
    stream: *mut c_void,
) -> Code {
    put(handle, stream, kind, |member, kind| {
        let bytes = n * kind.bytes();
        let root = root as usize;
        let all = (member.rank() == root).then_some((from as usize, bytes));
        member.collective(|_| all, |other| other == root, Finish::Store { bytes, to: vec![to as usize] })
    })
}

unsafe extern "C" fn all_gather(
    from: *const c_void,
    to: *mut c_void,
    n: usize,
    kind: c_int,
    handle: Handle,
    stream: *mut c_void,
) -> Code {
    put(handle, stream, kind, |member, kind| {
        let bytes = n * kind.bytes();
        let to = (0..member.ranks()).map(|rank| to as usize + rank * bytes).collect();
        member.collective(|_| Some((from as usize, bytes)), |_| true, Finish::Store { bytes, to })
    })
}

unsafe extern "C" fn reduce_scatter(
    from: *const c_void,
    to: *mut c_void,
    n: usize,
    kind: c_int,
    how: c_int,
    handle: Handle,
    stream: *mut c_void,
) -> Code {
    put(handle, stream, kind, |member, kind| {
        let bytes = n * kind.bytes();
        let finish = Finish::Reduce { how: reduction(how), kind, n, to: to as usize };
        member.collective(|other| Some((from as usize + other * bytes, bytes)), |_| true, finish)
    })
}

unsafe extern "C" fn send(
    from: *const c_void,
    n: usize,
    kind: c_int,
    peer: c_int,
    handle: Handle,
    stream: *mut c_void,
) -> Code {
    put_message(handle, stream, kind, n, |member, bytes| member.send(peer as usize, from as usize, bytes))
}

unsafe extern "C" fn receive(
    to: *mut c_void,
    n: usize,
    kind: c_int,
    peer: c_int,
    handle: Handle,
    stream: *mut c_void,
) -> Code {
    put_message(handle, stream, kind, n, |member, bytes| member.receive(peer as usize, to as usize, bytes))
}
