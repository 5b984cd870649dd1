//! Flags of the types of a framework's numbers.

use clap::Args;
use quadrille_cost::native::{Moments, NarrowFormat, Numbers};

/// What numbers of a framework that is planned for are, where they are not its usual ones; of gradients `--gradients` says it.
#[derive(Debug, Args)]
pub struct NumberArguments {
    /// What operands of products of blocks are cast to, of other frameworks than quadrille: fp8, fp8-block, mxfp8 or nvfp4
    /// [default: 16 bits as they are]
    #[arg(long, value_name = "FORMAT", value_parser = str::parse::<NarrowFormat>)]
    pub products: Option<NarrowFormat>,
    /// What the optimizer's moments are stored in, of other frameworks than quadrille: f32, bf16 or fp8 [default: f32]
    #[arg(long, value_name = "TYPE", value_parser = str::parse::<Moments>)]
    pub moments: Option<Moments>,
}

impl NumberArguments {
    /// What they say.
    pub fn said(&self) -> Numbers {
        Numbers { products: self.products, moments: self.moments, gradients: None }
    }
}
