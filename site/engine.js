// The module that the figures with rules share.
export { Engine } from 'leapgate/engine';
