//! NodeRestriction for tokens: a kubelet may request tokens for the service accounts of its pods.

use api::{Status, field, meta};
use value::Value;

use super::NodeRequest;
use crate::Operation;

const NO_NAMESPACE: &str = "could not find a secret namespace in PersistentVolumeSource or ClaimRef";

impl NodeRequest<'_, '_> {
    /// The token must be bound to a pod of the node, and its audience must be one that the pod needs.
    pub(super) async fn check_token(&self) -> Result<(), Status> {
        let (Operation::Create, Some(request)) = (self.attributes.operation, self.object) else {
            return Ok(());
        };
        let text = |field| request.str_at(&["spec", "boundObjectRef", field]).unwrap_or_default();
        if text("apiVersion") != "v1" || text("kind") != "Pod" || text("name").is_empty() {
            return Err(self.refuse("node requested token not bound to a pod"));
        }
        let uid = text("uid");
        if uid.is_empty() {
            return Err(self.refuse("node requested token with a pod binding without a uid"));
        }
        let pod = self.pod(text("name"))?;
        if meta::uid(&pod) != uid {
            return Err(self.refuse(format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            )));
        }
        if !self.is_on_node(&pod) {
            return Err(self.refuse("node requested token bound to a pod scheduled on a different node"));
        }
        let audience = match request.list_at(&["spec", "audiences"]) {
            [] => "",
            [one] => one.as_str().unwrap_or_default(),
            _ => return Err(self.refuse("node may only request 0 or 1 audiences")),
        };
        let quoted = field::quote(audience);
        match self.names_audience(&pod, audience) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(why) => return Err(self.refuse(format!("error validating audience {quoted}: {why}"))),
        }
        let account = self.attributes.name.as_str();
        let user = &self.attributes.user.name;
        match self.is_allowed("request-serviceaccounts-token-audience", audience, account).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                let why = format!("{user} is not authorized to request tokens for audience {quoted}");
                Err(self.refuse(why))
            }
            Err(error) => {
                let why =
                    format!("error authorizing {user} to request tokens for audience {quoted}: {error}");
                Err(self.refuse(why))
            }
        }
    }

    /// Whether a projected volume or the CSI driver of a volume needs tokens for the audience.
    fn names_audience(&self, pod: &Value, audience: &str) -> Result<bool, String> {
        let mut errors = Vec::new();
        for volume in pod.list_at(&["spec", "volumes"]) {
            let projected = volume.list_at(&["projected", "sources"]).iter();
            let mut tokens = projected.filter_map(|source| source.get("serviceAccountToken"));
            if tokens.any(|token| token.str_at(&["audience"]).unwrap_or_default() == audience) {
                return Ok(true);
            }
            let driver = match self.driver(pod, volume) {
                Ok(None) => continue,
                Ok(Some(driver)) => driver,
                Err(why) => {
                    errors.push(why);
                    continue;
                }
            };
            match self.cluster.object("storage.k8s.io", "csidrivers", "", &driver) {
                None => errors.push(missing("csidriver.storage.k8s.io", &driver)),
                Some(driver) => {
                    let mut requests = driver.list_at(&["spec", "tokenRequests"]).iter();
                    if requests.any(|request| request.str_at(&["audience"]).unwrap_or_default() == audience) {
                        return Ok(true);
                    }
                }
            }
        }
        if errors.is_empty() { Ok(false) } else { Err(field::aggregate(errors)) }
    }

    fn driver(&self, pod: &Value, volume: &Value) -> Result<Option<String>, String> {
        let name = volume.str_at(&["name"]).unwrap_or_default();
        let claim = if volume.at(&["ephemeral", "volumeClaimTemplate"]).is_some() {
            format!("{}-{name}", meta::name(pod))
        } else if let Some(claim) = volume.str_at(&["persistentVolumeClaim", "claimName"]) {
            claim.to_owned()
        } else {
            return driver_of(volume);
        };
        let found = self.cluster.object("", "persistentvolumeclaims", &self.attributes.namespace, &claim);
        let Some(found) = found else { return Err(missing("persistentvolumeclaim", &claim)) };
        let volume = found.str_at(&["spec", "volumeName"]).unwrap_or_default();
        match self.cluster.object("", "persistentvolumes", "", volume) {
            Some(volume) => volume.get("spec").map_or(Ok(None), |spec| {
                let namespace = [&["azureFile", "secretNamespace"], &["claimRef", "namespace"]];
                let named = namespace.iter().find_map(|path| spec.str_at(*path));
                if spec.get("azureFile").is_some() && named.is_none_or(str::is_empty) {
                    return Err(NO_NAMESPACE.to_owned());
                }
                driver_of(spec)
            }),
            None => Err(missing("persistentvolume", volume)),
        }
    }
}

fn missing(what: &str, name: &str) -> String {
    format!("{what} {} not found", field::quote(name))
}

/// The CSI driver of a volume source. Former in-tree volume types have one, too.
fn driver_of(source: &Value) -> Result<Option<String>, String> {
    const MOVED: &[(&str, &str)] = &[
        ("awsElasticBlockStore", "ebs.csi.aws.com"),
        ("azureDisk", "disk.csi.azure.com"),
        ("azureFile", "file.csi.azure.com"),
        ("cinder", "cinder.csi.openstack.org"),
        ("gcePersistentDisk", "pd.csi.storage.gke.io"),
        ("portworxVolume", "pxd.portworx.com"),
        ("vsphereVolume", "csi.vsphere.vmware.com"),
    ];
    if let Some(own) = source.str_at(&["csi", "driver"]) {
        return Ok(Some(own.to_owned()));
    }
    let moved = MOVED.iter().find(|(field, _)| source.get(field).is_some());
    let kind = source.str_at(&["azureDisk", "kind"]);
    match (moved, kind.filter(|kind| *kind != "Managed")) {
        (Some(("azureDisk", _)), Some(kind)) => {
            Err(format!("kind({kind}) is not supported in csi migration"))
        }
        (moved, _) => Ok(moved.map(|(_, driver)| (*driver).to_owned())),
    }
}
