//! What a layout was planned for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a layout was planned for: what trains it, and the types of that one's numbers where they are not its usual ones. It is no part
/// of the layout: whoever prices or explains the file again takes it where nothing else is said, and who trains leaves it aside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Planned {
    /// The framework's name.
    pub framework: String,
    /// What values are stored in, where it is not the framework's usual type: f16 on devices without bf16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// What operands of products are cast to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub products: Option<String>,
    /// What gradients of weights are summed in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gradients: Option<String>,
    /// What the optimizer's moments are stored in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moments: Option<String>,
}

impl Planned {
    /// The table's key in a layout file.
    pub const KEY: &str = "planned";
}
