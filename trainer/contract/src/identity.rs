//! What a trainer computes, as hashes: two trainers with one identity give the same bits, whatever their sources look like.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::device::DeviceKind;
use crate::json::Document;
use crate::schema;

/// What `trainer identity` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    pub cpu: OnDevice,
    pub cuda: OnDevice,
    pub hip: OnDevice,
}

impl Document for Identity {
    const SCHEMA: &'static str = schema::IDENTITY;
}

impl Identity {
    pub fn on(&self, device: DeviceKind) -> &OnDevice {
        match device {
            DeviceKind::Cpu => &self.cpu,
            DeviceKind::Cuda => &self.cuda,
            DeviceKind::Hip => &self.hip,
        }
    }
}

/// What identifies runs on one kind of device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnDevice {
    /// Hash of the parts, hexadecimal.
    pub identity: String,
    /// Hashes by what they are of, so that a change can be placed.
    pub parts: BTreeMap<String, String>,
}
