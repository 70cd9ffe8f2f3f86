"""A definition and a round of its objects with the Python client: typed for the one, by name for the other."""
import time

from kubernetes import client, config, watch
from kubernetes.client.rest import ApiException

config.load_kube_config()
extensions, custom = client.ApiextensionsV1Api(), client.CustomObjectsApi()
GROUP, PLURAL, NAME = "python.example.com", "crontabs", "crontabs.python.example.com"

props = client.V1JSONSchemaProps
schema = props(type="object", properties={
    "spec": props(
        type="object", required=["cronSpec"],
        properties={
            "cronSpec": props(type="string", pattern=r"^[0-9* ]+$"),
            "replicas": props(type="integer", default=1, maximum=10),
            "ports": props(type="array", x_kubernetes_list_type="map", x_kubernetes_list_map_keys=["name"],
                           items={"type": "object", "required": ["name"], "properties": {
                               "name": {"type": "string"}, "port": {"type": "integer"}}}),
        },
        x_kubernetes_validations=[client.V1ValidationRule(rule="self.replicas != 7", message="seven is taken")]),
    "status": props(type="object", properties={"replicas": props(type="integer")}),
})


def version(name, storage):
    return client.V1CustomResourceDefinitionVersion(
        name=name, served=True, storage=storage,
        schema=client.V1CustomResourceValidation(open_apiv3_schema=schema),
        subresources=client.V1CustomResourceSubresources(
            status={}, scale=client.V1CustomResourceSubresourceScale(
                spec_replicas_path=".spec.replicas", status_replicas_path=".status.replicas")))


made = extensions.create_custom_resource_definition(client.V1CustomResourceDefinition(
    api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition",
    metadata=client.V1ObjectMeta(name=NAME),
    spec=client.V1CustomResourceDefinitionSpec(
        group=GROUP, scope="Namespaced", versions=[version("v1", True), version("v2", False)],
        names=client.V1CustomResourceDefinitionNames(plural=PLURAL, kind="CronTab", short_names=["ct"]))))
assert made.spec.names.list_kind == "CronTabList", made.spec.names

deadline = time.monotonic() + 30
while not any(c.type == "Established" and c.status == "True"
              for c in (extensions.read_custom_resource_definition(NAME).status.conditions or [])):
    assert time.monotonic() < deadline, "never established"
    time.sleep(0.05)


def tab(name, **spec):
    return {"apiVersion": f"{GROUP}/v1", "kind": "CronTab", "metadata": {"name": name},
            "spec": {"cronSpec": "* * *", **spec}}


where = (GROUP, "v1", "default", PLURAL)
one = custom.create_namespaced_custom_object(*where, tab("one", unknown="dropped"))
assert one["spec"] == {"cronSpec": "* * *", "replicas": 1}, one
for bad, said in [(tab("bad", replicas=7), "seven is taken"), (tab("bad", replicas=11), "less than or equal to 10"),
                  ({**tab("bad"), "spec": {}}, "spec.cronSpec: Required value")]:
    try:
        custom.create_namespaced_custom_object(*where, bad)
        raise AssertionError(f"made: {bad}")
    except ApiException as error:
        assert error.status == 422 and said in error.body, error

listed = custom.list_namespaced_custom_object(*where)
assert listed["kind"] == "CronTabList" and len(listed["items"]) == 1
assert custom.get_namespaced_custom_object(GROUP, "v2", "default", PLURAL, "one")["apiVersion"] == f"{GROUP}/v2"

changed = custom.patch_namespaced_custom_object(*where, "one", {"spec": {"replicas": 2}})
assert changed["spec"]["replicas"] == 2 and changed["metadata"]["generation"] == 2
status = custom.patch_namespaced_custom_object_status(*where, "one", {"spec": {"replicas": 9}, "status": {"replicas": 2}})
assert status["status"] == {"replicas": 2} and status["spec"]["replicas"] == 2
scale = custom.get_namespaced_custom_object_scale(*where, "one")
assert (scale["kind"], scale["spec"], scale["status"]["replicas"]) == ("Scale", {"replicas": 2}, 2), scale
custom.patch_namespaced_custom_object_scale(*where, "one", {"spec": {"replicas": 3}})

read = custom.get_namespaced_custom_object(*where, "one")
stale = dict(read, metadata=dict(read["metadata"], resourceVersion=one["metadata"]["resourceVersion"]))
try:
    custom.replace_namespaced_custom_object(*where, "one", stale)
    raise AssertionError("replaced what had changed")
except ApiException as error:
    assert error.status == 409, error
read["spec"]["ports"] = [{"name": "http", "port": 80}]
custom.replace_namespaced_custom_object(*where, "one", read)

# Server-side apply: items of a keyed list have owners of their own, and others' fields are not to be taken.
def apply(manager, spec, force=None):
    body = {"apiVersion": f"{GROUP}/v1", "kind": "CronTab", "metadata": {"name": "one"}, "spec": spec}
    return custom.patch_namespaced_custom_object(*where, "one", body, field_manager=manager, force=force,
                                                 _content_type="application/apply-patch+yaml")


applied = apply("mine", {"ports": [{"name": "https", "port": 443}]})
assert [port["name"] for port in applied["spec"]["ports"]] == ["http", "https"], applied
try:
    apply("mine", {"ports": [{"name": "http", "port": 81}]})
    raise AssertionError("the apply took fields of another manager")
except ApiException as error:
    assert error.status == 409 and '.spec.ports[name=\\"http\\"].port' in error.body, error.body
applied = apply("mine", {"ports": [{"name": "http", "port": 81}]}, force=True)
assert applied["spec"]["ports"] == [{"name": "http", "port": 81}], applied

custom.delete_namespaced_custom_object(*where, "one")
seen = []
for event in watch.Watch().stream(custom.list_namespaced_custom_object, *where,
                                  resource_version=listed["metadata"]["resourceVersion"], timeout_seconds=20):
    seen.append((event["type"], event["object"]["spec"]["replicas"]))
    if event["type"] == "DELETED":
        break
assert seen[:1] == [("MODIFIED", 2)] and seen[-1] == ("DELETED", 3), seen

extensions.delete_custom_resource_definition(NAME)
deadline = time.monotonic() + 30
while True:
    try:
        extensions.read_custom_resource_definition(NAME)
    except ApiException as error:
        assert error.status == 404, error
        break
    assert time.monotonic() < deadline, "never gone"
    time.sleep(0.05)
try:
    custom.list_namespaced_custom_object(*where)
    raise AssertionError("still served")
except ApiException as error:
    assert error.status == 404, error
print("the round is complete")
