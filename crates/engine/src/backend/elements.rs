//! Items for every type of elements.

/// Writes an item for each of these types `S`, where `Real` is what it computes in: so kernels are compiled in this crate, not in
/// each that names a backend.
macro_rules! for_each_element {
    ($($element:ty),*; $item:item) => {
        $(const _: () = {
            type S = $element;
            type Real = <S as quadrille_tensor::Stored>::Real;
            $item
        };)*
    };
}
