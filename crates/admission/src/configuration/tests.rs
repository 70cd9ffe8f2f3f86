use super::*;

fn parse(text: &str) -> Result<AdmissionConfiguration, String> {
    AdmissionConfiguration::parse(text.as_bytes())
}

const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n";

#[test]
fn plugins_are_configured_inline_or_by_a_file() {
    let text = format!(
        "{HEAD}plugins:\n- name: A\n  configuration: {{kind: K, size: 1}}\n- name: B\n  path: b.yaml\n- name: C\n"
    );
    let read = parse(&text).unwrap();
    let paths: Vec<_> =
        read.plugins.iter().map(|plugin| (plugin.name.as_str(), plugin.source.clone())).collect();
    assert_eq!(
        paths,
        [
            ("A", PluginConfigurationSource::Inline(br#"{"kind":"K","size":1}"#.to_vec())),
            ("B", PluginConfigurationSource::File("b.yaml".into())),
            ("C", PluginConfigurationSource::Absent),
        ]
    );
}

#[test]
fn inline_plugin_configuration_takes_precedence_over_path() {
    let read = parse(&format!("{HEAD}plugins: [{{name: A, path: a.yaml, configuration: {{}}}}]")).unwrap();
    assert_eq!(read.plugins[0].source, PluginConfigurationSource::Inline(b"{}".to_vec()));
}

#[test]
fn admission_configuration_is_accepted_in_v1_and_v1alpha1_only() {
    assert!(parse(&HEAD.replace("/v1", "/v1alpha1")).is_ok());
    assert_eq!(
        parse(&HEAD.replace("/v1", "/v1beta1")),
        Err("no kind \"AdmissionConfiguration\" is registered for version \"apiserver.config.k8s.io/v1beta1\" in scheme \"k8s.io/apiserver/pkg/server/options/admission.go:51\"".to_owned())
    );
    assert_eq!(parse("kind: X"), Err("Object 'apiVersion' is missing in 'kind: X'".to_owned()));
    assert_eq!(parse("apiVersion: v1"), Err("Object 'Kind' is missing in 'apiVersion: v1'".to_owned()));
}

#[test]
fn unknown_and_repeated_fields_are_refused() {
    assert_eq!(
        parse(&format!("{HEAD}plugins: [{{name: A, pth: x}}]\nextra: 1")),
        Err("strict decoding error: unknown field \"plugins[0].pth\", unknown field \"extra\"".to_owned())
    );
    let error = parse(&format!("{HEAD}plugins: []\nplugins: []")).unwrap_err();
    assert!(error.starts_with("strict decoding error: "), "{error}");
}

#[test]
fn wrong_field_types_are_rejected_with_gos_error_messages() {
    assert_eq!(
        parse(&format!("{HEAD}plugins: [{{name: 1}}]")),
        Err("json: cannot unmarshal number into Go struct field AdmissionPluginConfiguration.plugins.name of type string".to_owned())
    );
    assert_eq!(
        parse(&format!("{HEAD}plugins: x")),
        Err("json: cannot unmarshal string into Go struct field AdmissionConfiguration.plugins of type []v1.AdmissionPluginConfiguration".to_owned())
    );
}

#[test]
fn legacy_configuration_file_is_passed_to_the_plugins_that_support_it() {
    let read = parse("imagePolicy: {kubeConfigFile: /x}").unwrap();
    assert!(read.plugins.iter().all(|plugin| plugin.source == PluginConfigurationSource::ThisFile));
    assert_eq!(read.plugins.len(), 2);
    assert!(parse("somethingElse: {}").is_err());
}

const WEBHOOKS: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: WebhookAdmissionConfiguration\n";

#[test]
fn webhook_kubeconfig_path_must_be_absolute() {
    let read = WebhookAdmission::parse(format!("{WEBHOOKS}kubeConfigFile: /etc/k").as_bytes()).unwrap();
    assert_eq!(read.kubeconfig, "/etc/k");
    assert_eq!(read.static_manifests, "");
    assert_eq!(
        WebhookAdmission::parse(format!("{WEBHOOKS}kubeConfigFile: etc/k").as_bytes()),
        Err("kubeConfigFile: Invalid value: \"etc/k\": must be an absolute file path".to_owned())
    );
}

#[test]
fn webhook_admission_configuration_is_decoded_strictly() {
    let error = |text: &str| WebhookAdmission::parse(text.as_bytes()).unwrap_err();
    assert_eq!(
        error(&format!("{WEBHOOKS}kubeconfigFile: /k")),
        "strict decoding error: unknown field \"kubeconfigFile\""
    );
    assert_eq!(
        error(&format!("{WEBHOOKS}kubeConfigFile: 1")),
        "json: cannot unmarshal number into Go struct field WebhookAdmission.kubeConfigFile of type string"
    );
    assert_eq!(
        error(&WEBHOOKS.replace("/v1", "/v1alpha1")),
        "no kind \"WebhookAdmissionConfiguration\" is registered for version \"apiserver.config.k8s.io/v1alpha1\" in scheme \"k8s.io/apiserver/pkg/admission/plugin/webhook/config/kubeconfig.go:34\""
    );
}
