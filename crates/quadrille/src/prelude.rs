//! What most programs name: `use quadrille::prelude::*;`.

pub use std::ops::ControlFlow;

pub use quadrille_cost::native::Framework;
pub use quadrille_engine::RunEvent;
pub use quadrille_run::{Ended, OnEvent, RunChanges, RunOutcome, RunSpec};
pub use quadrille_spec::{
    Activations, Axis, Cluster, ElementType, Grid, Layout, LayoutRequest, Linear, Model, Recompute, Schedule, Zero,
};
pub use quadrille_verify::VerifyReport;

pub use crate::{
    Error, Explanation, PlanReport, PlanRequest, PricedLayout, explain, plan, report, resume, train, verify,
};
