//! NCCL's functions and structures, as the headers of 2.22 to 2.30 declare them, which were compared.
//!
//! Not cudarc's declarations: its results are enumerations, which a newer library's numbers are none of, and its functions
//! look for the library where it never is.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libloading::Library;
use quadrille_comm::{ElementKind, Reduction};

/// What a function says: a number of `ncclResult_t`.
pub type Code = c_int;

/// All went well.
pub(crate) const SUCCESS: Code = 0;
/// What was asked breaks a rule.
#[cfg(emulated)]
pub(crate) const INVALID_USAGE: Code = 5;
/// It goes on; the communicator says when it is done.
pub(crate) const IN_PROGRESS: Code = 7;

/// The oldest version whose header has these declarations.
pub(crate) const OLDEST: c_int = 22200;

/// `ncclComm_t`.
pub type Handle = *mut c_void;

/// `ncclUniqueId`: what the ranks of a communicator find each other by.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UniqueId(pub [u8; 128]);

/// What says that a [`Config`] was filled in.
pub(crate) const MAGIC: c_uint = 0xcafe_beef;

/// `ncclConfig_t` of 2.22. Newer libraries take the fields that they have beyond it as not set, by its size.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Bytes of this structure.
    pub size: usize,
    /// What says that it was filled in.
    pub magic: c_uint,
    /// The version whose structure it is.
    pub version: c_uint,
    /// 0: calls return before they are done.
    pub blocking: c_int,
    /// Blocks of a cluster.
    pub cga_cluster_size: c_int,
    /// The fewest blocks.
    pub min_ctas: c_int,
    /// The most blocks.
    pub max_ctas: c_int,
    /// The network; null: the library chooses.
    pub net_name: *const c_char,
    /// Whether communicators that are split off share resources.
    pub split_share: c_int,
}

impl Config {
    /// Calls do not block; the library chooses all else.
    pub(crate) fn without_blocking() -> Self {
        Self {
            size: size_of::<Self>(),
            magic: MAGIC,
            version: OLDEST as c_uint,
            blocking: 0,
            cga_cluster_size: c_int::MIN,
            min_ctas: c_int::MIN,
            max_ctas: c_int::MIN,
            net_name: std::ptr::null(),
            split_share: c_int::MIN,
        }
    }
}

/// Elements by their numbers in `ncclDataType_t`.
const KINDS: [(ElementKind, c_int); 4] =
    [(ElementKind::F16, 6), (ElementKind::F32, 7), (ElementKind::F64, 8), (ElementKind::Bf16, 9)];

/// The number of a kind of elements.
pub(crate) fn number_of(kind: ElementKind) -> c_int {
    KINDS
        .iter()
        .find(|(known, _)| *known == kind)
        .map_or_else(|| unreachable!("{kind:?} has no number"), |(_, number)| *number)
}

/// The kind of elements that has a number.
#[cfg(emulated)]
pub(crate) fn kind_of(number: c_int) -> Option<ElementKind> {
    KINDS.iter().find(|(_, known)| *known == number).map(|(kind, _)| *kind)
}

/// The largest element, in `ncclRedOp_t`.
pub(crate) const MAXIMUM: c_int = 2;

/// The number of a reduction.
pub(crate) fn number_of_reduction(how: Reduction) -> c_int {
    match how {
        Reduction::Sum => 0,
        Reduction::Max => MAXIMUM,
    }
}

macro_rules! functions {
    ($($(#[$doc:meta])* $field:ident = $symbol:literal ($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions that are called.
        #[derive(Debug, Clone, Copy)]
        pub struct Functions {
            $($(#[$doc])* pub $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            /// Those of a library; an error is the name of one that it does not have.
            ///
            /// # Safety
            /// What has these names there has these types, and the library stays open.
            pub(crate) unsafe fn of(library: &Library) -> Result<Self, &'static str> {
                // SAFETY: the caller's promise.
                unsafe { Ok(Self { $($field: *library.get($symbol).map_err(|_| $symbol)?,)* }) }
            }
        }
    };
}

functions! {
    /// Writes the library's version.
    version = "ncclGetVersion" (*mut c_int) -> Code;
    /// Writes what the ranks of a new communicator find each other by.
    unique_id = "ncclGetUniqueId" (*mut UniqueId) -> Code;
    /// Begins a communicator: where it is written, how many ranks, the id, the own rank.
    init = "ncclCommInitRankConfig" (*mut Handle, c_int, UniqueId, c_int, *mut Config) -> Code;
    /// Writes how a communicator is.
    asynchronous = "ncclCommGetAsyncError" (Handle, *mut Code) -> Code;
    /// Begins the end of a communicator, once its work is done.
    finalize = "ncclCommFinalize" (Handle) -> Code;
    /// Frees a communicator whose end is done.
    destroy = "ncclCommDestroy" (Handle) -> Code;
    /// Frees a communicator, whatever it does.
    abort = "ncclCommAbort" (Handle) -> Code;
    /// The words for a result.
    error = "ncclGetErrorString" (Code) -> *const c_char;
    /// The words for what last went wrong, of any communicator.
    last_error = "ncclGetLastError" (Handle) -> *const c_char;
    /// What is called until the end of the group goes on together.
    group_start = "ncclGroupStart" () -> Code;
    /// The end of the group.
    group_end = "ncclGroupEnd" () -> Code;
    /// From, to, elements, their kind, how.
    all_reduce = "ncclAllReduce" (*const c_void, *mut c_void, usize, c_int, c_int, Handle, *mut c_void) -> Code;
    /// From, to, elements, their kind, how, root.
    reduce = "ncclReduce" (*const c_void, *mut c_void, usize, c_int, c_int, c_int, Handle, *mut c_void) -> Code;
    /// From, to, elements, their kind, root.
    broadcast = "ncclBroadcast" (*const c_void, *mut c_void, usize, c_int, c_int, Handle, *mut c_void) -> Code;
    /// From, to, elements of the input, their kind.
    all_gather = "ncclAllGather" (*const c_void, *mut c_void, usize, c_int, Handle, *mut c_void) -> Code;
    /// From, to, elements of the output, their kind, how.
    reduce_scatter = "ncclReduceScatter" (*const c_void, *mut c_void, usize, c_int, c_int, Handle, *mut c_void) -> Code;
    /// From, elements, their kind, to whom.
    send = "ncclSend" (*const c_void, usize, c_int, c_int, Handle, *mut c_void) -> Code;
    /// To, elements, their kind, from whom.
    receive = "ncclRecv" (*mut c_void, usize, c_int, c_int, Handle, *mut c_void) -> Code;
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn structures_lie_as_in_the_header() {
        assert_eq!((size_of::<UniqueId>(), align_of::<UniqueId>()), (128, 1));
        assert_eq!((size_of::<Config>(), align_of::<Config>()), (48, 8));
        let places = [offset_of!(Config, magic), offset_of!(Config, version), offset_of!(Config, blocking)];
        assert_eq!(places, [8, 12, 16]);
        assert_eq!([offset_of!(Config, net_name), offset_of!(Config, split_share)], [32, 40]);
    }
}
