//! What GPUs measure of themselves, and which job holds each.

use std::sync::Arc;

use antiphon_backends::DeviceReading;
use antiphon_types::Bytes;
use axum::Json;
use axum::extract::State;

use super::Shared;
use super::model::{DeviceList, DeviceView};
use crate::devices::holder;

/// The newest readings; none where the backend's GPUs cannot be measured from here.
#[utoipa::path(get, path = "/v1/devices", responses((status = 200, body = DeviceList)))]
pub(crate) async fn devices(State(shared): State<Arc<Shared>>) -> Json<DeviceList> {
    let state = shared.view.state();
    let view = |reading: DeviceReading| DeviceView {
        job: holder(&state, &reading.node, reading.gpu).map(|job| job.to_string()),
        node: reading.node.to_string(),
        gpu: reading.gpu,
        utilization_percent: reading.utilization_percent,
        memory_used_bytes: reading.memory_used.map(Bytes::get),
        memory_total_bytes: reading.memory_total.map(Bytes::get),
        temperature_c: reading.temperature_c,
        power_mw: reading.power_mw,
        throttled: reading.throttled.into_iter().map(Into::into).collect(),
        ecc_errors: reading.ecc_errors,
        xid: reading.xid,
    };
    let devices = shared.devices.newest().into_iter().map(view).collect();
    Json(DeviceList { devices })
}
