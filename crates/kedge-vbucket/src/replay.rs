//! The state of a vBucket's replay; see `recovery`.

use crate::catch_up::NewBranch;
use crate::file_state::FileState;
use kedge_types::Seqno;
use std::fmt;

/// The error for an invalid log record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayError {
    /// A seqno does not exceed the previous one.
    Order {
        /// The previous seqno.
        high: Seqno,
        /// The seqno of the record.
        seqno: Seqno,
    },
    /// A commit or abort has no prepare.
    NoPrepare {
        /// The seqno of the prepare.
        prepared: Seqno,
    },
    /// A prepare has no level, or its key has another prepare in flight.
    BadPrepare {
        /// The seqno of the prepare.
        prepared: Seqno,
    },
    /// A collection event cannot be decoded.
    BadEvent {
        /// The seqno of the event.
        seqno: Seqno,
    },
    /// The file must be rewound first, or was not rewound to this seqno.
    NotRewound {
        /// The last seqno that is kept.
        to: Seqno,
    },
}

/// The target of a file rewind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewind {
    /// The last seqno that is kept.
    pub to: Seqno,
    /// The branch of the rewound file.
    pub branch: NewBranch,
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order { high, seqno } => {
                write!(f, "seqno {seqno} is out of order: it follows seqno {high}")
            }
            Self::NoPrepare { prepared } => {
                write!(
                    f,
                    "a commit or abort refers to seqno {prepared}, which has no prepare"
                )
            }
            Self::BadPrepare { prepared } => {
                write!(
                    f,
                    "the prepare at seqno {prepared} has no durability level, or its key has another prepare"
                )
            }
            Self::BadEvent { seqno } => {
                write!(f, "the collection event at seqno {seqno} cannot be decoded")
            }
            Self::NotRewound { to } => write!(f, "the file was not rewound to seqno {to}"),
        }
    }
}

impl std::error::Error for ReplayError {}

/// The state of the replay of a vBucket.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    /// The state of the file, until the log was replayed.
    pub(crate) base: Option<Box<FileState>>,
    /// The last seqno of this history in the log.
    pub(crate) last: Seqno,
    /// The first record that did not fit. It may belong to a history that a later reset or rollback ends.
    pub(crate) orphan: Option<ReplayError>,
    pub(crate) rewind: Option<Rewind>,
    /// True if there was a deletion marker.
    pub(crate) was_deleted: bool,
    /// The end of the disk snapshot that is incomplete in the file, or 0.
    pub(crate) torn_upto: Seqno,
    /// True if the log has the start of the open snapshot. Otherwise the file is inside the snapshot.
    pub(crate) snapshot_in_log: bool,
}

impl Replay {
    pub(crate) fn begin_deleted(&mut self) {
        self.was_deleted = true;
    }

    pub(crate) fn is_behind_torn_file(&self, seqno: Seqno) -> bool {
        seqno <= self.torn_upto
    }

    pub(crate) fn begin_from(&mut self, base: FileState) {
        self.torn_upto = base.torn_upto();
        self.base = Some(Box::new(base));
        self.rewind = None;
    }

    /// Continues the replay after `last`.
    pub(crate) fn restart(&mut self, last: Seqno) {
        self.last = last;
        self.orphan = None;
        self.torn_upto = Seqno(0);
        self.snapshot_in_log = false;
    }
}
