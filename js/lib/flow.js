// Engines of flow rules alone.

import { BaseEngine, isEngine } from './base.js';
import { bounded, checkObject, wrong } from './errors.js';
import { MORE, flatRules } from './flow-rules.js';
import { EXAMPLE } from './waiting.js';

// What only other rules read of a request.
const LEFT_OUT = ['origin', 'prioritized', 'context', 'inbound', 'exempt', 'apis', 'within'];

function check(request) {
  for (const name of LEFT_OUT) {
    if (request?.[name] !== undefined) {
      throw wrong(`request.${name}`, request[name], MORE);
    }
  }
}

export class Engine extends BaseEngine {
  constructor(rules, settings) {
    super(rules, settings, { flat: flatRules });
  }

  limit(resource, request) {
    check(request);
    return super.limit(resource, request);
  }

  enter(resource, request, isChecked) {
    check(request);
    return super.enter(resource, request, isChecked);
  }

  policies(resource, request) {
    check(request);
    return super.policies(resource, request);
  }

  static {
    bounded(this, 'Engine', isEngine);
  }
}
