//! Where what is found out about devices is kept.

use std::env;
use std::path::PathBuf;

/// A folder of what is kept: `quadrille/...` of the user's cache; `None`: the environment names neither it nor a home.
pub fn folder(of: &str) -> Option<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?;
    Some(cache.join("quadrille").join(of))
}
