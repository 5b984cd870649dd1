//! Products by plain loops, each element summed in ascending order, or in several parts that are added then: the emulated
//! device's algorithms, which round differently, as those of a library do.

use half::bf16;
use quadrille_tensor::{ProductShape, Stored, Transpose};

use crate::array::{Array, Element};
use crate::driver::{Algorithm, Candidate, Product};

/// Into how many parts sums are cut.
const PARTS: [usize; 3] = [1, 2, 4];

/// The algorithms of a product: one for each number of parts that have something to sum. They need no workspace.
pub fn candidates(shape: ProductShape) -> Vec<Candidate> {
    let algorithm = |parts: usize| Algorithm(std::array::from_fn(|word| if word == 0 { parts as u32 } else { 0 }));
    let parts = PARTS.into_iter().filter(|parts| *parts <= shape.k.max(1));
    parts.map(|parts| Candidate { algorithm: algorithm(parts), workspace: 0 }).collect()
}

/// Whether there is an algorithm that adds a bias: for some sizes there is none, as a library may have none.
pub fn adds_bias(shape: ProductShape) -> bool {
    !shape.n.is_multiple_of(5)
}

/// Computes a product.
///
/// # Safety
/// The operands are there, and C overlaps neither A nor B.
pub unsafe fn run(product: &Product) {
    // SAFETY: the caller's promise; types are those of the arrays.
    unsafe {
        match (product.a.element, product.c.element) {
            (Element::F64, _) => multiply::<f64, f64>(product),
            (Element::F32, _) => multiply::<f32, f32>(product),
            (_, Element::F32) => multiply::<bf16, f32>(product),
            _ => multiply::<bf16, bf16>(product),
        }
    }
}

/// # Safety
/// As [`run`]; elements of A and B are `S`, those of C are `C`.
unsafe fn multiply<S: Stored, C: Stored<Real = S::Real>>(product: &Product) {
    let ProductShape { stored, m, n, k } = product.shape;
    // SAFETY: the caller's promise.
    let (a, b, c) = unsafe { (slice::<S>(product.a), slice::<S>(product.b), slice::<C>(product.c)) };
    let of_a = a.iter().map(|x| x.widen());
    let of_b = b.iter().map(|x| x.widen());
    let a: Vec<S::Real> = of_a.collect();
    let b: Vec<S::Real> = of_b.collect();
    let parts = product.algorithm.map_or(1, |Algorithm(words)| words[0] as usize);
    let mut sums = vec![S::Real::ZERO; n];
    let mut part = vec![S::Real::ZERO; n];
    for row in 0..m {
        sums.fill(S::Real::ZERO);
        for of in 0..parts {
            part.fill(S::Real::ZERO);
            for depth in of * k / parts..(of + 1) * k / parts {
                let left = if stored == Transpose::Tn { a[depth * m + row] } else { a[row * k + depth] };
                for (col, sum) in part.iter_mut().enumerate() {
                    *sum += left * if stored == Transpose::Nt { b[col * k + depth] } else { b[depth * n + col] };
                }
            }
            sums.iter_mut().zip(&part).for_each(|(sum, part)| *sum += *part);
        }
        if let Some(bias) = product.bias {
            // SAFETY: the caller's promise: the bias is of what C has.
            let bias = unsafe { slice::<C>(bias) };
            sums.iter_mut().zip(bias).for_each(|(sum, bias)| *sum += bias.widen());
        }
        for (c, sum) in c[row * n..(row + 1) * n].iter_mut().zip(&sums) {
            *c = C::rounded(if product.accumulate { c.widen() + *sum } else { *sum });
        }
    }
}

/// The elements of an array.
///
/// # Safety
/// They are there, of this type, and used by nobody else for `'a`.
unsafe fn slice<'a, T>(array: Array) -> &'a mut [T] {
    if array.len == 0 {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(array.at.0 as *mut T, array.len) }
}
