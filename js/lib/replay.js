// A replay of a log, for the playground: what rules would have done to its traffic.

import * as core from './leapgate_bg.js';
import * as wasm from './core.js';
import { flatten } from './tree.js';

const encode = (value) => wasm.put(flatten('rules', value));

// The sentence of the module as an error, if there is one.
function checked(answer) {
  if (answer < 0) throw new RangeError(wasm.readText(-answer));
  return answer;
}

// One at a time: a new one takes the place of the one before it.
export class Replay {
  // `rules` as they are passed to an engine. `fields` says where values stand in lines of an unknown format, `routes` has pairs of a path and
  // a resource; both as options of the command line. Throws an error with the sentence of what is wrong.
  constructor(rules, { fields = null, routes = [] } = {}) {
    wasm.ready();
    checked(core.replay_new(encode([rules, fields, routes])));
  }

  // More of the log, as bytes.
  feed(bytes) {
    checked(core.replay_feed(wasm.put(bytes)));
  }

  // The report, as the command line prints it with `--json`.
  finish() {
    return JSON.parse(wasm.readText(checked(core.replay_finish())));
  }

  // Ends it without a report.
  drop() {
    core.replay_drop();
  }
}
