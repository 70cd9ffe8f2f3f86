//! [`Features`]: the features of Kubernetes 1.37 that are off by default and that this server implements both on and off.

/// A feature, named after its feature gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Workloads and pod groups (KEP-4671).
    GenericWorkload,
    /// Topology constraints of workloads and pod groups (KEP-5732).
    TopologyAwareWorkloadScheduling,
    /// Groups of pod groups (KEP-6012).
    CompositePodGroup,
    /// Eviction requests and evictions as objects (KEP-4563).
    EvictionRequestApi,
}

impl Feature {
    pub const ALL: [Feature; 4] = [
        Feature::GenericWorkload,
        Feature::TopologyAwareWorkloadScheduling,
        Feature::CompositePodGroup,
        Feature::EvictionRequestApi,
    ];

    /// The name of the feature gate.
    pub const fn gate(self) -> &'static str {
        match self {
            Feature::GenericWorkload => "GenericWorkload",
            Feature::TopologyAwareWorkloadScheduling => "TopologyAwareWorkloadScheduling",
            Feature::CompositePodGroup => "CompositePodGroup",
            Feature::EvictionRequestApi => "EvictionRequestAPI",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The features that are on; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u8);

impl Features {
    /// Every feature is on.
    pub const ALL: Features = {
        let [a, b, c, d] = Feature::ALL;
        Features(a.bit() | b.bit() | c.bit() | d.bit())
    };

    /// Turns a feature on.
    #[must_use]
    pub const fn with(self, feature: Feature) -> Self {
        Features(self.0 | feature.bit())
    }

    pub const fn has(self, feature: Feature) -> bool {
        self.0 & feature.bit() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::{Feature, Features};

    #[test]
    fn a_feature_is_on_only_if_it_was_turned_on() {
        for feature in Feature::ALL {
            assert!(!Features::default().has(feature));
            assert!(Features::ALL.has(feature));
            let one = Features::default().with(feature);
            assert!(Feature::ALL.iter().all(|other| one.has(*other) == (*other == feature)));
        }
    }
}
