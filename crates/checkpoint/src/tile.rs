//! Tensors, and the rectangles that they are cut into.

use std::fmt;

use quadrille_spec::RealType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is stored of every parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// The parameter itself.
    Value,
    /// AdamW's running mean of the gradient.
    FirstMoment,
    /// AdamW's running mean of the squared gradient.
    SecondMoment,
    /// Which elements of a pruned tensor are kept: 1 of those, 0 of those that are zero and stay so. A byte each.
    Kept,
}

impl Quantity {
    /// All, in the order in which they are stored.
    pub const ALL: [Self; 4] = [Self::Value, Self::FirstMoment, Self::SecondMoment, Self::Kept];
    /// Those that are of every parameter: values always, moments all or none.
    pub const NUMBERS: [Self; 3] = [Self::Value, Self::FirstMoment, Self::SecondMoment];

    /// Whether it is one of the optimizer's.
    pub(crate) fn is_moment(self) -> bool {
        matches!(self, Self::FirstMoment | Self::SecondMoment)
    }

    /// Bytes of an element where numbers are of this type.
    pub(crate) fn bytes(self, numbers: RealType) -> usize {
        match self {
            Self::Value | Self::FirstMoment | Self::SecondMoment => numbers.bytes() as usize, // 4 or 8
            Self::Kept => 1,
        }
    }

    /// What follows the tensor in the name of a tile.
    fn suffix(self) -> &'static str {
        match self {
            Self::Value => "",
            Self::FirstMoment => "#m",
            Self::SecondMoment => "#v",
            Self::Kept => "#kept",
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Value => "value",
            Self::FirstMoment => "first moment",
            Self::SecondMoment => "second moment",
            Self::Kept => "kept elements",
        })
    }
}

/// A logical matrix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TensorShape {
    /// As in [`quadrille_spec::Model`]'s table: `block.0.qkv.weight`.
    pub name: String,
    /// Rows of the whole matrix.
    pub rows: usize,
    /// Columns of the whole matrix.
    pub cols: usize,
}

/// A rectangle of a tensor, stored row by row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tile {
    /// The tensor's name.
    pub tensor: String,
    /// What of the parameter it holds.
    pub quantity: Quantity,
    /// First row.
    pub row: usize,
    /// First column.
    pub col: usize,
    /// Number of rows, at least 1.
    pub rows: usize,
    /// Number of columns, at least 1.
    pub cols: usize,
}

impl Tile {
    /// The tile that is a whole tensor.
    pub fn whole(shape: &TensorShape, quantity: Quantity) -> Self {
        let TensorShape { name, rows, cols } = shape.clone();
        Self { tensor: name, quantity, row: 0, col: 0, rows, cols }
    }

    /// The name in the safetensors file: `block.0.qkv.weight#m@0,32`.
    pub fn name(&self) -> String {
        format!("{}{}@{},{}", self.tensor, self.quantity.suffix(), self.row, self.col)
    }

    /// The tile of that name and shape; `None` if this crate would not have named one so.
    pub(crate) fn parse(name: &str, rows: usize, cols: usize) -> Option<Self> {
        let (subject, place) = name.rsplit_once('@')?;
        let (row, col) = place.split_once(',')?;
        let (tensor, quantity) = Quantity::ALL[1..]
            .iter()
            .find_map(|quantity| Some((subject.strip_suffix(quantity.suffix())?, *quantity)))
            .unwrap_or((subject, Quantity::Value));
        let tile =
            Self { tensor: tensor.to_owned(), quantity, row: row.parse().ok()?, col: col.parse().ok()?, rows, cols };
        // Refuses other ways to write a number: `+1`, `01`.
        (is_name(tensor) && tile.name() == name).then_some(tile)
    }

    /// Its place without its name.
    pub(crate) fn place(&self) -> Place {
        Place { row: self.row, col: self.col, rows: self.rows, cols: self.cols }
    }
}

/// Whether a tensor may be called so: what separates the parts of a tile's name is not in it.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=200).contains(&name.len()) && !name.chars().any(|c| c.is_control() || c == '@' || c == '#')
}

/// A rectangle of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub row: usize,
    pub col: usize,
    pub rows: usize,
    pub cols: usize,
}

impl Place {
    /// Numbers in it; `None` beyond all numbers.
    pub fn numbers(&self) -> Option<usize> {
        self.rows.checked_mul(self.cols)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {} at {},{}", self.rows, self.cols, self.row, self.col)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_were_written() {
        for quantity in Quantity::ALL {
            let tile = Tile { tensor: "block.0.qkv.weight".to_owned(), quantity, row: 0, col: 32, rows: 4, cols: 8 };
            assert_eq!(Tile::parse(&tile.name(), 4, 8), Some(tile));
        }
    }

    #[test]
    fn other_names_are_not_tiles() {
        for name in ["", "@", "@0,0", "x", "x@0", "x@0,", "x@00,0", "x@+1,0", "x@0,-1", "x@1,2,3", "x#w@0,0", "x@y@0,0"]
        {
            assert_eq!(Tile::parse(name, 1, 1), None, "{name}");
        }
        assert_eq!(Tile::parse("x@99999999999999999999,0", 1, 1), None);
    }
}
