//! With the feature `emulator` the C++ compiler compiles the kernels, and what runs them without a device.

use std::env;
use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// The three formats, as sources and entry points name them.
const FORMATS: [&str; 3] = ["f64", "f32", "mixed"];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(emulated)");
    for path in ["build.rs", "src/kernels", "src/emulator"] {
        println!("cargo::rerun-if-changed={path}");
    }
    println!("cargo::rerun-if-env-changed=CXX");
    println!("cargo::rerun-if-env-changed=RUSTC_WORKSPACE_WRAPPER");
    let wanted = env::var_os("CARGO_FEATURE_EMULATOR").is_some();
    if !wanted || env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    // Lints look at what is built with the emulated device, and link nothing.
    let lints = env::var("RUSTC_WORKSPACE_WRAPPER").is_ok_and(|wrapper| wrapper.ends_with("clippy-driver"));
    match compiler() {
        Some(_) if lints => println!("cargo::rustc-cfg=emulated"),
        Some(compiler) => build_emulator(&compiler),
        None => println!("cargo::warning=no C++ compiler (CXX, c++, g++, clang++): there is no emulated device"),
    }
}

/// A C++ compiler that answers.
fn compiler() -> Option<OsString> {
    let named = env::var_os("CXX").into_iter();
    let mut candidates = named.chain(["c++", "g++", "clang++"].map(OsString::from));
    candidates.find(|name| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success()))
}

fn build_emulator(compiler: &OsString) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let mut units = ["emulator.cpp", "products.cpp"].map(|name| root.join("src/emulator").join(name)).to_vec();
    let kernels = files(&root.join("src/kernels"), "cu");
    let shared = files(&root.join("src/kernels"), "cuh");
    for format in FORMATS {
        let mut text = head(&shared, format);
        let mut entries = String::new();
        let of_format = kernels.iter().filter(|file| has(file, format));
        of_format.for_each(|file| include(&mut text, &mut entries, file, format));
        if format == "f64" {
            include(&mut text, &mut entries, &root.join("src/emulator/controls.cu"), format);
        }
        units.push(unit(&out, format, &text, &entries));
    }

    let objects: Vec<PathBuf> =
        units.iter().map(|unit| out.join(unit.file_stem().unwrap()).with_extension("o")).collect();
    let running: Vec<Child> =
        units.iter().zip(&objects).map(|(unit, object)| start(compiler, &root, unit, object)).collect();
    for (mut child, unit) in running.into_iter().zip(&units) {
        assert!(child.wait().is_ok_and(|status| status.success()), "the compiler refuses {}", unit.display());
    }
    let library = out.join("libquadrille_emulator.a");
    let _ = fs::remove_file(&library);
    let archived = Command::new("ar").arg("crs").arg(&library).args(&objects).status();
    assert!(archived.is_ok_and(|status| status.success()), "ar cannot write {}", library.display());
    println!("cargo::rustc-cfg=emulated");
    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-link-lib=static=quadrille_emulator");
}

/// What a unit begins with: what kernels of a format share, outside of their namespaces.
fn head(shared: &[PathBuf], format: &str) -> String {
    let includes = shared.iter().map(|file| format!("#include \"{}\"\n", file.display()));
    format!("#define FORMAT_{}\n", format.to_uppercase()) + &includes.collect::<String>()
}

/// The files of a folder of one kind, by name.
fn files(folder: &Path, kind: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder of kernels").map(|entry| entry.expect("its entry").path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|of| of == kind)).collect();
    files.sort();
    files
}

/// Whether a file has kernels of a format: `Source::has` of the library.
fn has(file: &Path, format: &str) -> bool {
    format == "mixed" || !file.file_name().unwrap().to_str().unwrap().starts_with("mixed_")
}

/// Adds a file to the text of a unit, in a namespace of its own, and its kernels to the unit's table.
fn include(text: &mut String, entries: &mut String, file: &Path, format: &str) {
    let space = format!("file_{}", file.file_stem().unwrap().to_str().unwrap());
    writeln!(text, "namespace {space} {{\n#include \"{}\"\n}}", file.display()).unwrap();
    for line in fs::read_to_string(file).expect("a file of kernels").lines() {
        if let Some(name) = line.strip_prefix("KERNEL(").and_then(|rest| rest.split(')').next()) {
            let entry = format!("{name}_{format}");
            let kernel = format!("&{space}::{entry}");
            writeln!(entries, "{{\"{entry}\", emulated::words_of({kernel}), &emulated::run<{kernel}>}},").unwrap();
        }
    }
}

/// Writes a unit with the table of its kernels.
fn unit(out: &Path, name: &str, text: &str, entries: &str) -> PathBuf {
    let path = out.join(format!("kernels_{name}.cpp"));
    let table =
        format!("extern \"C\" const emulated::Kernel quadrille_kernels_{name}[] = {{\n{entries}{{0, 0, 0}}}};\n");
    fs::write(&path, format!("{text}{table}")).expect("OUT_DIR takes files");
    path
}

/// Starts to compile a unit. Nothing is contracted, so that sums round as the kernels say.
fn start(compiler: &OsString, root: &Path, unit: &Path, object: &Path) -> Child {
    let mut command = Command::new(compiler);
    command.args(["-std=c++17", "-O2", "-march=native", "-ffp-contract=off", "-fno-exceptions", "-fno-rtti", "-fPIC"]);
    command.args(["-Wall", "-Wextra", "-Wno-unused-function", "-Wno-unknown-pragmas"]);
    command
        .args(["-DEMULATED", "-fno-strict-aliasing"])
        .arg("-I")
        .arg(root.join("src/kernels"))
        .arg("-I")
        .arg(root.join("src/emulator"));
    command.arg("-c").arg(unit).arg("-o").arg(object);
    command.spawn().unwrap_or_else(|error| panic!("{} does not start: {error}", compiler.to_string_lossy()))
}
