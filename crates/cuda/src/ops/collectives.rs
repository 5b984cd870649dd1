//! What collectives do with the buffers of a group's members.

use crate::array::Array;
use crate::driver::Address;
use crate::queue::{Done, Queue};
use crate::words::{Argument, words};

/// The most members of a group (`MOST_MEMBERS` of `collectives.cu`).
const MOST_MEMBERS: usize = 64;

/// The buffers of members.
struct Members<'a>(&'a [Array]);

impl Argument for Members<'_> {
    fn put(&self, words: &mut Vec<u64>) {
        assert!(self.0.len() <= MOST_MEMBERS, "{} members, at most {MOST_MEMBERS}: reduce in steps", self.0.len());
        self.0.len().put(words);
        (0..MOST_MEMBERS).for_each(|i| self.0.get(i).map_or(Address::NONE, |array| array.at).put(words));
    }
}

impl Queue<'_> {
    /// Every array of `to` = the sum, or the `maximum`, of those of `from` in their order, rounded once; one of `to` may be
    /// one of `from`.
    pub fn reduce(&self, maximum: bool, from: &[Array], to: &[Array]) -> Done {
        let first = from.first().expect("there is something to reduce");
        let same = |array: &Array| (array.len, array.element) == (first.len, first.element);
        assert!(from.iter().chain(to).all(same), "{from:?} {to:?}");
        self.each("reduce", first.element.format(), first.len, &words![Members(from), Members(to), maximum, first.len])
    }
}
