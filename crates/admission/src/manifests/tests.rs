use super::{
    AcceptedFiles, LoadError, LoadOptions, LoadedManifests, ManifestFile, ManifestSet, hash, is_manifest,
    load, load_changed,
};
use crate::policy::BuiltInKinds;

mod doubtful;

const LAX: LoadOptions<'_> = LoadOptions { strict: false, kinds: &BuiltInKinds };

const POLICY: &str = "\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: p1.static.k8s.io
spec:
  matchConstraints:
    resourceRules:
    - apiGroups: ['']
      apiVersions: ['*']
      operations: [CREATE]
      resources: [configmaps]
  validations:
  - expression: '!object.metadata.name.startsWith(\"bad\")'
";

const BINDING: &str = "\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: b1.static.k8s.io
spec:
  policyName: p1.static.k8s.io
  validationActions: [Deny]
";

const WEBHOOK: &str = "\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: w1.static.k8s.io
webhooks:
- name: hook.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig:
    url: https://127.0.0.1:8443/
";

fn file(name: &str, text: &str) -> ManifestFile {
    ManifestFile { path: format!("/d/{name}"), content: Ok(text.as_bytes().to_vec()) }
}

fn loaded(set: ManifestSet, files: &[ManifestFile]) -> Result<LoadedManifests, LoadError> {
    load(set, "/d", files, LAX)
}

/// The load error of a file, without the prefix that all such errors have.
fn report(set: ManifestSet, text: &str) -> String {
    let refused = loaded(set, &[file("a.yaml", text)]).unwrap_err().to_string();
    let what = if set.is_webhooks() { "webhook" } else { "policy" };
    let start = format!("failed to load static {what} manifests from \"/d\": ");
    refused.strip_prefix(&start).unwrap().replace("error loading /d/a.yaml: ", "")
}

fn policies(text: &str) -> String {
    report(ManifestSet::ValidatingPolicies, text)
}

#[test]
fn documents_lists_and_typed_lists_are_read() {
    let both = format!("{POLICY}---\n{BINDING}");
    let indent = |text: &str| text.replace('\n', "\n  ");
    let list = format!("apiVersion: v1\nkind: List\nitems:\n- {}\n- {}\n", indent(POLICY), indent(BINDING));
    let typed = format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyList\nitems:\n- {}\n",
        indent(POLICY)
    );
    for text in [both.as_str(), &list] {
        let loaded = loaded(ManifestSet::ValidatingPolicies, &[file("a.yaml", text)]).unwrap();
        assert_eq!(loaded.len(), 2);
        assert_eq!(loaded.of_kind("ValidatingAdmissionPolicy").len(), 1);
    }
    let typed = loaded(ManifestSet::ValidatingPolicies, &[file("a.yaml", &typed)]).unwrap();
    let [policy] = typed.of_kind("ValidatingAdmissionPolicy") else { panic!() };
    assert_eq!(policy.object.str_at(&["kind"]), Some("ValidatingAdmissionPolicy"));
    assert_eq!(policy.object.str_at(&["spec", "failurePolicy"]), Some("Fail"), "defaults are applied");
    assert_eq!(policy.line, 4);
}

#[test]
fn binding_may_be_in_another_file_and_manifests_are_sorted_by_name() {
    let second = POLICY.replace("p1.", "a0.");
    let files = [file("a.yaml", BINDING), file("b.json", ""), file("c.yml", POLICY), file("d.yaml", &second)];
    let loaded = loaded(ManifestSet::ValidatingPolicies, &files).unwrap();
    let names: Vec<_> = loaded
        .of_kind("ValidatingAdmissionPolicy")
        .iter()
        .map(|m| (api::meta::name(&m.object), m.file.as_str()))
        .collect();
    assert_eq!(names, [("a0.static.k8s.io", "/d/d.yaml"), ("p1.static.k8s.io", "/d/c.yml")]);
}

#[test]
fn manifest_of_a_kind_not_supported_in_the_directory_is_rejected() {
    assert_eq!(policies(WEBHOOK), "unsupported resource type *v1.ValidatingWebhookConfiguration");
    assert_eq!(
        policies(&POLICY.replace("k8s.io/v1\n", "k8s.io/v1beta1\n")),
        "unsupported resource type *v1beta1.ValidatingAdmissionPolicy"
    );
    assert_eq!(
        policies("apiVersion: v1\nkind: ConfigMap\n"),
        "no kind \"ConfigMap\" is registered for version \"v1\" in scheme \"pkg/admission/plugin/policy/manifest/loader/validating_loader.go:35\""
    );
    assert_eq!(
        policies("kind: ValidatingAdmissionPolicy"),
        "Object 'apiVersion' is missing in 'kind: ValidatingAdmissionPolicy'"
    );
    let mixed = format!("{POLICY}---\n{BINDING}---\n{WEBHOOK}");
    assert_eq!(loaded(ManifestSet::Mixed, &[file("a.yaml", &mixed)]).unwrap().len(), 3);
    let item = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n";
    assert!(policies(item).starts_with("failed to decode list item: no kind \"Pod\" is registered"));
}

#[test]
fn manifests_are_decoded_strictly_and_errors_have_a_position() {
    let text = POLICY.replace("  matchConstraints:", "  color: red\n  matchConstraints:");
    let refused = loaded(ManifestSet::ValidatingPolicies, &[file("a.yaml", &text)]).unwrap_err();
    assert!(refused.to_string().ends_with("strict decoding error: unknown field \"spec.color\""));
    let [problem] = refused.problems() else { panic!("{refused:?}") };
    assert_eq!(
        problem.to_string(),
        "error: unknown field \"spec.color\"\n --> /d/a.yaml:6:3\n  |\n6 |   color: red\n  |   ^^^^^^^^^^\n  = help: check the spelling and the indentation"
    );
    let wrong = POLICY.replace("  validations:\n", "  validations: 3\n  variables:\n");
    let refused = loaded(ManifestSet::ValidatingPolicies, &[file("a.yaml", &wrong)]).unwrap_err();
    assert!(refused.to_string().contains("json: cannot unmarshal number into Go struct field"), "{refused}");
    assert_eq!(refused.problems()[0].position.unwrap().line, 12);
}

#[test]
fn manifest_names_need_the_static_suffix_and_must_be_unique() {
    assert_eq!(
        policies(&POLICY.replace("p1.static.k8s.io", "p1")),
        "\"p1\" in file \"/d/a.yaml\" must have a name ending with \".static.k8s.io\""
    );
    let twice = [file("a.yaml", POLICY), file("b.yaml", POLICY)];
    assert!(loaded(ManifestSet::ValidatingPolicies, &twice).unwrap_err().to_string().ends_with(
        "error loading /d/b.yaml: duplicate name \"p1.static.k8s.io\" found in file \"/d/b.yaml\" (previously seen in \"/d/a.yaml\")"
    ));
    assert!(
        policies(&POLICY.replace("p1.static.k8s.io", "''"))
            .starts_with("ValidatingAdmissionPolicy \"\": metadata.name: Required value")
    );
    // A policy and a binding may share a name.
    let same = format!("{POLICY}---\n{}", BINDING.replace("b1.", "p1."));
    assert_eq!(loaded(ManifestSet::ValidatingPolicies, &[file("a.yaml", &same)]).unwrap().len(), 2);
}

#[test]
fn parameters_services_and_foreign_policies_are_refused() {
    let with_kind = POLICY.replace("spec:\n", "spec:\n  paramKind: {apiVersion: v1, kind: ConfigMap}\n");
    assert_eq!(
        policies(&with_kind),
        "ValidatingAdmissionPolicy \"p1.static.k8s.io\": spec.paramKind is not supported for static manifests"
    );
    let foreign = BINDING.replace("p1.static.k8s.io", "api-policy");
    assert_eq!(
        policies(&format!("{POLICY}---\n{foreign}")),
        "binding \"b1.static.k8s.io\": spec.policyName \"api-policy\" must end with \".static.k8s.io\""
    );
    assert_eq!(
        policies(BINDING),
        "binding \"b1.static.k8s.io\" references policy \"p1.static.k8s.io\" which does not exist in the manifest directory"
    );
    let service = WEBHOOK.replace("url: https://127.0.0.1:8443/", "service: {name: s, namespace: ns}");
    assert_eq!(
        report(ManifestSet::ValidatingWebhooks, &service),
        "webhook \"hook.example.com\" in \"w1.static.k8s.io\" (file \"/d/a.yaml\"): clientConfig.service is not supported for static manifests; use clientConfig.url instead"
    );
    assert_eq!(loaded(ManifestSet::ValidatingWebhooks, &[file("a.yaml", WEBHOOK)]).unwrap().len(), 1);
}

#[test]
fn every_problem_is_reported() {
    let files = [
        file("a.yaml", &format!("{}---\nkind: X\n---\n{BINDING}", POLICY.replace("p1.static.k8s.io", "p1"))),
        ManifestFile { path: "/d/b.yaml".into(), content: Err("open /d/b.yaml: permission denied".into()) },
        file("c.yaml", "a: [\n"),
    ];
    let refused = loaded(ManifestSet::ValidatingPolicies, &files).unwrap_err();
    let report: Vec<_> =
        refused.problems().iter().map(|p| (p.file.as_str(), p.position.map(|p| p.line))).collect();
    assert_eq!(report[..3], [("/d/a.yaml", Some(4)), ("/d/a.yaml", Some(15)), ("/d/b.yaml", None)]);
    assert_eq!(refused.problems().len(), 4);
    assert!(refused.to_string().contains("\"p1\" in file"));
}

#[test]
fn manifest_hash_covers_the_file_contents_in_order() {
    assert_eq!(hash(&[]), "");
    assert_eq!(hash(&[file("a.yaml", "")]), "");
    let one = hash(&[file("a.yaml", "x")]);
    assert_eq!(one, "sha256:14f825b2bbc32dd8d196367fa8776873069c12a8954d8da7513aa7704ddd09eb");
    assert_ne!(one, hash(&[file("a.yaml", "y")]));
    assert_eq!(one, hash(&[file("0.yaml", ""), file("b.yaml", "x")]), "names and empty files do not count");
}

#[test]
fn manifests_are_recognized_by_file_extension() {
    for name in ["a.yaml", "a.yml", "a.json", ".hidden.yaml", "A.YAML"] {
        assert!(is_manifest(name), "{name}");
    }
    for name in ["a.txt", "yaml", "a.yaml~", "a.yaml.bak", ""] {
        assert!(!is_manifest(name), "{name}");
    }
}

#[test]
fn incremental_reload_gives_the_same_result_as_a_full_load() {
    let file = |name: &str, text: &str| ManifestFile {
        path: format!("/m/{name}"),
        content: Ok(text.as_bytes().to_vec()),
    };
    let policy = |name: &str| POLICY.replace("p1.static.k8s.io", &format!("{name}.static.k8s.io"));
    let mut accepted = AcceptedFiles::default();
    let mut both = |files: &[ManifestFile]| {
        let again = load_changed(ManifestSet::ValidatingPolicies, "/m", files, LAX, &mut accepted);
        let fresh = load(ManifestSet::ValidatingPolicies, "/m", files, LAX);
        let shown = |outcome: Result<LoadedManifests, LoadError>| match outcome {
            Ok(loaded) => format!("{loaded:?}"),
            Err(refused) => format!("{refused:?}"),
        };
        let (again, fresh) = (shown(again), shown(fresh));
        assert_eq!(again, fresh);
        again
    };
    both(&[file("a.yaml", &policy("a")), file("b.yaml", &policy("b"))]);
    both(&[file("a.yaml", &policy("a")), file("b.yaml", &policy("c"))]);
    // If another file starts to use a name, the later of the two files is reported, even if it has not changed.
    let report = both(&[file("a.yaml", &policy("c")), file("b.yaml", &policy("c"))]);
    assert!(report.contains("duplicate name"), "{report}");
    let report = both(&[file("a.yaml", "a: ["), file("b.yaml", &policy("c"))]);
    assert!(report.contains("a.yaml"), "{report}");
    both(&[file("a.yaml", &policy("a")), file("b.yaml", &policy("b"))]);
    both(&[file("b.yaml", &policy("b"))]);
    both(&[]);
}

#[test]
fn nested_lists_are_accepted_up_to_a_depth_limit() {
    let nested = |depth: usize| {
        let item =
            r#"{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"b1.static.k8s.io"},"spec":{"policyName":"p1.static.k8s.io","validationActions":["Deny"]}}"#.to_owned();
        let list = (0..depth)
            .fold(item, |item, _| format!(r#"{{"apiVersion":"v1","kind":"List","items":[{item}]}}"#));
        [file("a.yaml", POLICY), file("b.json", &list)]
    };
    for depth in [1, super::decode::MAX_LISTS] {
        assert_eq!(loaded(ManifestSet::ValidatingPolicies, &nested(depth)).unwrap().len(), 2, "{depth} deep");
    }
    for depth in [super::decode::MAX_LISTS + 1, 2 * super::decode::MAX_LISTS] {
        let refused = loaded(ManifestSet::ValidatingPolicies, &nested(depth)).unwrap_err().to_string();
        assert!(
            refused.contains("b.json") && refused.contains("nested too deeply"),
            "{depth} deep: {refused}"
        );
    }
}

#[test]
fn list_metadata_and_type_meta_are_decoded_strictly() {
    let list = |text: &str| policies(&format!("apiVersion: v1\nkind: List\n{text}"));
    assert_eq!(
        list("metadata: {resourceVersion: '1', foo: 1}\nitems: []\n"),
        "strict decoding error: unknown field \"metadata.foo\""
    );
    assert_eq!(list("items: [null]\n"), "failed to decode list item: Object 'Kind' is missing in ''");
    assert_eq!(policies(&POLICY.replace("kind:", "Kind:")), "strict decoding error: unknown field \"Kind\"");
    assert!(policies(&POLICY.replace("kind:", "kinds:")).starts_with("Object 'Kind' is missing in "));
}

/// Only the handwritten validation rules of the API apply to manifest files, not its declarative ones.
#[test]
fn a_binding_without_actions_gets_an_error_that_names_them() {
    let binding = BINDING.replace("  validationActions: [Deny]\n", "");
    assert_eq!(
        policies(&format!("{POLICY}---\n{binding}")),
        "ValidatingAdmissionPolicyBinding \"b1.static.k8s.io\": spec.validationActions: Required value: at least one validation action is required"
    );
}
