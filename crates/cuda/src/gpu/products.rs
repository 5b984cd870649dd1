//! Products by cuBLASLt, with descriptors of our own: sums are never in less than `f32`, and never by TF32.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use cudarc::cublaslt::sys::{self, cublasLtMatmulDescAttributes_t as Of, cublasLtMatmulPreferenceAttributes_t as Wish};
use cudarc::cublaslt::{result, result::CublasError};
use quadrille_tensor::{ProductShape, Transpose};

use super::libraries::CUBLASLT;
use crate::array::{Array, Element};
use crate::driver::{ALIGNED, Address, Algorithm, Candidate, Fault, Product, ProductKind};

/// Bytes of workspace that an algorithm may use.
pub const WORKSPACE: usize = 32 << 20;
/// How many algorithms the library is asked for.
const CANDIDATES: usize = 8;

/// The library's handle, and the algorithms that were chosen.
pub struct Products {
    handle: sys::cublasLtHandle_t,
    /// `None`: the library has none.
    chosen: Mutex<HashMap<Key, Option<sys::cublasLtMatmulAlgo_t>>>,
}

// SAFETY: the library allows calls with one handle from any thread.
unsafe impl Send for Products {}
// SAFETY: as above.
unsafe impl Sync for Products {}

/// What the choice of an algorithm depends on: sizes, elements, and the alignments of A, B and C.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    shape: ProductShape,
    of: Element,
    to: Element,
    alignments: [u32; 3],
    bias: bool,
}

impl Key {
    fn new(product: &Product) -> Self {
        // The largest power of two, up to that of allocations, that divides an address.
        let alignment = |array: Array| 1 << array.at.0.trailing_zeros().min(ALIGNED.trailing_zeros());
        let alignments = [product.a, product.b, product.c].map(alignment);
        let shape = product.shape;
        let of = product.a.element;
        let to = product.c.element;
        let bias = product.bias.is_some();
        Self { shape, of, to, alignments, bias }
    }

    fn of(kind: ProductKind) -> Self {
        let ProductKind { shape, operands, result, bias } = kind;
        Self { shape, of: operands, to: result, alignments: [ALIGNED as u32; 3], bias }
    }
}

fn fault(error: CublasError, of: &str) -> Fault {
    Fault { library: CUBLASLT.name, code: error.0 as i64, text: format!("{error:?}, in {of}") }
}

fn data_type(element: Element) -> sys::cudaDataType {
    match element {
        Element::F64 => sys::cudaDataType::CUDA_R_64F,
        Element::F32 => sys::cudaDataType::CUDA_R_32F,
        Element::Bf16 => sys::cudaDataType::CUDA_R_16BF,
        Element::U32 => panic!("products are of floating-point numbers"),
    }
}

impl Products {
    /// Opens the library.
    pub fn open() -> Result<Self, Fault> {
        CUBLASLT.open()?;
        let handle = result::create_handle().map_err(|error| fault(error, "opening it"))?;
        Ok(Self { handle, chosen: Mutex::default() })
    }

    /// Computes a product that has elements to sum over.
    ///
    /// # Safety
    /// As of [`Driver::product`](crate::Driver::product); the workspace has [`WORKSPACE`] bytes and belongs to the stream.
    pub unsafe fn run(&self, product: &Product, workspace: Address, stream: sys::cudaStream_t) -> Result<(), Fault> {
        let key = Key::new(product);
        let of = |error| fault(error, &format!("{key:?}"));
        let described = Described::new(key).map_err(of)?;
        let algorithm = match product.algorithm {
            Some(algorithm) => to_library(algorithm),
            None => {
                let none = CublasError(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED);
                self.algorithm(key, &described).and_then(|algorithm| algorithm.ok_or(none)).map_err(of)?
            }
        };
        if let Some(bias) = product.bias {
            described.add(bias.at).map_err(of)?;
        }
        let ones = [1.0_f64.to_bits(), u64::from(1.0_f32.to_bits())];
        let beta = u64::from(product.accumulate);
        // One, and one or zero, in the type that sums have.
        let one = ones[usize::from(key.of != Element::F64)];
        let factors = [one, one * beta];
        let [first, second, to] = [product.b, product.a, product.c].map(|array| array.at.0 as *mut c_void);
        // SAFETY: descriptors are those of the operands, which the caller promises.
        unsafe {
            result::matmul(
                self.handle,
                described.product,
                (&raw const factors[0]).cast(),
                (&raw const factors[1]).cast(),
                first,
                described.layouts[0],
                second,
                described.layouts[1],
                to,
                described.layouts[2],
                to,
                described.layouts[2],
                &algorithm,
                workspace.0 as *mut c_void,
                WORKSPACE,
                stream,
            )
        }
        .map_err(of)
    }

    /// The algorithm of a product: the library's first, always the same for a key. `None`: it has none.
    fn algorithm(&self, key: Key, described: &Described) -> Result<Option<sys::cublasLtMatmulAlgo_t>, CublasError> {
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(algorithm) = chosen.get(&key) {
            return Ok(*algorithm);
        }
        let wishes = Wishes::new(key)?;
        let [first, second, to] = described.layouts;
        // SAFETY: handle, descriptors and wishes live.
        let found = unsafe {
            result::get_matmul_algo_heuristic(self.handle, described.product, first, second, to, to, wishes.0)
        };
        let algorithm = match found {
            Ok(found) => Some(found.algo),
            Err(CublasError(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED)) => None,
            Err(error) => return Err(error),
        };
        chosen.insert(key, algorithm);
        Ok(algorithm)
    }

    /// See [`Facts::adds_bias`](crate::Facts::adds_bias).
    pub fn adds_bias(&self, kind: ProductKind) -> Result<bool, Fault> {
        let key = Key::of(ProductKind { bias: true, ..kind });
        let algorithm = Described::new(key).and_then(|described| self.algorithm(key, &described));
        let algorithm = algorithm.map_err(|error| fault(error, &format!("looking for an algorithm of {key:?}")))?;
        Ok(algorithm.is_some())
    }

    /// The library's version: 130100 is 13.1.0.
    pub fn version() -> usize {
        // SAFETY: the library is open.
        unsafe { sys::cublasLtGetVersion() }
    }

    /// See [`Facts::candidates`](crate::Facts::candidates).
    pub fn candidates(&self, kind: ProductKind) -> Result<Vec<Candidate>, Fault> {
        let key = Key::of(kind);
        let of = |error| fault(error, &format!("looking for algorithms of {key:?}"));
        let described = Described::new(key).map_err(of)?;
        let wishes = Wishes::new(key).map_err(of)?;
        let [first, second, to] = described.layouts;
        let mut found = [NOTHING_FOUND; CANDIDATES];
        let mut count = 0;
        // SAFETY: handle, descriptors and wishes live; as many results are written as there is room for.
        let asked = unsafe {
            let most = CANDIDATES as i32;
            let found = found.as_mut_ptr();
            let handle = self.handle;
            let product = described.product;
            sys::cublasLtMatmulAlgoGetHeuristic(
                handle, product, first, second, to, to, wishes.0, most, found, &mut count,
            )
        };
        asked.result().map_err(of)?;
        Ok(usable(&found[..(count.max(0) as usize).min(CANDIDATES)]))
    }

    /// See [`Facts::workspace_of`](crate::Facts::workspace_of).
    pub fn workspace_of(&self, algorithm: Algorithm, kind: ProductKind) -> Result<usize, Fault> {
        let key = Key::of(kind);
        let of = |error| fault(error, &format!("checking an algorithm of {key:?}"));
        let described = Described::new(key).map_err(of)?;
        let [first, second, to] = described.layouts;
        let algorithm = to_library(algorithm);
        let mut found = NOTHING_FOUND;
        // SAFETY: handle and descriptors live; the result is written.
        let checked = unsafe {
            let handle = self.handle;
            let product = described.product;
            sys::cublasLtMatmulAlgoCheck(handle, product, first, second, to, to, &algorithm, &mut found)
        };
        checked.result().and_then(|()| found.state.result()).map_err(of)?;
        Ok(found.workspaceSize)
    }
}

/// What a result is before the library has written it.
const NOTHING_FOUND: sys::cublasLtMatmulHeuristicResult_t = sys::cublasLtMatmulHeuristicResult_t {
    algo: sys::cublasLtMatmulAlgo_t { data: [0; 8] },
    workspaceSize: 0,
    state: sys::cublasStatus_t::CUBLAS_STATUS_NOT_INITIALIZED,
    wavesCount: 0.0,
    reserved: [0; 4],
};

/// The candidates that the library means: a result may say that it is none.
fn usable(found: &[sys::cublasLtMatmulHeuristicResult_t]) -> Vec<Candidate> {
    let usable = found.iter().filter(|found| found.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS);
    usable.map(|found| Candidate { algorithm: from_library(found.algo), workspace: found.workspaceSize }).collect()
}

/// The library's 64 bytes, as they lie in memory, in words that every reader of JSON reads exactly.
fn from_library(algorithm: sys::cublasLtMatmulAlgo_t) -> Algorithm {
    Algorithm(std::array::from_fn(|word| (algorithm.data[word / 2] >> (32 * (word % 2))) as u32))
}

fn to_library(Algorithm(words): Algorithm) -> sys::cublasLtMatmulAlgo_t {
    let data = std::array::from_fn(|pair| u64::from(words[2 * pair]) | u64::from(words[2 * pair + 1]) << 32);
    sys::cublasLtMatmulAlgo_t { data }
}

impl Drop for Products {
    fn drop(&mut self) {
        // SAFETY: it is used no more.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

/// A product as the library sees it. It stores matrices by columns, so that a row-major one is its own transpose:
/// C' = op(B)' op(A)', with B as the first operand.
struct Described {
    product: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 3],
}

impl Described {
    fn new(key: Key) -> Result<Self, CublasError> {
        let ProductShape { stored, m, n, k } = key.shape;
        let (compute, scale) = match key.of {
            Element::F64 => (sys::cublasComputeType_t::CUBLAS_COMPUTE_64F, Element::F64),
            _ => (sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, Element::F32),
        };
        let mut described =
            Self { product: result::create_matmul_desc(compute, data_type(scale))?, layouts: [ptr::null_mut(); 3] };
        let turned =
            [(Of::CUBLASLT_MATMUL_DESC_TRANSA, Transpose::Nt), (Of::CUBLASLT_MATMUL_DESC_TRANSB, Transpose::Tn)];
        for (attribute, when) in turned {
            // `CUBLAS_OP_T` or `CUBLAS_OP_N` of `cublasOperation_t`, which the library's own header takes from another.
            let operation = i32::from(stored == when);
            described.set(attribute, operation)?;
        }
        if key.bias {
            // Rows of its C' are columns of C: each gets an element of the bias, which has C's type.
            described.set(Of::CUBLASLT_MATMUL_DESC_EPILOGUE, sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS as u32)?;
            // Somewhere, as aligned as it will be: algorithms are looked for before it is known where.
            described.add(Address(ALIGNED as u64))?;
        }
        // Rows and columns as the library counts them.
        let first = if stored == Transpose::Nt { (k, n) } else { (n, k) };
        let second = if stored == Transpose::Tn { (m, k) } else { (k, m) };
        let operands = [(key.of, first), (key.of, second), (key.to, (n, m))];
        for (layout, (element, (rows, cols))) in described.layouts.iter_mut().zip(operands) {
            *layout = result::create_matrix_layout(data_type(element), rows as u64, cols as u64, rows as i64)?;
        }
        Ok(described)
    }

    /// Where the bias is.
    fn add(&self, bias: Address) -> Result<(), CublasError> {
        self.set(Of::CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.0)
    }

    /// Sets an attribute to a number of its type.
    fn set<T: Copy>(&self, attribute: Of, value: T) -> Result<(), CublasError> {
        // SAFETY: the descriptor lives; the library reads as many bytes as it is told.
        unsafe { result::set_matmul_desc_attribute(self.product, attribute, (&raw const value).cast(), size_of::<T>()) }
    }
}

impl Drop for Described {
    fn drop(&mut self) {
        // SAFETY: they are used no more; those that were not made are null.
        unsafe {
            for layout in self.layouts.into_iter().filter(|layout| !layout.is_null()) {
                let _ = result::destroy_matrix_layout(layout);
            }
            let _ = result::destroy_matmul_desc(self.product);
        }
    }
}

/// What an algorithm may use, and may rely on.
struct Wishes(sys::cublasLtMatmulPreference_t);

impl Wishes {
    fn new(key: Key) -> Result<Self, CublasError> {
        let wishes = Self(result::create_matmul_pref()?);
        wishes.set(Wish::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, WORKSPACE)?;
        let schemes = sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
        wishes.set(Wish::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes)?;
        let [a, b, c] = key.alignments;
        // The library's first operand is B.
        wishes.set(Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b)?;
        wishes.set(Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a)?;
        wishes.set(Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c)?;
        wishes.set(Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c)?;
        Ok(wishes)
    }

    /// Sets an attribute to a number of its type.
    fn set<T: Copy>(&self, attribute: Wish, value: T) -> Result<(), CublasError> {
        // SAFETY: the preference lives; the library reads as many bytes as it is told.
        unsafe { result::set_matmul_pref_attribute(self.0, attribute, (&raw const value).cast(), size_of::<T>()) }
    }
}

impl Drop for Wishes {
    fn drop(&mut self) {
        // SAFETY: they are used no more.
        let _ = unsafe { result::destroy_matmul_pref(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;
    use sys::cublasLtMatmulHeuristicResult_t as Found;

    /// `cublasLtMatmulAlgo_t` and `cublasLtMatmulHeuristicResult_t` of `cublasLt.h`: 64 bytes; then a size, a status, a float and
    /// four reserved numbers.
    #[test]
    fn what_the_library_writes_lies_as_its_header_says() {
        assert_eq!((size_of::<sys::cublasLtMatmulAlgo_t>(), size_of::<Found>()), (64, 64 + 8 + 4 + 4 + 16));
        assert_eq!((offset_of!(Found, algo), offset_of!(Found, workspaceSize), offset_of!(Found, state)), (0, 64, 72));
        assert_eq!((offset_of!(Found, wavesCount), offset_of!(Found, reserved)), (76, 80));
        assert_eq!(sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_NONE as u32, 0);
        assert_eq!(sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32, 2);
    }

    #[test]
    fn algorithms_keep_every_bit() {
        let data = std::array::from_fn(|at| 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(at as u64 + 1));
        let words = from_library(sys::cublasLtMatmulAlgo_t { data });
        assert_eq!(to_library(words).data, data);
        assert_eq!((words.0[0], words.0[1]), (data[0] as u32, (data[0] >> 32) as u32));
    }

    #[test]
    fn results_that_are_none_are_no_candidates() {
        let some =
            |word: u64, state| Found { algo: sys::cublasLtMatmulAlgo_t { data: [word; 8] }, state, ..NOTHING_FOUND };
        let [good, bad] =
            [sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS, sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED];
        let found = [some(1, good), some(2, bad), NOTHING_FOUND, Found { workspaceSize: 5, ..some(3, good) }];
        let usable: Vec<_> = usable(&found).iter().map(|found| (found.algorithm.0[0], found.workspace)).collect();
        assert_eq!(usable, [(1, 0), (3, 5)]);
    }
}
