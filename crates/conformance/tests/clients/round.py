"""A create, list, watch, delete round with the Python client and a typed object."""
from kubernetes import client, config, watch
from kubernetes.client.rest import ApiException

config.load_kube_config()
assert client.VersionApi().get_code().minor == "37"

core, apps = client.CoreV1Api(), client.AppsV1Api()
core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name="python")))

labels = {"app": "web"}
made = apps.create_namespaced_deployment("python", client.V1Deployment(
    metadata=client.V1ObjectMeta(name="web", labels=labels),
    spec=client.V1DeploymentSpec(
        selector=client.V1LabelSelector(match_labels=labels),
        template=client.V1PodTemplateSpec(
            metadata=client.V1ObjectMeta(labels=labels),
            spec=client.V1PodSpec(containers=[client.V1Container(name="c", image="nginx")])))))
assert made.spec.replicas == 1 and made.metadata.uid

listed = apps.list_namespaced_deployment("python", label_selector="app=web")
assert [item.metadata.name for item in listed.items] == ["web"]

apps.patch_namespaced_deployment("web", "python", {"spec": {"replicas": 3}})
apps.patch_namespaced_deployment_scale("web", "python", {"spec": {"replicas": 4}})
apps.delete_namespaced_deployment("web", "python")

seen = []
for event in watch.Watch().stream(apps.list_namespaced_deployment, "python",
                                  resource_version=listed.metadata.resource_version, timeout_seconds=20):
    seen.append((event["type"], event["object"].spec.replicas))
    if event["type"] == "DELETED":
        break
assert seen == [("MODIFIED", 3), ("MODIFIED", 4), ("DELETED", 4)], seen

try:
    apps.read_namespaced_deployment("web", "python")
    raise AssertionError("still there")
except ApiException as error:
    assert error.status == 404 and error.reason == "Not Found", error

core.create_namespaced_config_map("python", {"metadata": {"name": "a"}, "data": {"k": "v"}})
assert core.read_namespaced_config_map("a", "python").data == {"k": "v"}
try:
    core.create_namespaced_config_map("python", {"metadata": {"name": "a"}})
    raise AssertionError("made twice")
except ApiException as error:
    assert error.status == 409, error
print("the round is complete")
