//! Documents that come again when they change.

use serde_json::Value;

use super::Server;
use super::client::Client;

/// The next document of a stream; `None` when it has ended.
fn next(client: &mut Client) -> Option<Value> {
    let mut text = Vec::new();
    while !text.ends_with(b"\n\n\n\n") {
        text.extend(client.chunk()?);
    }
    Some(serde_json::from_slice(&text).unwrap())
}

fn open(server: &Server, path: &str) -> (Client, Value) {
    let mut client = server.connect();
    client.head("GET", path, "");
    assert_eq!(client.reply_head().0, 200, "{path}");
    let first = next(&mut client).unwrap();
    (client, first)
}

#[test]
fn stream_sends_a_document_per_change() {
    let server = Server::start();
    for (round, path) in [
        "/pools/default/bs/default",
        "/pools/default/bucketsStreaming/default",
        "/pools/default/nodeServicesStreaming",
    ]
    .into_iter()
    .enumerate()
    {
        let (mut client, first) = open(&server, path);
        let name = format!("name {round}");
        server.registry.cluster().set_cluster_name(&name).unwrap();
        let second = next(&mut client).unwrap();
        if first.get("rev").is_some() {
            assert_eq!(
                first["rev"].as_i64().unwrap() + 1,
                second["rev"].as_i64().unwrap(),
                "{path}"
            );
            assert_eq!(second["clusterName"], name.as_str());
        }
    }
}

#[test]
fn bucket_stream_shows_changed_settings() {
    let server = Server::start();
    let (mut client, first) = open(&server, "/pools/default/bucketsStreaming/default");
    assert_eq!(first["quota"]["ram"], 64 << 20);
    server
        .post("/pools/default/buckets/default", "ramQuotaMB=65")
        .is(200, "");
    assert_eq!(next(&mut client).unwrap()["quota"]["ram"], 65 << 20);
}

#[test]
fn bucket_streams_end_when_it_is_dropped() {
    let server = Server::start();
    let mut streams: Vec<Client> = ["bs", "bucketsStreaming"]
        .map(|kind| open(&server, &format!("/pools/default/{kind}/default")).0)
        .into();
    let (mut global, _) = open(&server, "/pools/default/nodeServicesStreaming");
    server.registry.drop_bucket("default").unwrap();
    for stream in &mut streams {
        assert_eq!(next(stream), None);
    }
    assert!(next(&mut global).is_some());
}

#[test]
fn streams_end_with_the_server() {
    let mut server = Server::start();
    let (mut client, _) = open(&server, "/pools/default/bs/default");
    server.handle.take().unwrap().stop();
    assert_eq!(next(&mut client), None);
}
