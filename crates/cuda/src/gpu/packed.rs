//! A kernel's words, as the driver takes them.

use std::ffi::c_void;
use std::ptr::null_mut;

use cudarc::driver::sys;

/// A kernel's words, as the driver takes them in one piece.
pub struct Packed<'w> {
    words: &'w [u64],
    bytes: usize,
    list: [*mut c_void; 5],
}

impl<'w> Packed<'w> {
    /// Of a launch.
    pub fn new(words: &'w [u64]) -> Self {
        Self { words, bytes: size_of_val(words), list: [null_mut(); 5] }
    }

    /// The list by which the driver finds them, for as long as this lies where it is.
    pub fn list(&mut self) -> &mut [*mut c_void; 5] {
        self.list = [
            sys::CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT as usize as *mut c_void,
            self.words.as_ptr() as *mut c_void,
            sys::CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT as usize as *mut c_void,
            (&raw mut self.bytes).cast(),
            sys::CU_LAUNCH_PARAM_END_AS_INT as usize as *mut c_void,
        ];
        &mut self.list
    }
}
