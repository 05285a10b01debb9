export { Engine } from './engine.js';
export { ArrayMetric, LeapArray, StatisticNode } from './statistics.js';
