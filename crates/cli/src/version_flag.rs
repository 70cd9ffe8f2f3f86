//! The flag `--version` of kube-apiserver: prints the version, or sets the one that the server reports.

use anyhow::{Result, anyhow};
use runtime::version;

/// The text to print instead of starting the server; `None` if it starts.
pub(crate) fn apply(value: &str) -> Result<Option<String>> {
    let invalid =
        |why: String| anyhow!("invalid argument {} for \"--version\" flag: {why}", api::field::quote(value));
    match value {
        "raw" => Ok(Some(format!(
            "version.Info{{Major:\"1\", Minor:\"37\", EmulationMajor:\"\", EmulationMinor:\"\", MinCompatibilityMajor:\"\", MinCompatibilityMinor:\"\", GitVersion:{}, GitCommit:\"\", GitTreeState:\"clean\", BuildDate:\"\", GoVersion:\"\", Compiler:\"rustc\", Platform:{}}}",
            api::field::quote(version::reported()),
            api::field::quote(version::PLATFORM),
        ))),
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Some(format!("Kubernetes {}", version::reported()))),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(None),
        _ if value.starts_with('v') => version::set_reported(value).map(|()| None).map_err(invalid),
        _ => {
            let quoted = api::field::quote(value);
            Err(invalid(format!("strconv.ParseBool: parsing {quoted}: invalid syntax")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::apply;

    #[test]
    fn the_version_flag_has_the_values_of_kubernetes() {
        assert_eq!(apply("true").unwrap().unwrap(), "Kubernetes v1.37.0+portcullis");
        assert!(apply("raw").unwrap().unwrap().starts_with("version.Info{Major:\"1\", Minor:\"37\", "));
        assert_eq!(apply("false").unwrap(), None);
        for (value, why) in [
            (
                "v1.36.0",
                "version \"v1.36.0\" must match major/minor/patch of default version \"v1.37.0+portcullis\"",
            ),
            ("v1.37", "could not parse \"v1.37\" as version"),
            ("v1.37.00", "illegal zero-prefixed version component \"00\" in \"v1.37.00\""),
            ("v1.37.0-", "could not parse \"v1.37.0-\" as version"),
            ("x", "strconv.ParseBool: parsing \"x\": invalid syntax"),
        ] {
            let expected = format!("invalid argument \"{value}\" for \"--version\" flag: {why}");
            assert_eq!(apply(value).unwrap_err().to_string(), expected);
        }
        assert_eq!(apply("v1.37.0-vendor.1").unwrap(), None);
        assert_eq!(runtime::version::reported(), "v1.37.0-vendor.1");
    }
}
