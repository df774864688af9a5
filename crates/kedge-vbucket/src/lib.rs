//! A vBucket as a state machine: hash table, checkpoints, durability monitor, failover table.
