//! A rank's own worker threads, and how kernels divide their work among them.

use std::marker::PhantomData;
use std::sync::Mutex;

/// Pieces smaller than this many elements are not worth waking a worker for.
const SMALLEST_PIECE: usize = 32 << 10;
/// Pieces per thread: enough to even out threads that start late.
const PIECES_PER_THREAD: usize = 4;

/// The threads that a rank's kernels run on: the caller and `threads - 1` workers, which sleep
/// between kernels. One thread means no workers at all.
pub struct Pool {
    threads: usize,
    workers: Option<rayon::ThreadPool>,
}

impl Pool {
    /// A pool of `threads` threads, the caller included.
    ///
    /// # Panics
    /// If `threads` is 0 or the system refuses to start a thread.
    pub fn new(threads: usize) -> Self {
        assert!(threads > 0, "a pool needs at least one thread");
        let build = || {
            rayon::ThreadPoolBuilder::new()
                .num_threads(threads - 1)
                .thread_name(|i| format!("worker {i}"))
                .build()
                .unwrap_or_else(|error| panic!("cannot start {threads} threads: {error}"))
        };
        Pool { threads, workers: (threads > 1).then(build) }
    }

    /// The number of threads, the caller included.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Calls `work` once with each of `pieces`, on any thread and in any order; a thread takes
    /// the next piece when it has finished its last. Returns when all are done.
    pub fn each<P: Send>(&self, pieces: impl Iterator<Item = P> + Send, work: impl Fn(P) + Sync) {
        let participants = self.threads.min(pieces.size_hint().0);
        let Some(workers) = self.workers.as_ref().filter(|_| participants > 1) else {
            return pieces.for_each(work);
        };
        let queue = Mutex::new(pieces);
        let next = || queue.lock().expect("no piece is made by code that panics").next();
        at_once(workers, participants, &|| {
            while let Some(piece) = next() {
                work(piece);
            }
        });
    }

    /// Elements per piece of a flat array of `len`, a multiple of a cache line, never 0.
    pub(crate) fn piece(&self, len: usize) -> usize {
        self.rows_per_piece(len, 1).next_multiple_of(64)
    }

    /// Rows per piece of a matrix, never 0.
    pub(crate) fn rows_per_piece(&self, rows: usize, cols: usize) -> usize {
        let smallest = SMALLEST_PIECE.div_ceil(cols.max(1));
        rows.div_ceil(PIECES_PER_THREAD * self.threads).max(smallest)
    }
}

/// Runs `work` so many times at once, once on the caller's thread. Apart from `each`, which is compiled for every kernel.
fn at_once(workers: &rayon::ThreadPool, times: usize, work: &(dyn Fn() + Sync)) {
    workers.in_place_scope(|scope| {
        for _ in 1..times {
            scope.spawn(|_| work());
        }
        work();
    });
}

/// A mutable slice that threads write to in disjoint parts which are not contiguous.
pub(crate) struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: `part` and `at` are the only accesses, and their callers promise disjointness.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Disjoint { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// A pointer to element `index`.
    ///
    /// # Safety
    /// Nobody else reads or writes the elements that are accessed through it.
    pub(crate) unsafe fn at(&self, index: usize) -> *mut T {
        assert!(index <= self.len);
        // SAFETY: within the slice, or one past its end.
        unsafe { self.start.add(index) }
    }

    /// The elements `start..start + len`.
    ///
    /// # Safety
    /// No other part that lives at the same time overlaps this one.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn part(&self, start: usize, len: usize) -> &mut [T] {
        assert!(start + len <= self.len);
        // SAFETY: in bounds, and disjoint by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}
