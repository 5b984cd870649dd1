//! Numbers of things in words.

/// `1 rank`, `2 ranks`, `2 microbatches`, `2 copies`: a number of things by the name of one.
pub fn counted(number: usize, name: &str) -> String {
    let many = match name.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if name.ends_with("ch") => format!("{name}es"),
        None => format!("{name}s"),
    };
    format!("{number} {}", if number == 1 { name } else { &many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_counted_by_their_names() {
        let of = |name| [1, 2].map(|number| counted(number, name));
        assert_eq!(of("rank"), ["1 rank", "2 ranks"]);
        assert_eq!(of("microbatch"), ["1 microbatch", "2 microbatches"]);
        assert_eq!((counted(0, "copy"), counted(1, "copy")), ("0 copies".to_owned(), "1 copy".to_owned()));
    }
}
