//! Every kernel compiled to machine code, where the compiler is found, and what it needs held to `kernels.toml`.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use quadrille_cuda::{Format, SOURCES, Source, compile};

const ARCHITECTURES: [&str; 3] = ["sm_80", "sm_90", "sm_90a"];

/// What a kernel uses: registers of a thread, bytes of stack, spills and shared memory.
type Needs = BTreeMap<String, u64>;

/// Limits by kernel.
fn limits() -> BTreeMap<String, Needs> {
    toml::from_str(include_str!("../../kernels.toml")).unwrap()
}

/// The number before some words of a line.
fn before(line: &str, words: &str) -> Option<u64> {
    line[..line.find(words)?].trim_end().rsplit([' ', ',']).next()?.parse().ok()
}

/// What the compiler's log says of each entry point.
fn needs(log: &str) -> BTreeMap<String, Needs> {
    let mut found = BTreeMap::<String, Needs>::new();
    let mut entry = String::new();
    for line in log.lines() {
        if let Some(name) = line.split("entry function '").nth(1) {
            entry = name.split('\'').next().unwrap().to_owned();
        }
        let spills = before(line, "bytes spill stores").zip(before(line, "bytes spill loads")).map(|(a, b)| a + b);
        let used = before(line, "registers");
        let shared = used.map(|_| before(line, "bytes smem").unwrap_or(0));
        let of_line =
            [("registers", used), ("stack", before(line, "bytes stack")), ("spills", spills), ("shared", shared)];
        for (name, value) in of_line.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            found.entry(entry.clone()).or_default().insert(name.into(), value);
        }
    }
    found
}

fn check(source: Source, format: Format, architecture: &str, limits: &BTreeMap<String, Needs>) -> Vec<String> {
    let compiled = compile(source, format, architecture).unwrap();
    let (found, mut wrong) = (needs(&compiled.log), Vec::new());
    for kernel in source.kernels() {
        let entry = format!("{kernel}_{}", format.name());
        let used = found.get(&entry).unwrap_or_else(|| panic!("nothing is said of {entry}: {}", compiled.log));
        assert_eq!(used.len(), 4, "{entry}: {}", compiled.log);
        println!("{architecture} {entry}: {used:?}");
        for (name, limit) in limits.get(kernel).unwrap_or(&limits["default"]) {
            if used[name] > *limit {
                wrong.push(format!("{entry} for {architecture}: {name} {}, at most {limit}", used[name]));
            }
        }
    }
    wrong
}

#[test]
fn every_kernel_compiles_within_its_limits() {
    if let Err(fault) = compile(SOURCES[0], Format::F64, ARCHITECTURES[0])
        && fault.text.contains("not found")
    {
        return eprintln!("skipped: {fault}");
    }
    let limits = limits();
    let all = SOURCES.iter().flat_map(|source| Format::ALL.map(|format| (*source, format)));
    let all = all.filter(|(source, format)| source.has(*format));
    let all: Vec<_> =
        all.flat_map(|(source, format)| ARCHITECTURES.map(|architecture| (source, format, architecture))).collect();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((source, format, architecture)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let found = check(*source, *format, architecture, &limits);
            wrong.lock().unwrap().extend(found);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn limits_are_of_kernels_that_there_are() {
    let kernels: Vec<&str> = SOURCES.iter().flat_map(|source| source.kernels()).collect();
    let unknown: Vec<String> =
        limits().into_keys().filter(|name| name != "default" && !kernels.contains(&name.as_str())).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn a_compilers_log_is_read() {
    let log = "ptxas info    : Compiling entry function 'a_f64' for 'sm_90'\n\
               ptxas         .     8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n\
               ptxas info    : Used 44 registers, used 1 barriers, 2048 bytes smem\n\
               ptxas info    : Compiling entry function 'b_f64' for 'sm_90'\n\
               ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
               ptxas info    : Used 7 registers, used 0 barriers\n";
    let of = |values: [u64; 4]| -> Needs {
        ["registers", "shared", "spills", "stack"].map(str::to_owned).into_iter().zip(values).collect()
    };
    let expected = [("a_f64".to_owned(), of([44, 2048, 16, 8])), ("b_f64".to_owned(), of([7, 0, 0, 0]))];
    assert_eq!(needs(log), expected.into_iter().collect());
}
