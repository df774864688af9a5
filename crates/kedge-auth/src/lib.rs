//! SASL state machines and the password store.
