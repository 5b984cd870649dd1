//! The axes of a grid, sets of them, and the order in which ranks are laid out along them.

use std::fmt;
use std::str::FromStr;

use crate::SpecError;

/// One way of splitting work. A *normal* linear layer contracts over `y` and shards its outputs over `x`; a
/// *transposed* one the other way round; `z` shards every weight again and splits the batch; `context` splits every
/// sequence; `expert` and `data` replicate weights and split the batch; `pipe` splits the layers into stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Axis {
    /// Outputs of normal layers, attention heads.
    X,
    /// Inputs of normal layers, the width of the residual stream.
    Y,
    /// Weights once more, and the batch.
    Z,
    /// The tokens of each sequence; weights are replicated.
    Context,
    /// A factor of the batch, as data is: weights are replicated.
    Expert,
    /// The batch; weights are replicated.
    Data,
    /// The layers.
    Pipe,
}

impl Axis {
    /// All axes in canonical order.
    pub const ALL: [Self; Self::COUNT] =
        [Self::X, Self::Y, Self::Z, Self::Context, Self::Expert, Self::Data, Self::Pipe];
    /// How many there are.
    pub const COUNT: usize = 7;
    /// The axes whose ranks have batches of their own, outermost first: each (data, expert) rank its share.
    pub const BATCH: [Self; 2] = [Self::Data, Self::Expert];
    /// The four axes of AxoNN's algorithm.
    pub const AXONN: [Self; 4] = [Self::X, Self::Y, Self::Z, Self::Data];

    /// What other programs call some of them, in capitals or not. Their data parallelism is data times expert here.
    pub const ALIASES: [(&'static str, Self); 6] = [
        ("tp", Self::X),
        ("fsdp", Self::Z),
        ("cp", Self::Context),
        ("ep", Self::Expert),
        ("dp", Self::Data),
        ("pp", Self::Pipe),
    ];

    /// The axes that cut the rows of tokens inside a pipeline's stage and one replica of a mixture, over which experts may be
    /// spread.
    pub const SPREADING: AxisSet =
        Self::X.only().union(Self::Z.only()).union(Self::Context.only()).union(Self::Expert.only());

    /// The name users write.
    pub fn name(self) -> &'static str {
        ["x", "y", "z", "context", "expert", "data", "pipe"][self as usize]
    }

    /// The axis as a set of one.
    pub const fn only(self) -> AxisSet {
        AxisSet(1 << self as u8)
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Axis {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let alias = |(name, axis): &(&str, Self)| name.eq_ignore_ascii_case(text).then_some(*axis);
        let named = Self::ALL.into_iter().find(|axis| axis.name() == text);
        named.or_else(|| Self::ALIASES.iter().find_map(alias)).ok_or_else(|| SpecError::Unknown {
            what: "axis",
            name: text.to_owned(),
            known: Self::ALL.iter().map(|axis| axis.name().to_owned()).collect(),
        })
    }
}

/// A set of axes: what a collective spans or a value is a partial sum over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct AxisSet(u8);

impl AxisSet {
    /// No axis.
    pub const EMPTY: Self = Self(0);
    /// Every axis.
    pub const WORLD: Self = Self((1 << Axis::COUNT) - 1);

    /// Whether no axis is in the set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `axis` is in the set.
    pub fn contains(self, axis: Axis) -> bool {
        self.0 & axis.only().0 != 0
    }

    /// All axes of either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The axes of this set that are not in `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The axes in canonical order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Axis> {
        Axis::ALL.into_iter().filter(move |axis| self.contains(*axis))
    }

    /// The key of collectives over these axes in ledgers: `x`, `x+y`, `y+z+data`, or `world` for all.
    pub fn key(self) -> String {
        if self == Self::WORLD {
            return "world".to_owned();
        }
        self.iter().map(Axis::name).collect::<Vec<_>>().join("+")
    }
}

/// As users write a set: `z,expert`, or `none`.
impl fmt::Display for AxisSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            f.write_str("none")
        } else {
            f.write_str(&self.iter().map(Axis::name).collect::<Vec<_>>().join(","))
        }
    }
}

impl FromStr for AxisSet {
    type Err = SpecError;

    /// Reads `z,expert`, or `none`: axes over which experts are spread.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        if text.trim() == "none" {
            return Ok(Self::EMPTY);
        }
        let axis = |name: &str| {
            let none = if text.contains(',') { None } else { Some("none") };
            let known = Axis::SPREADING.iter().map(Axis::name).chain(none).map(str::to_owned);
            let unknown = |_| SpecError::Unknown { what: "axis", name: name.to_owned(), known: known.collect() };
            name.parse().map_err(unknown)
        };
        text.split(',').map(str::trim).map(axis).collect()
    }
}

impl FromIterator<Axis> for AxisSet {
    fn from_iter<I: IntoIterator<Item = Axis>>(axes: I) -> Self {
        axes.into_iter().fold(Self::EMPTY, |set, axis| set.union(axis.only()))
    }
}

impl fmt::Debug for AxisSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}}}", self.key())
    }
}

/// The order of the axes in the numbering of ranks, innermost (fastest) first. Neighbouring ranks share a node,
/// so the order decides which axes use the fast links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AxisOrder([Axis; Axis::COUNT]);

impl AxisOrder {
    /// The axes of [`Self::default`], innermost first.
    pub(crate) const USUAL_AXES: [Axis; Axis::COUNT] = Axis::ALL;

    /// [`Self::default`], in constants.
    pub const USUAL: Self = Self(Self::USUAL_AXES);

    /// Every axis once, innermost first.
    pub(crate) const fn of(axes: [Axis; Axis::COUNT]) -> Self {
        Self(axes)
    }

    /// The axes, innermost first.
    pub fn axes(self) -> [Axis; Axis::COUNT] {
        self.0
    }
}

impl Default for AxisOrder {
    /// x, y, z, context, expert, data, pipe; without context, expert and pipe the order that AxoNN's performance model
    /// assumes (SC24, section V-B).
    fn default() -> Self {
        Self::USUAL
    }
}

impl fmt::Display for AxisOrder {
    /// Context, expert and pipe are left out where reading the text puts them back: first all three, else expert alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let naming = |named: &dyn Fn(Axis) -> bool| {
            self.0.into_iter().filter(|axis| named(*axis)).map(Axis::name).collect::<Vec<_>>().join(",")
        };
        let shorter = [naming(&|axis| Axis::AXONN.contains(&axis)), naming(&|axis| axis != Axis::Expert)];
        let short = shorter.into_iter().find(|text| text.parse() == Ok(*self));
        f.write_str(&short.unwrap_or_else(|| naming(&|_| true)))
    }
}

impl FromStr for AxisOrder {
    type Err = SpecError;

    /// Reads `x,y,z,data`: every axis once. Context and expert, if left out, follow just inside data, expert outside context;
    /// pipe is outermost.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut axes = text.split(',').map(|name| name.trim().parse()).collect::<Result<Vec<Axis>, _>>()?;
        for inside_data in [Axis::Context, Axis::Expert] {
            if !axes.contains(&inside_data)
                && let Some(data) = axes.iter().position(|axis| *axis == Axis::Data)
            {
                axes.insert(data, inside_data);
            }
        }
        if !axes.contains(&Axis::Pipe) {
            axes.push(Axis::Pipe);
        }
        let complete = axes.iter().copied().collect::<AxisSet>() == AxisSet::WORLD;
        match <[Axis; Axis::COUNT]>::try_from(axes) {
            Ok(order) if complete => Ok(Self(order)),
            _ => Err(SpecError::Syntax {
                what: "an axis order",
                text: text.to_owned(),
                reason:
                    "it names each of x, y, z and data once, innermost first, and context, expert and pipe at most \
                         once, e.g. 'x,y,z,data'"
                        .to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_canonical() {
        assert_eq!([Axis::Data, Axis::Y, Axis::Z].into_iter().collect::<AxisSet>().key(), "y+z+data");
        assert_eq!(Axis::X.only().union(Axis::Y.only()).key(), "x+y");
        assert_eq!(Axis::BATCH.into_iter().chain([Axis::Y, Axis::Z]).collect::<AxisSet>().key(), "y+z+expert+data");
        assert_eq!(AxisSet::WORLD.key(), "world");
        assert_eq!(Axis::ALL.into_iter().collect::<AxisSet>(), AxisSet::WORLD);
    }

    #[test]
    fn axes_have_the_names_of_other_programs_too() {
        for (text, axis) in
            [("tp", Axis::X), ("FSDP", Axis::Z), ("Cp", Axis::Context), ("pipe", Axis::Pipe), ("pp", Axis::Pipe)]
        {
            assert_eq!(text.parse::<Axis>().unwrap(), axis);
        }
        assert!("X".parse::<Axis>().is_err() && "vpp".parse::<Axis>().is_err());
    }

    #[test]
    fn orders_name_every_axis_once() {
        for order in [
            "data,z,y,x",
            "x,y,z,data",
            "x,context,y,z,data,pipe",
            "pipe,x,y,z,context,data",
            "expert,x,y,z,context,data,pipe",
            "x,y,z,expert,context,data,pipe",
        ] {
            assert_eq!(order.parse::<AxisOrder>().unwrap().to_string(), order);
        }
        for usual in ["x,y,z,data", "x,y,z,context,data,pipe", "x,y,z,context,expert,data,pipe"] {
            assert_eq!(usual.parse::<AxisOrder>().unwrap(), AxisOrder::default(), "{usual}");
        }
        // What is left out lies just inside data, context inside expert.
        for (short, axes) in [
            ("data,context,x,y,z", [Axis::Expert, Axis::Data, Axis::Context]),
            ("expert,data,x,y,z", [Axis::Expert, Axis::Context, Axis::Data]),
        ] {
            assert_eq!(short.parse::<AxisOrder>().unwrap().axes()[..3], axes, "{short}");
        }
        for wrong in ["x,y,z", "x,x,z,data", "x,y,z,data,x", "x,y,z,pipe", "x,y,z,data,pipe,pipe", "x,y,z,expert", ""] {
            assert!(wrong.parse::<AxisOrder>().is_err(), "{wrong}");
        }
    }
}
