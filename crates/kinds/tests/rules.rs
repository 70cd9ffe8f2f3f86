//! Runs the pages under `rules/`: each case is an object and the response of Kubernetes 1.37.

#[cfg(test)]
mod page {
    use std::net::IpAddr;

    use api::GroupKind;
    use api::features::Features;
    use kinds::strategy::service::{AddressError, Allocator, Family, PortError, begin_create, begin_update};
    use kinds::{strategy, table, validation};
    use schema::decode;
    use value::{Map, Value, json, write};

    /// An allocator whose addresses and ports are all free.
    struct Ranges;

    impl Allocator for Ranges {
        fn families(&self) -> &[Family] {
            &[Family::V4]
        }

        fn allocate(&mut self, _: Family, address: IpAddr) -> Result<(), AddressError> {
            if address.to_string().starts_with("10.0.0.") {
                return Ok(());
            }
            Err(AddressError::NotInRange(address, "10.0.0.0/24".to_owned()))
        }

        fn allocate_next(&mut self, _: Family) -> Result<IpAddr, AddressError> {
            Ok("10.0.0.99".parse().unwrap())
        }

        fn allocate_port(&mut self, _: i64) -> Result<(), PortError> {
            Ok(())
        }

        fn allocate_next_port(&mut self) -> Result<i64, PortError> {
            Ok(32_000)
        }

        fn release(&mut self, _: Family, _: IpAddr) {}

        fn release_port(&mut self, _: i64) {}
    }

    /// Formats the causes of a rejection in the notation of the pages.
    fn causes(status: &api::Status) -> Vec<String> {
        let status = status.to_value();
        let causes = status.list_at(&["details", "causes"]);
        causes
            .iter()
            .map(|cause| {
                let text = |field| cause.str_at(&[field]).unwrap_or_default();
                format!("refused: {}: {}", text("field"), text("message").replace('\n', "⏎"))
            })
            .collect()
    }

    /// The time of each request: 2026-01-01T00:00:00Z.
    const NOW: i64 = 1_767_225_600;
    const UID: &str = "11111111-1111-1111-1111-111111111111";

    #[derive(Default)]
    struct Case {
        line: usize,
        operation: String,
        kind: String,
        base: String,
        changes: Vec<String>,
        expected: Vec<String>,
    }

    /// Runs every case of a page and returns their number.
    pub(crate) fn run(page: &str) -> usize {
        let mut bases: Vec<(String, Value)> = Vec::new();
        let mut words: Vec<(String, String)> = Vec::new();
        let mut cases: Vec<Case> = Vec::new();
        for (i, line) in page.lines().enumerate() {
            if let Some(base) = line.strip_prefix("base ") {
                let (name, object) = base.split_once(' ').unwrap();
                bases.push((name.to_owned(), json::parse(object.as_bytes()).unwrap()));
            } else if let Some(word) = line.strip_prefix("words ") {
                let (name, text) = word.split_once(" = ").unwrap();
                words.push((format!("{{{name}}}"), text.to_owned()));
            } else if let Some(expected) = line.strip_prefix("    ") {
                let full =
                    words.iter().fold(expected.to_owned(), |text, (name, long)| text.replace(name, long));
                cases.last_mut().unwrap().expected.push(full);
            } else if let Some(change) = line.strip_prefix("  ") {
                cases.last_mut().unwrap().changes.push(change.to_owned());
            } else if !line.is_empty() && !line.starts_with('#') {
                let mut parts = line.split(' ').map(str::to_owned);
                let mut next = || parts.next().unwrap();
                let (operation, kind, base) = (next(), next(), next());
                cases.push(Case { line: i + 1, operation, kind, base, ..Case::default() });
            }
        }
        let failures: Vec<String> = cases
            .iter()
            .filter_map(|case| {
                let base = &bases.iter().find(|(name, _)| *name == case.base).unwrap().1;
                let found = outcome(case, base);
                (found != case.expected).then(|| {
                    let (expected, found) = (case.expected.join("\n  "), found.join("\n  "));
                    format!("line {}: expected\n  {expected}\nfound\n  {found}", case.line)
                })
            })
            .collect();
        assert!(
            failures.is_empty(),
            "{} of {} cases fail\n{}",
            failures.len(),
            cases.len(),
            failures.join("\n")
        );
        cases.len()
    }

    #[expect(clippy::too_many_lines, reason = "one arm per kind of rule")]
    fn outcome(case: &Case, base: &Value) -> Vec<String> {
        let row = table::all().find(|row| row.kind == case.kind).unwrap();
        let kind = GroupKind::new(row.group, row.kind);
        let table::KindStorage::Own(version) = row.storage else { panic!("line {}: not stored", case.line) };
        let schema = row.schema(version).unwrap();
        let read = |object: &Value| {
            let mut object = object.clone();
            object.set_at(&["apiVersion"], api::GroupVersion::new(row.group, version).to_string());
            object.set_at(&["kind"], row.kind);
            let outcome = decode::normalize(&mut object, schema);
            assert_eq!(outcome.type_error(&[]), None, "line {}", case.line);
            table::behavior(&kind).apply_defaults(&mut object);
            object
        };
        // The kinds that need a feature are checked with all features, and at a time.
        let (features, now) = match row.feature {
            Some(_) => (Features::ALL, NOW),
            None => (Features::default(), 0),
        };
        let strategies = strategy::StrategyContext { features, ..strategy::StrategyContext::default() };
        let context = validation::ValidationContext {
            allow_privileged: true,
            now,
            features,
            ..validation::ValidationContext::default()
        };
        let rules = table::behavior(&kind).rules.as_ref().unwrap();
        let named = |mut object: Value| {
            if row.is_namespaced() {
                object.set_at(&["metadata", "namespace"], "default");
            }
            object
        };
        let is_service = row.kind == "Service";
        let as_created = |object: Value| {
            let mut object = read(&named(object));
            object.set_at(&["metadata", "uid"], UID);
            if is_service {
                begin_create(&mut object, &mut Ranges).map_err(|status| causes(&status))?;
            }
            strategy::prepare_create(table::behavior(&kind).strategy.as_ref(), &mut object, &strategies);
            Ok(object)
        };
        let (new, old, errors) = if case.operation == "create" {
            let new = match as_created(changed(base.clone(), &case.changes)) {
                Ok(new) => new,
                Err(refused) => return refused,
            };
            let mut errors = (rules.create)(&new, &context);
            if errors.is_empty() {
                errors = api::validation::meta::create(
                    &new,
                    row.is_namespaced(),
                    api::validation::meta::path_segment,
                );
            }
            (new, None, errors)
        } else {
            let mut old = as_created(base.clone()).unwrap();
            old.set_at(&["metadata", "resourceVersion"], "1");
            old.set_at(&["metadata", "creationTimestamp"], "2026-01-01T00:00:00Z");
            // Restores fields that a create drops because only a subresource may set them.
            for path in [&["status"][..], &["spec", "ephemeralContainers"]] {
                if let Some(value) = read(base).at(path) {
                    let mut former = old.at(path).cloned().unwrap_or_default();
                    for (field, value) in value.as_map().unwrap_or(&Map::new()).iter() {
                        former.set_at(&[field.as_str()], value.clone());
                    }
                    old.set_at(path, if value.as_list().is_some() { value.clone() } else { former });
                }
            }
            let mut new = read(&changed(old.clone(), &case.changes));
            if let Some(generation) = old.at(&["metadata", "generation"]).cloned() {
                new.set_at(&["metadata", "generation"], generation);
            }
            if is_service
                && case.operation == "update"
                && let Err(status) = begin_update(&mut new, &old, &mut Ranges)
            {
                return causes(&status);
            }
            match case.operation.as_str() {
                "update" => strategy::prepare_update(
                    table::behavior(&kind).strategy.as_ref(),
                    &mut new,
                    &old,
                    &strategies,
                ),
                "status" => strategy::prepare_update_status(
                    table::behavior(&kind).strategy.as_ref(),
                    &mut new,
                    &old,
                    &strategies,
                ),
                "ephemeral" => strategy::prepare_ephemeral_containers(&mut new, &old),
                "resize" => strategy::prepare_resize(&mut new, &old),
                other => panic!("line {}: {other}?", case.line),
            }
            let mut errors = api::validation::meta::update_any(&new, &old, row.is_namespaced());
            errors.extend(match case.operation.as_str() {
                "update" => (rules.update)(&new, &old, &context),
                "status" => (rules.update_status)(&new, &old, &context),
                "ephemeral" => validation::pod::update_ephemeral_containers(&new, &old, &context),
                _ => validation::pod::update_resize(&new, &old, &context),
            });
            (new, Some(old), errors)
        };
        if errors.is_empty() {
            let mut found = vec!["accepted".to_owned()];
            if matches!(case.operation.as_str(), "create" | "update") {
                let warnings = table::behavior(&kind).warnings_on_write(&new, old.as_ref());
                found.extend(warnings.into_iter().map(|warning| format!("warned: {warning}")));
            }
            if case.expected.last().is_some_and(|line| line.starts_with("becomes: ")) {
                let mut shown = new;
                decode::fill(&mut shown, schema);
                for field in ["uid", "generation"] {
                    shown.remove_at(&["metadata", field]);
                }
                found.push(format!("becomes: {}", plain(&shown)));
            }
            return found;
        }
        causes(&api::Status::invalid(&kind, "", &errors))
    }

    /// Writes JSON without the escapes that only HTML needs.
    fn plain(object: &Value) -> String {
        write::to_string(object).replace("\\u003c", "<").replace("\\u003e", ">").replace("\\u0026", "&")
    }

    fn changed(mut object: Value, changes: &[String]) -> Value {
        for change in changes {
            if let Some(path) = change.strip_suffix(" deleted") {
                set(&mut object, &steps(path), None);
            } else {
                let (path, value) = change.split_once(" = ").unwrap();
                set(&mut object, &steps(path), Some(json::parse(value.as_bytes()).unwrap()));
            }
        }
        object
    }

    /// Splits `a.b[0].c` into `a`, `b`, `0`, `c`.
    fn steps(path: &str) -> Vec<&str> {
        path.split(['.', '[', ']']).filter(|step| !step.is_empty()).collect()
    }

    fn set(object: &mut Value, path: &[&str], value: Option<Value>) {
        let (step, rest) = path.split_first().unwrap();
        if let (Value::List(list), Ok(index)) = (&mut *object, step.parse::<usize>()) {
            while list.len() <= index {
                list.push(Map::new().into());
            }
            match (rest, value) {
                ([], Some(value)) => list[index] = value,
                ([], None) => drop(list.remove(index)),
                (_, value) => set(&mut list[index], rest, value),
            }
            return;
        }
        let map = object.make_map();
        match (rest, value) {
            ([], Some(value)) => drop(map.insert(*step, value)),
            ([], None) => drop(map.remove(step)),
            (_, value) => {
                let is_index = rest[0].parse::<usize>().is_ok();
                let empty = || if is_index { Value::List(Vec::new()) } else { Map::new().into() };
                set(map.entry_or_insert_with(step, empty), rest, value);
            }
        }
    }
}

#[test]
fn new_pods_are_validated_as_by_kubernetes() {
    assert!(page::run(include_str!("rules/pods.txt")) > 300);
}

#[test]
fn new_workloads_are_validated_as_by_kubernetes() {
    assert!(page::run(include_str!("rules/workloads.txt")) > 250);
}

#[test]
fn new_objects_of_other_kinds_are_validated_as_by_kubernetes() {
    assert!(page::run(include_str!("rules/kinds.txt")) > 350);
}

#[test]
fn changes_of_other_kinds_are_validated_as_by_kubernetes() {
    assert!(page::run(include_str!("rules/kind-updates.txt")) > 50);
}

#[test]
fn changes_are_validated_as_by_kubernetes() {
    assert!(page::run(include_str!("rules/updates.txt")) > 170);
}

#[test]
fn devices_are_validated_as_by_kubernetes() {
    assert!(page::run(include_str!("rules/devices.txt")) > 200);
}

#[test]
fn kinds_of_features_are_validated_as_by_kubernetes() {
    assert!(page::run(include_str!("rules/features.txt")) >= 63);
}

#[test]
fn kinds_of_alpha_and_beta_versions_are_validated_as_by_kubernetes() {
    assert!(page::run(include_str!("rules/pre-release.txt")) >= 25);
}

#[test]
fn declarative_validation_errors_use_the_field_paths_of_the_request_version() {
    let fields = |kind: &str, object: &str, version: &str| -> Vec<String> {
        let object = value::json::parse(object.as_bytes()).unwrap();
        let rules =
            kinds::table::behavior(&api::GroupKind::new("resource.k8s.io", kind)).rules.as_ref().unwrap();
        let context = kinds::validation::ValidationContext { version: version.into(), ..Default::default() };
        (rules.create)(&object, &context).iter().map(ToString::to_string).collect()
    };
    let claim = r#"{"metadata":{"name":"c","namespace":"n"},"spec":{"devices":{"requests":[
        {"name":"r","exactly":{"deviceClassName":"x","allocationMode":"ExactCount","count":1}},
        {"name":"r","exactly":{"deviceClassName":"","allocationMode":"Some"}}]}}}"#;
    let own = "spec.devices.requests[1].exactly.deviceClassName: Required value";
    let stable = fields("ResourceClaim", claim, "v1");
    assert_eq!(stable[0], own);
    assert_eq!(
        stable[1],
        r#"spec.devices.requests[1]: Duplicate value: {"name":"r","exactly":{"deviceClassName":"","allocationMode":"Some"}}"#
    );
    assert!(stable[2].starts_with("spec.devices.requests[1].exactly.allocationMode: Unsupported value"));
    let beta = fields("ResourceClaim", claim, "v1beta1");
    assert_eq!(beta[0], own);
    assert_eq!(
        beta[1],
        r#"spec.devices.requests[1]: Duplicate value: {"name":"r","deviceClassName":"","allocationMode":"Some"}"#
    );
    assert!(beta[2].starts_with("spec.devices.requests[1].allocationMode: Unsupported value"));
    let slice = r#"{"metadata":{"name":"s"},"spec":{"driver":"d","nodeName":"n","pool":{"name":"p","resourceSliceCount":1},
        "devices":[{"name":"D","taints":[{"key":"k"}]}]}}"#;
    let beta = fields("ResourceSlice", slice, "v1beta1");
    assert!(beta[0].starts_with("spec.devices[0].name: Invalid value"), "{beta:?}");
    assert_eq!(beta[1], "spec.devices[0].basic.taints[0].effect: Required value");
}

#[test]
fn privileged_containers_need_the_servers_permission() {
    let pod = value::json::parse(
        br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"n"},"spec":{"containers":[{"name":"c","image":"x","securityContext":{"privileged":true}}]}}"#,
    );
    let mut pod = pod.unwrap();
    let kind = api::GroupKind::new("", "Pod");
    kinds::table::behavior(&kind).apply_defaults(&mut pod);
    let rules = kinds::table::behavior(&kind).rules.as_ref().unwrap();
    let errors = |allow_privileged| {
        let context = kinds::validation::ValidationContext { allow_privileged, ..Default::default() };
        (rules.create)(&pod, &context).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(errors(true), Vec::<String>::new());
    assert_eq!(
        errors(false),
        ["spec.containers[0].securityContext.privileged: Forbidden: disallowed by cluster policy"]
    );
}
