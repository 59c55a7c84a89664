// The page of `watch`: it asks its own server for what is shown, and nobody else for anything.
#pragma once

namespace lh::watch_page {

inline constexpr const char* policy =
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

inline constexpr const char* html = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>lora-host watch</title><link rel="stylesheet" href="page.css"><script src="page.js" defer></script></head><body>
<h1 id="name">lora-host</h1>
<p><progress id="progress" value="0" max="1"></progress> <span id="steps"></span> <span id="eta"></span></p>
<pre id="status"></pre>
<section id="charts"></section>
<h2>Samples</h2>
<p id="none">None yet.</p>
<section id="samples"></section>
</body></html>
)";

inline constexpr const char* css =
    R"(:root { color-scheme: light dark; --line: #8886; --raw: #4a90d955; --mean: #2a70c9; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 76em; padding: 0 1em; }
progress { width: 20em; }
pre { color: #888; }
#charts { display: flex; flex-wrap: wrap; gap: 1.5em; }
figure { margin: 0; }
svg { width: 36em; max-width: 100%; height: 14em; border: 1px solid var(--line); }
svg path { fill: none; stroke: var(--mean); stroke-width: 1.5; }
svg path.raw { stroke: var(--raw); stroke-width: 1; }
svg text { font-size: 11px; fill: #888; }
.prompt { display: inline-block; vertical-align: top; margin: 0 1.5em 1.5em 0; width: 24em; max-width: 100%; }
.prompt img { width: 100%; border: 1px solid var(--line); }
.prompt input { width: 100%; }
)";

inline constexpr const char* js = R"('use strict';
const get = id => document.getElementById(id);
const make = (tag, parent) => parent.appendChild(document.createElement(tag));
const svg = (tag, parent) => parent.appendChild(document.createElementNS('http://www.w3.org/2000/svg', tag));

// A curve with its moving mean; numbers are the ends of its axes.
const charts = {};
function chart(title, points) {
  if (points.length < 2) return;
  if (!charts[title]) {
    const figure = make('figure', get('charts'));
    make('figcaption', figure).textContent = title;
    charts[title] = svg('svg', figure);
    charts[title].setAttribute('viewBox', '0 0 600 220');
    charts[title].setAttribute('preserveAspectRatio', 'none');
  }
  const xs = points.map(p => p[0]), ys = points.map(p => p[1]);
  const x0 = Math.min(...xs), x1 = Math.max(...xs), y0 = Math.min(...ys), y1 = Math.max(...ys);
  const x = v => 8 + 584 * (v - x0) / (x1 - x0 || 1), y = v => 200 - 184 * (v - y0) / (y1 - y0 || 1);
  const line = list => 'M' + list.map(p => x(p[0]).toFixed(1) + ' ' + y(p[1]).toFixed(1)).join('L');
  let mean = ys[0];
  const smooth = points.map(p => [p[0], mean += 0.1 * (p[1] - mean)]);
  const root = charts[title];
  root.replaceChildren();
  const raw = svg('path', root);
  raw.setAttribute('class', 'raw');
  raw.setAttribute('d', line(points));
  svg('path', root).setAttribute('d', line(smooth));
  for (const [text, tx, ty] of [[y1.toPrecision(3), 10, 12], [y0.toPrecision(3), 10, 196], [x0, 10, 216], [x1, 560, 216]]) {
    const label = svg('text', root);
    label.setAttribute('x', tx);
    label.setAttribute('y', ty);
    label.textContent = text;
  }
}

// One place for each prompt, with a slider over the steps; at its end it follows what is new.
const places = {};
function samples(list, prompts) {
  get('none').hidden = list.length > 0;
  const byPrompt = {};
  for (const s of list) (byPrompt[s.prompt] ||= []).push(s);
  for (const [index, of] of Object.entries(byPrompt)) {
    let place = places[index];
    if (!place) {
      const box = make('div', get('samples'));
      box.className = 'prompt';
      place = places[index] = { image: make('img', box), slider: make('input', box), text: make('div', box) };
      place.slider.type = 'range';
      place.slider.min = 0;
      place.slider.value = place.slider.max = 0;
      place.slider.oninput = () => show(place);
    }
    const follows = Number(place.slider.value) >= Number(place.slider.max);
    place.list = of;
    place.prompt = (prompts || [])[index] || '';
    place.slider.max = of.length - 1;
    if (follows) place.slider.value = of.length - 1;
    show(place);
  }
}
function show(place) {
  const sample = place.list[Number(place.slider.value)];
  const source = 'samples/' + sample.file;
  if (place.image.getAttribute('src') !== source) place.image.src = source;
  place.text.textContent = 'step ' + sample.step + ': ' + place.prompt;
}

// The speed is that of the steps since the page was opened.
let first = null;
function eta(step, steps) {
  const now = Date.now() / 1000;
  if (!first || step < first.step) first = { step, now };
  const done = step - first.step;
  if (!steps || done < 1 || step >= steps) return '';
  const seconds = Math.round((steps - step) * (now - first.now) / done);
  const two = n => String(n).padStart(2, '0');
  return 'about ' + Math.floor(seconds / 3600) + ':' + two(Math.floor(seconds / 60) % 60) + ':' + two(seconds % 60) + ' left';
}

async function look() {
  try {
    const run = await (await fetch('run.json')).json();
    document.title = run.name + ' ' + run.step + (run.steps ? '/' + run.steps : '');
    get('name').textContent = run.name;
    get('progress').max = run.steps || 1;
    get('progress').value = run.step;
    get('steps').textContent = 'step ' + run.step + (run.steps ? ' of ' + run.steps : '');
    get('eta').textContent = run.live ? eta(run.step, run.steps) : '';
    get('status').textContent = run.status + (run.problem ? '\n' + run.problem : '');
    run.columns.forEach((column, i) => {
      if (i > 0) chart(column, run.metrics.filter(p => p[i] !== null).map(p => [p[0], p[i]]));
    });
    samples(run.samples, run.prompts);
  } catch (error) {
    get('status').textContent = 'lora-host watch does not answer: ' + error;
  }
  setTimeout(look, 3000);
}
look();
)";

}  // namespace lh::watch_page
