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

/// What a compiler's log says of products of warpgroups that wait where the source does not: for all of them (C7510), or for
/// those whose registers are used too early (C7517).
fn serialized(log: &str) -> impl Iterator<Item = &str> {
    let words = ["C7510", "C7517", "Potential Performance Loss", "warpgroup.wait is injected"];
    log.lines().filter(move |line| words.iter().any(|word| line.contains(word)))
}

fn check(source: Source, format: Format, architecture: &str, limits: &BTreeMap<String, Needs>) -> Vec<String> {
    let compiled = compile(source, format, architecture).unwrap();
    let found = needs(&compiled.log);
    let mut wrong = Vec::new();
    wrong.extend(serialized(&compiled.log).map(|line| format!("{} for {architecture}: {line}", source.name)));
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
    let all = all.flat_map(|(source, format)| ARCHITECTURES.map(|architecture| (source, format, architecture)));
    let has = |source: Source, architecture| source.architecture().is_none_or(|only| only == architecture);
    let all: Vec<_> = all.filter(|(source, _, architecture)| has(*source, *architecture)).collect();
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
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

/// A compiler's word that it waits for products is heard, where sums are read before they are waited for.
#[test]
fn products_that_the_compiler_waits_for_are_found() {
    let with = |wait: &str| {
        let text = format!(
            "#include \"wgmma.cuh\"\n\
             KERNEL(control)(float* y, i64 a) {{\n\
                 float sums[8][4] = {{}};\n\
                 settle(sums);\n\
                 begin_products();\n\
                 multiply(sums, (u64)a, (u64)a, true);\n\
                 {wait}\n\
                 for (int i = 0; i < 32; i++) sums[i / 4][i % 4] *= 2.0f;\n\
                 settle(sums);\n\
                 multiply(sums, (u64)a, (u64)a, true);\n\
                 commit_products();\n\
                 wait_for_products<0>();\n\
                 settle(sums);\n\
                 for (int i = 0; i < 32; i++) y[i] = sums[i / 4][i % 4];\n\
             }}\n"
        );
        let source = Source { name: "control.cu", text: text.leak() };
        compile(source, Format::Mixed, "sm_90a").map(|compiled| compiled.log)
    };
    match with("commit_products(); wait_for_products<0>(); settle(sums); begin_products();") {
        Err(fault) if fault.text.contains("not found") => return eprintln!("skipped: {fault}"),
        log => assert_eq!(serialized(&log.unwrap()).count(), 0),
    }
    assert!(serialized(&with("").unwrap()).count() > 0);
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
