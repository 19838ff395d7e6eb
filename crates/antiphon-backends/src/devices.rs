//! What GPUs measure of themselves. Says nothing of who uses them, and concludes nothing.

use std::fmt;

use antiphon_types::{Bytes, NodeName};

/// One GPU at one moment; nothing where it does not measure something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceReading {
    /// Its node.
    pub node: NodeName,
    /// Its number there.
    pub gpu: u32,
    /// Part of the last second or so in which a kernel ran on it.
    pub utilization_percent: Option<u32>,
    /// Memory in use.
    pub memory_used: Option<Bytes>,
    /// All of its memory.
    pub memory_total: Option<Bytes>,
    /// Temperature of the chip in degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Power it draws, in milliwatts.
    pub power_mw: Option<u32>,
    /// Why its clocks are held down: by heat or by power. Empty where they are not.
    pub throttled: Vec<&'static str>,
    /// Memory errors that could not be corrected, since the driver was loaded.
    pub ecc_errors: Option<u64>,
    /// The last error that the driver told by number (XID), if it told one.
    pub xid: Option<u32>,
}

/// Whatever can be asked about the GPUs of this machine.
pub trait Devices: fmt::Debug + Send + Sync {
    /// Reads all of them. One that cannot be read is left out.
    fn read(&self, node: &NodeName) -> Vec<DeviceReading>;
}
