//! The state of the replay of a vBucket; see `recovery`.

use crate::failover::FailoverTable;
use crate::file_state::FileState;
use kedge_types::Seqno;
use std::fmt;

/// The log says something that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayError {
    /// A seqno is not above that of the change before it.
    Order {
        /// The seqno before it.
        high: Seqno,
        /// The seqno that came.
        seqno: Seqno,
    },
    /// A commit or abort names a prepare that is not there.
    NoPrepare {
        /// The seqno of the prepare.
        prepared: Seqno,
    },
    /// A prepare says no level, or its key has one already.
    BadPrepare {
        /// The seqno of the prepare.
        prepared: Seqno,
    },
    /// A change of collections is not understood.
    BadEvent {
        /// Its seqno.
        seqno: Seqno,
    },
    /// The file has to be rewound first, or was not rewound to this seqno.
    NotRewound {
        /// The last seqno that stays.
        to: Seqno,
    },
}

/// Where a file has to go back to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewind {
    /// The last seqno that stays.
    pub to: Seqno,
    /// The history that the file has to have then.
    pub failover: FailoverTable,
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order { high, seqno } => write!(f, "seqno {seqno} follows seqno {high}"),
            Self::NoPrepare { prepared } => {
                write!(
                    f,
                    "a commit or abort names the prepare at seqno {prepared}, which is not there"
                )
            }
            Self::BadPrepare { prepared } => {
                write!(
                    f,
                    "the prepare at seqno {prepared} has no level, or its key has one already"
                )
            }
            Self::BadEvent { seqno } => {
                write!(
                    f,
                    "the change of collections at seqno {seqno} is not understood"
                )
            }
            Self::NotRewound { to } => write!(f, "the file was not rewound to seqno {to}"),
        }
    }
}

impl std::error::Error for ReplayError {}

/// The progress of the replay of a vBucket.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    /// The content of its file, until the log was read.
    pub(crate) base: Option<Box<FileState>>,
    /// The last seqno that the log had in this history.
    pub(crate) last: Seqno,
    /// A record that does not fit, and may be of a history that ends in a reset or rollback still to come.
    pub(crate) orphan: Option<ReplayError>,
    pub(crate) rewind: Option<Rewind>,
    /// There was a mark of its deletion.
    pub(crate) was_deleted: bool,
    /// The file ends in the middle of something of which a disk snapshot is part, which ends here.
    pub(crate) torn_upto: Seqno,
    /// The log has the beginning of the snapshot that is open; if not, the file is in its middle.
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

    /// The log goes on behind `last`.
    pub(crate) fn restart(&mut self, last: Seqno) {
        self.last = last;
        self.orphan = None;
        self.torn_upto = Seqno(0);
        self.snapshot_in_log = false;
    }
}
