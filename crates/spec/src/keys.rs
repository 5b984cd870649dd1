//! Keys between backticks, by which libraries name what was said: whoever shows their messages calls it as its users do.

/// The message with what `name` gives in place of keys between backticks; what it knows not stays as it is.
pub fn renamed(message: &str, name: impl Fn(&str) -> Option<String>) -> String {
    let mut renamed = String::new();
    let mut rest = message;
    while let Some((before, quoted)) = rest.split_once('`') {
        renamed += before;
        match quoted.split_once('`').and_then(|(key, after)| Some((name(key)?, after))) {
            Some((name, after)) => {
                renamed += &name;
                rest = after;
            }
            None => {
                renamed.push('`');
                rest = quoted;
            }
        }
    }
    renamed + rest
}
