//! Kernels compiled to machine code by NVRTC.

use std::ffi::{CStr, CString, c_char};
use std::ptr;

use cudarc::nvrtc::{result, sys};

use super::libraries::NVRTC;
use crate::array::Format;
use crate::driver::Fault;
use crate::sources::{HEADERS, Source};

/// What compiling a file of kernels gives.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// Machine code.
    pub image: Vec<u8>,
    /// The compiler's words, with each kernel's registers and memory.
    pub log: String,
}

/// The options that all kernels are compiled with: nothing is contracted, divisions and roots are IEEE's.
pub(super) fn options(format: Format, architecture: &str) -> Vec<String> {
    vec![
        format!("--gpu-architecture={architecture}"),
        "--std=c++17".into(),
        "--fmad=false".into(),
        "--ptxas-options=-v".into(),
        format!("-DFORMAT_{}", format.name().to_uppercase()),
    ]
}

/// The compiler's version.
pub(super) fn version() -> Result<(i32, i32), Fault> {
    NVRTC.open()?;
    let mut major = 0;
    let mut minor = 0;
    // SAFETY: the library is open; both are written.
    unsafe { sys::nvrtcVersion(&mut major, &mut minor) }.result().map_err(|error| fault(error, "its version"))?;
    Ok((major, minor))
}

/// Compiles a file of kernels for an architecture, as in `sm_90`.
pub fn compile(source: Source, format: Format, architecture: &str) -> Result<Compiled, Fault> {
    NVRTC.open()?;
    let of = format!("{} in {} for {architecture}", source.name, format.name());
    let program = Program::new(source).map_err(|error| fault(error, &of))?;
    // SAFETY: the program lives.
    let compiled = unsafe { result::compile_program(program.0, &options(format, architecture)) };
    let log = program.log().map_err(|error| fault(error, &of))?;
    compiled.map_err(|error| fault(error, &format!("{of}: {log}")))?;
    Ok(Compiled { image: program.image().map_err(|error| fault(error, &of))?, log })
}

fn fault(error: result::NvrtcError, of: &str) -> Fault {
    Fault { library: NVRTC.name, code: error.0 as i64, text: format!("{error:?}, compiling {of}") }
}

/// A program of NVRTC.
struct Program(sys::nvrtcProgram);

impl Program {
    fn new(source: Source) -> Result<Self, result::NvrtcError> {
        let terminated = |text: &str| CString::new(text).expect("sources have no zeros");
        let name = terminated(source.name);
        let text = terminated(source.text);
        let names: Vec<CString> = HEADERS.iter().map(|header| terminated(header.name)).collect();
        let texts: Vec<CString> = HEADERS.iter().map(|header| terminated(header.text)).collect();
        let pointers = |of: &[CString]| of.iter().map(|text| text.as_ptr()).collect::<Vec<*const c_char>>();
        let of_names = pointers(&names);
        let of_texts = pointers(&texts);
        let mut program = ptr::null_mut();
        // SAFETY: texts and names are as many as is said, and live through the call, which copies them.
        unsafe {
            sys::nvrtcCreateProgram(
                &mut program,
                text.as_ptr(),
                name.as_ptr(),
                HEADERS.len() as i32,
                of_texts.as_ptr(),
                of_names.as_ptr(),
            )
        }
        .result()?;
        Ok(Self(program))
    }

    fn log(&self) -> Result<String, result::NvrtcError> {
        // SAFETY: the program lives; its log ends with a zero.
        unsafe {
            let log = result::get_program_log(self.0)?;
            Ok(CStr::from_ptr(log.as_ptr()).to_string_lossy().into_owned())
        }
    }

    fn image(&self) -> Result<Vec<u8>, result::NvrtcError> {
        let mut bytes = 0;
        // SAFETY: the program lives and is compiled; the buffer has the size that it says.
        unsafe {
            sys::nvrtcGetCUBINSize(self.0, &mut bytes).result()?;
            let mut image = vec![0; bytes];
            sys::nvrtcGetCUBIN(self.0, image.as_mut_ptr().cast()).result()?;
            Ok(image)
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: it is used no more. That it could not be freed helps nobody.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}
