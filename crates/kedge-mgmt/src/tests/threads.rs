//! The threads of the task pools.

use kedge_executor::{Pool, ThreadCount};
use serde_json::json;

use super::Server;

const PATH: &str = "/pools/default/settings/memcached/global";

fn threads(server: &Server, pool: Pool) -> usize {
    let pools = server.pools.executor().pools();
    pools
        .iter()
        .find(|info| info.pool == pool)
        .expect("four pools")
        .threads
}

#[test]
fn thread_settings_are_shown_and_changed() {
    let server = Server::start();
    let document = |reader, writer| {
        json!({
            "num_reader_threads": reader,
            "num_writer_threads": writer,
            "num_auxio_threads": 1,
            "num_nonio_threads": 1,
        })
    };
    assert_eq!(server.get(PATH).json(), document(json!(1), json!(1)));
    let reply = server.post(
        PATH,
        "num_reader_threads=3&num_writer_threads=disk_io_optimized",
    );
    let expected = document(json!(3), json!("disk_io_optimized"));
    assert_eq!((reply.status, reply.json()), (200, expected.clone()));
    assert_eq!(server.get(PATH).json(), expected);
    assert_eq!(threads(&server, Pool::Reader), 3);
    let cores = std::thread::available_parallelism().unwrap().get();
    let optimized = ThreadCount::DiskIoOptimized.count(Pool::Writer, cores);
    assert_eq!(threads(&server, Pool::Writer), optimized);
    // Tasks go on, with more and with fewer threads.
    let bucket = server.registry.get("default").unwrap();
    for count in [1, 128, 2] {
        let form =
            Pool::ALL.map(|pool| format!("{}={count}", kedge_node::pools::setting_name(pool)));
        assert_eq!(server.post(PATH, &form.join("&")).status, 200);
        assert!(
            Pool::ALL
                .iter()
                .all(|pool| threads(&server, *pool) == count)
        );
        bucket.persistence().sync().unwrap();
        let ran = server.pools.executor().submit(Pool::AuxIo, || 7);
        assert_eq!(ran.wait(), Ok(7));
    }
    let reply = server.post(
        PATH,
        "num_reader_threads=default&num_writer_threads=balanced",
    );
    assert_eq!(reply.json()["num_reader_threads"], "balanced");
    assert_eq!(server.pools.threads(Pool::Writer), ThreadCount::Balanced);
}

#[test]
fn invalid_thread_settings_are_named_and_change_nothing() {
    let server = Server::start();
    for (form, field, words) in [
        ("num_reader_threads=0", "num_reader_threads", "1 to 128"),
        ("num_auxio_threads=129", "num_auxio_threads", "1 to 128"),
        ("num_nonio_threads=many", "num_nonio_threads", "balanced"),
        ("num_writer_threads=", "num_writer_threads", "balanced"),
        ("num_threads=4", "num_threads", "num_writer_threads"),
    ] {
        let both = format!("num_reader_threads=7&{form}");
        let reply = server.post(PATH, &both);
        assert_eq!(reply.status, 400, "{form}");
        let said = reply.json()["errors"][field].to_string();
        assert!(said.contains(words), "{form}: {said}");
        assert_eq!(threads(&server, Pool::Reader), 1);
    }
    let document = "/settings/rbac/users/local/ada";
    let user = "password=secret&roles=ro_admin";
    assert_eq!(server.connect().request("PUT", document, user).status, 200);
    let mut ada = server.connect_as("ada", "secret");
    assert_eq!(ada.request("GET", PATH, "").status, 200);
    assert_eq!(
        ada.request("POST", PATH, "num_reader_threads=2").status,
        403
    );
    assert_eq!(server.connect().request("DELETE", PATH, "").status, 405);
}

#[test]
fn unverified_passwords_are_checked_by_tasks() {
    let server = Server::start();
    let verified = || {
        let kinds = server.pools.executor().kinds();
        let logins = kinds
            .iter()
            .find(|info| info.kind.name() == "authentication");
        logins.map_or(0, |info| info.run_time.count)
    };
    let before = verified();
    // It was set in this process, and is known.
    assert_eq!(server.get(PATH).status, 200);
    assert_eq!(verified(), before);
    let mut wrong = server.connect_as("root", "wrong");
    assert_eq!(wrong.request("GET", PATH, "").status, 401);
    // A run is counted after its result is there.
    while verified() == before {
        std::thread::yield_now();
    }
    assert_eq!(verified(), before + 1);
}
