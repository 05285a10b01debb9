export { ArrayMetric, LeapArray, StatisticNode } from 'leapgate/engine';
