use std::sync::Arc;

use cel::{Activation, Val};

use super::{Age, Compiler, OptionalVariables, Returns};

const ALL: OptionalVariables = OptionalVariables { params: true, authorizer: true, patches: false };

fn compile(expression: &str, optional: OptionalVariables, returns: Returns) -> Result<(), String> {
    Compiler::PLAIN
        .compile(expression, optional, returns, Age::New)
        .map(|_| ())
        .map_err(|error| error.detail().to_owned())
}

fn first_line(outcome: Result<(), String>) -> String {
    outcome.unwrap_err().lines().next().unwrap_or_default().to_owned()
}

#[test]
fn expressions_can_use_only_declared_variables() {
    assert_eq!(compile("params.x == 1", ALL, Returns::Bool), Ok(()));
    let none = OptionalVariables::default();
    assert_eq!(
        first_line(compile("params.x == 1", none, Returns::Bool)),
        "compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')"
    );
    assert_eq!(compile("authorizer.requestResource.check('get').allowed()", ALL, Returns::Bool), Ok(()));
    assert!(compile("authorizer.path('/').check('get').allowed()", none, Returns::Bool).is_err());
    assert!(compile("variables.x", ALL, Returns::Anything).is_err());
}

#[test]
fn the_result_type_of_an_expression_is_checked() {
    assert_eq!(compile("object.x", ALL, Returns::Bool), Err("must evaluate to bool but got dyn".to_owned()));
    assert_eq!(
        compile("1", ALL, Returns::StringOrNull),
        Err("must evaluate to one of [string null_type] but got int".to_owned())
    );
    let patches = OptionalVariables { patches: true, ..ALL };
    assert_eq!(compile("Object{spec: Object.spec{replicas: 1}}", patches, Returns::Object), Ok(()));
    assert_eq!(compile("[JSONPatch{op: 'add', path: '/x', value: 1}]", patches, Returns::Patches), Ok(()));
}

#[test]
fn fields_of_the_request_are_typed() {
    assert_eq!(compile("request.userInfo.extra['a'][0] == 'x'", ALL, Returns::Bool), Ok(()));
    assert!(first_line(compile("request.nope == ''", ALL, Returns::Bool)).contains("undefined field 'nope'"));
}

#[test]
fn a_policy_variable_is_visible_to_later_expressions_only() {
    let compiler = Compiler::composed();
    assert!(compiler.variable("b", "variables.a + 1", ALL, Age::New).is_err());
    compiler.variable("a", "1", ALL, Age::New).unwrap();
    let compiled = compiler.compile("variables.a + 1 == 2", ALL, Returns::Bool, Age::New);
    assert!(compiled.is_ok());
    assert!(compiler.compile("variables.a + 'x' == ''", ALL, Returns::Bool, Age::New).is_err());
    // A variable that does not compile has type `dyn`.
    assert!(compiler.compile("variables.b.c == 2", ALL, Returns::Bool, Age::New).is_ok());
}

#[test]
fn a_compiled_expression_runs_in_another_environment_of_the_same_shape() {
    let compiled = Compiler::composed().compile("object == 3", ALL, Returns::Bool, Age::New).unwrap();
    let env = Compiler::composed().env(ALL, Age::Stored);
    let activation = Activation::new(&env).with("object", Val::Int(3));
    assert_eq!(compiled.program.run(&activation, 100).outcome.unwrap().as_bool(), Some(true));
}

#[test]
fn policy_expressions_are_type_checked_against_the_schemas_of_matched_kinds() {
    let types = |kind: &str, group: &str| {
        let schema = schema::of(group, "v1", kind).unwrap();
        std::sync::Arc::new(super::KindTypes::new(kind, schema::Link::Node(schema)))
    };
    let compiler =
        super::TypedCompiler::new(&types("Deployment", "apps"), Some(Some(&types("ConfigMap", ""))));
    let check = |expression: &str| compiler.check(expression).map_err(|issues| issues.to_string());
    assert!(compiler.variable("containers", "object.spec.template.spec.containers").is_ok());
    assert_eq!(check("object.spec.replicas > 1"), Ok(()));
    assert_eq!(check("variables.containers.all(c, c.image.startsWith('x'))"), Ok(()));
    assert_eq!(check("params.data['k'] == oldObject.metadata.labels['k']"), Ok(()));
    assert_eq!(check("object.metadata.creationTimestamp > timestamp('2020-01-01T00:00:00Z')"), Ok(()));
    assert_eq!(check("object.spec.strategy.rollingUpdate.maxSurge == 1"), Ok(()));
    assert_eq!(
        check("object.replicas > 1"),
        Err("ERROR: <input>:1:7: undefined field 'replicas'\n | object.replicas > 1\n | ......^".to_owned())
    );
    assert!(check("object.spec.replicas > '1'").is_err());
    // As in kube-apiserver, variables lose the types of objects.
    assert_eq!(check("variables.containers.all(c, c.imge == '')"), Ok(()));
    assert!(check("params.dta == null").is_err());
}

/// `runtime.RawExtension` and `meta.v1.FieldsV1` are objects without fields; quantities and arbitrary JSON have no type.
#[test]
fn types_without_a_schema_have_no_fields_in_expressions() {
    let check = |kind: &str, group: &str, expression: &str| {
        let schema = schema::of(group, "v1", kind).unwrap();
        let types = std::sync::Arc::new(super::KindTypes::new(kind, schema::Link::Node(schema)));
        super::TypedCompiler::new(&types, None)
            .check(expression)
            .map_err(|issues| first_line(Err(issues.to_string())))
    };
    assert_eq!(check("ConfigMap", "", "object.metadata.managedFields.all(m, has(m.fieldsV1))"), Ok(()));
    let undefined = |name: &str, at: u32| Err(format!("ERROR: <input>:1:{at}: undefined field '{name}'"));
    assert_eq!(check("ControllerRevision", "apps", "object.data.x == 1"), undefined("x", 12));
    assert_eq!(check("LimitRange", "", "object.spec.limits.all(l, l.max.size() > 0)"), undefined("max", 28));
    let of_custom_versions = |rest: &str| {
        let expression = format!("object.spec.versions.all(v, v.schema.openAPIV3Schema.{rest} == '')");
        check("CustomResourceDefinition", "apiextensions.k8s.io", &expression)
    };
    assert_eq!(of_custom_versions("type"), Ok(()));
    assert_eq!(of_custom_versions("properties.x.type"), undefined("type", 66));
}

/// Expressions that can succeed at run time pass; references to fields that cannot exist are reported.
#[test]
fn tolerant_types_accept_uncertain_fields_and_reject_undefined_ones() {
    let check = |kind: &str, expression: &str| {
        let schema = schema::of("", "v1", kind).unwrap();
        let types = super::KindTypes::tolerant(kind, schema::Link::Node(schema));
        let compiler = super::TypedCompiler::tolerant(&std::sync::Arc::new(types), false);
        compiler.variable("all", "object.spec.containers").ok();
        compiler.check(expression).map_err(|issues| first_line(Err(issues.to_string())))
    };
    for fine in [
        "object.spec.containers.all(c, 'cpu' in c.resources.limits && quantity(c.resources.limits['cpu']).isLessThan(quantity('2')))",
        "object.metadata.creationTimestamp != '' && timestamp(object.metadata.creationTimestamp) != timestamp('2020-01-01T00:00:00Z')",
        "authorizer.requestResource.check('breakglass').allowed()",
        "object == null || oldObject == null || object.metadata.name == oldObject.metadata.name",
        "variables.all.all(c, c.image.startsWith('x'))",
    ] {
        assert_eq!(check("Pod", fine), Ok(()), "{fine}");
    }
    assert_eq!(check("Secret", "object.data['key'] == 'dmFsdWU='"), Ok(()));
    let undefined = |name: &str, at: u32| Err(format!("ERROR: <input>:1:{at}: undefined field '{name}'"));
    assert_eq!(check("Pod", "object.spec.contianers.size() > 0"), undefined("contianers", 12));
    assert_eq!(check("Pod", "variables.all.all(c, c.imge == '')"), undefined("imge", 23));
    assert!(check("Pod", "object.metadata.name == 3").is_err());
}

#[derive(Debug)]
struct StoredCrd(value::Value);

impl crd::CrdSource for StoredCrd {
    fn load(&self) -> Option<value::Value> {
        Some(self.0.clone())
    }
}

/// The schema of a CRD determines the types of fields in policy expressions.
#[test]
fn fields_have_the_types_that_their_formats_say() {
    let text = r#"{"spec":{"group":"example.com","versions":[{"name":"v1","schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":
        {"type":"object","properties":{"at":{"type":"string","format":"date-time"},"day":{"type":"string","format":"date"},
        "long":{"type":"string","format":"duration"},"raw":{"type":"string","format":"byte"},"text":{"type":"string"},
        "either":{"x-kubernetes-int-or-string":true}}}}}}}]}}"#;
    let object = value::json::parse(text.as_bytes()).unwrap();
    let source: Arc<dyn crd::CrdSource> = Arc::new(StoredCrd(object.clone()));
    let crd = crd::CustomResourceDefinition::read(&object, &source, crate::table::overlapping);
    let compiled = crd.versions[0].compiled();
    let schema = schema::Link::Shared(Arc::clone(compiled.schema()));
    let types = Arc::new(super::KindTypes::new("Thing", schema));
    let compiler = super::TypedCompiler::new(&types, None);
    for expression in [
        "object.spec.at > timestamp('2020-01-01T00:00:00Z')",
        "object.spec.day > timestamp('2020-01-01T00:00:00Z')",
        "object.spec.long > duration('1s')",
        "object.spec.raw == b'x'",
        "object.spec.text == 'x'",
        "object.spec.either == 'x' || object.spec.either == 1",
    ] {
        assert!(compiler.check(expression).is_ok(), "{expression}");
    }
    for expression in [
        "object.spec.at == 'x'",
        "object.spec.long == 1",
        "object.spec.raw == 'x'",
        "object.spec.text == b'x'",
    ] {
        assert!(compiler.check(expression).is_err(), "{expression}");
    }
}
