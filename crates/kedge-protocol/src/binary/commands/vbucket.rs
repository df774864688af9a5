//! SET_VBUCKET and DEL_VBUCKET.

use crate::binary::fields::{FieldReader, PartRule, RequestShape};
use crate::binary::{Request, RequestWriter};
use kedge_types::limits::{CHAIN_NODES_MAX, TOPOLOGY_CHAINS_MAX};
use kedge_types::{Datatype, Status};
use serde::Deserialize;

/// A request to set the state of a vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetVbucket<'a> {
    /// The state: 1 active, 2 replica, 3 pending, 4 dead.
    pub state: u8,
    /// Further properties as JSON; may be empty. [`SetVbucket::parse_details`] reads it.
    pub details: &'a [u8],
}

/// The JSON properties of SET_VBUCKET.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetVbucketDetails {
    /// The replication chain, or the two chains while the vBucket moves, as names of nodes. The first of each is the
    /// active; a missing name is an undefined replica. Only for an active vBucket.
    pub topology: Option<Vec<Vec<Option<String>>>>,
    /// The source of files from which the vBucket is created.
    pub use_snapshot: Option<SnapshotSource>,
    /// The state that the vBucket gets after that.
    pub expected_next_state: Option<String>,
}

/// The source of the files from which a vBucket is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SnapshotSource {
    /// Files that were copied from another node (file-based rebalance).
    Fbr,
    /// Files of a shared store.
    Fusion,
}

/// The state of a vBucket that has a topology.
const ACTIVE: u8 = 1;

impl<'a> SetVbucket<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not one byte from 1 to 4, there is a value that is not marked as JSON,
    /// or anything else is there.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        const SHAPE: RequestShape = RequestShape {
            extras: &[1],
            value: PartRule::Optional,
            datatype: Datatype::JSON,
            ..RequestShape::EMPTY
        };
        SHAPE.check(request)?;
        let state = FieldReader::new(request.extras).u8()?;
        let is_json = request.datatype == Datatype::JSON.bits();
        if !(1..=4).contains(&state) || is_json == request.value.is_empty() {
            return Err(Status::Invalid);
        }
        Ok(Self {
            state,
            details: request.value,
        })
    }

    /// Reads the JSON.
    ///
    /// # Errors
    /// [`Status::Invalid`] when it is not an object of the known members, has a topology although the vBucket does not
    /// become active, or the topology is not one or two chains of one to four nodes, the first of each with a name.
    pub fn parse_details(&self) -> Result<SetVbucketDetails, Status> {
        if self.details.is_empty() {
            return Ok(SetVbucketDetails::default());
        }
        let details: SetVbucketDetails =
            serde_json::from_slice(self.details).map_err(|_| Status::Invalid)?;
        let is_sound = |chains: &Vec<Vec<Option<String>>>| {
            let is_chain = |chain: &Vec<Option<String>>| {
                let named = chain.iter().flatten().all(|name| !name.is_empty());
                (1..=CHAIN_NODES_MAX).contains(&chain.len()) && chain[0].is_some() && named
            };
            (1..=TOPOLOGY_CHAINS_MAX).contains(&chains.len()) && chains.iter().all(is_chain)
        };
        match &details.topology {
            Some(chains) if self.state != ACTIVE || !is_sound(chains) => Err(Status::Invalid),
            _ => Ok(details),
        }
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        let datatype = if self.details.is_empty() {
            Datatype::RAW
        } else {
            Datatype::JSON
        };
        let writer = RequestWriter {
            datatype,
            ..*writer
        };
        writer.write(&[self.state], &[], self.details, out);
    }
}

/// A request to delete a vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelVbucket {
    /// True if the reply is sent only after the vBucket is gone from the disk.
    pub waits: bool,
}

impl DelVbucket {
    const WAITS: &'static [u8] = b"async=0";

    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the value is neither empty nor `async=0`, or anything else is there.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        const SHAPE: RequestShape = RequestShape {
            value: PartRule::Optional,
            ..RequestShape::EMPTY
        };
        SHAPE.check(request)?;
        match request.value {
            b"" => Ok(Self { waits: false }),
            Self::WAITS => Ok(Self { waits: true }),
            _ => Err(Status::Invalid),
        }
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        let value = if self.waits { Self::WAITS } else { b"" };
        writer.write(&[], &[], value, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::{Opcode, Parse, parse_frame};

    fn with<T>(bytes: &[u8], read: impl FnOnce(&Request<'_>) -> T) -> T {
        match parse_frame(bytes, 1 << 10) {
            Parse::Frame { request, .. } => read(&request),
            other => panic!("{other:?}"),
        }
    }

    fn frame(opcode: Opcode, extras: &[u8], value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        RequestWriter::new(opcode).write(extras, &[], value, &mut bytes);
        bytes
    }

    #[test]
    fn set_vbucket_round_trips_and_rejects_other_states() {
        let json = br#"{"topology":[["n1"]]}"#;
        for (state, details) in [(1, json.as_slice()), (2, b""), (4, b"")] {
            let set = SetVbucket { state, details };
            let mut bytes = Vec::new();
            set.encode(&RequestWriter::new(Opcode::SetVbucket), &mut bytes);
            with(&bytes, |request| {
                assert_eq!(SetVbucket::decode(request), Ok(set));
            });
        }
        let not_json = frame(Opcode::SetVbucket, &[1], json);
        let refused = with(&not_json, |request| SetVbucket::decode(request).err());
        assert_eq!(refused, Some(Status::Invalid));
        for extras in [[].as_slice(), &[0], &[5], &[1, 1]] {
            let bytes = frame(Opcode::SetVbucket, extras, b"");
            let refused = with(&bytes, |request| SetVbucket::decode(request).err());
            assert_eq!(refused, Some(Status::Invalid), "{extras:?}");
        }
    }

    #[test]
    fn set_vbucket_parses_the_topology() {
        let parse = |state, json: &str| {
            let details = json.as_bytes();
            SetVbucket { state, details }.parse_details()
        };
        let topology = |json: &str| parse(1, json).unwrap().topology.unwrap();
        let name = |name: &str| Some(name.to_owned());
        assert_eq!(
            topology(r#"{"topology":[["n_0","n_1",null]]}"#),
            [[name("n_0"), name("n_1"), None]]
        );
        assert_eq!(
            topology(r#"{"topology":[["a"],["b","a"]]}"#),
            [vec![name("a")], vec![name("b"), name("a")]]
        );
        assert_eq!(parse(2, ""), Ok(SetVbucketDetails::default()));
        let snapshot = parse(
            2,
            r#"{"use_snapshot":"fbr","expected_next_state":"replica"}"#,
        );
        let snapshot = snapshot.unwrap();
        assert_eq!(snapshot.use_snapshot, Some(SnapshotSource::Fbr));
        assert_eq!(snapshot.expected_next_state, name("replica"));
        assert!(parse(1, r#"{"topology":[["a","b","c","d"]]}"#).is_ok());
        for (state, wrong) in [
            (2, r#"{"topology":[["a"]]}"#),
            (1, r#"{"topology":[]}"#),
            (1, r#"{"topology":[[]]}"#),
            (1, r#"{"topology":[[null,"a"]]}"#),
            (1, r#"{"topology":[[""]]}"#),
            (1, r#"{"topology":[["a",""]]}"#),
            (1, r#"{"topology":[["a","b","c","d","e"]]}"#),
            (1, r#"{"topology":[["a"],["a"],["a"]]}"#),
            (1, r#"{"topology":["a"]}"#),
            (1, r#"{"topology":[[1]]}"#),
            (1, r#"{"topologies":[["a"]]}"#),
            (1, r#"{"use_snapshot":"other"}"#),
            (1, "[]"),
            (1, "x"),
        ] {
            assert_eq!(parse(state, wrong), Err(Status::Invalid), "{wrong}");
        }
    }

    #[test]
    fn del_vbucket_round_trips_and_rejects_other_values() {
        for waits in [false, true] {
            let delete = DelVbucket { waits };
            let mut bytes = Vec::new();
            delete.encode(&RequestWriter::new(Opcode::DelVbucket), &mut bytes);
            assert_eq!(with(&bytes, DelVbucket::decode), Ok(delete));
        }
        for (extras, value) in [([].as_slice(), b"async=1".as_slice()), (&[1], b"")] {
            let bytes = frame(Opcode::DelVbucket, extras, value);
            assert_eq!(with(&bytes, DelVbucket::decode), Err(Status::Invalid));
        }
    }
}
