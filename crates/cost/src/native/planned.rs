//! What a layout file keeps of the framework that it was planned for.

use quadrille_spec::{ElementType, Planned, SpecError};

use super::{Framework, Numbers};

impl Framework {
    /// The framework that a layout file was planned for, with the types of its numbers.
    ///
    /// # Errors
    /// Names a framework or a type that is not known.
    pub fn of_planned(planned: &Planned) -> Result<Self, SpecError> {
        let framework = Self::by_name(&planned.framework)?.in_formats(Numbers::planned(planned)?);
        let dtype = planned.dtype.as_deref().map(str::parse).transpose()?;
        Ok(Self { dtype: dtype.unwrap_or(framework.dtype), ..framework })
    }

    /// What a layout file keeps of it: its name, and the types that were said of its numbers.
    pub fn planned(&self) -> Planned {
        let Numbers { gradients, moments, products } = self.numbers;
        // Of other frameworks the type of values is named where it is not their usual one.
        let dtype = (!self.is_own() && self.dtype != ElementType::Bf16).then(|| self.dtype.to_string());
        Planned {
            framework: self.name.to_owned(),
            dtype,
            products: products.map(|format| format.to_string()),
            gradients: gradients.map(|gradients| gradients.to_string()),
            moments: moments.map(|moments| moments.to_string()),
        }
    }
}

impl Numbers {
    /// What a layout file says of them.
    ///
    /// # Errors
    /// Names a type that is not known.
    pub fn planned(planned: &Planned) -> Result<Self, SpecError> {
        Ok(Self {
            gradients: planned.gradients.as_deref().map(str::parse).transpose()?,
            moments: planned.moments.as_deref().map(str::parse).transpose()?,
            products: planned.products.as_deref().map(str::parse).transpose()?,
        })
    }

    /// What these say, and where they say nothing, what others do.
    #[must_use]
    pub fn over(self, others: Self) -> Self {
        Self {
            gradients: self.gradients.or(others.gradients),
            moments: self.moments.or(others.moments),
            products: self.products.or(others.products),
        }
    }
}

#[cfg(test)]
mod tests {
    use quadrille_spec::Cluster;

    use super::*;
    use crate::native::{Moments, NarrowFormat};

    #[test]
    fn what_is_kept_is_what_was_said() {
        for (_, format) in NarrowFormat::ALL {
            for (_, moments) in Moments::ALL {
                for gradients in [None, Some(ElementType::Bf16), Some(ElementType::F32)] {
                    let numbers = Numbers { gradients, moments: Some(moments), products: Some(format) };
                    let framework = Framework::MEGATRON.in_formats(numbers);
                    assert_eq!(Framework::of_planned(&framework.planned()), Ok(framework));
                }
            }
        }
        assert_eq!(Framework::FSDP.planned(), Planned { framework: "fsdp".to_owned(), ..Planned::default() });
        let on_volta = Framework::MEGATRON.on(&Cluster::preset("summit").unwrap());
        assert_eq!(on_volta.planned().dtype.as_deref(), Some("f16"));
        assert_eq!(Framework::of_planned(&on_volta.planned()), Ok(on_volta));
        let unknown = Planned { moments: Some("f8".to_owned()), ..Planned::default() };
        assert!(Numbers::planned(&unknown).unwrap_err().to_string().contains("type of moments 'f8'"));
    }
}
