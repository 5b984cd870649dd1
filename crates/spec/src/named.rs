//! Choices that are read and printed by their names.

use crate::SpecError;

/// The choice called `name`.
///
/// # Errors
/// There is none of that name; lists all of them.
pub fn by_name<T: Copy>(what: &'static str, name: &str, known: &[(&str, T)]) -> Result<T, SpecError> {
    known.iter().find(|(known, _)| *known == name).map(|(_, choice)| *choice).ok_or_else(|| SpecError::Unknown {
        what,
        name: name.to_owned(),
        known: known.iter().map(|(name, _)| (*name).to_owned()).collect(),
    })
}

/// Reads and prints the choices of a type by their names: `named!(Norm, "norm", { "layer" => Layer, "rms" => Rms })`.
#[macro_export]
macro_rules! named {
    ($type:ident, $what:literal, { $($name:literal => $choice:ident),+ $(,)? }) => {
        impl $type {
            /// Every choice with its name.
            pub const ALL: [(&'static str, Self); [$($name),+].len()] = [$(($name, Self::$choice)),+];
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(match self {
                    $(Self::$choice => $name),+
                })
            }
        }

        impl ::std::str::FromStr for $type {
            type Err = $crate::SpecError;

            fn from_str(text: &str) -> ::std::result::Result<Self, $crate::SpecError> {
                $crate::by_name($what, text, &Self::ALL)
            }
        }
    };
}
