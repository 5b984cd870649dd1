//! Requests as any client may send them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

/// The address of a server that ends with the tests.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(|| quadrille_serve::serve(listener));
    address
}

/// Sends a request and reads the status line and all that follows.
fn sent(address: SocketAddr, request: &str, kind: &str, body: &str) -> String {
    sent_to("localhost", address, request, kind, body)
}

/// The same to a server by the name `host`.
fn sent_to(host: &str, address: SocketAddr, request: &str, kind: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let head = format!("{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n");
    // A server that refuses a long body need not read it.
    let _ = stream.write_all(format!("{head}Content-Type: {kind}\r\n\r\n{body}").as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

const JSON: &str = "application/json";

#[test]
fn the_page_and_its_answers_are_served() {
    let address = server();
    let page = sent(address, "GET /", JSON, "");
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("text/html") && page.contains("gpt3-175b"));
    assert!(page.contains("\"selene\"") && !page.contains("\"local\""), "a cluster without devices is offered");
    let question = r#"{"model":"gpt2-124m","cluster":"dgx-a100","gpus":"8","global_batch":"64"}"#;
    let answers: Vec<_> = (0..3).map(|_| thread::spawn(move || sent(address, "POST /plan", JSON, question))).collect();
    for answer in answers {
        let answer = answer.join().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"advised\""), "{answer}");
    }
}

/// The document of an answer, if that is one.
fn document(answer: &str) -> serde_json::Value {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    serde_json::from_str(body).unwrap()
}

#[test]
fn layouts_of_an_answer_are_drawn_when_they_are_asked_for() {
    let address = server();
    let question = r#"{"model":"gpt2-1558m","cluster":"dgx-a100","gpus":"16","global_batch":"64"}"#;
    let found = document(&sent(address, "POST /plan", JSON, question));
    let plans = found["plans"].as_array().unwrap();
    for plan in plans {
        assert!(plan.get("mesh").is_none() && plan.get("timeline").is_none());
        let chosen = format!(r#"{{"request":{question},"layout":{}}}"#, plan["layout"]);
        let drawn = document(&sent(address, "POST /layout", JSON, &chosen));
        let step = drawn["timeline"]["step_s"].as_f64().unwrap();
        let price = plan["time_s"].as_f64().unwrap();
        assert!(drawn["mesh"]["ranks"] == 16 && step <= price && step > 0.99 * price, "{step} {price}");
    }
    let other = question.replace(r#""16""#, r#""8""#);
    for (question, layout, reason) in [
        (other.as_str(), plans[0]["layout"].to_string(), "other devices"),
        (question, "{}".to_owned(), "grid"),
        (question, "3".to_owned(), "layout: "),
    ] {
        let chosen = format!(r#"{{"request":{question},"layout":{layout}}}"#);
        let answer = sent(address, "POST /layout", JSON, &chosen);
        assert!(answer.starts_with("HTTP/1.1 422") && answer.contains(reason), "{answer}");
    }
}

#[test]
fn a_question_that_was_asked_is_answered_again_with_the_same_words() {
    let address = server();
    let question = r#"{"model":"gpt2-124m","cluster":"dgx-a100","gpus":"8","global_batch":"64"}"#;
    let whole = document(&sent(address, "POST /plan", JSON, question));
    // A search of its own would have other seconds.
    let again = document(&sent(address, "POST /plan?round=0", JSON, question));
    assert_eq!(whole, again);
}

#[test]
fn other_names_are_not_served() {
    let address = server();
    let question = r#"{"model":"gpt2-124m","cluster":"dgx-a100","gpus":"8","global_batch":"64"}"#;
    for (host, status) in [
        (address.to_string(), "200"),
        (format!("localhost:{}", address.port()), "200"),
        (format!("evil.example:{}", address.port()), "421"),
        ("192.168.1.5".to_owned(), "421"),
    ] {
        for (request, body) in [("GET /", ""), ("POST /plan", question)] {
            let answer = sent_to(&host, address, request, JSON, body);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request} of {host}: {answer}");
        }
    }
}

#[test]
fn more_questions_than_may_wait_are_refused() {
    let address = server();
    // Of a search long enough that all are there together.
    let question = r#"{"model":"gpt3-175b","cluster":"selene","gpus":"1024","global_batch":"1536"}"#;
    let clients = 3 * (1 + quadrille_serve::MOST_WAITING);
    let asking = |_| thread::spawn(move || sent(address, "POST /plan", JSON, question));
    let answers: Vec<_> =
        (0..clients).map(asking).collect::<Vec<_>>().into_iter().map(|each| each.join().unwrap()).collect();
    let with = |status: &str| answers.iter().filter(|answer| answer.starts_with(&format!("HTTP/1.1 {status}"))).count();
    assert_eq!(with("200") + with("503"), clients);
    assert!(with("200") > quadrille_serve::MOST_WAITING && with("503") > 0, "{} and {}", with("200"), with("503"));
    assert!(answers.iter().all(|answer| answer.contains("no-store") && answer.contains("frame-ancestors 'none'")));
}

#[test]
fn what_is_no_question_is_refused_with_a_reason() {
    let address = server();
    for (request, kind, body, status, part) in [
        ("POST /plan", JSON, r#"{"model":"gpt9"}"#.to_owned(), "422", "unknown model"),
        ("POST /plan", JSON, r#"{"file":"/etc/passwd"}"#.to_owned(), "422", "unknown field"),
        ("POST /plan", JSON, "{".to_owned(), "400", "error"),
        // A form of another site is no question: browsers ask before they send JSON elsewhere.
        ("POST /plan", "text/plain", r#"{"model":"gpt2-124m"}"#.to_owned(), "415", "error"),
        (
            "POST /plan",
            JSON,
            format!(r#"{{"model":"{}"}}"#, "x".repeat(quadrille_serve::LONGEST)),
            "413",
            "262144 bytes",
        ),
        ("GET /plan", JSON, String::new(), "405", "asked by POST"),
        ("GET /Cargo.toml", JSON, String::new(), "404", "the page is at /"),
    ] {
        let answer = sent(address, request, kind, &body);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(part),
            "{request} {kind}: {answer}"
        );
    }
}
