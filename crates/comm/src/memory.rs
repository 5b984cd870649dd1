//! What the system says of memory.

/// Bytes of memory that are free for programs; `None` on systems that do not say so.
pub fn available() -> Option<u64> {
    bytes("/proc/meminfo", "MemAvailable")
}

/// Bytes of memory that this process has had at most; `None` on systems that do not say so.
pub fn peak() -> Option<u64> {
    bytes("/proc/self/status", "VmHWM")
}

/// The bytes of a line such as `MemAvailable:  1234 kB` of a file under `/proc`.
fn bytes(file: &str, field: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}
