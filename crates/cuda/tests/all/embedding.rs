//! Token and position embeddings, rotary positions.

use quadrille_cuda::{Places, Positions, Rows};
use quadrille_tensor::{
    ContextPart, Element, GroupShape, Rotary, Shape, TableShape, add_positions, embed_backward, embed_forward,
    positions_backward, rotate,
};

use crate::support::{Value, equal, in_each_format, in_every_seed, numbers, pool};

const COLS: usize = 37;
const ROWS: usize = 40;
/// Rows of the table on this rank, from the token START on.
const COUNT: usize = 11;
const START: usize = 5;

fn tokens() -> Vec<u32> {
    (0..ROWS as u32).map(|row| row * 7 % 23).collect()
}

fn tokens_of_a_table<S: Value>() {
    let tokens = tokens();
    let table = numbers::<S>(1, COUNT * COLS);
    let dy = numbers::<S>(2, ROWS * COLS);
    let shape = TableShape { rows: ROWS, cols: COLS, start: START };
    let mut y = dy.clone();
    embed_forward(&pool(), shape, &tokens, &table, &mut y);
    let places = Places::new(COUNT, ROWS, |row| (tokens[row] as usize).wrapping_sub(START));
    let before = numbers::<S::Wide>(3, COUNT * COLS);
    for accumulate in [false, true] {
        let mut stored = table.clone();
        let mut reals = before.clone();
        embed_backward(&pool(), shape, &tokens, &dy, &mut stored, accumulate);
        embed_backward(&pool(), shape, &tokens, &dy, &mut reals, accumulate);
        let got = in_every_seed(|device| {
            let queue = device.queue();
            let dy = device.up(&dy);
            let y = device.poison::<S>(ROWS * COLS);
            let firsts = device.up(&places.firsts);
            let order = device.up(&places.order);
            let stored = if accumulate { device.up(&table) } else { device.poison::<S>(COUNT * COLS) };
            let reals = if accumulate { device.up(&before) } else { device.poison::<S::Wide>(COUNT * COLS) };
            queue.embed_forward(shape, device.up(&tokens), device.up(&table), y).unwrap();
            queue.add_rows(COLS, firsts, order, dy, stored, accumulate).unwrap();
            queue.add_rows(COLS, firsts, order, dy, reals, accumulate).unwrap();
            ([y, stored].map(|x| device.down::<S>(x)), device.down::<S::Wide>(reals))
        });
        [&y, &stored].iter().zip(&got.0).for_each(|(expected, got)| equal(got, expected));
        equal(&got.1, &reals);
    }
}

#[test]
fn rows_are_sorted_by_place_and_stay_in_order() {
    let places = Places::new(3, 6, |row| [2, 0, 9, 2, usize::MAX, 0][row]);
    assert_eq!(places, Places { firsts: vec![0, 2, 2, 4], order: vec![1, 5, 0, 3] });
}

/// Rows of a part of longer sequences, and those of a pass of generation, some of which lie beyond the cache.
fn cases() -> [(Rows, Option<Vec<u32>>, usize); 2] {
    let part = ContextPart { part: 1, parts: 2 };
    let of_part = Rows { first_sequence: 2, first: 3, part, seq_len: 24 };
    let of_pass = Rows { first: 0, ..Rows::whole(5) };
    [(of_part, None, 24), (of_pass, Some((0..8).map(|i| 3 * i).collect()), 20)]
}

/// The position of a row, and the row of its angles.
fn place(rows: Rows, starts: &Option<Vec<u32>>, capacity: usize, row: usize) -> (usize, usize) {
    let tokens = rows.part.tokens(rows.seq_len);
    let sequence = rows.first_sequence + (rows.first + row) / tokens;
    let token = (rows.first + row) % tokens;
    let position = rows.part.position(token, rows.seq_len);
    let Some(starts) = starts else { return (position, token) };
    let position = (starts[sequence] as usize + position).min(capacity - 1);
    (position, position)
}

fn positions<S: Value>() {
    for (rows, starts, capacity) in cases() {
        let x = numbers::<S>(1, ROWS * COLS);
        let table = numbers::<S>(2, capacity * COLS);
        let mut y = x.clone();
        let shape = Shape { rows: ROWS, cols: COLS };
        let position = |row| place(rows, &starts, capacity, row).0;
        add_positions(&pool(), shape, &mut y, &table, position);
        let mut gradient = table.clone();
        positions_backward(&pool(), shape, &x, &mut gradient, position, false);
        let places = Places::new(capacity, ROWS, position);
        let got = in_every_seed(|device| {
            let queue = device.queue();
            let y = device.up(&x);
            let dtable = device.poison::<S>(capacity * COLS);
            let at = Positions { rows, starts: starts.as_ref().map(|starts| device.up(starts)), capacity };
            queue.add_positions(shape, y, device.up(&table), at).unwrap();
            let firsts = device.up(&places.firsts);
            let order = device.up(&places.order);
            queue.add_rows(COLS, firsts, order, device.up(&x), dtable, false).unwrap();
            [y, dtable].map(|x| device.down::<S>(x))
        });
        [&y, &gradient].iter().zip(&got).for_each(|(expected, got)| equal(got, expected));
    }
}

fn rotary<S: Value>() {
    let shape = GroupShape { rows: ROWS, groups: 2, heads: 3, head_dim: 8, value_dim: 5 };
    let frequencies = [1.0, 0.3, 0.1];
    let x = numbers::<S>(1, ROWS * shape.groups * shape.group());
    for (rows, starts, capacity) in cases() {
        let of_rows: Vec<usize> = match &starts {
            Some(_) => (0..capacity).collect(),
            None => (0..rows.part.tokens(rows.seq_len)).map(|token| rows.part.position(token, rows.seq_len)).collect(),
        };
        let angles = Rotary::new(shape.head_dim, &frequencies, of_rows.iter().copied());
        let table: Vec<S::Wide> = of_rows
            .iter()
            .flat_map(|at| {
                let angle = |frequency: &f64| *at as f64 * frequency;
                let cosines = frequencies.map(|frequency| angle(&frequency).cos());
                cosines.into_iter().chain(frequencies.map(|frequency| angle(&frequency).sin())).collect::<Vec<_>>()
            })
            .map(S::Wide::from_f64)
            .collect();
        for back in [false, true] {
            let mut y = x.clone();
            rotate(&pool(), shape, &angles, |row| place(rows, &starts, capacity, row).1, &mut y, back);
            let got = in_every_seed(|device| {
                let at = Positions { rows, starts: starts.as_ref().map(|starts| device.up(starts)), capacity };
                let y = device.up(&x);
                let table = device.up(&table);
                device.queue().rotate(shape, frequencies.len(), table, at, y, back).unwrap();
                device.down::<S>(y)
            });
            equal(&got, &y);
        }
    }
}

in_each_format!(tokens_of_a_table positions rotary);
