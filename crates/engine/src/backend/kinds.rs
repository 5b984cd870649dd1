//! Kernels that work on elements as they are stored or as they are computed in, whichever an operand has.

/// What a move does with elements of either kind; both operands are of the same.
macro_rules! of_either_kind {
    ($x:ident, $y:ident => $move:expr) => {
        match ($x, $y) {
            ($crate::backend::memory::Numbers::Stored($x), $crate::backend::memory::NumbersMut::Stored($y)) => $move,
            ($x, $y) => {
                let $x = $x.real();
                let $y = $y.real();
                $move
            }
        }
    };
}

/// What a kernel does that reads values and writes what is of either kind: gradients of weights are.
macro_rules! output_of_either_kind {
    ($output:ident => $kernel:expr) => {
        match $output {
            $crate::backend::memory::NumbersMut::Stored($output) => $kernel,
            $crate::backend::memory::NumbersMut::Real($output) => $kernel,
        }
    };
}

pub(super) use {of_either_kind, output_of_either_kind};
