import { Limiter, type Hold, type LimitResult } from 'leapgate';

const limiter = new Limiter({ limit: 100, windowMs: 1000 });
const hold: Hold = limiter.hold('a', 60, { limit: 80 });
const result: LimitResult = hold;
const debt: number = hold.settle(12);
const usage: { totalTokens: number | undefined } = { totalTokens: 412 };
limiter.hold(['a', 1]).settle(usage.totalTokens);
hold.cancel();
{
  using held = limiter.hold('a');
  held.settle();
}
void [result, debt];

// @ts-expect-error no text
limiter.hold('a', '60');
// @ts-expect-error an estimate is the cost
limiter.hold('a', 60, { cost: 2 });
// @ts-expect-error no text
hold.settle('12');
