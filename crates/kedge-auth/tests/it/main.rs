//! The crate through its public interface.

mod custom_roles;
mod documents;
mod external;
mod groups;
mod hostile;
mod login;
mod roles;
mod store;
mod vectors;

use kedge_auth::{
    AuthError, ClientSession, ClientStep, HashCost, Mechanism, ServerSession, ServerStep, UserStore,
};
use proptest::test_runner::{Config, RngSeed};

/// A stored form made by other means than this crate (Python's hashlib); its user `user` has the
/// salts and the password `pencil` of the RFCs' examples.
///
/// Its argon2id hash is that of the reference implementation.
const GOLDEN: &str = include_str!("../golden/users-v4.json");

/// The same users without argon2id hashes, in the form before.
const GOLDEN_V3: &str = include_str!("../golden/users-v3.json");

/// The same users, of a server alone, in the form before that.
const GOLDEN_V2: &str = include_str!("../golden/users-v2.json");

/// The same without groups, in the first form.
const GOLDEN_V1: &str = include_str!("../golden/users-v1.json");

const SCRAM: [Mechanism; 3] = [
    Mechanism::ScramSha512,
    Mechanism::ScramSha256,
    Mechanism::ScramSha1,
];

fn golden() -> UserStore {
    read(GOLDEN)
}

/// Reads a golden file. New hashes are cheap.
fn read(text: &str) -> UserStore {
    let mut store = UserStore::from_json(text).expect("the golden file is good");
    store.set_hash_cost(cheap());
    store
}

/// The cost of the golden file's hash.
fn cheap() -> HashCost {
    HashCost::new(64, 2).expect("the cost is allowed")
}

/// A nonce source with one fixed nonce.
fn nonce(text: &str) -> impl FnOnce() -> Result<String, AuthError> {
    let text = text.to_owned();
    || Ok(text)
}

/// The same cases on each run, unless `PROPTEST_RNG_SEED` asks for others.
fn cases(cases: u32) -> Config {
    let mut config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(2);
    }
    config
}

/// The start of a SCRAM login up to the client's proof.
struct HalfWay {
    client: ClientSession,
    server: ServerSession,
    challenge: Vec<u8>,
    proof: Vec<u8>,
}

fn half_way(store: &UserStore, mechanism: Mechanism, user: &str, password: &str) -> HalfWay {
    let (mut client, first) =
        ClientSession::start(mechanism, user, password, nonce("client nonce")).unwrap();
    let (server, step) = ServerSession::start(store, mechanism, &first, nonce("server-nonce"));
    let ServerStep::Continue(challenge) = step else {
        panic!("{mechanism}: {step:?}")
    };
    let ClientStep::Send(proof) = client.step(&challenge).unwrap() else {
        panic!("{mechanism}")
    };
    HalfWay {
        client,
        server,
        challenge,
        proof,
    }
}

/// A whole login by any mechanism: the verdict, and the client's view when it succeeds.
fn login(store: &UserStore, mechanism: Mechanism, user: &str, password: &str) -> ServerStep {
    if mechanism == Mechanism::Plain {
        let (mut client, first) =
            ClientSession::start(mechanism, user, password, || panic!("no nonce")).unwrap();
        let (_, step) = ServerSession::start(store, mechanism, &first, || panic!("no nonce"));
        if let ServerStep::Done { payload, .. } = &step {
            assert_eq!(client.step(payload), Ok(ClientStep::Done));
        }
        return step;
    }
    let mut half = half_way(store, mechanism, user, password);
    let step = half.server.step(&half.proof);
    if let ServerStep::Done { payload, .. } = &step {
        assert_eq!(half.client.step(payload), Ok(ClientStep::Done));
    }
    step
}

fn logs_in(store: &UserStore, user: &str, password: &str) -> bool {
    let verdicts = Mechanism::ALL.map(|mechanism| match login(store, mechanism, user, password) {
        ServerStep::Done { user: proven, .. } => {
            assert_eq!(proven, user);
            true
        }
        ServerStep::Failed => false,
        ServerStep::Continue(_) => panic!("{mechanism} has no third step"),
    });
    assert!(
        verdicts.iter().all(|v| *v == verdicts[0]),
        "{user}: {verdicts:?}"
    );
    verdicts[0]
}
