//! Products of warpgroups alone, whose operands are said to lie by words written out: what a device gives here and not in
//! attention is attention's fault, what it does not give here is that of the words.

use half::bf16;
use quadrille_cuda::{Format, Launch};

use crate::support::{Device, in_every_seed, numbers};

/// What is summed over, and rows of the left operand (`mixed_product_wgmma.cu`).
const DEPTH: usize = 64;
const ROWS: usize = 128;

/// Whole numbers: sums are exact in every order.
fn whole(name: u64, len: usize) -> Vec<bf16> {
    numbers::<f32>(name, len).into_iter().map(|x| bf16::from_f32((4.0 * x).round())).collect()
}

/// Of so many columns, which lie by rows or by columns; by rows the left operand comes in registers.
fn check(kernel: &'static str, columns: usize, by_rows: bool) {
    if !Device::new(1).driver.device().has_wgmma() {
        return eprintln!("skipped: the device has no tensor cores by warpgroups");
    }
    let a = whole(1, ROWS * DEPTH);
    let b = whole(2, DEPTH * columns);
    let of_b = |k: usize, col: usize| b[if by_rows { k * columns + col } else { col * DEPTH + k }].to_f32();
    let sum = |row: usize, col: usize| (0..DEPTH).map(|k| a[row * DEPTH + k].to_f32() * of_b(k, col)).sum();
    let expected: Vec<f32> = (0..ROWS * columns).map(|at| sum(at / columns, at % columns)).collect();
    let shared = (DEPTH * (columns + if by_rows { 0 } else { ROWS }) * size_of::<bf16>()) as u32;
    let got = in_every_seed(|device| {
        let a = device.up(&a);
        let b = device.up(&b);
        let c = device.poison::<f32>(ROWS * columns);
        let words = [a, b, c].map(|array| array.at.0);
        // SAFETY: the kernel takes these three, of so many numbers.
        unsafe {
            device
                .driver
                .launch(device.stream, &Launch { kernel, format: Format::Mixed, blocks: 1, shared, words: &words })
        }
        .unwrap();
        device.down::<f32>(c)
    });
    let wrong: Vec<usize> = (0..expected.len()).filter(|at| got[*at] != expected[*at]).collect();
    let first = wrong.first().map(|at| (at / columns, at % columns, got[*at], expected[*at]));
    assert!(
        first.is_none(),
        "{} of {} are wrong, first (row, column, got, expected) {first:?}",
        wrong.len(),
        expected.len()
    );
}

#[test]
fn by_columns() {
    check("product_by_columns_64_wgmma", 64, false);
    check("product_by_columns_128_wgmma", 128, false);
}

#[test]
fn by_rows() {
    check("product_by_rows_64_wgmma", 64, true);
    check("product_by_rows_128_wgmma", 128, true);
}
