// What the page of `watch` does: it looks every few seconds, draws curves, and moves sliders over the steps of samples.
#pragma once

namespace lh::watch_page {

inline constexpr const char* js = R"('use strict';
const get = id => document.getElementById(id);
const make = (tag, parent, name) => {
  const element = parent.appendChild(document.createElement(tag));
  if (name) element.className = name;
  return element;
};
const svg = (tag, parent) => parent.appendChild(document.createElementNS('http://www.w3.org/2000/svg', tag));
const short = v => v === 0 ? '0' : Math.abs(v) < 1e-3 || Math.abs(v) >= 1e5 ? v.toExponential(2) : String(+v.toPrecision(4));

// A curve, of what jumps from step to step with its moving mean; beside the title stands its last value, or the one under the pointer.
const charts = {};
function chart(title, points) {
  if (points.length < 2) return;
  if (!charts[title]) {
    const figure = make('figure', get('charts')), caption = make('figcaption', figure);
    make('b', caption).textContent = title.replaceAll('_', ' ');
    const value = make('span', caption), plot = make('div', figure, 'plot'), root = svg('svg', plot);
    root.setAttribute('viewBox', '0 0 600 200');
    root.setAttribute('preserveAspectRatio', 'none');
    const axis = make('div', figure, 'axis');
    const made = charts[title] = { value, root, raw: svg('path', root), mean: svg('path', root), here: svg('path', root),
      high: make('span', plot, 'high'), low: make('span', plot, 'low'), first: make('span', axis), last: make('span', axis) };
    made.raw.setAttribute('class', 'raw');
    made.here.setAttribute('class', 'here');
    root.onpointermove = event => point(made, event.offsetX / root.clientWidth);
    root.onpointerleave = () => point(made, null);
  }
  const it = charts[title];
  const xs = points.map(p => p[0]), ys = points.map(p => p[1]);
  const x0 = Math.min(...xs), x1 = Math.max(...xs), y0 = Math.min(...ys), y1 = Math.max(...ys);
  it.x = v => 600 * (v - x0) / (x1 - x0 || 1);
  const y = v => y1 === y0 ? 100 : 194 - 188 * (v - y0) / (y1 - y0);
  const line = list => 'M' + list.map(p => it.x(p[0]).toFixed(1) + ' ' + y(p[1]).toFixed(1)).join('L');
  const jumps = title === 'loss' || title === 'grad_norm';
  let mean = ys[0];
  it.points = points;
  it.raw.setAttribute('d', jumps ? line(points) : '');
  it.mean.setAttribute('d', line(jumps ? points.map(p => [p[0], mean += 0.1 * (p[1] - mean)]) : points));
  it.high.textContent = short(y1);
  it.low.textContent = y1 === y0 ? '' : short(y0);
  it.first.textContent = x0;
  it.last.textContent = 'step ' + x1;
  if (!it.held) point(it, null);
}
function point(it, share) {
  it.held = share !== null;
  let near = it.points[it.points.length - 1];
  if (it.held)
    for (const p of it.points) if (Math.abs(it.x(p[0]) - 600 * share) < Math.abs(it.x(near[0]) - 600 * share)) near = p;
  it.value.textContent = (it.held ? 'step ' + near[0] + ': ' : '') + short(near[1]);
  it.here.setAttribute('d', it.held ? 'M' + it.x(near[0]) + ' 0V200' : '');
}

// One card for each prompt, with a slider over its steps; at its end it follows what is new. The slider above them moves
// all; what it is at stands behind the # of the address.
const cards = {}, everything = { steps: [] };
let wanted = Number(new URLSearchParams(location.hash.slice(1)).get('step')) || null;
function samples(list, prompts) {
  get('none').hidden = list.length > 0;
  const byPrompt = {};
  for (const s of list) (byPrompt[s.prompt] ||= []).push(s);
  for (const [index, of] of Object.entries(byPrompt)) {
    let card = cards[index];
    if (!card) {
      const box = make('article', get('samples'), 'card'), link = make('a', box), below = make('div', box);
      card = cards[index] = { link, step: make('p', below, 'step'), slider: make('input', below),
        text: make('p', below, 'prompt') };
      link.target = '_blank';
      card.slider.type = 'range';
      card.slider.min = card.slider.value = card.slider.max = 0;
      card.slider.setAttribute('aria-label', 'step of this sample');
      card.slider.oninput = () => show(card);
    }
    const follows = !card.list || Number(card.slider.value) >= Number(card.slider.max);
    card.list = of;
    card.prompt = (prompts || [])[index] ?? '';
    card.slider.max = of.length - 1;
    card.slider.hidden = of.length < 2;
    if (follows) card.slider.value = of.length - 1;
    if (wanted !== null) at_step(card, wanted);
    show(card);
  }
  const slider = get('all-slider'), steps = [...new Set(list.map(s => s.step))].sort((a, b) => a - b);
  get('all').hidden = steps.length < 2;
  everything.steps = steps;
  slider.max = Math.max(steps.length - 1, 0);
  slider.value = wanted === null ? slider.max : steps.filter(s => s <= wanted).length - 1;
  get('all-step').textContent = steps[slider.value] ?? '';
}
// The last sample that is no later than this step, or the first.
function at_step(card, step) {
  card.slider.value = Math.max(card.list.filter(s => s.step <= step).length - 1, 0);
  show(card);
}
// Clips with sound are played by hand, where they stand; pictures open when they are clicked.
function picture(card, film) {
  card.link.replaceChildren();
  card.link.removeAttribute('href');
  const image = card.image = make(film ? 'video' : 'img', card.link);
  if (film) {
    image.controls = image.loop = true;
    image.preload = 'metadata';
  } else {
    image.loading = 'lazy';
    image.onload = () => image.classList.toggle('small', image.naturalWidth < 200);
  }
}
function show(card) {
  const sample = card.list[Number(card.slider.value)], source = 'samples/' + sample.file;
  const film = sample.file.endsWith('.mp4');
  if (!card.image || (card.image.tagName === 'VIDEO') !== film) picture(card, film);
  if (card.image.getAttribute('src') !== source) card.image.src = source;
  if (!film) card.link.href = source;
  card.image.setAttribute(film ? 'aria-label' : 'alt', 'sample of step ' + sample.step);
  card.step.textContent = 'step ' + sample.step;
  card.text.textContent = card.prompt;
}
get('all-slider').oninput = event => {
  const step = everything.steps[event.target.value], newest = Number(event.target.value) === everything.steps.length - 1;
  wanted = newest ? null : step;
  history.replaceState(null, '', newest ? location.pathname : '#step=' + step);
  get('all-step').textContent = step;
  for (const card of Object.values(cards)) at_step(card, step);
};

// The speed is that of the steps since the page was opened.
let first = null;
function eta(step, steps) {
  const now = Date.now() / 1000;
  if (!first || step < first.step) first = { step, now };
  const done = step - first.step;
  if (!steps || done < 1 || step >= steps) return '';
  const each = (now - first.now) / done, seconds = Math.round((steps - step) * each);
  const two = n => String(n).padStart(2, '0');
  return short(each) + ' s a step, about ' + Math.floor(seconds / 3600) + ':' + two(Math.floor(seconds / 60) % 60) + ':' +
    two(seconds % 60) + ' left';
}

const tiles = {};
function number(name, value) {
  if (!tiles[name]) {
    const box = make('div', get('numbers'));
    make('dt', box).textContent = name;
    tiles[name] = make('dd', box);
  }
  tiles[name].textContent = value;
}
function numbers(run) {
  run.columns.forEach((column, i) => {
    const last = run.metrics.findLast(p => p[i] !== null);
    if (i > 0 && last) number(column.replaceAll('_', ' '), short(last[i]));
  });
  const memory = /^memory (\d+) MiB/m.exec(run.status);
  if (memory) number('memory', memory[1] < 10240 ? memory[1] + ' MiB' : (memory[1] / 1024).toFixed(1) + ' GiB');
}

async function look() {
  try {
    const run = await (await fetch('run.json')).json();
    const paused = run.live && / paused/.test(run.status.split('\n')[0]);
    const ended = run.steps && run.step >= run.steps;
    document.title = run.name + ' ' + run.step + (run.steps ? '/' + run.steps : '');
    get('name').textContent = run.name;
    get('state').textContent = paused ? 'paused' : run.live ? 'training' : ended ? 'done' : 'not training now';
    get('state').classList.toggle('live', run.live && !paused);
    get('progress').max = run.steps || 1;
    get('progress').value = run.step;
    get('steps').textContent = 'step ' + run.step + (run.steps ? ' of ' + run.steps : '');
    get('eta').textContent = run.live ? eta(run.step, run.steps) : '';
    get('settings').textContent = run.live ? run.status.split('\n').slice(2).filter(l => !/^memory /.test(l)).join(', ') : '';
    get('problem').textContent = run.problem || '';
    get('problem').hidden = !run.problem;
    numbers(run);
    run.columns.forEach((column, i) => {
      if (i > 0) chart(column, run.metrics.filter(p => p[i] !== null).map(p => [p[0], p[i]]));
    });
    samples(run.samples, run.prompts);
  } catch (error) {
    get('problem').textContent = 'lora-host watch does not answer: ' + error;
    get('problem').hidden = false;
  }
  setTimeout(look, 3000);
}

// Once: training pictures do not change while they are trained on.
async function dataset() {
  const data = await (await fetch('dataset.json')).json();
  get('dataset').hidden = !data.pictures.length && !data.problem;
  get('pictures-count').textContent = data.problem ||
    (data.pictures.length < data.total ? 'the first ' + data.pictures.length + ' of ' : '') + data.total;
  data.pictures.forEach((picture, i) => {
    const box = make('div', get('pictures'));
    box.title = picture.name + (picture.caption ? '\n' + picture.caption : '');
    if (picture.shown) {
      const image = make('img', box);
      image.loading = 'lazy';
      image.src = 'dataset/' + i + '.jpg';
      image.alt = picture.name;
    } else {
      make('div', box, 'broken');
    }
    make('p', box).textContent = picture.caption || picture.name;
  });
}

// Busy until both first answers stand on the page, or have failed. Pictures come when they are scrolled to.
Promise.allSettled([look(), dataset()]).then(() => document.body.setAttribute('aria-busy', 'false'));
)";

}  // namespace lh::watch_page
