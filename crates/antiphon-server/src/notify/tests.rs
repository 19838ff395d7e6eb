//! A real receiver on this machine: what it is sent, that it is tried again, and that nobody waits for it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc as channel;

use antiphon_types::{GateChange, GateOpened};

use super::*;

const QUICK: Retry = Retry {
    first: Duration::from_millis(5),
    max: Duration::from_millis(20),
    tries: 20,
};

/// A request as the receiver got it.
#[derive(Debug)]
struct Received {
    signature: String,
    body: String,
}

/// Listens, and answers with these, then with 204 for good.
fn receiver(answers: &'static [&'static str]) -> (SocketAddr, channel::Receiver<Received>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, received) = channel::channel();
    std::thread::spawn(move || {
        let mut answers = answers.iter();
        for stream in listener.incoming() {
            let answer = answers.next().unwrap_or(&"204 No Content");
            if sender.send(take(stream.unwrap(), answer)).is_err() {
                return;
            }
        }
    });
    (address, received)
}

fn take(mut stream: TcpStream, answer: &str) -> Received {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut length, mut signature) = (0, String::new());
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        match name.to_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap(),
            "antiphon-signature" => signature = value.trim().to_owned(),
            _ => (),
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    write!(
        stream,
        "HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    Received {
        signature,
        body: String::from_utf8(body).unwrap(),
    }
}

fn to(address: SocketAddr, on: Vec<Occasion>) -> NotifyConfig {
    NotifyConfig {
        webhooks: vec![Webhook {
            url: format!("http://{address}/hook"),
            secret: Some("between us".into()),
            on,
        }],
        mails: Vec::new(),
    }
}

fn fact() -> Fact {
    Fact::Gate(GateChange::Open {
        why: GateOpened::Recovered,
    })
}

#[tokio::test]
async fn a_receiver_that_fails_first_gets_the_message_again_signed() {
    let (address, received) = receiver(&["503 Service Unavailable", "500 Oops"]);
    let (notifier, running) = begin_with(to(address, Occasion::ALL.to_vec()), QUICK);
    notifier.unwrap().tell(&State::default(), &fact());
    // The queue is closed now; what was in it is delivered before the task ends.
    running.await.unwrap();
    let got: Vec<Received> = received.try_iter().collect();
    assert_eq!(got.len(), 3, "{got:?}");
    for message in &got {
        assert_eq!(message.body, got[0].body);
        assert_eq!(message.signature, signature("between us", 0, &message.body));
    }
    let body: serde_json::Value = serde_json::from_str(&got[0].body).unwrap();
    assert_eq!(body["event"], "redline");
    assert_eq!(body["text"], "the gate is open: the number has recovered");
}

#[tokio::test]
async fn a_receiver_that_refuses_is_not_asked_again_and_one_that_wants_other_news_never() {
    let (address, received) = receiver(&["400 Bad Request"]);
    let (notifier, running) = begin_with(to(address, Occasion::ALL.to_vec()), QUICK);
    notifier.unwrap().tell(&State::default(), &fact());
    running.await.unwrap();
    assert_eq!(received.try_iter().count(), 1);

    let (notifier, running) = begin_with(to(address, vec![Occasion::Failure]), QUICK);
    notifier.unwrap().tell(&State::default(), &fact());
    running.await.unwrap();
    assert_eq!(received.try_iter().count(), 0);
}

#[tokio::test]
async fn whoever_tells_never_waits_and_the_next_message_says_what_was_dropped() {
    // Nobody takes what comes here: connections wait in the kernel's backlog, or are refused.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let (notifier, running) = begin_with(to(address, Occasion::ALL.to_vec()), QUICK);
    let notifier = notifier.unwrap();
    for _ in 0..QUEUE + 10 {
        notifier.tell(&State::default(), &fact());
    }
    let dropped = notifier.targets[0].dropped.load(Ordering::Relaxed);
    assert!((9..=10).contains(&dropped), "{dropped}");
    running.abort();
}

#[test]
fn the_signature_is_hmac_sha256_of_time_and_body() {
    // `printf '17.{}' | openssl dgst -sha256 -hmac key`
    assert_eq!(
        signature("key", 17, "{}"),
        "t=17,v1=e66392eac42eafc68c35a01c712811e016386c12456975fc3af80c9268568e3a"
    );
}

#[test]
fn a_subject_is_one_line() {
    let mut message = Message::of(&State::default(), &fact()).unwrap();
    message.text = "a\r\nBcc: everybody".into();
    assert_eq!(message.subject(), "a  Bcc: everybody");
}

/// Posting over https once ended in a panic, since nobody had said who does the cryptography.
#[test]
fn a_receiver_that_breaks_a_handshake_is_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let hook = Webhook {
        url: format!("https://{}/", listener.local_addr().unwrap()),
        secret: None,
        on: Occasion::ALL.to_vec(),
    };
    std::thread::spawn(move || drop(listener.accept()));
    let message = Message::of(&State::default(), &fact()).unwrap();
    let failed = post(&hook, &message).expect_err("nobody speaks TLS there");
    assert!(failed.again, "{}", failed.why);
}
