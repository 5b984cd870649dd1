//! Why a layout is as fast as it is.

use quadrille_cost::native::PriceError;
use quadrille_spec::{Axis, EvenPieces, Layout};

use super::changes::Change;
use super::explain::Sensitivity;
use super::question::Cancel;
use super::ranking::Ranked;
use super::setting::Setting;

/// Why a layout is as fast as it is, and what would be faster.
#[derive(Debug, Clone)]
pub struct Explanation {
    /// The layout with its price.
    pub best: Ranked,
    /// What a tenth more of each number of the hardware gives.
    pub sensitivities: Vec<Sensitivity>,
    /// What each changed choice gives, fastest first; `None` of a layout with other pieces or groups than a search tries.
    pub changes: Option<Vec<Change>>,
    /// Another layout of the same search: the next best, or the fastest where a simpler one is explained.
    pub runner_up: Option<Ranked>,
}

impl Explanation {
    /// Explains a layout, whose price is `best` and whose gains are known, and why another that was found is slower or faster.
    ///
    /// # Errors
    /// What cannot be priced; what nobody waits for any more.
    pub fn new(
        setting: &Setting,
        layout: &Layout,
        best: Ranked,
        sensitivities: Vec<Sensitivity>,
        runner_up: Option<Ranked>,
        cancel: &Cancel,
    ) -> Result<Self, PriceError> {
        // Of other pieces and groups no change would leave everything else as it is.
        let as_searched =
            EvenPieces::are(&layout.stage_blocks) && layout.microbatch_group == layout.grid.size(Axis::Pipe);
        let changes = if as_searched { Some(setting.changes(&best.candidate, cancel)?) } else { None };
        Ok(Self { best, sensitivities, changes, runner_up })
    }
}
