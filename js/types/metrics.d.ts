/**
 * What engines tell of themselves to Prometheus, OpenTelemetry and `node:diagnostics_channel`. No dependency, and no work but when it is read.
 *
 * ```js
 * import { createServer } from 'node:http';
 * import { contentType, prometheusText } from 'leapgate/metrics';
 *
 * createServer((request, response) => response.setHeader('content-type', contentType).end(prometheusText(engine)));
 * ```
 *
 * @module
 */
import type { BreakerChange, Engine, Refusal } from 'leapgate/engine';
import type { SharedLimiter } from 'leapgate/shared';

/** What is told: an engine, or a limiter of several machines, of which there are only the `leapgate_lease_` metrics and how many requests wait. */
type Told = Engine | SharedLimiter;

/** One, or several by name: the name is the label `root` in Prometheus and the attribute `engine` in OpenTelemetry. */
export type Engines = Told | Readonly<Record<string, Told>>;

/** The `content-type` of {@link prometheusText}. */
export declare const contentType: string;

/**
 * The metrics of engines as Prometheus reads them, in its text format: names and labels are those of the Envoy filter, so that one dashboard is
 * for both. Labels are ids of rules, names of resources and origins, never keys.
 *
 * `leapgate_utilization_percent` is how full a limit was at its fullest in the last 60 s, as far as it has been read: a window and a key that
 * are full between two readings are seen if a request was refused; calls in flight and turns are seen at their highest. With a key, it is that
 * of the key that has used most, which takes some nanoseconds for each key.
 *
 * @throws TypeError if it is neither an engine of `leapgate/engine`, a `SharedLimiter`, nor an object of them.
 */
export declare function prometheusText(engines: Engines): string;

/** What is needed of an OpenTelemetry `Meter`. */
export interface ObservingMeter {
  createObservableCounter(name: string, options?: { unit?: string; description?: string }): unknown;
  createObservableUpDownCounter(name: string, options?: { unit?: string; description?: string }): unknown;
  createObservableGauge(name: string, options?: { unit?: string; description?: string }): unknown;
  addBatchObservableCallback(callback: (result: any) => void, observables: any[]): void;
  removeBatchObservableCallback(callback: (result: any) => void, observables: any[]): void;
}

/**
 * Makes observable instruments on a meter, named after OpenTelemetry's conventions of ASP.NET Core: `leapgate.rate_limiting.requests` by
 * `result` (`acquired`, `refused`, `shadow_refused`), `…delayed_requests`, `…active_request_leases`, `…queued_requests`, `…utilization` (1 is
 * full) and `…breaker_state` (0 closed, 1 open, 2 half-open). Attributes are `leapgate.rate_limiting.` and `rule`, `resource`, `origin`, `kind`,
 * `engine` or `result`. Durations are not among them: an observer sees no single request.
 *
 * @returns a function that ends it.
 * @throws TypeError if the meter is none, or an engine is none of `leapgate/engine`.
 */
export declare function observe(meter: ObservingMeter, engines: Engines): () => void;

/** What the channel `leapgate:refused` is told. */
export type RefusedMessage = Refusal & { engine: Engine };

/** What the channel `leapgate:breaker` is told. */
export type BreakerMessage = BreakerChange & { engine: Engine };

/**
 * Publishes the events of an engine on the channels `leapgate:refused` and `leapgate:breaker` of `node:diagnostics_channel`, if they have
 * subscribers. What a subscriber throws changes no decision.
 *
 * @param channels the module `node:diagnostics_channel`, where `process.getBuiltinModule` does not find it (before Node.js 20.16).
 * @returns a function that ends it.
 * @throws TypeError if the engine is none of `leapgate/engine`, or there are no channels.
 */
export declare function publish(
  engine: Engine,
  channels?: { channel(name: string): { readonly hasSubscribers: boolean; publish(message: unknown): void } },
): () => void;
