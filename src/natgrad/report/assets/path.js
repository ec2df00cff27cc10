"use strict";
/* The path of states with a zoom: draws the visible part of the data that the page holds. */
(() => {
  const data = JSON.parse(document.getElementById("path-data").textContent);
  const $ = (id) => document.getElementById(id);
  const strip = $("path-strip"), NS = strip.querySelector("svg").namespaceURI;
  const W = 900, H = 220, BAND = 30;
  let from = 0, to = data.times;

  const make = (name, attributes, style) => {
    const element = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (style) element.style.setProperty("--hue", style);
    return element;
  };
  const hue = (state) => String((Math.floor((state * 360) / Math.max(data.states, 1)) + 205) % 360);
  const number = (value) => Math.round(value).toLocaleString("en");

  // Dates of rows, where they have some: that of the last row before whose date the page holds.
  const when = (value) => {
    if (!data.dates) return number(value);
    const before = data.dates.filter(([t]) => t <= Math.max(Math.round(value), 0));
    return before[before.length - 1][1];
  };

  function draw() {
    const x = (t) => ((t - from) / (to - from)) * W;
    const svg = make("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", class: "chart",
      "aria-label": `States from time ${when(from)} to ${when(data.dates ? to - 1 : to)}` });
    for (const [start, length, state] of data.stretches) {
      if (start + length < from || start > to) continue;
      const left = Math.max(x(start), 0), right = Math.min(x(start + length), W);
      const bar = make("rect", { x: left, y: H - BAND, width: Math.max(right - left, 0.4), height: BAND, class: "state" }, hue(state));
      const title = make("title", {});
      title.textContent = `state ${state}, ${when(start)} to ${when(start + length - (data.dates ? 1 : 0))}`;
      bar.append(title);
      svg.append(bar);
      if (right - left > 26) {
        const label = make("text", { x: (left + right) / 2, y: H - 10, "text-anchor": "middle", class: "on-state" });
        label.textContent = state;
        svg.append(label);
      }
    }
    const seen = data.values.filter(([t]) => t >= from && t <= to);
    const low = Math.min(...seen.map(([, v]) => v)), high = Math.max(...seen.map(([, v]) => v));
    const y = (v) => H - BAND - 12 - ((v - low) / (high - low || 1)) * (H - BAND - 24);
    if (seen.length > 1) svg.append(make("path", { d: `M${seen.map(([t, v]) => `${x(t).toFixed(1)} ${y(v).toFixed(1)}`).join("L")}`, class: "line" }));
    for (const end of data.ends) if (end > from && end < to) svg.append(make("path", { d: `M${x(end)} 0V${H}`, class: "guide" }));
    strip.replaceChildren(svg);
    $("path-range").textContent = `times ${when(from)} to ${when(data.dates ? to - 1 : to)} of ${number(data.times)}`;
  }

  function show(centre, width) {
    const wide = Math.min(Math.max(width, Math.min(20, data.times)), data.times);
    from = Math.min(Math.max(centre - wide / 2, 0), data.times - wide);
    to = from + wide;
    draw();
  }
  const actions = {
    in: () => show((from + to) / 2, (to - from) / 2),
    out: () => show((from + to) / 2, (to - from) * 2),
    back: () => show((from + to) / 2 - (to - from) / 2, to - from),
    on: () => show((from + to) / 2 + (to - from) / 2, to - from),
    all: () => show(data.times / 2, data.times),
  };
  for (const [name, action] of Object.entries(actions)) $(`path-${name}`).addEventListener("click", action);
  const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "back", ArrowRight: "on", 0: "all" };
  strip.addEventListener("keydown", (event) => {
    const name = keys[event.key];
    if (!name || event.ctrlKey || event.metaKey) return;
    actions[name]();
    event.preventDefault();
  });
  strip.addEventListener("dblclick", (event) => {
    const box = strip.getBoundingClientRect();
    show(from + ((event.clientX - box.left) / box.width) * (to - from), (to - from) / 3);
  });
  draw();
})();
