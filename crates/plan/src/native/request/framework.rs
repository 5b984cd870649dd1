//! Framework of a question, with the element types that are asked for.

use quadrille_cost::native::{Framework, Numbers};
use quadrille_spec::{ElementType, Field, LayoutFile, LayoutRequest, Sparsity, SpecError};

/// The framework of a name, in the types that are given, for a model of which a part is pruned. Without a name it is the one that
/// the layout was planned for, else the `usual` one; without a type of values, this program's engine uses the type given with it.
///
/// # Errors
/// No such framework; types that it does not have; sparsity of a framework that trains no pruned models.
pub fn framework(
    name: Option<&str>,
    (usual, usual_dtype): (&str, ElementType),
    dtype: Option<ElementType>,
    sparsity: Option<Sparsity>,
    numbers: Numbers,
    choices: &LayoutFile,
) -> Result<Framework, SpecError> {
    let planned = choices.planned().filter(|_| name.is_none());
    let framework = Framework::by_name(name.or(planned.map(|planned| planned.framework.as_str())).unwrap_or(usual))?;
    let numbers = numbers.over(planned.map_or(Ok(Numbers::default()), Numbers::planned)?);
    let gradients = choices.get(Field::Gradients);
    if framework.is_own() {
        check_stored(numbers)?;
        let mut request = LayoutRequest { dtype: usual_dtype, ..LayoutRequest::new("x=1".parse()?, 1) };
        choices.get(Field::Dtype).map_or(Ok(()), |dtype| Field::Dtype.set(&mut request, dtype))?;
        request.dtype = dtype.unwrap_or(request.dtype);
        gradients.map_or(Ok(()), |gradients| Field::Gradients.set(&mut request, gradients))?;
        request.check_used()?;
        return Ok(Framework { sparsity, ..Framework::own(request.dtype, request.gradient_type()) });
    }
    if let Some(sparsity) = sparsity {
        let rule = format!("{} trains no pruned models", framework.name);
        let remedy = "leave it out, or give `search.framework` quadrille";
        return Err(SpecError::invalid("`search.sparsity`", sparsity, rule, remedy));
    }
    let of_file = choices.get(Field::Dtype).map(ToString::to_string);
    if let Some(dtype) = dtype.map(|dtype| dtype.to_string()).or(of_file) {
        let rule = format!("{} stores values in a type of its own", framework.name);
        let remedy = "leave it out here and in the layout file, or give `search.framework` quadrille";
        return Err(SpecError::invalid(format!("`layout.{}`", Field::Dtype.key()), dtype, rule, remedy));
    }
    let mut request = LayoutRequest::new("x=1".parse()?, 1);
    gradients.map_or(Ok(()), |gradients| Field::Gradients.set(&mut request, gradients))?;
    let gradients = request.gradients.or(numbers.gradients);
    if let Some(gradients) = gradients.filter(|gradients| *gradients == ElementType::F64) {
        let rule = format!("{} sums gradients of weights in f32 or in 16 bits", framework.name);
        return Err(SpecError::invalid("`layout.gradients`", gradients, rule, "give f32 or bf16"));
    }
    Ok(framework.in_formats(Numbers { gradients, ..numbers }))
}

/// Refuses types that this program's engine neither stores nor multiplies.
fn check_stored(numbers: Numbers) -> Result<(), SpecError> {
    let products = numbers.products.map(|products| ("`search.products`", products.to_string()));
    let moments = numbers.moments.map(|moments| ("`search.moments`", moments.to_string()));
    match products.or(moments) {
        None => Ok(()),
        Some((field, value)) => {
            let rule = "quadrille multiplies and stores values in the type `layout.dtype`";
            Err(SpecError::invalid(field, value, rule, "leave it out, or give `search.framework` megatron"))
        }
    }
}
