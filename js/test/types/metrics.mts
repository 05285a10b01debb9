import diagnostics from 'node:diagnostics_channel';
import type { Meter } from '@opentelemetry/api';
import { Engine } from 'leapgate/engine';
import { Engine as FlowEngine } from 'leapgate/flow';
import type { SharedLimiter } from 'leapgate/shared';
import { contentType, observe, prometheusText, publish, type BreakerMessage, type RefusedMessage } from 'leapgate/metrics';

const engine = new Engine({});
const text: string = prometheusText(engine) + prometheusText({ api: engine }) + contentType;
declare const meter: Meter;
declare const limiter: SharedLimiter;
prometheusText({ api: limiter });
const end: () => void = observe(meter, { api: engine });
publish(engine)();
publish(engine, diagnostics);
const told = ({ engine, result }: RefusedMessage, { from }: BreakerMessage): [Engine, string | null, boolean] => [engine, result.rule, from === 'open'];
export { end, text, told };

// @ts-expect-error: an engine of flow rules alone counts nothing
prometheusText(new FlowEngine({}));
// @ts-expect-error: a meter is needed
observe({}, engine);
// @ts-expect-error: one engine
publish({ api: engine });
