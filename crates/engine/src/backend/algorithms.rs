//! Algorithms of a device's library for products, where the device has measured them.

use quadrille_spec::ElementType;
use quadrille_step::Product;
use serde::{Deserialize, Serialize};

/// Algorithms of products, and whose they are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Algorithms {
    /// The device, its driver and its library with their versions: to others the algorithms mean nothing.
    pub device: String,
    /// One for each product.
    pub products: Vec<ProductAlgorithm>,
}

/// The algorithm of a product, and why it was chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProductAlgorithm {
    /// How the operands lie, and the sizes.
    pub product: Product,
    /// The type of both operands.
    pub operands: ElementType,
    /// The type of the result.
    pub result: ElementType,
    /// The chosen candidate, counted from 0 in the library's order; `None`: none could be used, and the library takes what it
    /// takes without being asked.
    pub chosen: Option<usize>,
    /// The library's words for it.
    pub algorithm: Option<[u32; 16]>,
    /// Seconds of each candidate; `None`: it failed, or needs more workspace than there is.
    pub seconds: Vec<Option<f64>>,
}

impl Algorithms {
    /// Number of products whose algorithm is not the library's own first choice.
    pub fn changed(&self) -> usize {
        self.products.iter().filter(|product| product.chosen.is_some_and(|chosen| chosen > 0)).count()
    }
}
