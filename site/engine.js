// The module that the figures with rules share.
export { Engine, Replay } from 'leapgate/engine';
