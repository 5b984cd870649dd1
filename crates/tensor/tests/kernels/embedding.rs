use crate::support::{assert_close, on_any_threads, random, wide};
use quadrille_tensor::*;

fn check<T: Element>(rows: usize, cols: usize, count: usize, start: usize) {
    let table = random::<T>(1, count * cols);
    let dy = random::<T>(2, rows * cols);
    let old = random::<T>(3, count * cols);
    // Some tokens lie before and some after this rank's rows, and several repeat.
    let tokens: Vec<u32> = (0..rows).map(|i| (i * i % (start + count + 3)) as u32).collect();
    let local = |row: usize| (tokens[row] as usize).checked_sub(start).filter(|t| *t < count);
    let y = on_any_threads(|pool| {
        let mut y = vec![T::ONE; rows * cols];
        embed_forward(pool, TableShape { rows, cols, start }, &tokens, &table, &mut y);
        y
    });
    let expected = |i: usize| local(i / cols).map_or(0.0, |t| table[t * cols + i % cols].to_f64());
    assert_close("embed", &y, &(0..rows * cols).map(expected).collect::<Vec<_>>());
    for accumulate in [false, true] {
        let dtable = on_any_threads(|pool| {
            let mut dtable = old.clone();
            embed_backward(pool, TableShape { rows, cols, start }, &tokens, &dy, &mut dtable, accumulate);
            dtable
        });
        let mut expected = if accumulate { wide(&old) } else { vec![0.0; count * cols] };
        for (row, token) in (0..rows).filter_map(|row| Some((row, local(row)?))) {
            (0..cols).for_each(|col| expected[token * cols + col] += dy[row * cols + col].to_f64());
        }
        assert_close("dtable", &dtable, &expected);
    }
}

#[test]
fn a_ranks_rows_of_the_token_table_are_looked_up_and_added_to() {
    for (rows, cols, count, start) in
        [(1, 1, 1, 0), (20, 5, 7, 3), (300, 260, 400, 0), (300, 260, 100, 40), (256, 256, 257, 0), (4, 3, 0, 2)]
    {
        check::<f32>(rows, cols, count, start);
        check::<f64>(rows, cols, count, start);
    }
}

/// Some of the `count` rows of the table have no position.
fn check_positions<T: Element>(rows: usize, cols: usize, count: usize, position: impl Fn(usize) -> usize + Sync) {
    let x = random::<T>(1, rows * cols);
    let table = random::<T>(2, count * cols);
    let old = random::<T>(3, count * cols);
    let y = on_any_threads(|pool| {
        let mut y = x.clone();
        add_positions(pool, Shape { rows, cols }, &mut y, &table, &position);
        y
    });
    let expected = |i: usize| x[i].to_f64() + table[position(i / cols) * cols + i % cols].to_f64();
    assert_close("positions", &y, &(0..x.len()).map(expected).collect::<Vec<_>>());
    for accumulate in [false, true] {
        let sums = on_any_threads(|pool| {
            let mut sums = old.clone();
            positions_backward(pool, Shape { rows, cols }, &x, &mut sums, &position, accumulate);
            sums
        });
        // In T and in ascending order of rows: the very bits.
        let mut expected = if accumulate { old.clone() } else { vec![T::ZERO; count * cols] };
        for i in 0..x.len() {
            expected[position(i / cols) * cols + i % cols] += x[i];
        }
        assert_eq!(wide(&sums), wide(&expected), "{} dpositions", T::NAME);
    }
}

#[test]
fn positions_are_added_and_their_gradients_summed() {
    for (rows, cols, first_row, seq_len) in
        [(1, 1, 0, 1), (10, 3, 0, 4), (9, 5, 6, 4), (520, 129, 130, 260), (3, 4, 5, 50)]
    {
        let position = |row: usize| (first_row + row) % seq_len;
        check_positions::<f32>(rows, cols, seq_len + 3, position);
        check_positions::<f64>(rows, cols, seq_len + 3, position);
    }
}

#[test]
fn positions_of_parts_of_sequences_are_added_and_summed() {
    for (rows, cols, first_row, seq_len, parts) in [(7, 3, 2, 8, 2), (500, 130, 30, 360, 3)] {
        for part in 0..parts {
            let part = ContextPart { part, parts };
            let position = |row: usize| part.position((first_row + row) % part.tokens(seq_len), seq_len);
            check_positions::<f32>(rows, cols, seq_len, position);
            check_positions::<f64>(rows, cols, seq_len, position);
        }
    }
}
