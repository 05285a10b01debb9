#!/usr/bin/env node
// `npx leapgate`: the files, the terminal and the exit status around the program, which is the native one, as WebAssembly.

import { closeSync, createReadStream, openSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { getSystemErrorMap } from 'node:util';
import { createGunzip } from 'node:zlib';
import * as glue from './leapgate_bg.js';
import { link, put, readText, readTexts, ready } from './core.js';
import { FAULT_BROKEN_OFF, FAULT_DOCUMENT, FAULT_LOG, FAULT_PAGE, SAID_ERR, SAID_OUT, SAID_PAGE } from './layout.js';
import { flattenTexts } from './tree.js';

// How many bytes of a log the program takes at once.
const PIECE = 1 << 18;
// And how many of an archive are unpacked at once: they may become a thousand times as many.
const PACKED = 1 << 14;
const BAR = 40;
const BAR_EVERY_MS = 100;

// Thrown when the program has ended.
class Ended {
  constructor(status) {
    this.status = status;
  }
}

// A negative status: it goes on.
const goOn = (status) => {
  if (status >= 0) throw new Ended(status);
};

const failing = (fault, path, error) => goOn(glue.cli_fault(fault, put(flattenTexts([path, reasonOf(error)]))));

// As the native program says it: libuv's sentences are those of the system, but for one. Errors of zlib have numbers of their own.
function reasonOf({ errno, code, message }) {
  if (code === 'Z_BUF_ERROR') return 'incomplete deflate stream';
  const known = code?.startsWith('Z_') ? undefined : getSystemErrorMap().get(errno)?.[1];
  if (known === undefined) return message;
  const sentence = code === 'EISDIR' ? 'is a directory' : known;
  return `${sentence[0].toUpperCase()}${sentence.slice(1)} (os error ${-errno})`;
}

// The bytes of a log, from its file or standard input.
async function* bytesOf(path) {
  const source = path === '-' ? process.stdin : createReadStream(path, { highWaterMark: PIECE });
  yield* source;
}

// At most so many bytes of a document.
async function documentOf(path) {
  const pieces = [];
  let left = glue.cli_max_document();
  for await (const piece of bytesOf(path)) {
    pieces.push(piece.subarray(0, left));
    left -= pieces.at(-1).length;
    if (left === 0) break;
  }
  return Buffer.concat(pieces);
}

// The pieces of a log, unpacked if it is packed. `told` is called with the bytes that are read of it.
async function* unpacked(path, told) {
  let head = Buffer.alloc(0);
  const pieces = bytesOf(path);
  // What is shorter than the magic number of gzip is no archive.
  while (head.length < 2) {
    const { value, done } = await pieces.next();
    if (done) break;
    told(value.length);
    head = Buffer.concat([head, value]);
  }
  if (head[0] !== 0x1f || head[1] !== 0x8b) {
    if (head.length > 0) yield head;
    for await (const piece of pieces) {
      told(piece.length);
      yield piece;
    }
    return;
  }
  // What has been unpacked before a fault is handed on, too, but for the last chunk: so it is taken as it comes, in small ones.
  const gunzip = createGunzip({ chunkSize: PACKED });
  const closed = new Promise((resolve) => gunzip.once('close', resolve));
  const ready = [];
  let fault;
  gunzip.on('data', (piece) => ready.push(piece));
  gunzip.on('error', (error) => (fault = error));
  for (let piece = head; piece !== undefined; piece = (await pieces.next()).value) {
    if (piece !== head) told(piece.length);
    for (let at = 0; at < piece.length; at += PACKED) {
      await Promise.race([closed, new Promise((resolve) => gunzip.write(piece.subarray(at, at + PACKED), resolve))]);
      yield* ready.splice(0);
      if (fault !== undefined) throw fault;
    }
  }
  gunzip.end();
  await closed;
  yield* ready.splice(0);
  if (fault !== undefined) throw fault;
}

// A bar on standard error, if that is a terminal.
class Progress {
  #total = 0;
  #read = 0;
  #next = 0;
  #isShown = process.stderr.isTTY === true;

  constructor(logs) {
    if (!this.#isShown) return;
    for (const path of logs) this.#total += (path === '-' ? undefined : statSync(path, { throwIfNoEntry: false }))?.size ?? NaN;
  }

  add(bytes) {
    this.#read += bytes;
    const now = performance.now();
    if (!this.#isShown || now < this.#next) return;
    this.#next = now + BAR_EVERY_MS;
    const share = Math.min(1, this.#read / this.#total);
    const megabytes = `${Math.floor(this.#read / 1e6)} MB`;
    const text = share >= 0 ? `${'█'.repeat(share * BAR).padEnd(BAR, '░')} ${Math.floor(share * 100)} %, ${megabytes}` : megabytes;
    process.stderr.write(`\r${text}\x1b[K`);
  }

  clear() {
    if (this.#isShown && this.#next > 0) process.stderr.write('\r\x1b[K');
    this.#next = 0;
  }
}

async function replay(html, logs) {
  if (html !== '') {
    // A page that cannot be written is told before a log is read for minutes.
    try {
      closeSync(openSync(html, 'a'));
    } catch (error) {
      failing(FAULT_PAGE, html, error);
    }
  }
  const progress = new Progress(logs);
  try {
    for (const path of logs) await replayLog(path, progress);
  } finally {
    progress.clear();
  }
  const status = glue.cli_finish();
  if (html !== '' && status === 0) {
    const page = said(SAID_PAGE);
    try {
      writeFileSync(html, page);
    } catch (error) {
      failing(FAULT_PAGE, html, error);
    }
  }
  goOn(status);
}

async function replayLog(path, progress) {
  let isOpen = false;
  const pieces = unpacked(path, (bytes) => {
    isOpen = true;
    progress.add(bytes);
  });
  for (;;) {
    let piece;
    try {
      piece = await pieces.next();
    } catch (error) {
      progress.clear();
      failing(isOpen ? FAULT_BROKEN_OFF : FAULT_LOG, path, error);
      say();
      break;
    }
    if (piece.done) break;
    for (let at = 0; at < piece.value.length; at += PIECE) goOn(glue.cli_feed(put(piece.value.subarray(at, at + PIECE))));
  }
  goOn(glue.cli_end_of_file());
}

const said = (place) => readText(glue.cli_said(place));

// Writes all of a text, to a pipe, too, whose reader may be slow, or gone.
function write(stream, text) {
  return new Promise((resolve, reject) => {
    stream.once('error', (error) => (error.code === 'EPIPE' ? resolve() : reject(error)));
    stream.write(text, () => resolve());
  });
}

async function say() {
  const [out, err] = [said(SAID_OUT), said(SAID_ERR)];
  if (err !== '') await write(process.stderr, err);
  if (out !== '') await write(process.stdout, out);
}

async function run() {
  const module = readFileSync(new URL('./leapgate_bg.wasm', import.meta.url));
  link(() => new WebAssembly.Module(module));
  ready();
  goOn(glue.cli_start(put(flattenTexts(process.argv.slice(2)))));
  const [rules, html, ...logs] = readTexts(glue.cli_paths());
  let document;
  try {
    document = await documentOf(rules);
  } catch (error) {
    failing(FAULT_DOCUMENT, rules, error);
  }
  const status = glue.cli_document(put(document));
  await say();
  goOn(status);
  await replay(html, logs);
}

try {
  await run();
} catch (error) {
  if (!(error instanceof Ended)) throw error;
  await say();
  // Standard input may still be open.
  process.exit(error.status);
}
