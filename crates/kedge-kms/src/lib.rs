#![doc = include_str!("../README.md")]

mod aws;
mod http;
mod kmip;
mod net;
mod options;
mod remote;
mod service;
mod source;

pub use aws::AwsSource;
pub use kmip::KmipSource;
pub use remote::RemoteMasterKey;
pub use source::{KeyRole, KeySource};
