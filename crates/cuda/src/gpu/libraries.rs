//! CUDA's libraries, which are opened at run time.
//!
//! Folders that the environment names are searched first: a library that is open under its full path is found by its
//! name afterwards. Then the loader's path is.

use std::env;
use std::path::{Path, PathBuf};

use libloading::Library as Opened;

use crate::driver::Fault;

/// A library of CUDA.
#[derive(Debug, Clone, Copy)]
pub struct Library {
    /// Its name, as faults have it.
    pub name: &'static str,
    /// What has to be open before it, by the beginnings of file names; it comes last.
    files: &'static [&'static str],
    /// Whether folders that the environment names may have it. The driver belongs to the system: what else has its name is
    /// a stub to link with.
    in_folders: bool,
    /// Whether the loader finds it.
    present: unsafe fn() -> bool,
    /// Whether it has a function, once it is found.
    has: unsafe fn(&str) -> bool,
    /// The functions that are called: of an old version some may be missing.
    functions: &'static [&'static str],
}

/// The driver.
#[rustfmt::skip]
pub const DRIVER: Library = Library {
    name: "libcuda",
    files: &["libcuda.so"],
    in_folders: false,
    present: cudarc::driver::sys::is_culib_present,
    // SAFETY: it is asked for a name alone, of a library that is there.
    has: |name| unsafe { cudarc::driver::sys::culib().get::<*const ()>(name.as_bytes()) }.is_ok(),
    functions: &[
        "cuInit", "cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString", "cuDeviceGet", "cuDeviceGetCount", "cuDeviceGetName",
        "cuDeviceGetAttribute", "cuDeviceGetUuid_v2", "cuDeviceCanAccessPeer", "cuCtxEnablePeerAccess", "cuPointerGetAttribute", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2", "cuCtxSetCurrent",
        "cuCtxGetStreamPriorityRange", "cuModuleLoadData", "cuModuleGetFunction", "cuFuncSetAttribute", "cuLaunchKernel",
        "cuMemAlloc_v2", "cuMemFree_v2", "cuMemGetInfo_v2", "cuMemsetD8Async", "cuMemcpyAsync", "cuStreamCreateWithPriority",
        "cuStreamDestroy_v2", "cuStreamSynchronize", "cuStreamWaitEvent", "cuEventCreate", "cuEventDestroy_v2", "cuEventQuery",
        "cuEventRecord",
    ],
};
/// The compiler of kernels.
#[rustfmt::skip]
pub const NVRTC: Library = Library {
    name: "libnvrtc",
    files: &["libnvrtc-builtins.so", "libnvrtc.so"],
    in_folders: true,
    present: cudarc::nvrtc::sys::is_culib_present,
    // SAFETY: it is asked for a name alone, of a library that is there.
    has: |name| unsafe { cudarc::nvrtc::sys::culib().get::<*const ()>(name.as_bytes()) }.is_ok(),
    functions: &[
        "nvrtcVersion", "nvrtcCreateProgram", "nvrtcCompileProgram", "nvrtcDestroyProgram", "nvrtcGetCUBIN", "nvrtcGetCUBINSize",
        "nvrtcGetProgramLog", "nvrtcGetProgramLogSize",
    ],
};
/// Products.
#[rustfmt::skip]
pub const CUBLASLT: Library = Library {
    name: "libcublasLt",
    files: &["libcublasLt.so"],
    in_folders: true,
    present: cudarc::cublaslt::sys::is_culib_present,
    // SAFETY: it is asked for a name alone, of a library that is there.
    has: |name| unsafe { cudarc::cublaslt::sys::culib().get::<*const ()>(name.as_bytes()) }.is_ok(),
    functions: &[
        "cublasLtCreate", "cublasLtDestroy", "cublasLtMatmul", "cublasLtGetVersion", "cublasLtMatmulAlgoCheck", "cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmulDescCreate",
        "cublasLtMatmulDescDestroy", "cublasLtMatmulDescSetAttribute", "cublasLtMatmulPreferenceCreate",
        "cublasLtMatmulPreferenceDestroy", "cublasLtMatmulPreferenceSetAttribute", "cublasLtMatrixLayoutCreate",
        "cublasLtMatrixLayoutDestroy",
    ],
};

/// The variable that names folders of CUDA's libraries.
pub(crate) const FOLDERS: &str = "QUADRILLE_CUDA_LIBS";

/// The folders that the environment names, in the order in which they are searched.
pub(crate) fn folders() -> Vec<PathBuf> {
    let named = env::var_os(FOLDERS).into_iter().flat_map(|named| env::split_paths(&named).collect::<Vec<_>>());
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let of_home = |home: PathBuf| ["lib64", "lib", "targets/x86_64-linux/lib"].map(|folder| home.join(folder));
    named.chain(homes.chain([PathBuf::from("/usr/local/cuda")]).flat_map(of_home)).collect()
}

impl Library {
    /// Sees to it that the library is open, or says where it was searched.
    pub fn open(self) -> Result<(), Fault> {
        let folders = if self.in_folders { folders() } else { Vec::new() };
        let mut refused = String::new();
        for begin in self.files {
            if let Some(file) = folders.iter().find_map(|folder| newest(folder, begin)) {
                // SAFETY: opening a library of CUDA runs its own start-up code alone.
                match unsafe { Opened::new(&file) } {
                    // It stays open for as long as the program runs.
                    Ok(opened) => std::mem::forget(opened),
                    Err(error) => refused = format!("; {} cannot be loaded: {error}", file.display()),
                }
            }
        }
        // SAFETY: as above.
        if !unsafe { (self.present)() } {
            let missing = self.missing(&folders);
            return Err(Fault { text: missing.text + &refused, ..missing });
        }
        // SAFETY: it is present.
        match self.functions.iter().find(|function| !unsafe { (self.has)(function) }) {
            None => Ok(()),
            Some(function) => {
                let text = format!("it has no {function}: it is too old, or not NVIDIA's; install a newer one");
                Err(Fault { library: self.name, code: -1, text })
            }
        }
    }

    fn missing(self, folders: &[PathBuf]) -> Fault {
        let files = self.files.join(".*, ") + ".*";
        let text = if self.in_folders {
            let folders = folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ");
            format!(
                "not found: searched {files} in {folders} and on the loader's path; name the folder that has it in {FOLDERS}"
            )
        } else {
            format!("not found: searched {files} on the loader's path; it comes with the driver of a GPU")
        };
        Fault { library: self.name, code: -1, text }
    }
}

/// A folder's file of a library: that of exactly this name, or else that of the highest version, whose numbers follow the name.
pub(crate) fn newest(folder: &Path, name: &str) -> Option<PathBuf> {
    let exact = folder.join(name);
    if exact.exists() {
        return Some(exact);
    }
    let entries = folder.read_dir().ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let numbered = |path: PathBuf| Some((version(path.file_name()?.to_str()?.strip_prefix(name)?)?, path));
    entries.filter_map(numbered).max().map(|(_, path)| path)
}

/// The numbers of a version as it ends a file's name: `.2.22.3`. `None`: it is none.
fn version(end: &str) -> Option<Vec<u64>> {
    end.strip_prefix('.')?.split('.').map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_nowhere_is_named_with_where_it_was_searched() {
        let files = &["libnone-builtins.so", "libnone.so"];
        let nowhere = Library {
            name: "libnone",
            files,
            in_folders: true,
            present: || false,
            has: |_| false,
            functions: &["none"],
        };
        let fault = nowhere.open().unwrap_err().to_string();
        for part in ["libnone: not found", "libnone-builtins.so.*, libnone.so.*", "/usr/local/cuda/lib64", FOLDERS] {
            assert!(fault.contains(part), "{part} is not in: {fault}");
        }
        let fault = Library { in_folders: false, ..nowhere }.open().unwrap_err().to_string();
        assert!(fault.contains("comes with the driver") && !fault.contains(FOLDERS), "{fault}");
        let old = Library { present: || true, ..nowhere }.open().unwrap_err().to_string();
        assert!(old.starts_with("libnone: it has no none: it is too old"), "{old}");
    }

    #[test]
    fn the_exact_name_is_taken_or_else_the_highest_version() {
        let folder = tempfile::tempdir().unwrap();
        let taken = |made: &str| {
            std::fs::write(folder.path().join(made), "").unwrap();
            newest(folder.path(), "libnone.so.2").map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        };
        for other in ["libnone.so.20", "libnone.so.2.bak", "libnone.so", "libnone.so.3.0.0", "libnone.so.2.x"] {
            assert_eq!(taken(other), None, "{other}");
        }
        for (made, expected) in [("2.9.6", "2.9.6"), ("2.22.3", "2.22.3"), ("2.22.3.bak", "2.22.3"), ("2", "2")] {
            assert_eq!(taken(&format!("libnone.so.{made}")), Some(format!("libnone.so.{expected}")));
        }
    }
}
