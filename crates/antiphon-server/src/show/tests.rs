//! What is shown is what was logged, by its own clock; and nothing of it can be changed.

use antiphon_types::{Body, Command, Millis, Observation, Seq};
use axum::body::to_bytes;
use axum::http::Request;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::fixture::{nodes, spec, submit};
use crate::recovery::load;

const BEGINS: Timestamp = Timestamp::from_millis(1_704_067_200_000);

fn events() -> Vec<Event> {
    let by_simulation = |command: Command| Body::Command {
        by: "simulation".into(),
        id: None,
        command,
    };
    let inventory = Observation::Inventory {
        nodes: nodes(),
        partitions: Vec::new(),
        resources: Default::default(),
    };
    let bodies = [
        Body::Observation(inventory),
        by_simulation(submit(spec("tune", 8))),
    ];
    let stamped = (1..).zip(bodies).map(|(seq, body)| Event {
        seq: Seq(seq),
        at: BEGINS,
        body,
    });
    stamped.collect()
}

async fn ask(showing: &Showing, method: &str, path: &str) -> (u16, Value) {
    let token = crate::tokens::read_token(showing.shared.state_dir.as_ref()).unwrap();
    let request = Request::builder().method(method).uri(path);
    let request = request.header("authorization", format!("Bearer {token}"));
    let request = request.header("content-type", "application/json");
    let app = router(showing.shared.clone());
    let answer = app
        .oneshot(request.body(axum::body::Body::from("{}")).unwrap())
        .await;
    let answer = answer.unwrap();
    let status = answer.status().as_u16();
    let body = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

#[tokio::test]
async fn a_simulation_is_shown_by_its_own_clock_and_cannot_be_changed() {
    let dir = tempfile::tempdir().unwrap();
    let config = ShowConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        state_dir: dir.path().to_owned(),
        user: "somebody".into(),
        title: "last month: antiphon".into(),
        begins: BEGINS,
    };
    let showing = show(config).await.unwrap();
    let time = VirtualTime {
        at: BEGINS.after(Millis::from_secs(90)),
        pace: Pace::Times { speed: 100 },
    };
    showing.take(events(), time).await.unwrap();

    let (_, status) = ask(&showing, "GET", "/v1/status").await;
    assert_eq!(status["now_ms"], time.at.as_millis());
    assert_eq!(status["backend"], "simulated");
    let (_, why) = ask(&showing, "GET", "/v1/jobs/job-1/why").await;
    assert!(why["sentences"][0].is_string(), "{why}");
    for path in ["/v1/jobs/job-1/cancel", "/v1/nodes/n0/drain", "/v1/pause"] {
        let (status, body) = ask(&showing, "POST", path).await;
        assert_eq!((status, &body["code"]), (409, &json!("AP0874")), "{path}");
    }
    let kept = load(&*showing.log).await.unwrap();
    assert_eq!(kept.seq(), Seq(2), "it is in the log, as on a server");
    assert_eq!(showing.log.last_seq().await.unwrap(), 2);

    let subject = showing.shared.source.shown().unwrap();
    assert_eq!(
        serde_json::to_value(subject.at(time)).unwrap(),
        json!({
            "title": "last month: antiphon",
            "begins_ms": BEGINS.as_millis(),
            "at_ms": BEGINS.as_millis() + 90_000,
            "pace": "times",
            "speed": 100,
        })
    );
    showing.end();
}
