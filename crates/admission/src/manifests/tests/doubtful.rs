use super::{
    AcceptedFiles, BINDING, LAX, LoadOptions, ManifestFile, ManifestSet, POLICY, WEBHOOK, file, hash, load,
    load_changed, loaded,
};
use crate::manifests::{EXPECTED_OBJECTS, ManifestProblem};
use crate::policy::BuiltInKinds;

const STRICT: LoadOptions<'_> = LoadOptions { strict: true, kinds: &BuiltInKinds };

/// The warnings of a directory that loads, one line each.
fn warnings(set: ManifestSet, files: &[ManifestFile]) -> Vec<String> {
    load(set, "/d", files, LAX).unwrap().warnings.iter().map(ManifestProblem::one_line).collect()
}

#[test]
fn typos_in_expressions_are_warned_about_where_they_are_and_refused_if_strict() {
    let typed = POLICY.replace("['*']", "[v1]").replace("[configmaps]", "[pods]");
    let typo =
        typed.replace("!object.metadata.name.startsWith(\"bad\")", "object.spec.contianers.size() > 0");
    let files = |policy: &str| [file("a.yaml", &format!("{policy}---\n{BINDING}"))];
    assert_eq!(warnings(ManifestSet::ValidatingPolicies, &files(&typed)), Vec::<String>::new());
    assert_eq!(
        warnings(ManifestSet::ValidatingPolicies, &files(&typo)),
        [
            "/d/a.yaml:13:17: ValidatingAdmissionPolicy \"p1.static.k8s.io\": spec.validations[0].expression: undefined field 'contianers' at line 1, column 12 of the expression"
        ]
    );
    let refused = load(ManifestSet::ValidatingPolicies, "/d", &files(&typo), STRICT).unwrap_err();
    assert!(refused.to_string().contains("undefined field 'contianers'"), "{refused}");
    assert!(load(ManifestSet::ValidatingPolicies, "/d", &files(&typed), STRICT).is_ok());
    // No warning if the expression is valid for one of the kinds, or if some kinds are unknown.
    for resources in ["[pods, deployments]", "[pods, '*']", "[pods, deployments/scale]", "[pods, unknowns]"] {
        let several = typed.replace("['']", "['', apps]").replace("[pods]", resources);
        let fine = several.replace("!object.metadata.name.startsWith(\"bad\")", "object.spec.replicas > 0");
        assert_eq!(
            warnings(ManifestSet::ValidatingPolicies, &files(&fine)),
            Vec::<String>::new(),
            "{resources}"
        );
    }
    let lists =
        "object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : []) != []";
    let alike = typed.replace("!object.metadata.name.startsWith(\"bad\")", lists);
    assert_eq!(warnings(ManifestSet::ValidatingPolicies, &files(&alike)), Vec::<String>::new());
    let number = typed.replace("!object.metadata.name.startsWith(\"bad\")", "object.metadata.name == 3");
    assert_eq!(warnings(ManifestSet::ValidatingPolicies, &files(&number)).len(), 1);
    let several = typo.replace("['']", "['', apps]").replace("[pods]", "[pods, deployments, pods/status]");
    assert_eq!(warnings(ManifestSet::ValidatingPolicies, &files(&several)).len(), 1);
}

#[test]
fn every_expression_of_both_kinds_of_policies_is_checked() {
    let spec = "  matchConditions: [{name: m, expression: 'object.spec.a1 == 1'}]
  variables: [{name: v, expression: 'object.spec.a2'}, {name: all, expression: 'object.spec.containers'}]
";
    let validating = format!(
        "{}{spec}  auditAnnotations: [{{key: k, valueExpression: 'string(object.spec.a5)'}}]\n",
        POLICY.replace("['*']", "[v1]").replace("[configmaps]", "[pods]").replace(
            "'!object.metadata.name.startsWith(\"bad\")'",
            "'variables.all.all(c, c.a3 == 1)'\n    messageExpression: 'string(object.spec.a4)'"
        )
    );
    let fields = |set: ManifestSet, text: &str| -> Vec<String> {
        let found = load(set, "/d", &[file("a.yaml", text)], LAX).unwrap().warnings;
        found.into_iter().map(|warning| warning.field).filter(|field| !field.is_empty()).collect()
    };
    assert_eq!(
        fields(ManifestSet::ValidatingPolicies, &validating),
        [
            "spec.variables[0].expression",
            "spec.matchConditions[0].expression",
            "spec.validations[0].expression",
            "spec.validations[0].messageExpression",
            "spec.auditAnnotations[0].valueExpression",
        ]
    );
    let (before, _) = validating.split_once("  validations:").unwrap();
    let mutating = format!(
        "{}{spec}  failurePolicy: Fail\n  reinvocationPolicy: Never\n  mutations:\n  - patchType: ApplyConfiguration\n    applyConfiguration: {{expression: 'Object{{spec: Object.spec{{hostname: object.spec.a6}}}}'}}\n  - patchType: JSONPatch\n    jsonPatch: {{expression: '[JSONPatch{{op: \"add\", path: \"/x\", value: object.spec.a7}}]'}}\n",
        before.replace("kind: Validating", "kind: Mutating")
    );
    assert_eq!(
        fields(ManifestSet::MutatingPolicies, &mutating),
        [
            "spec.variables[0].expression",
            "spec.matchConditions[0].expression",
            "spec.mutations[0].applyConfiguration.expression",
            "spec.mutations[1].jsonPatch.expression",
        ]
    );
}

#[test]
fn manifests_without_effect_cause_a_warning() {
    assert_eq!(
        warnings(ManifestSet::ValidatingPolicies, &[file("a.yaml", POLICY)]),
        [
            "/d/a.yaml:1:1: ValidatingAdmissionPolicy \"p1.static.k8s.io\" has no binding, so it is not enforced"
        ]
    );
    assert_eq!(
        warnings(ManifestSet::ValidatingPolicies, &[file("a.yaml", "# later\n")]),
        ["/d: the directory has no objects, so nothing is enforced from it"]
    );
    assert!(load(ManifestSet::ValidatingPolicies, "/d", &[], STRICT).is_err());
    // The `caBundle` is "no certificate" in base64.
    let hook = WEBHOOK.replace("    url:", "    caBundle: bm8gY2VydGlmaWNhdGU=\n    url:");
    let [warning] = warnings(ManifestSet::ValidatingWebhooks, &[file("a.yaml", &hook)]).try_into().unwrap();
    assert!(warning.starts_with("/d/a.yaml:10:15: ValidatingWebhookConfiguration"), "{warning}");
    assert!(warning.contains("has no PEM-encoded certificate in it"), "{warning}");
    assert!(warnings(ManifestSet::ValidatingWebhooks, &[file("a.yaml", WEBHOOK)]).is_empty());
}

#[test]
fn expected_objects_list_must_match_the_manifests_and_cannot_be_removed() {
    let both = file("a.yaml", &format!("{POLICY}---\n{BINDING}"));
    let list = |text: &str| file(EXPECTED_OBJECTS, text);
    let good = load(ManifestSet::ValidatingPolicies, "/d", std::slice::from_ref(&both), LAX)
        .unwrap()
        .expected_objects();
    assert_eq!(
        good,
        "# The objects of this directory. Written by `portcullis check --write-expected`.\nValidatingAdmissionPolicy/p1.static.k8s.io\nValidatingAdmissionPolicyBinding/b1.static.k8s.io\n"
    );
    let mut accepted = AcceptedFiles::default();
    let mut problems = |files: &[ManifestFile]| -> Vec<String> {
        let outcome = load_changed(ManifestSet::ValidatingPolicies, "/d", files, LAX, &mut accepted);
        outcome.map_or_else(|r| r.problems().iter().map(ManifestProblem::one_line).collect(), |_| Vec::new())
    };
    let none: [&str; 0] = [];
    assert_eq!(problems(std::slice::from_ref(&both)), none, "without a list anything goes");
    assert_eq!(problems(&[both.clone(), list(&good)]), none);
    assert_eq!(
        problems(&[file("a.yaml", POLICY), list(&good)]),
        [
            "/d/expected-objects.txt:3:1: ValidatingAdmissionPolicyBinding `b1.static.k8s.io` is expected, but no file of the directory has it"
        ]
    );
    assert_eq!(problems(&[file("a.yaml", ""), list(&good)]).len(), 2);
    assert_eq!(
        problems(&[both.clone(), list("ValidatingAdmissionPolicy/p1.static.k8s.io # a comment\n")]),
        [
            "/d/a.yaml:15:1: ValidatingAdmissionPolicyBinding `b1.static.k8s.io` is not listed in expected-objects.txt"
        ]
    );
    assert_eq!(
        problems(&[both.clone(), list("p1.static.k8s.io\n")])[0],
        "/d/expected-objects.txt:1:1: `p1.static.k8s.io` is not KIND/NAME"
    );
    assert!(problems(&[both.clone(), list("")])[0].contains("lists no objects"));
    assert!(problems(std::slice::from_ref(&both))[0].contains("expected-objects.txt is gone"));
    assert_eq!(problems(&[both.clone(), list(&good)]), none, "restored");
    assert_eq!(hash(&[both.clone(), list(&good)]), hash(&[both]), "the list is no manifest");
}

#[test]
fn documents_with_only_comments_are_ignored_and_errors_have_the_right_line() {
    for text in [
        format!("# Licensed to everybody\n---\n{POLICY}"),
        format!("---\n# Licensed\n---\n\n---\n{POLICY}---\n# end\n"),
    ] {
        assert_eq!(
            loaded(ManifestSet::ValidatingPolicies, &[file("a.yaml", &text)]).unwrap().len(),
            1,
            "{text}"
        );
    }
    assert!(loaded(ManifestSet::ValidatingPolicies, &[file("a.yaml", "# c\n---\nnull\n")]).is_err());
    let first_problem = |set: ManifestSet, text: &str| {
        let refused = loaded(set, &[file("a.yaml", text)]).unwrap_err();
        (refused.problems()[0].one_line(), refused.to_string())
    };
    let hook = WEBHOOK.replace("    url:", "    caBundle: '#no'\n    url:");
    assert_eq!(
        first_problem(ManifestSet::ValidatingWebhooks, &hook).0,
        "/d/a.yaml:10:15: illegal base64 data at input byte 0"
    );
    let list = format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfigurationList\nitems:\n- {}\n",
        hook.replace('\n', "\n  ")
    );
    assert_eq!(
        first_problem(ManifestSet::ValidatingWebhooks, &list).0,
        "/d/a.yaml:13:17: illegal base64 data at input byte 0"
    );
    for name in ["", "generateName: p"] {
        let (shown, report) =
            first_problem(ManifestSet::ValidatingPolicies, &POLICY.replace("name: p1.static.k8s.io", name));
        assert!(shown.ends_with("metadata.name: Required value: name is required"), "{shown}");
        assert!(report.ends_with("metadata.name: Required value: name is required"), "{report}");
    }
}
