//! Which memory of other devices a rank's kernels may use, and what goes through memory of its own instead.

/// The devices, by number, whose memory each device's kernels are to reach: of every device that ranks have, those others for
/// which `can(device, other)` says that they may.
pub fn reached(devices: &[usize], can: impl Fn(usize, usize) -> bool) -> Vec<(usize, usize)> {
    let mut devices = devices.to_vec();
    devices.sort_unstable();
    devices.dedup();
    let pairs = devices.iter().flat_map(|device| devices.iter().map(move |other| (*device, *other)));
    pairs.filter(|(device, other)| device != other && can(*device, *other)).collect()
}

/// How arrays on several devices are reduced by a kernel of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    /// Of each source the slot of the rank's own memory that it is copied to before; `None`: the kernel reads it where it is.
    pub from: Vec<Option<usize>>,
    /// The destinations that the kernel writes.
    pub written: Vec<usize>,
    /// The slot that the kernel writes, where it reaches no destination.
    pub result: Option<usize>,
    /// The destinations that the result is copied to afterwards.
    pub copied: Vec<usize>,
    /// How many slots there are, each of the size of an array.
    pub slots: usize,
}

/// What is copied where a kernel reaches only some of the sources and destinations.
pub fn stage(from: &[bool], to: &[bool]) -> Staged {
    let mut slots = 0;
    let mut slot = || {
        slots += 1;
        slots - 1
    };
    let from = from.iter().map(|is_reached| if *is_reached { None } else { Some(slot()) }).collect();
    let (written, copied): (Vec<usize>, Vec<usize>) = (0..to.len()).partition(|at| to[*at]);
    let result = if written.is_empty() && !copied.is_empty() { Some(slot()) } else { None };
    Staged { from, written, result, copied, slots }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_ranks_reach_those_that_they_may() {
        // Neighbours reach each other; the device of number 1 has no rank.
        let near = |a: usize, b: usize| a.abs_diff(b) == 1;
        assert_eq!(reached(&[2, 0, 3, 2, 0], near), [(2, 3), (3, 2)]);
        // One way is not the other.
        assert_eq!(reached(&[0, 1], |a, b| a < b), [(0, 1)]);
        assert_eq!(reached(&[0, 1, 2], |_, _| true), [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]);
        // A device reaches itself without being asked to.
        assert_eq!(reached(&[5, 5, 5], |_, _| panic!("there is no other")), []);
    }

    #[test]
    fn what_is_within_reach_is_not_copied() {
        let all = stage(&[true; 3], &[true; 2]);
        assert_eq!(all, Staged { from: vec![None; 3], written: vec![0, 1], result: None, copied: vec![], slots: 0 });
    }

    #[test]
    fn every_source_out_of_reach_has_a_slot_of_its_own() {
        let staged = stage(&[false, true, false], &[true]);
        assert_eq!((staged.from, staged.slots), (vec![Some(0), None, Some(1)], 2));
    }

    #[test]
    fn a_result_is_copied_from_a_destination_within_reach_or_from_a_slot() {
        let some = stage(&[true], &[false, true, false]);
        assert_eq!((some.written, some.result, some.copied, some.slots), (vec![1], None, vec![0, 2], 0));
        let none = stage(&[false], &[false, false]);
        assert_eq!((none.written, none.result, none.copied, none.slots), (vec![], Some(1), vec![0, 1], 2));
        assert_eq!(stage(&[true], &[]).result, None);
    }
}
