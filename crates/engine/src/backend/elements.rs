//! Items for every type of elements.

/// Writes an item for each type `S` that values are stored in: so kernels are compiled in this crate, not in each that names a
/// backend.
macro_rules! for_each_element {
    (@ $($element:ty),*; $item:item) => {
        $(const _: () = {
            type S = $element;
            $item
        };)*
    };
    ($item:item) => {
        for_each_element!(@ f32, f64, half::bf16, half::f16; $item);
    };
}
