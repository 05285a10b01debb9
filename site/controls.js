// What drives the clock, and the theme.
import { element, say } from './dom.js';
import { SPEEDS } from './time.js';

// Play and pause, step, speed, and the time.
export function clockControls(clock) {
  const toggle = () => (clock.isPlaying ? clock.pause() : clock.play());
  const play = element('button', { type: 'button', class: 'play', onclick: toggle });
  const step = element('button', { type: 'button', onclick: () => clock.step() }, 'Step');
  const speed = element('input', { type: 'range', min: 0, max: SPEEDS.length - 1, step: 1, 'aria-label': 'Speed' });
  speed.addEventListener('input', () => (clock.speed = SPEEDS[speed.value]));
  const times = element('span', { class: 'times' });
  const now = element('output', { class: 'now', 'aria-live': 'off', 'aria-label': 'Time' });
  const update = () => {
    say(play, clock.isPlaying ? 'Pause' : 'Play');
    const at = SPEEDS.findLastIndex((one) => one <= clock.speed);
    if (Number(speed.value) !== at) speed.value = at;
    const told = `${clock.speed}×`;
    if (times.textContent !== told) speed.setAttribute('aria-valuetext', `${clock.speed} times as fast`);
    say(times, told);
    say(now, `${(clock.now / 1000).toFixed(1)} s`);
  };
  clock.follow(update);
  speed.value = 0;
  update();
  return [play, step, element('label', { class: 'speed' }, speed, times), now];
}

const THEME = 'leapgate-theme';

// Light or dark: the system's choice, until the button is used. Where storage is forbidden, the choice lasts as long as the page.
export function themeButton() {
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark';
  const button = element('button', { type: 'button', class: 'theme' }, '◐');
  const update = () => {
    button.setAttribute('aria-label', isDark() ? 'Light theme' : 'Dark theme');
    button.title = isDark() ? 'Light theme' : 'Dark theme';
    dispatchEvent(new Event('theme'));
  };
  button.addEventListener('click', () => {
    root.dataset.theme = isDark() ? 'light' : 'dark';
    try {
      localStorage.setItem(THEME, root.dataset.theme);
    } catch {}
    update();
  });
  try {
    const stored = localStorage.getItem(THEME);
    if (stored === 'light' || stored === 'dark') root.dataset.theme = stored;
  } catch {}
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', update);
  update();
  return button;
}
