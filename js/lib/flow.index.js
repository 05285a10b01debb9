export { Engine } from './flow.js';
