//! What a layout file keeps of the framework that it was planned for.

use quadrille_spec::{Planned, SpecError};

use super::{Framework, Numbers};

impl Framework {
    /// What a layout file keeps of it: its name, and the types that were said of its numbers.
    pub fn planned(&self) -> Planned {
        let Numbers { gradients, moments, products } = self.numbers;
        Planned {
            framework: self.name.to_owned(),
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
    use quadrille_spec::ElementType;

    use super::*;
    use crate::native::{Moments, NarrowFormat};

    #[test]
    fn what_is_kept_is_what_was_said() {
        for (_, format) in NarrowFormat::ALL {
            for (_, moments) in Moments::ALL {
                for gradients in [None, Some(ElementType::Bf16), Some(ElementType::F32)] {
                    let numbers = Numbers { gradients, moments: Some(moments), products: Some(format) };
                    let framework = Framework::MEGATRON.in_formats(numbers);
                    assert_eq!(Numbers::planned(&framework.planned()), Ok(numbers));
                }
            }
        }
        assert_eq!(Framework::FSDP.planned(), Planned { framework: "fsdp".to_owned(), ..Planned::default() });
        let unknown = Planned { moments: Some("f8".to_owned()), ..Planned::default() };
        assert!(Numbers::planned(&unknown).unwrap_err().to_string().contains("type of moments 'f8'"));
    }
}
