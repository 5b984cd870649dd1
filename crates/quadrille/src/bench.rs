//! `quadrille bench`.

use crate::arguments::BenchArguments;
use crate::failure::Failure;

pub fn run(_: &BenchArguments) -> Result<(), Failure> {
    Err(Failure::run("being written"))
}
