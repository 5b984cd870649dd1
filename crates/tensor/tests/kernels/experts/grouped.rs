use crate::stored::{bits, numbers};
use crate::support::{assert_close, on_any_threads, random, wide};
use half::{bf16, f16};
use proptest::prelude::*;
use quadrille_tensor::*;

/// Products of blocks whose runs have the given lengths [segments, blocks].
#[derive(Clone, Debug)]
struct Case {
    shape: GroupedShape,
    blocks: usize,
    runs: Vec<usize>,
}

impl Case {
    fn new(stored: Transpose, (n, k): (usize, usize), blocks: usize, runs: &[usize]) -> Self {
        Case { shape: GroupedShape { stored, n, k }, blocks, runs: runs.to_vec() }
    }

    fn segments(&self) -> Segments {
        Segments::new(self.blocks, &self.runs)
    }

    /// By row its block.
    fn rows(&self) -> Vec<usize> {
        let run = |(i, len): (usize, &usize)| std::iter::repeat_n(i % self.blocks, *len);
        self.runs.iter().enumerate().flat_map(run).collect()
    }

    /// Lengths of A, B and C.
    fn lengths(&self) -> (usize, usize, usize) {
        let GroupedShape { stored, n, k } = self.shape;
        let rows = self.rows().len();
        let weights = self.blocks * k * n;
        if stored == Transpose::Tn { (rows * k, rows * n, weights) } else { (rows * k, weights, rows * n) }
    }

    /// The products by loops, added to c.
    fn plain(&self, a: &[f64], b: &[f64], mut c: Vec<f64>) -> Vec<f64> {
        let GroupedShape { stored, n, k } = self.shape;
        for (row, block) in self.rows().into_iter().enumerate() {
            for i in 0..k {
                for j in 0..n {
                    let x = a[row * k + i];
                    let y = (block * k + i) * n + j;
                    match stored {
                        Transpose::Nn => c[row * n + j] += x * b[y],
                        Transpose::Nt => c[row * n + j] += x * b[(block * n + j) * k + i],
                        Transpose::Tn => c[y] += x * b[row * n + j],
                    }
                }
            }
        }
        c
    }
}

fn check<T: Element>(case: &Case, accumulate: bool) {
    let lengths = case.lengths();
    let a = random::<T>(1, lengths.0);
    let b = random::<T>(2, lengths.1);
    let old = random::<T>(3, lengths.2);
    let found = on_any_threads(|pool| {
        let mut c = if accumulate { old.clone() } else { vec![T::from_f64(f64::NAN); old.len()] };
        grouped_matmul(pool, case.shape, &case.segments(), &a, &b, &mut c, accumulate);
        c
    });
    let start = if accumulate { wide(&old) } else { vec![0.0; old.len()] };
    assert_close(&format!("{case:?}"), &found, &case.plain(&wide(&a), &wide(&b), start));
}

/// Small integers, whose sums are exact in any order: what is stored is the sum, rounded once.
fn rounds_once<S: Stored<Real = f32>, C: Stored<Real = f32>>(case: &Case, accumulate: bool) {
    let lengths = case.lengths();
    let values = |seed, len| numbers::<f32>(seed, len).into_iter().map(f32::round).collect::<Vec<_>>();
    let a = values(1, lengths.0);
    let b = values(2, lengths.1);
    let old = values(3, lengths.2);
    let narrow = |x: &[f32]| x.iter().map(|x| S::rounded(*x)).collect::<Vec<_>>();
    let run = |threads: usize| {
        let mut c: Vec<C> = old.iter().map(|x| C::rounded(if accumulate { *x } else { f32::NAN })).collect();
        grouped_matmul(&Pool::new(threads), case.shape, &case.segments(), &narrow(&a), &narrow(&b), &mut c, accumulate);
        c
    };
    let start = if accumulate { wide(&old) } else { vec![0.0; old.len()] };
    let expected = case.plain(&wide(&a), &wide(&b), start);
    let expected: Vec<C> = expected.into_iter().map(|x| C::rounded(x as f32)).collect();
    let found = run(1);
    // As numbers: a sum of zeros may have either sign.
    assert_eq!(found, expected, "{} to {} {case:?}", S::NAME, C::NAME);
    for threads in [2, 4] {
        assert!(bits(&found) == bits(&run(threads)), "{} to {} {case:?} with {threads} threads", S::NAME, C::NAME);
    }
}

fn check_all(case: &Case) {
    for accumulate in [false, true] {
        check::<f32>(case, accumulate);
        check::<f64>(case, accumulate);
        rounds_once::<bf16, bf16>(case, accumulate);
        rounds_once::<bf16, f32>(case, accumulate);
        rounds_once::<f16, f16>(case, accumulate);
    }
}

#[test]
fn products_of_experts_equal_loops_at_the_edges_of_tiles() {
    // Blocks, segments, rows of a piece, n, k.
    let sizes = [
        (0, 1, 3, 4, 5),
        (2, 0, 3, 4, 5),
        (2, 3, 0, 4, 5),
        (2, 3, 4, 0, 5),
        (2, 3, 4, 5, 0),
        (1, 1, 1, 1, 1),
        (3, 1, 49, 65, 2),
        (3, 4, 47, 64, 9),
        (2, 5, 13, 127, 33),
        (1, 3, 171, 63, 5),
        (2, 1, 513, 17, 3),
        (2, 2, 20, 257, 40),
        (2, 2, 9, 20, 530),
        (2, 300, 2, 20, 49),
        (5, 2, 1, 9, 10),
    ];
    for (blocks, segments, chunk, n, k) in sizes {
        for stored in Transpose::ALL {
            check_all(&Case::new(stored, (n, k), blocks, &vec![chunk; blocks * segments]));
        }
    }
}

/// Blocks and the lengths of their runs; some blocks have no rows, and many runs have none.
fn tables() -> impl Strategy<Value = (usize, Vec<usize>)> {
    let length = prop_oneof![2 => Just(0), 3 => 1..9_usize, 2 => 9..70_usize];
    let table = (1..6_usize, 1..7_usize).prop_flat_map(move |(blocks, segments)| {
        let runs = prop::collection::vec(length.clone(), blocks * segments);
        (Just(blocks), runs, prop::collection::vec(0..4_usize, blocks))
    });
    table.prop_map(|(blocks, mut runs, present)| {
        runs.iter_mut().enumerate().filter(|(i, _)| present[i % blocks] == 0).for_each(|(_, len)| *len = 0);
        (blocks, runs)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn products_of_experts_equal_loops_over_runs_of_any_length(
        (blocks, runs) in tables(),
        (n, k) in (0..150_usize, 0..80_usize),
        layout in 0..3_usize,
    ) {
        check_all(&Case::new(Transpose::ALL[layout], (n, k), blocks, &runs));
    }

    #[test]
    fn how_rows_are_cut_into_segments_changes_no_bit_of_a_weight_gradient(
        (blocks, runs) in tables(),
        (n, k) in (1..150_usize, 1..80_usize),
    ) {
        let cut = Case::new(Transpose::Tn, (n, k), blocks, &runs);
        let mut lens = vec![0; blocks];
        runs.iter().enumerate().for_each(|(i, len)| lens[i % blocks] += len);
        let whole = Case { runs: lens, ..cut.clone() };
        cut_changes_no_bit::<f32>(&cut, &whole);
        cut_changes_no_bit::<f64>(&cut, &whole);
    }
}

/// The weight gradients of rows that are cut, and of the same rows block by block.
fn cut_changes_no_bit<T: Element>(cut: &Case, whole: &Case) {
    let GroupedShape { n, k, .. } = cut.shape;
    let (len_a, len_b, len_c) = cut.lengths();
    let a = random::<T>(1, len_a);
    let b = random::<T>(2, len_b);
    let run = |case: &Case, a: &[T], b: &[T]| {
        let mut c = vec![T::from_f64(f64::NAN); len_c];
        grouped_matmul(&Pool::new(2), case.shape, &case.segments(), a, b, &mut c, false);
        wide(&c)
    };
    let blocks = cut.rows();
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    order.sort_by_key(|row| blocks[*row]);
    let sorted = |x: &[T], cols: usize| {
        order.iter().flat_map(|row| x[row * cols..(row + 1) * cols].to_vec()).collect::<Vec<T>>()
    };
    assert!(run(cut, &a, &b) == run(whole, &sorted(&a, k), &sorted(&b, n)), "{} {cut:?}", T::NAME);
}

#[test]
fn a_table_of_equal_lengths_is_equal_segments() {
    assert_eq!(Segments::new(3, &[7; 12]), Segments::equal(3, 4, 7));
    assert_eq!(Segments::new(0, &[]), Segments::equal(0, 4, 7));
}

/// Also of what is not a number, and of a zero with a sign.
#[test]
fn a_weight_gradient_of_no_rows_leaves_what_it_is_added_to() {
    let case = Case::new(Transpose::Tn, (3, 2), 3, &[2, 0, 1]);
    let a = random::<f32>(1, 6);
    let b = random::<f32>(2, 9);
    let mut c = [-0.0, f32::NAN, f32::INFINITY].repeat(6);
    let old = c.clone();
    grouped_matmul(&Pool::new(2), case.shape, &case.segments(), &a, &b, &mut c, true);
    assert_eq!(bits(&c[6..12]), bits(&old[6..12]));
    grouped_matmul(&Pool::new(2), case.shape, &case.segments(), &a, &b, &mut c, false);
    assert_eq!(bits(&c[6..12]), [0; 6]);
}

#[test]
fn one_block_of_one_segment_is_a_product() {
    let m = 70;
    let n = 65;
    let k = 33;
    for stored in Transpose::ALL {
        let a = random::<f64>(1, m * k);
        let b = random::<f64>(2, if stored == Transpose::Tn { m * n } else { k * n });
        let shape = GroupedShape { stored, n, k };
        let rows = Segments::equal(1, 1, m);
        let product = match stored {
            Transpose::Tn => ProductShape { stored, m: k, n, k: m },
            _ => ProductShape { stored, m, n, k },
        };
        let mut found = vec![f64::NAN; product.m * n];
        let mut expected = found.clone();
        grouped_matmul(&Pool::new(1), shape, &rows, &a, &b, &mut found, false);
        matmul(&Pool::new(1), product, &a, &b, &mut expected, false);
        assert_close(&format!("{shape:?}"), &found, &expected);
    }
}
