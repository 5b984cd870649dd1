//! What the table of operations is made of: fields of entries, and the macro that makes of each entry all that is asked of it.

use quadrille_spec::{Activation, Axis, AxisSet};

use super::{BlockKind, DropoutSite, GemmPass, GemmStorage, NormOf, Operands, Panel, Scalar, Scaled, Wanted};
use crate::{BucketId, BucketRun, Collective, ParameterId, ValueId};

/// An operation kind with its operands and attributes.
pub(crate) trait Kind {
    /// The values that it reads and writes.
    fn operands(&self) -> Operands;
}

/// A field that names a value, or may name one.
pub(super) trait Operand {
    fn get(&self) -> Option<ValueId>;
    fn see(&mut self, see: &mut dyn FnMut(&mut ValueId));
}

impl Operand for ValueId {
    fn get(&self) -> Option<ValueId> {
        Some(*self)
    }

    fn see(&mut self, see: &mut dyn FnMut(&mut ValueId)) {
        see(self);
    }
}

impl Operand for Option<ValueId> {
    fn get(&self) -> Option<ValueId> {
        *self
    }

    fn see(&mut self, see: &mut dyn FnMut(&mut ValueId)) {
        self.iter_mut().for_each(see);
    }
}

/// A field that says more about an operation than its kind and operands do.
pub(super) trait Attribute {
    /// The same without what tells blocks and parameters apart, on which no work depends.
    fn anywhere(self) -> Self;
}

macro_rules! same_anywhere {
    ($($type:ty),+) => {
        $(impl Attribute for $type {
            fn anywhere(self) -> Self {
                self
            }
        })+
    };
}

same_anywhere!(
    bool,
    BlockKind,
    Activation,
    Axis,
    AxisSet,
    BucketId,
    BucketRun,
    GemmPass,
    GemmStorage,
    NormOf,
    Panel,
    Scalar,
    Scaled,
    Wanted
);

impl Attribute for ParameterId {
    fn anywhere(self) -> Self {
        Self(0)
    }
}

impl Attribute for DropoutSite {
    fn anywhere(self) -> Self {
        match self {
            Self::Embedding => self,
            Self::Attention(_) => Self::Attention(0),
            Self::Projection(_) => Self::Projection(0),
            Self::Down(_) => Self::Down(0),
        }
    }
}

impl<T: Attribute> Attribute for Option<T> {
    fn anywhere(self) -> Self {
        self.map(T::anywhere)
    }
}

/// The entries of [`kind`](super::kind) as types, and what [`Operation`](super::Operation) answers from them.
macro_rules! kinds {
    ($(
        $(#[$doc:meta])*
        $kind:ident [$($name:literal),+] $group:ident $(of $samples:ident)? { $($field:ident: $type:ty),* }
            reads { $($read:ident: $read_type:ty),* }
            writes $(by $write:ident)? { $($written:ident: $written_type:ty),* },
            $(which |$which_op:ident| $which:expr,)?
            $(remade |$remade_op:ident| $remade:expr,)?
            work |$op:pat_param, $at:pat_param| $work:expr;
    )+) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            #[allow(missing_docs, reason = "operands and attributes are named by what they are")]
            pub struct $kind {
                $(pub $field: $type,)*
                $(pub $read: $read_type,)*
                $(pub $written: $written_type,)*
                $(pub $write: Write,)?
            }

            impl Kind for $kind {
                fn operands(&self) -> Operands {
                    Operands::of(&[$(self.$read.get()),*], &[$(self.$written.get()),*])
                }
            }

            impl From<$kind> for Operation {
                fn from(op: $kind) -> Self {
                    Self::$kind(op)
                }
            }
        )+

        /// An operation of a program.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Operation {
            $($(#[$doc])* $kind($kind),)+
            /// Starts a collective.
            Issue(Collective),
            /// Waits for a collective; its output may be used from here.
            Wait(Collective),
            /// Waits for a collective that the last step's update has issued; in the first step there is none.
            WaitCarried(Collective),
        }

        /// The names of all kinds with their groups, in the order of the table.
        pub(super) const NAMES: &[(&[&str], Group)] = &[
            $((&[$($name),+], Group::$group),)+
            (&["issue"], Group::Issue),
            (&["wait", "wait-carried"], Group::Wait),
        ];

        impl Operation {
            /// The name in printed programs, ledgers and messages.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$kind(_op) => {
                        // Kinds of one name choose none.
                        let [.., which] = [0 $(, { let $which_op = _op; $which })?];
                        [$($name),+][which]
                    })+
                    Self::Issue(_) => "issue",
                    Self::Wait(_) => "wait",
                    Self::WaitCarried(_) => "wait-carried",
                }
            }

            /// What it is reported under.
            pub fn group(&self) -> Group {
                match self {
                    $(Self::$kind(_) => Group::$group,)+
                    Self::Issue(_) => Group::Issue,
                    Self::Wait(_) | Self::WaitCarried(_) => Group::Wait,
                }
            }

            /// The values that it reads and writes. A value that is added to counts as written; an issued collective holds
            /// both its values until its wait.
            pub fn operands(&self) -> Operands {
                match self {
                    $(Self::$kind(op) => op.operands(),)+
                    Self::Issue(collective) | Self::Wait(collective) | Self::WaitCarried(collective) => {
                        collective.operands()
                    }
                }
            }

            /// The same operation on other values.
            #[must_use]
            pub fn with_values(&self, map: impl Fn(ValueId) -> ValueId) -> Self {
                let mut operation = *self;
                let see = &mut |value: &mut ValueId| *value = map(*value);
                match &mut operation {
                    $(Self::$kind(_op) => {
                        $(_op.$read.see(see);)*
                        $(_op.$written.see(see);)*
                    })+
                    Self::Issue(collective) | Self::Wait(collective) | Self::WaitCarried(collective) => {
                        collective.input.see(see);
                        collective.output.see(see);
                    }
                }
                operation
            }

            /// The same operation without what tells blocks and parameters apart: two that are equal then do the same work.
            #[must_use]
            pub fn anywhere(&self) -> Self {
                let mut operation = *self;
                match &mut operation {
                    $(Self::$kind(_op) => {
                        $(_op.$field = _op.$field.anywhere();)*
                    })+
                    Self::Issue(_) | Self::Wait(_) | Self::WaitCarried(_) => {}
                }
                operation
            }

            /// What happens to the former contents of what it writes, where that is a choice.
            pub fn write_mut(&mut self) -> Option<&mut Write> {
                match self {
                    $($(Self::$kind($kind { $write, .. }) => Some($write),)?)+
                    _ => None,
                }
            }

            /// Whether it looks at the samples of the microbatch.
            pub fn reads_samples(&self) -> bool {
                match self {
                    $($(Self::$kind(_) => stringify!($samples) == "samples",)?)+
                    _ => false,
                }
            }

            /// What selective recomputation gives up of what it writes.
            pub(crate) fn remade(&self) -> Remade {
                match self {
                    $($(Self::$kind($remade_op) => $remade,)?)+
                    Self::Issue(_) | Self::Wait(_) => Remade::WithInputs,
                    _ => Remade::Never,
                }
            }

            /// What it computes on the rank at a place.
            pub fn work(&self, at: At<'_>) -> Work {
                match self {
                    $(Self::$kind($op) => {
                        let $at = at;
                        $work
                    })+
                    Self::Issue(_) | Self::Wait(_) | Self::WaitCarried(_) => Work::NONE,
                }
            }
        }
    };
}

impl Kind for Collective {
    fn operands(&self) -> Operands {
        Operands::of(&[Some(self.input)], &[Some(self.output)])
    }
}

pub(super) use kinds;
