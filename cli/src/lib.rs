//! Leapgate on the command line, as a library: documents and logs in as bytes, reports out. Nothing in here opens a file, reads a
//! clock or writes to a terminal; the binary does.
//!
//! | Module | Owns |
//! |---|---|
//! | `text` | numbers and spans as sentences show them |
//! | `check` | whether a document is right for where it is to run |

#![forbid(unsafe_code)]

#[cfg(feature = "native")]
pub mod check;
#[cfg(feature = "native")]
mod paper;
pub mod text;
