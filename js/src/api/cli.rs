//! What JavaScript calls for the command line: one program, which runs once. `js/bin/leapgate.mjs` has its files.

use crate::cli::Program;
use crate::shell::shell;
use crate::tree;
use wasm_bindgen::prelude::wasm_bindgen;

/// Starts the program with the arguments in the buffer, each with its length before it. As all that follows, it returns the exit status,
/// or a negative number if the program goes on.
#[wasm_bindgen]
pub fn cli_start(bytes: usize) -> i32 {
    shell(|shell| {
        let arguments = tree::parts(shell.buffer.bytes(bytes));
        let (program, status) = Program::start(arguments);
        shell.program = program;
        status
    })
}

/// Writes paths into the buffer, each with its length before it: of the document, of the page (empty if there is to be none), and of
/// the logs. Returns the length of all.
#[wasm_bindgen]
pub fn cli_paths() -> f64 {
    shell(|shell| shell.buffer.write(&shell.program.paths()))
}

/// How many bytes of a document are to be read at most.
#[wasm_bindgen]
pub fn cli_max_document() -> f64 {
    leapgate_cli::program::MAX_DOCUMENT as f64
}

/// The document is in the buffer.
#[wasm_bindgen]
pub fn cli_document(bytes: usize) -> i32 {
    shell(|shell| shell.program.document(shell.buffer.bytes(bytes)))
}

/// More of a log is in the buffer.
#[wasm_bindgen]
pub fn cli_feed(bytes: usize) -> i32 {
    shell(|shell| shell.program.feed(shell.buffer.bytes(bytes)))
}

/// A log has come to its end.
#[wasm_bindgen]
pub fn cli_end_of_file() -> i32 {
    shell(|shell| shell.program.end_of_file())
}

/// All logs have come to their end.
#[wasm_bindgen]
pub fn cli_finish() -> i32 {
    shell(|shell| shell.program.finish())
}

/// A file is not what it should be: its path and why are in the buffer, each with its length before it. `fault` is one of `FAULT_…` of
/// `layout`.
#[wasm_bindgen]
pub fn cli_fault(fault: u32, bytes: usize) -> i32 {
    shell(|shell| {
        let texts: Vec<_> = tree::parts(shell.buffer.bytes(bytes)).collect();
        shell.program.fault(fault, &texts)
    })
}

/// Writes what the program has said since the last call into the buffer, and returns its length. `place` is one of `SAID_…` of `layout`.
#[wasm_bindgen]
pub fn cli_said(place: u32) -> f64 {
    shell(|shell| {
        let text = shell.program.take(place);
        shell.buffer.write_text(&text)
    })
}
