//! Couchstore files: those of Couchbase's own library with what its tools say of them, and our own on a simulated disk
//! that crashes, fails and fills up.
