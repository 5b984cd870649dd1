//! Whether tiles cover a matrix exactly once.

use std::collections::BTreeMap;

use crate::TensorShape;
use crate::tile::Place;

/// Checks that every number of `shape` lies in exactly one of `places`. Takes `n log n` steps for `n` places.
///
/// # Errors
/// Names a tile that is empty or reaches beyond the tensor, two tiles that overlap, or how many numbers are in none.
pub(crate) fn check(shape: &TensorShape, places: &[Place]) -> Result<(), String> {
    let mut covered = 0_u128;
    for place in places {
        let fits = |first: usize, count: usize, all: usize| {
            count > 0 && first.checked_add(count).is_some_and(|end| end <= all)
        };
        if !fits(place.row, place.rows, shape.rows) || !fits(place.col, place.cols, shape.cols) {
            return Err(format!("the tile of {place} is not inside its {} x {} numbers", shape.rows, shape.cols));
        }
        covered += place.rows as u128 * place.cols as u128;
    }
    check_overlap(places)?;
    // Inside, and without overlap: it is the whole if it is as large.
    let all = shape.rows as u128 * shape.cols as u128;
    if covered == all { Ok(()) } else { Err(format!("{} of its {all} numbers are in no tile", all - covered)) }
}

/// A line sweeps over the rows: the tiles that it crosses must have columns of their own.
fn check_overlap(places: &[Place]) -> Result<(), String> {
    let mut starts: Vec<&Place> = places.iter().collect();
    starts.sort_unstable_by_key(|place| place.row);
    let mut ends: Vec<&Place> = starts.clone();
    ends.sort_unstable_by_key(|place| place.row + place.rows);
    let mut ends = ends.into_iter().peekable();
    let mut crossed: BTreeMap<usize, &Place> = BTreeMap::new();
    for place in starts {
        while let Some(ended) = ends.next_if(|ended| ended.row + ended.rows <= place.row) {
            crossed.remove(&ended.col);
        }
        let before = crossed.range(..=place.col).next_back().map(|(_, before)| *before);
        let after = crossed.range(place.col..).next().map(|(_, after)| *after);
        let overlaps = |left: &Place, right: &Place| right.col < left.col + left.cols;
        let other = before.filter(|before| overlaps(before, place)).or(after.filter(|after| overlaps(place, after)));
        if let Some(other) = other {
            return Err(format!("the tiles of {other} and {place} overlap"));
        }
        crossed.insert(place.col, place);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shape(rows: usize, cols: usize) -> TensorShape {
        TensorShape { name: "x".to_owned(), rows, cols }
    }

    fn place((row, col, rows, cols): (usize, usize, usize, usize)) -> Place {
        Place { row, col, rows, cols }
    }

    /// Paints every tile: as plain as can be.
    fn painted(shape: &TensorShape, places: &[Place]) -> bool {
        let mut count = vec![0; shape.rows * shape.cols];
        for place in places {
            if place.rows == 0 || place.cols == 0 {
                return false;
            }
            for row in place.row..place.row + place.rows {
                for col in place.col..place.col + place.cols {
                    if row >= shape.rows || col >= shape.cols {
                        return false;
                    }
                    count[row * shape.cols + col] += 1;
                }
            }
        }
        count.iter().all(|count| *count == 1)
    }

    #[test]
    fn faults_are_named() {
        let message = |places: &[(usize, usize, usize, usize)]| {
            check(&shape(4, 6), &places.iter().copied().map(place).collect::<Vec<_>>()).unwrap_err()
        };
        assert_eq!(message(&[]), "24 of its 24 numbers are in no tile");
        assert_eq!(message(&[(0, 0, 4, 5)]), "4 of its 24 numbers are in no tile");
        assert_eq!(message(&[(0, 0, 4, 6), (0, 0, 4, 6)]), "the tiles of 4 x 6 at 0,0 and 4 x 6 at 0,0 overlap");
        assert_eq!(message(&[(1, 1, 2, 2), (2, 0, 2, 4)]), "the tiles of 2 x 2 at 1,1 and 2 x 4 at 2,0 overlap");
        assert_eq!(message(&[(0, 0, 5, 6)]), "the tile of 5 x 6 at 0,0 is not inside its 4 x 6 numbers");
        assert_eq!(message(&[(0, 0, 0, 6)]), "the tile of 0 x 6 at 0,0 is not inside its 4 x 6 numbers");
        assert!(message(&[(usize::MAX, 0, usize::MAX, 1)]).contains("not inside"));
        let largest = shape(usize::MAX, usize::MAX);
        check(&largest, &[place((0, 0, usize::MAX, usize::MAX))]).unwrap();
    }

    proptest! {
        #[test]
        fn any_tiles_are_judged_as_by_painting(
            cut in (0_usize..5, 0_usize..6),
            mut tiles in prop::collection::vec((0_usize..5, 0_usize..7, 0_usize..4, 0_usize..4), 0..6),
            whole in any::<bool>(),
        ) {
            let shape = shape(4, 6);
            if whole {
                // Four quarters, which a further tile or none may follow: most random tiles alone leave gaps.
                let row = cut.0.min(4);
                let col = cut.1.min(6);
                tiles.truncate(tiles.len() / 4);
                tiles.extend([(0, 0, row, col), (row, 0, 4 - row, col), (0, col, row, 6 - col), (row, col, 4 - row, 6 - col)]);
                tiles.retain(|(_, _, rows, cols)| rows * cols > 0);
            }
            let places: Vec<Place> = tiles.into_iter().map(place).collect();
            prop_assert_eq!(check(&shape, &places).is_ok(), painted(&shape, &places));
        }
    }
}
