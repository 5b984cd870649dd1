//! Tells the program which commit it is built from, if it is built from a checkout.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let commit = git(&["rev-parse", "--short=10", "HEAD"]).map_or(String::new(), |commit| format!(" ({commit})"));
    // The commit changes with what HEAD names; of a file that is not there Cargo would build every time.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]).map(|path| std::path::absolute(path).unwrap_or_default());
    if let Some(log) = log.filter(|path| path.is_file()) {
        println!("cargo:rerun-if-changed={}", log.display());
    }
    println!("cargo:rustc-env=QUADRILLE_VERSION={version}{commit}");
}

/// What git answers; `None` without git, or outside of a checkout of this crate.
fn git(arguments: &[&str]) -> Option<String> {
    let tracked = Command::new("git").args(["ls-files", "--error-unmatch", "build.rs"]).output().ok()?;
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (tracked.status.success() && output.status.success()).then(|| text.trim().to_owned())
}
