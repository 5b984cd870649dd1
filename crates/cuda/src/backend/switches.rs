//! What a rank does at once or in another order than one by one, each to be switched on or off where it is measured.

use crate::driver::{Facts, Fault};

/// The variable that switches.
const VARIABLE: &str = "QUADRILLE_DEVICE_SWITCHES";

/// What is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switches {
    /// Products add the bias that follows.
    pub bias: bool,
    /// Squares of all gradients are summed by three kernels.
    pub squares: bool,
    /// Samples, and numbers that the host looks at, go through pinned memory.
    pub staging: bool,
    /// Kernels are sent in graphs.
    pub graphs: bool,
    /// Attention in `bf16` is computed by tensor cores of warpgroups.
    pub wgmma: bool,
}

impl Default for Switches {
    fn default() -> Self {
        Self { bias: false, squares: true, staging: true, graphs: false, wgmma: false }
    }
}

impl Switches {
    /// The usual ones, but for what the environment says.
    pub fn told() -> Result<Self, Fault> {
        std::env::var(VARIABLE).map_or(Ok(Self::default()), |text| Self::parse(&text))
    }

    /// Refuses what a device does not have.
    pub fn check(self, device: &dyn Facts) -> Result<(), Fault> {
        self.suit(device.has_wgmma(), &device.name()?)
    }

    /// The same of a device's name.
    fn suit(self, has_wgmma: bool, name: &str) -> Result<(), Fault> {
        if !self.wgmma || has_wgmma {
            return Ok(());
        }
        let only = "which devices of compute capability 9.0 alone can";
        let text = format!("{VARIABLE} has 'wgmma=on', {only}; {name} cannot: leave it off");
        Err(Fault { library: "quadrille", code: -1, text })
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        let mut switches = Self::default();
        for one in text.split(',').filter(|one| !one.is_empty()) {
            let (name, on) = match one.split_once('=') {
                Some((name, "on")) => (name, true),
                Some((name, "off")) => (name, false),
                _ => return Err(refused(one)),
            };
            match name {
                "bias" => switches.bias = on,
                "squares" => switches.squares = on,
                "staging" => switches.staging = on,
                "graphs" => switches.graphs = on,
                "wgmma" => switches.wgmma = on,
                _ => return Err(refused(one)),
            }
        }
        Ok(switches)
    }
}

fn refused(one: &str) -> Fault {
    let text = format!(
        "{VARIABLE} has '{one}', which is no switch: give bias, squares, staging, graphs or wgmma, each with =on or =off, \
         with commas between"
    );
    Fault { library: "quadrille", code: -1, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_without_wgmma_refuse_it_by_name() {
        let [on, off] = ["wgmma=on", ""].map(|text| Switches::parse(text).unwrap());
        for (switches, has) in [(on, true), (off, true), (off, false)] {
            assert_eq!(switches.suit(has, "old"), Ok(()));
        }
        let fault = on.suit(false, "old").unwrap_err().to_string();
        assert!(fault.contains("'wgmma=on'") && fault.contains("old cannot: leave it off"), "{fault}");
    }

    #[test]
    fn switches_are_read_in_their_order_and_others_refused() {
        assert_eq!(Switches::parse("").unwrap(), Switches::default());
        let told = Switches { bias: true, squares: false, ..Switches::default() };
        assert_eq!(Switches::parse("bias=on,squares=off").unwrap(), told);
        assert_eq!(Switches::parse("wgmma=on").unwrap(), Switches { wgmma: true, ..Switches::default() });
        assert_eq!(Switches::parse("staging=off,staging=on,bias=off").unwrap(), Switches::default());
        for wrong in ["bias", "bias=1", "biases=on", "bias=on;squares=on", " bias=on"] {
            let fault = Switches::parse(wrong).unwrap_err().to_string();
            assert!(
                fault.contains(&format!("'{wrong}'")) && fault.contains("bias, squares, staging, graphs or wgmma"),
                "{fault}"
            );
        }
    }
}
