//! Kernels of a device: compiled and loaded at their first use.

use std::ffi::CString;
use std::sync::PoisonError;

use cudarc::driver::result::module;
use cudarc::driver::sys;

use super::libraries::DRIVER;
use super::{Asked, Gpu, cache};
use crate::array::Format;
use crate::driver::Fault;
use crate::sources::{Source, entry_point};

impl Gpu {
    /// The handle of a kernel, whose file is compiled and loaded when it is first needed.
    pub(super) fn function(&self, kernel: &'static str, format: Format) -> Result<sys::CUfunction, Fault> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.get(&(kernel, format)) {
            return Ok(*function as sys::CUfunction);
        }
        let entry = entry_point(kernel, format);
        let missing = || Fault { library: DRIVER.name, code: -1, text: format!("there is no kernel {entry}") };
        let module = self.module(Source::of(kernel).ok_or_else(missing)?, format)?;
        let name = CString::new(entry.as_str()).expect("names have no zeros");
        // SAFETY: the module is loaded.
        let function = unsafe { module::get_function(module, name) }.asked(&format!("looking for {entry}"))?;
        functions.insert((kernel, format), function as usize);
        Ok(function)
    }

    fn module(&self, source: Source, format: Format) -> Result<sys::CUmodule, Fault> {
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = modules.get(&(source.name, format)) {
            return Ok(*module as sys::CUmodule);
        }
        let image = cache::image(source, format, source.architecture().unwrap_or(&self.architecture))?;
        // SAFETY: the image is machine code that the compiler made.
        let module = unsafe { module::load_data(image.as_ptr().cast()) }.asked(&format!("loading {}", source.name))?;
        modules.insert((source.name, format), module as usize);
        Ok(module)
    }
}
