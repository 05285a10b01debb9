import { Engine } from 'leapgate/engine';
import { ArrayMetric, LeapArray, StatisticNode } from 'leapgate/stats';
import type { Metric, MetricNode, NodeTree, RecordedNode, SlidingWindowMetric, WindowWrap } from 'leapgate/stats';

using array = new LeapArray({ intervalMs: 1000, sampleCount: 2, now: () => 5 });
array.addPass();
array.addRt(1.5, 1000);
const wrap: WindowWrap | null = array.previousWindow();
const total: number = array.list(5).reduce((sum, { value }) => sum + value.pass, 0);
array.isWindowDeprecated({ windowStart: total + (wrap?.windowStart ?? 0) }, 5);
// @ts-expect-error a mistyped option
new LeapArray({ intervalMs: 1000, samples: 2 });
// @ts-expect-error an option is missing
new LeapArray({ sampleCount: 2 });
new LeapArray({ intervalMs: 1000, sampleCount: undefined });
// @ts-expect-error nothing is borrowed from an array
new LeapArray({ intervalMs: 1000, untouched: 'lost' });
// @ts-expect-error perhaps none
array.windowValue(5).pass;
// @ts-expect-error the geometry stays
array.sampleCount = 3;

using metric = new ArrayMetric({ intervalMs: 1000, untouched: 'lost' });
const view: SlidingWindowMetric = metric.view({ intervalMs: 500, sampleCount: 1 });
const metrics: Metric[] = [metric, view];
const details: MetricNode[] = metrics[0]?.detailsOnCondition((timestamp) => timestamp > 5) ?? [];
details.length.toFixed(metric.average('success'));
// @ts-expect-error no such event
metric.sum('passes');
// @ts-expect-error perhaps none
metric.maxRt().toFixed();
// @ts-expect-error a view is for reading
view.addPass();

using node = new StatisticNode();
node.complete(12, { failed: true }, 1000);
const nodes: RecordedNode[] = [node];
nodes.map((node) => node.passQps() + node.second().pass());
// @ts-expect-error no such thing becomes of a loan
new StatisticNode({ untouched: 'forgotten' });
// @ts-expect-error a number
node.addPassRequest('1');

export function names(tree: NodeTree): string[] {
  const below = tree.root.entrances().flatMap((entrance) => entrance.children());
  const origins = tree.clusters().flatMap((cluster) => cluster.origins().map(({ origin }) => origin));
  // @ts-expect-error perhaps none
  tree.cluster('orders').origins();
  // @ts-expect-error an entrance records nothing
  tree.root.second();
  // @ts-expect-error it belongs to the engine
  tree.inbound.free();
  return [...below.map((node) => node.resource), ...origins];
}

const engine = new Engine({});
names(engine.nodes);
const blocked: number = engine.counters().reduce((sum, counters) => sum + counters.blocked, 0);
const hottest: (string | null)[] = engine.top(blocked).map(({ key }) => key);
hottest.includes(null);
// @ts-expect-error not counted of all rules
engine.counters()[0]?.passed.toFixed();
// @ts-expect-error the engine's own
engine.nodes = engine.nodes;
