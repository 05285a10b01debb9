//! Leapgate on the command line, as a library: documents and logs in as bytes, reports out. Nothing in here opens a file, reads a
//! clock or writes to a terminal; the binary does.
//!
//! | Module | Owns |
//! |---|---|
//! | `text` | numbers and spans as sentences show them |
//! | `words` | rules in words |
//! | `check` | whether a document is right for where it is to run |
//! | `explain` | which rules a request meets |
//! | `html` | the report as a page |
//! | `program` | what the program's arguments mean, and what it says |
//! | `replay` | what rules would have done to the traffic of a log |

//!
//! Without the feature `program` there is no JSON of documents in it: a shell fills a tree of [`leapgate::config::Value`] and gives it to
//! [`leapgate_envoy::config::parse_value`].

#![forbid(unsafe_code)]

pub use {leapgate, leapgate_envoy};

#[cfg(feature = "program")]
pub mod check;
pub mod explain;
pub mod html;
#[cfg(feature = "program")]
mod paper;
#[cfg(feature = "program")]
pub mod program;
pub mod replay;
pub mod text;
pub mod words;
