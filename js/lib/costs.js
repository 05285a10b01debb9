// What requests cost, by unit: a number is a number of requests.

import { checkNumber, wrong } from './errors.js';
import * as layout from './layout.js';
import * as wasm from './core.js';

const MAX_REQUESTS = 2 ** 32 - 1;
const MAX_COUNT = 2 ** 53;

// As rules name units.
const UNIT = /^[ -~]{1,256}$/;

// Returns the cost of each unit, or throws. A unit that no rule of the resource counts means nothing to it.
export function checkCosts(place, cost, units) {
  if (typeof cost === 'number') return { requests: checkNumber(place, cost, MAX_REQUESTS, true) };
  if (typeof cost !== 'object' || cost === null || Array.isArray(cost)) {
    throw wrong(place, cost, 'is not a valid cost; use a whole number of requests, or an object with one for each unit, as in `{ tokens: 900 }`');
  }
  for (const unit in cost) {
    if (!units.includes(unit) && !UNIT.test(unit)) {
      throw wrong(place, unit, 'is not a valid unit; use 1 to 256 characters of printable ASCII');
    }
    const n = cost[unit];
    if (n !== undefined) checkNumber(`${place}.${unit}`, n, unit === 'requests' ? MAX_REQUESTS : MAX_COUNT, true);
  }
  return cost;
}

// Writes costs where the module reads them.
export function putCosts(costs, units) {
  const results = wasm.results();
  units.forEach((unit, i) => (results[layout.COSTS + i] = costs[unit] ?? layout.NONE));
}
