//! What every process has, in every process: the results of a job's ranks, and the meeting before the end.

use std::ffi::c_int;
use std::mem::forget;

use mpi::ffi;
use quadrille_comm::Aborted;

use crate::mpi::library::{Lane, Library, MpiError, Request};
use crate::mpi::pace::Pace;
use crate::mpi::port::Port;

impl Port {
    /// Concatenates every process's bytes, in the order of ranks. Collective. Waits as long as it takes, but not after a
    /// failure; `Err(None)` then.
    pub(super) fn gather(&self, mut own: Vec<u8>) -> Result<Vec<Vec<u8>>, Option<String>> {
        // An empty vector's address may be the number that stands for `MPI_IN_PLACE`.
        own.reserve(1);
        let lengths = self.gather_numbers(own.len() as u64)?;
        let total = lengths.iter().sum::<u64>();
        if c_int::try_from(total).is_err() {
            return Err(Some(format!(
                "the results of all ranks take {total} bytes together; at most 2 GiB can be shared"
            )));
        }
        let counts: Vec<c_int> = lengths.iter().map(|length| *length as c_int).collect();
        let starts: Vec<c_int> =
            counts.iter().scan(0, |end, count| Some(std::mem::replace(end, *end + count))).collect();
        let mut all = vec![0u8; total.max(1) as usize];
        let to = all.as_mut_ptr();
        let done = self.complete(|library| {
            let lane = library.communicator(Lane::Collectives).0;
            // SAFETY: all buffers have the lengths that are given, and are not freed before the request is done.
            library.start("MPI_Iallgatherv", |request| unsafe {
                let byte = ffi::RSMPI_UINT8_T;
                let count = counts[self.rank];
                let counts = counts.as_ptr();
                let starts = starts.as_ptr();
                ffi::MPI_Iallgatherv(own.as_ptr().cast(), count, byte, to.cast(), counts, starts, byte, lane, request)
            })
        });
        if let Err(error) = done {
            forget((own, counts, starts, all)); // the library may still use them
            return Err(error);
        }
        let part = |(start, count): (&c_int, &c_int)| all[*start as usize..(*start + *count) as usize].to_vec();
        Ok(starts.iter().zip(&counts).map(part).collect())
    }

    fn gather_numbers(&self, own: u64) -> Result<Vec<u64>, Option<String>> {
        let own = Box::new(own);
        let mut all = vec![0u64; self.size()];
        let to = all.as_mut_ptr();
        let done = self.complete(|library| {
            let lane = library.communicator(Lane::Collectives).0;
            // SAFETY: both have the lengths that are given, and are not freed before the request is done.
            library.start("MPI_Iallgather", |request| unsafe {
                let number = ffi::RSMPI_UINT64_T;
                ffi::MPI_Iallgather((&raw const *own).cast(), 1, number, to.cast(), 1, number, lane, request)
            })
        });
        if let Err(error) = done {
            forget((own, all)); // the library may still use them
            return Err(error);
        }
        Ok(all)
    }

    /// Waits until every process is here.
    pub(super) fn meet(&self) -> Result<(), Option<String>> {
        self.complete(|library| {
            let lane = library.communicator(Lane::Collectives).0;
            // SAFETY: no buffers.
            library.start("MPI_Ibarrier", |request| unsafe { ffi::MPI_Ibarrier(lane, request) })
        })
    }

    /// Starts a collective of all processes and looks until it is done.
    fn complete(&self, start: impl FnOnce(&mut Library) -> Result<Request, MpiError>) -> Result<(), Option<String>> {
        let text = |error: MpiError| Some(error.to_string());
        let mut request = start(&mut self.enter().library).map_err(text)?;
        let pace = Pace::start(self.crowded);
        loop {
            if self.enter().library.test(&mut request).map_err(text)?.is_some() {
                return Ok(());
            }
            if self.alarm.failure().is_some() {
                return Err(None);
            }
            pace.pause();
        }
    }

    /// Meets all others and gives the library up.
    ///
    /// # Errors
    /// A failure since the last job, or what the library said.
    pub(crate) fn close(&self) -> Result<(), Result<Aborted, String>> {
        if self.is_finished() {
            return Ok(());
        }
        match self.meet() {
            Ok(()) => {}
            Err(Some(text)) => return Err(Err(text)),
            Err(None) => return self.alarm.failure().map_or(Ok(()), |aborted| Err(Ok(aborted))),
        }
        self.alarm.end();
        self.finish().map_err(|error| Err(error.to_string()))
    }
}
