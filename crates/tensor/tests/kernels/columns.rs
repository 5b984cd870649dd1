use crate::support::{on_any_threads, random};
use quadrille_tensor::*;

#[test]
fn column_blocks_are_cut_out_and_put_back() {
    for (rows, cols, parts) in
        [(0, 6, 2), (1, 1, 1), (5, 6, 3), (7, 9, 1), (400, 520, 4), (3, 0, 2), (512, 256, 2), (513, 256, 2)]
    {
        let x = random::<f32>(1, rows * cols);
        let width = cols / parts;
        let packed = on_any_threads(|pool| {
            let mut y = vec![0.0; x.len()];
            pack_columns(pool, Shape { rows, cols }, parts, &x, &mut y);
            y
        });
        for part in 0..parts {
            let block = &packed[part * rows * width..(part + 1) * rows * width];
            let sliced = on_any_threads(|pool| {
                let mut y = vec![0.0; rows * width];
                slice_columns(pool, Shape { rows, cols }, part, parts, &x, &mut y);
                y
            });
            assert_eq!(block, sliced);
            for (i, value) in block.iter().enumerate() {
                assert_eq!(*value, x[i / width * cols + part * width + i % width]);
            }
        }
        let whole = on_any_threads(|pool| {
            let mut y = vec![0.0; x.len()];
            unpack_columns(pool, Shape { rows, cols }, parts, &packed, &mut y);
            y
        });
        assert_eq!(whole, x);
    }
}

#[test]
fn a_panel_is_copied_and_stored_without_touching_other_columns() {
    for (rows, cols, first, count) in [
        (0, 4, 1, 2),
        (5, 7, 0, 7),
        (5, 7, 2, 3),
        (3, 4, 4, 0),
        (301, 515, 500, 15),
        (256, 300, 7, 256),
        (257, 257, 1, 256),
    ] {
        let x = random::<f64>(1, rows * cols);
        let new = random::<f64>(2, rows * count);
        let panel = on_any_threads(|pool| {
            let mut y = vec![0.0; rows * count];
            copy_panel_columns(pool, PanelShape { rows, cols, first, count }, &x, &mut y);
            y
        });
        let stored = on_any_threads(|pool| {
            let mut x = x.clone();
            store_panel_columns(pool, PanelShape { rows, cols, first, count }, &new, &mut x);
            x
        });
        for i in 0..rows * cols {
            let row = i / cols;
            let col = i % cols;
            let inside = col.checked_sub(first).filter(|col| *col < count).map(|col| row * count + col);
            assert_eq!(stored[i], inside.map_or(x[i], |at| new[at]));
            inside.into_iter().for_each(|at| assert_eq!(panel[at], x[i]));
        }
    }
}
