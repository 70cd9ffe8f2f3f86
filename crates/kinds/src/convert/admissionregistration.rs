//! Conversion of `admissionregistration.k8s.io` objects from the served `v1alpha1`, which differs only in a default.

use value::Value;

use super::stored::missing_parameters_deny;

/// Converts a binding from `v1alpha1` to `v1`.
pub fn binding_from_v1alpha1(object: &Value) -> Value {
    let mut object = object.clone();
    missing_parameters_deny(&mut object);
    object
}

#[cfg(test)]
mod tests {
    use super::{Value, binding_from_v1alpha1};

    #[test]
    fn missing_parameters_deny_only_where_the_action_is_not_set() {
        let converted = |reference: &str| {
            let text = format!(r#"{{"spec":{{"policyName":"p"{reference}}}}}"#);
            let binding: Value = value::json::parse(text.as_bytes()).unwrap();
            let binding = binding_from_v1alpha1(&binding);
            binding.str_at(&["spec", "paramRef", "parameterNotFoundAction"]).map(str::to_owned)
        };
        assert_eq!(converted(r#","paramRef":{"name":"a"}"#).as_deref(), Some("Deny"));
        let allow = r#","paramRef":{"name":"a","parameterNotFoundAction":"Allow"}"#;
        assert_eq!(converted(allow).as_deref(), Some("Allow"));
        assert_eq!(converted(""), None);
    }
}
