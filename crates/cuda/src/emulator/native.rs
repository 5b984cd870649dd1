//! The kernels that the C++ compiler has compiled.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::ptr;

use crate::driver::THREADS;

/// `emulated::Kernel` of `emulator.hpp`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    name: *const c_char,
    words: u64,
    run: Option<unsafe extern "C" fn(*const u64)>,
}

unsafe extern "C" {
    // Each ends with an entry without a name.
    static quadrille_kernels_f64: Entry;
    static quadrille_kernels_f32: Entry;
    static quadrille_kernels_mixed: Entry;

    fn quadrille_emulate(
        kernel: *const Entry,
        words: *const u64,
        blocks: u32,
        threads: u32,
        shared: u32,
        seed: u64,
        without_file: *const c_char,
        without_line: u32,
    ) -> *const c_char;
}

/// Where threads wait for each other, or for their copies.
pub struct Barrier {
    /// The name of a file of kernels.
    pub file: CString,
    /// A line of it, from 1 on.
    pub line: u32,
}

/// A compiled kernel.
#[derive(Clone, Copy)]
pub struct Kernel(&'static Entry);

// SAFETY: entries are constants.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// How many words of arguments it takes.
    pub fn words(self) -> usize {
        self.0.words as usize
    }

    /// Runs it, without a barrier if one is named; an error says what is wrong with how its threads wait for each other.
    ///
    /// # Safety
    /// There are as many words as it takes, and what they point to is there.
    pub unsafe fn run(
        self,
        words: &[u64],
        blocks: u32,
        shared: u32,
        seed: u64,
        without: Option<&Barrier>,
    ) -> Result<(), String> {
        let (file, line) = without.map_or((ptr::null(), 0), |barrier| (barrier.file.as_ptr(), barrier.line));
        // SAFETY: the caller's promise; the entry is the kernel's, and the file's name ends with a zero.
        let wrong = unsafe { quadrille_emulate(self.0, words.as_ptr(), blocks, THREADS, shared, seed, file, line) };
        if wrong.is_null() {
            return Ok(());
        }
        // SAFETY: what is not null is a constant text.
        Err(unsafe { CStr::from_ptr(wrong) }.to_string_lossy().into_owned())
    }
}

/// All kernels, by entry point.
pub fn kernels() -> HashMap<&'static str, Kernel> {
    let mut kernels = HashMap::new();
    // SAFETY: the tables are constants that end with an entry without a name; names are constant texts.
    unsafe {
        for table in
            [&raw const quadrille_kernels_f64, &raw const quadrille_kernels_f32, &raw const quadrille_kernels_mixed]
        {
            let mut entry = table;
            while !(*entry).name.is_null() {
                let name = CStr::from_ptr((*entry).name).to_str().expect("names of kernels are ASCII");
                kernels.insert(name, Kernel(&*entry));
                entry = entry.add(1);
            }
        }
    }
    kernels
}
