// Replay: a log, and what rules would have done to it. The report is that of the command line.
import uPlot from 'uplot';
import { drawReport } from '../../cli/report/report.js';
import { element, say } from '../dom.js';
import { changed, oneOf, readFields, sentenceOf, textUpTo } from '../link.js';
import { Replay } from '../engine.js';
import { SAMPLE_RULES, sampleLog } from '../sample.js';

// The page stays alive: so many bytes are read at once, and after so many milliseconds the browser has its turn.
const PIECE = 1 << 17;
const TURN_MS = 12;

// Rules are read so long after a key was pressed.
const TYPING_MS = 400;

const SAMPLE = JSON.stringify(SAMPLE_RULES, null, 1).replace(/\n {3,}/g, ' ').replace(/\n {2}\}/g, ' }');

const FIELDS = {
  log: [oneOf(['sample', 'own']), 'sample'],
  rules: [textUpTo(6000), SAMPLE],
  routes: [textUpTo(1000), ''],
  fields: [textUpTo(1000), ''],
};

export const mount = (place, clock, state) => new ReplayFigure(place, state).handle();

class ReplayFigure {
  #place;
  #values;
  #nodes;
  #log;
  #report;
  #drawn;
  #typing;
  #run = 0;

  constructor(place, state) {
    this.#place = place;
    const { values, wrong } = readFields(state, FIELDS);
    this.#values = values;
    this.#build();
    if (wrong.length > 0) this.#notice(sentenceOf(wrong));
    if (values.log === 'sample') this.#take(new File([sampleLog()], 'the sample'), 'sample');
    else this.#say('This link has the rules of a replay, and not its log: choose one.');
  }

  handle() {
    return {
      state: () => changed(this.#values, FIELDS),
      numbers: () => this.#report,
      unmount: () => {
        clearTimeout(this.#typing);
        this.#run++;
        this.#drawn?.unmount();
      },
    };
  }

  #build() {
    const file = element('input', { type: 'file', class: 'unseen', id: 'replay-file', onchange: () => file.files.length > 0 && this.#take(file.files[0]) });
    const text = (name, label, rows, more = {}) => {
      const field = element('textarea', { id: `replay-${name}`, rows, spellcheck: 'false', autocomplete: 'off', autocapitalize: 'off', ...more });
      field.value = this.#values[name] ?? '';
      return [element('label', { for: field.id }, label), field];
    };
    const setting = (name) => ({
      oninput: ({ target }) => {
        this.#values[name] = target.value;
        this.#changed();
      },
    });
    const pasted = element('details', { class: 'paste' }, element('summary', {}, 'Or paste lines'));
    const [pasteLabel, paste] = text('paste', 'Lines of a log', 4);
    pasted.append(pasteLabel, paste, element('button', { type: 'button', onclick: () => this.#take(new File([paste.value], 'what you pasted')) }, 'Replay these lines'));
    const [rulesLabel, rules] = text('rules', 'Rules, as JSON', 9, { 'aria-describedby': 'replay-wrong', ...setting('rules') });
    const [routesLabel, routes] = text('routes', 'Routes: the resources of paths, where the log names none, as in /login=login /search=search', 1, setting('routes'));
    const [fieldsLabel, fields] = text('fields', 'Fields: where values stand in lines of another format, as in $remote_addr [$time_local] "$request" $status', 1, setting('fields'));
    const cancel = element('button', { type: 'button', hidden: true, onclick: () => this.#cancel() }, 'Cancel');
    const progress = element('progress', { max: 1, value: 0, hidden: true, 'aria-label': 'How much of the log has been read' });
    this.#nodes = {
      rules,
      cancel,
      progress,
      wrong: element('p', { class: 'wrong', id: 'replay-wrong', role: 'alert' }),
      said: element('p', { class: 'said', role: 'status' }),
      report: element('div', { class: 'replayed' }),
    };
    const drop = element(
      'div',
      { class: 'drop' },
      element('p', {}, 'Drop an access log here: of Envoy, Istio, nginx, Apache or Caddy, packed by gzip or not. It is read in this page, and not uploaded.'),
      element(
        'div',
        { class: 'controls' },
        file,
        element('label', { for: file.id, class: 'button' }, 'Choose a log'),
        element('button', { type: 'button', onclick: () => this.#sample() }, 'Try the sample'),
      ),
      pasted,
    );
    const over = (isOver) => (event) => {
      event.preventDefault();
      drop.classList.toggle('over-it', isOver);
    };
    this.#place.addEventListener('dragover', over(true));
    this.#place.addEventListener('dragleave', over(false));
    this.#place.addEventListener('drop', (event) => {
      over(false)(event);
      const [first] = event.dataTransfer.files;
      if (first !== undefined) this.#take(first);
    });
    this.#place.append(
      element('h1', {}, 'What would these rules have done to yesterday?'),
      element('div', { class: 'asked' }, drop, element('div', { class: 'ruled' }, rulesLabel, rules, this.#nodes.wrong)),
      element('details', { class: 'more', open: this.#values.routes + this.#values.fields !== '' }, element('summary', {}, 'Another format, or a log without routes'), routesLabel, routes, fieldsLabel, fields),
      element('div', { class: 'controls progress' }, progress, cancel, this.#nodes.said),
      this.#nodes.report,
    );
  }

  #sample() {
    this.#values.rules = this.#nodes.rules.value = SAMPLE;
    this.#take(new File([sampleLog()], 'the sample'), 'sample');
  }

  #take(log, kind = 'own') {
    this.#log = log;
    this.#values.log = kind;
    this.#place.dispatchEvent(new Event('state', { bubbles: true }));
    return this.#replay();
  }

  #changed() {
    this.#place.dispatchEvent(new Event('state', { bubbles: true }));
    clearTimeout(this.#typing);
    this.#typing = setTimeout(() => this.#replay(), TYPING_MS);
  }

  #cancel() {
    this.#run++;
    this.#idle();
    this.#say('Cancelled: the report is that of before.');
  }

  #idle() {
    this.#nodes.cancel.hidden = true;
    this.#nodes.progress.hidden = true;
  }

  // Replays the log; a later run takes the place of this one.
  async #replay() {
    if (this.#log === undefined) return;
    this.#run += 1;
    const mine = this.#run;
    const log = this.#log;
    const { wrong, progress, cancel } = this.#nodes;
    say(wrong, '');
    let replay;
    try {
      replay = this.#begin();
    } catch (error) {
      say(wrong, error.message);
      return this.#idle();
    }
    let turn = performance.now();
    let shown = turn + 200;
    try {
      const faults = [];
      let read = 0;
      for await (const piece of unpacked(log, (bytes) => (read += bytes), faults)) {
        // While this waited, another run may have begun, which has taken the module.
        if (mine !== this.#run) return;
        for (let at = 0; at < piece.length; at += PIECE) {
          replay.feed(piece.subarray(at, at + PIECE));
          if (performance.now() - turn < TURN_MS) continue;
          await new Promise((resolve) => setTimeout(resolve));
          if (mine !== this.#run) return;
          turn = performance.now();
          if (turn < shown) continue;
          shown = turn + 100;
          progress.hidden = cancel.hidden = false;
          progress.value = read / log.size;
          this.#say(`Reading ${log.name}: ${Math.floor((100 * read) / log.size)} %`);
        }
      }
      if (mine !== this.#run) return;
      const report = replay.finish();
      this.#idle();
      this.#drawn?.unmount();
      this.#report = report;
      this.#drawn = drawReport(this.#nodes.report, report, uPlot);
      this.#say(faults.length > 0 ? `${log.name} is read up to a fault only (${faults[0]}).` : `This is the report of ${log.name}.`);
    } catch (error) {
      if (mine !== this.#run) return;
      this.#idle();
      this.#say('');
      say(wrong, `${log.name}: ${error.message}`);
    }
  }

  #begin() {
    const { rules, routes, fields } = this.#values;
    let document;
    try {
      document = JSON.parse(rules);
    } catch (error) {
      throw new Error(`The rules are not JSON: ${error.message}.`);
    }
    const pairs = routes.split(/\s+/).filter(Boolean).map((pair) => {
      const [, path, name] = /^(\/[^=]*)=(.+)$/.exec(pair) ?? [];
      if (name === undefined) throw new Error(`Routes: “${pair.slice(0, 60)}” is not a path and a resource; write it as in /login=login.`);
      return [path, name];
    });
    return new Replay(document, { routes: pairs, fields: fields.trim() === '' ? null : fields });
  }

  #say(sentence) {
    say(this.#nodes.said, sentence);
  }

  #notice(sentence) {
    this.#place.dispatchEvent(new CustomEvent('notice', { bubbles: true, detail: sentence }));
  }
}

// The pieces of a file, unpacked if it is packed; `told` is called with how many of its bytes have been read. A fault within an archive
// ends it: what has come is replayed.
async function* unpacked(file, told, faults) {
  const [first, second] = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  const counted = file.stream().pipeThrough(
    new TransformStream({
      transform(piece, control) {
        told(piece.length);
        control.enqueue(piece);
      },
    }),
  );
  const isPacked = first === 0x1f && second === 0x8b;
  const reader = (isPacked ? counted.pipeThrough(new DecompressionStream('gzip')) : counted).getReader();
  try {
    for (;;) {
      const { value, done } = await reader.read().catch((error) => {
        if (!isPacked) throw error;
        faults.push(error.message);
        return { done: true };
      });
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
