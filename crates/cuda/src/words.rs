//! Arguments of kernels: words of 8 bytes, one after another, as the kernel's parameters lie in memory.

use quadrille_tensor::ContextPart;

use crate::array::Array;
use crate::driver::Address;

/// What a kernel takes.
pub trait Argument {
    /// Appends its words.
    fn put(&self, words: &mut Vec<u64>);
}

/// Implements [`Argument`] for what is one word.
macro_rules! word {
    ($($type:ty: |$value:ident| $word:expr;)*) => {
        $(impl Argument for $type {
            fn put(&self, words: &mut Vec<u64>) {
                let $value = *self;
                words.push($word);
            }
        })*
    };
}

word! {
    Address: |address| address.0;
    Array: |array| array.at.0;
    Option<Array>: |array| array.map_or(0, |array| array.at.0);
    usize: |number| number as u64;
    i64: |number| number as u64;
    u32: |number| u64::from(number);
    f64: |number| number.to_bits();
    bool: |flag| u64::from(flag);
}

impl Argument for ContextPart {
    fn put(&self, words: &mut Vec<u64>) {
        words.extend([self.part as u64, self.parts as u64]);
    }
}

/// The words of arguments.
macro_rules! words {
    ($($argument:expr),* $(,)?) => {{
        let mut words = Vec::new();
        $($crate::words::Argument::put(&$argument, &mut words);)*
        words
    }};
}
pub(crate) use words;
