// What the default clock does under fakes of `Date`, whichever package makes them.

// Throws unless a limiter follows the fake, as long as it is there: `install`, `advance` and `uninstall` handle it, and `set` sets it.
export function assertFollowed(Limiter, { install, advance, set, uninstall }) {
  const limiter = new Limiter({ limit: 1, windowMs: 60_000 });
  let before = limiter.now();
  const now = () => {
    const read = limiter.now();
    if (read < before) throw new Error(`the clock has gone back from ${before} to ${read}`);
    before = read;
    return read;
  };
  const asks = (success, when) => {
    const result = limiter.limit('a');
    if (result.success !== success) throw new Error(`${when}: ${JSON.stringify(result)}`);
    const ahead = result.reset - Date.now();
    if (!(ahead >= 0 && ahead <= 63_001)) throw new Error(`${when}: \`reset\` is in ${ahead} ms`);
    now();
  };
  asks(true, 'before the fake');
  install();
  asks(false, 'at the fake');
  const start = now();
  advance(50_000);
  if (Math.abs(now() - start - 50_000) > 1) throw new Error(`the clock has gone on from ${start} to ${now()}`);
  asks(false, 'after 50 s');
  advance(14_000);
  asks(true, 'after 64 s');
  if (set) {
    set(Date.now() - 3_600_000);
    asks(false, 'an hour back');
    advance(64_000);
    asks(true, '64 s later');
    set(Date.now() + 64_000);
    asks(true, 'set ahead');
  }
  asks(false, 'still');
  uninstall();
  asks(false, 'after the fake');
  now();
  install();
  asks(false, 'at another fake');
  advance(64_000);
  asks(true, '64 s after it');
  uninstall();
  asks(false, 'in the end');
}
