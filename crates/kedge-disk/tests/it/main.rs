//! What both disks promise alike, and what the simulated one does when things go wrong.

mod both;
mod sim;
