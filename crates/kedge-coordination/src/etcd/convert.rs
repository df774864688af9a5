//! Transactions and entries in the terms of `etcd-client`.

use etcd_client::{
    Compare as EtcdCompare, CompareOp, KeyValue, Txn, TxnOp, TxnOpResponse, TxnResponse,
};

use crate::{Compare, Conflict, Entry, Op, Revision, Transaction};

/// The transaction, with reads of all compared keys for a conflict.
pub(super) fn transaction(prefix: &str, transaction: &Transaction) -> Txn {
    let with_prefix = |key: &str| format!("{prefix}{key}");
    let compares = transaction.compares().iter();
    let compares: Vec<EtcdCompare> = compares.map(|it| compare(prefix, it)).collect();
    let ops = transaction.ops().iter().map(|op| match op {
        Op::Put { key, value } => TxnOp::put(with_prefix(key), value.as_slice(), None),
        Op::Delete { key } => TxnOp::delete(with_prefix(key), None),
    });
    let ops: Vec<TxnOp> = ops.collect();
    let reads = transaction.compared_keys().into_iter();
    let reads: Vec<TxnOp> = reads
        .map(|key| TxnOp::get(with_prefix(key), None))
        .collect();
    Txn::new().when(compares).and_then(ops).or_else(reads)
}

fn compare(prefix: &str, compare: &Compare) -> EtcdCompare {
    let key = format!("{prefix}{}", compare.key());
    let number = |revision: &Revision| i64::try_from(revision.0).unwrap_or(i64::MAX);
    match compare {
        Compare::Absent(_) => EtcdCompare::create_revision(key, CompareOp::Equal, 0),
        Compare::Unchanged(_, at) => EtcdCompare::mod_revision(key, CompareOp::Equal, number(at)),
        Compare::Value(_, value) => EtcdCompare::value(key, CompareOp::Equal, value.as_slice()),
    }
}

/// The conflict that the answer to a transaction reports.
pub(super) fn conflict(
    prefix: &str,
    transaction: &Transaction,
    revision: Revision,
    answer: &TxnResponse,
) -> Conflict {
    let reads = answer.op_responses();
    let present = transaction.compared_keys().into_iter().zip(reads);
    let present = present.map(|(key, read)| {
        let found = match &read {
            TxnOpResponse::Get(read) => read.kvs().first().map(|it| entry(prefix, it)),
            _ => None,
        };
        (key.to_owned(), found)
    });
    Conflict {
        revision,
        present: present.collect(),
    }
}

/// An entry. A key that is not UTF-8, which Kedge does not make, is shown with replacement characters.
pub(super) fn entry(prefix: &str, found: &KeyValue) -> Entry {
    Entry {
        key: key(prefix, found),
        value: found.value().to_vec(),
        create_revision: revision(found.create_revision()),
        mod_revision: revision(found.mod_revision()),
    }
}

/// The key without the prefix.
pub(super) fn key(prefix: &str, found: &KeyValue) -> String {
    let bytes = found.key();
    let bytes = bytes.strip_prefix(prefix.as_bytes()).unwrap_or(bytes);
    String::from_utf8_lossy(bytes).into_owned()
}

/// A revision, which etcd has as a signed number.
pub(super) fn revision(number: i64) -> Revision {
    Revision(u64::try_from(number).unwrap_or(0))
}
