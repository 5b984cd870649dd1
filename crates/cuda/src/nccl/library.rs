//! Opening NCCL, by its file's name, from folders that the environment names or on the loader's path.

use std::ffi::c_int;
use std::path::PathBuf;
use std::sync::OnceLock;

use libloading::Library;

use super::functions::{Functions, OLDEST, SUCCESS};
use crate::driver::Fault;
use crate::gpu::libraries::{FOLDERS, folders, newest};

/// The file, by the name under which programs are linked with it.
const FILE: &str = "libnccl.so.2";

/// The name by which faults of the library are told.
pub const NAME: &str = "NCCL";

fn fault(text: String) -> Fault {
    Fault { library: NAME, code: -1, text }
}

/// The library's functions; it stays open.
///
/// # Errors
/// It is missing, with where it was searched; it is too old.
pub fn open() -> Result<&'static Functions, Fault> {
    static OPENED: OnceLock<Result<Functions, Fault>> = OnceLock::new();
    OPENED.get_or_init(|| load(&folders(), FILE)).as_ref().map_err(Clone::clone)
}

/// Loads the file of a name from the first folder that has it, or else from the loader's path.
fn load(folders: &[PathBuf], file: &str) -> Result<Functions, Fault> {
    let found = folders.iter().find_map(|folder| newest(folder, file));
    let path = found.clone().unwrap_or_else(|| PathBuf::from(file));
    // SAFETY: opening the library runs its own start-up code alone.
    let library = unsafe { Library::new(&path) }.map_err(|error| match &found {
        Some(path) => fault(format!("{} cannot be loaded: {error}", path.display())),
        None => {
            let folders = folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ");
            fault(format!(
                "not found: searched {file} in {folders} and on the loader's path; ranks on devices that are processes need it: \
                 name the folder that has it in {FOLDERS}"
            ))
        }
    })?;
    // SAFETY: a library of this name has NCCL's functions, and stays open for as long as the program runs.
    let functions = unsafe { Functions::of(&library) };
    let functions = functions.map_err(|name| {
        fault(format!("{} has no {name}: it is too old, or not NVIDIA's; {}", path.display(), wanted()))
    })?;
    let mut version: c_int = 0;
    // SAFETY: the number is written.
    let code = unsafe { (functions.version)(&mut version) };
    if code != SUCCESS || version < OLDEST {
        let told = if code == SUCCESS { told(version) } else { format!("unknown (result {code})") };
        return Err(fault(format!("the version of {} is {told}; {}", path.display(), wanted())));
    }
    std::mem::forget(library);
    Ok(functions)
}

fn wanted() -> String {
    format!("install {} or newer", told(OLDEST))
}

/// A version in words: 2.27.3 is 22703.
fn told(version: c_int) -> String {
    // Until 2.8 numbers had a digit less.
    let thousands = if version < 10_000 { 1000 } else { 10_000 };
    format!("{}.{}.{}", version / thousands, version % thousands / 100, version % 100)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// A library that the C compiler makes of a text; `None` without a compiler.
    fn compiled(folder: &Path, text: &str) -> Option<PathBuf> {
        let source = folder.join("fake.c");
        let library = folder.join(FILE);
        std::fs::write(&source, text).unwrap();
        let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
        if made.is_err() {
            println!("skipped: there is no C compiler");
            return None;
        }
        assert!(made.unwrap().success());
        Some(folder.to_owned())
    }

    fn of(version: i32) -> String {
        let symbols = [
            "ncclGetUniqueId",
            "ncclCommInitRankConfig",
            "ncclCommGetAsyncError",
            "ncclCommFinalize",
            "ncclCommDestroy",
            "ncclCommAbort",
            "ncclGetErrorString",
            "ncclGetLastError",
            "ncclGroupStart",
            "ncclGroupEnd",
            "ncclAllReduce",
            "ncclReduce",
            "ncclBroadcast",
            "ncclAllGather",
            "ncclReduceScatter",
            "ncclSend",
            "ncclRecv",
        ];
        let others: String = symbols.iter().map(|name| format!("int {name}(void) {{ return 0; }}\n")).collect();
        format!("int ncclGetVersion(int *version) {{ *version = {version}; return 0; }}\n{others}")
    }

    #[test]
    fn a_missing_library_is_named_with_where_it_was_searched() {
        let folder = tempfile::tempdir().unwrap();
        let text = load(&[folder.path().to_owned()], "libnone.so.2").unwrap_err().to_string();
        for part in ["NCCL: not found", "libnone.so.2", folder.path().to_str().unwrap(), FOLDERS] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    }

    /// Where there is one. Its version needs no device.
    #[test]
    fn the_library_of_this_machine_is_taken() {
        match open() {
            Ok(_) => {}
            Err(fault) if fault.text.starts_with("not found") => println!("skipped: {fault}"),
            Err(fault) => panic!("{fault}"),
        }
    }

    #[test]
    fn a_file_that_is_no_library_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), "none").unwrap();
        let text = load(&[folder.path().to_owned()], FILE).unwrap_err().to_string();
        assert!(text.contains("libnccl.so.2 cannot be loaded"), "{text}");
    }

    #[test]
    fn a_library_without_a_function_is_refused_and_the_function_named() {
        let folder = tempfile::tempdir().unwrap();
        let text = of(22203).replace("ncclCommFinalize", "ncclOther");
        let Some(made) = compiled(folder.path(), &text) else { return };
        let text = load(&[made], FILE).unwrap_err().to_string();
        assert!(text.contains("libnccl.so.2 has no ncclCommFinalize: it is too old"), "{text}");
        assert!(text.contains("install 2.22.0 or newer"), "{text}");
    }

    #[test]
    fn an_old_library_is_refused_and_one_of_today_is_taken() {
        for (version, refused) in [(21805, Some("2.18.5")), (2708, Some("2.7.8")), (22203, None), (23007, None)] {
            let folder = tempfile::tempdir().unwrap();
            let Some(made) = compiled(folder.path(), &of(version)) else { return };
            let loaded = load(&[made], FILE).map(drop).map_err(|fault| fault.to_string());
            match refused {
                None => assert_eq!(loaded, Ok(())),
                Some(told) => {
                    let text = loaded.unwrap_err();
                    assert!(text.contains(&format!("libnccl.so.2 is {told}; install 2.22.0")), "{text}");
                }
            }
        }
    }
}
