// The page of `watch`: it asks its own server for what is shown, and nobody else for anything. What it does is in
// watch_script.h.
#pragma once

namespace lh::watch_page {

inline constexpr const char* policy =
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self'; "
    "base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

inline constexpr const char* html = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>lora-host watch</title><link rel="stylesheet" href="page.css"><script src="page.js" defer></script></head>
<body aria-busy="true">
<header>
<h1 id="name">lora-host</h1> <span id="state" class="badge"></span>
<progress id="progress" value="0" max="1"></progress>
<p><span id="steps"></span><span id="eta"></span></p>
</header>
<p id="problem" class="problem" hidden></p>
<dl id="numbers"></dl>
<p id="settings" class="dim"></p>
<section id="charts"></section>
<section>
<div class="head"><h2>Samples</h2>
<label id="all" hidden>all at step <output id="all-step"></output> <input id="all-slider" type="range" min="0" value="0"></label></div>
<p id="none" class="dim">None yet: they come with sample.prompts and sample.sample_every.</p>
<div id="samples" class="cards"></div>
</section>
<section id="dataset" hidden>
<div class="head"><h2>Training pictures</h2><span id="pictures-count" class="dim"></span></div>
<div id="pictures" class="thumbnails"></div>
</section>
</body></html>
)";

inline constexpr const char* css = R"(:root {
  color-scheme: light dark;
  --page: #f5f5f7; --card: #fff; --text: #1c1c1f; --dim: #6b6b73; --line: #dcdce2;
  --accent: #2a66c8; --raw: #2a66c840; --good: #1d7f43; --bad: #b3261e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #161618; --card: #222226; --text: #ececf0; --dim: #9a9aa4; --line: #3a3a41;
    --accent: #7fb0ff; --raw: #7fb0ff40; --good: #6fce95; --bad: #ff8a80;
  }
}
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1.5rem 1.5rem 4rem; max-width: 84rem;
       background: var(--page); color: var(--text); }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0; display: inline; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 0; }
section { margin-top: 2rem; }
[hidden] { display: none !important; }
.dim, figcaption span, dt { color: var(--dim); }
.badge { font-size: .8rem; padding: .1rem .6rem; border-radius: 1rem; border: 1px solid var(--line); color: var(--dim);
         white-space: nowrap; vertical-align: .2rem; margin-left: .4rem; }
.badge:empty { display: none; }
.badge.live { color: var(--good); border-color: currentColor; }
.problem { color: var(--bad); white-space: pre-wrap; overflow-wrap: anywhere; }
progress { display: block; width: 100%; height: .6rem; margin: .9rem 0 .3rem; accent-color: var(--accent); }
header p { margin: 0; display: flex; justify-content: space-between; gap: 1rem; font-variant-numeric: tabular-nums; }
#numbers { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1.2rem 0 0; }
#numbers div { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .5rem .9rem; min-width: 8rem; }
dt { font-size: .8rem; }
dd { margin: 0; font-size: 1.2rem; font-variant-numeric: tabular-nums; }
#settings { overflow-wrap: anywhere; margin: .6rem 0 0; }
#settings:empty { display: none; }
#charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(18rem, 100%), 1fr)); gap: 1rem; }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .7rem .9rem; }
figcaption { display: flex; justify-content: space-between; gap: 1rem; font-variant-numeric: tabular-nums; }
.plot { position: relative; margin-top: .4rem; padding-left: 3.6rem; }
.axis { margin-left: 3.6rem; }
svg { display: block; width: 100%; height: 11rem; border-bottom: 1px solid var(--line); border-top: 1px dashed var(--line); }
svg path { fill: none; stroke: var(--accent); stroke-width: 2; vector-effect: non-scaling-stroke; }
svg path.raw { stroke: var(--raw); stroke-width: 1; }
svg path.here { stroke: var(--dim); stroke-width: 1; }
.plot span { position: absolute; left: 0; width: 3.2rem; text-align: right; font-size: .72rem; color: var(--dim); }
.plot .high { top: -.3rem; }
.plot .low { bottom: -.3rem; }
.axis { display: flex; justify-content: space-between; font-size: .72rem; color: var(--dim); padding-top: .15rem; }
.head { display: flex; flex-wrap: wrap; align-items: baseline; justify-content: space-between; gap: .3rem 1.5rem; margin-bottom: .8rem; }
.head label { display: flex; align-items: center; gap: .6rem; color: var(--dim); font-variant-numeric: tabular-nums; }
.head input { width: min(20rem, 50vw); }
input { accent-color: var(--accent); }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(15rem, 100%), 1fr)); gap: 1rem; align-items: start; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; overflow: hidden; }
.card img, .card video { display: block; width: 100%; background: var(--line); }
.card img.small { image-rendering: pixelated; }
.card div { padding: .5rem .8rem .7rem; }
.card input { display: block; width: 100%; margin: .2rem 0; }
.card p { margin: 0; }
.prompt { overflow-wrap: anywhere; max-height: 6em; overflow-y: auto; }
.step { font-size: .8rem; color: var(--dim); font-variant-numeric: tabular-nums; }
.thumbnails { display: grid; grid-template-columns: repeat(auto-fill, minmax(8rem, 1fr)); gap: .8rem; align-items: start; }
.thumbnails div { font-size: .75rem; line-height: 1.35; }
.thumbnails img, .thumbnails .broken { display: block; width: 100%; aspect-ratio: 1; object-fit: cover; border-radius: .4rem;
                                       background: var(--line); }
.thumbnails p { margin: .25rem 0 0; color: var(--dim); display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2;
                overflow: hidden; overflow-wrap: anywhere; }
)";

}  // namespace lh::watch_page
