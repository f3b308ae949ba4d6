// SPDX-License-Identifier: MIT
// Zoom and search in a flame graph. Returns the functions for a page around it. Texts of frames are set as text, never as markup.
"use strict";
function flame(svg) {
  const all = Number(svg.dataset.hits) || 1, width = svg.viewBox.baseVal.width, letter = 7;
  const frames = Array.from(svg.querySelectorAll("g.frame"), (g) => {
    const title = g.querySelector("title").textContent;
    return {g, title, begin: Number(g.dataset.begin), hits: Number(g.dataset.hits), rect: g.querySelector("rect"),
            label: g.querySelector("text"), name: title.slice(0, title.lastIndexOf(": ")), y: g.querySelector("rect").y.baseVal.value};
  });
  const found = svg.querySelector(".found");

  function draw(begin, hits, base) {
    const scale = width / hits;
    for (const frame of frames) {
      const around = frame.begin <= begin && frame.begin + frame.hits >= begin + hits && frame.y >= base;
      const from = around ? begin : frame.begin, size = around ? hits : frame.hits;
      const shown = from >= begin && from + size <= begin + hits;
      frame.g.style.display = shown && size * scale >= 0.3 ? "" : "none";
      if (!shown) continue;
      const x = (from - begin) * scale, w = size * scale, letters = Math.floor(w / letter) - 1;
      frame.rect.setAttribute("x", x);
      frame.rect.setAttribute("width", Math.max(w, 0.3));
      frame.rect.style.opacity = around && frame.hits > hits ? 0.5 : 1;
      frame.label.setAttribute("x", x);
      frame.label.textContent = letters < 3 ? "" : frame.name.length <= letters ? frame.name : frame.name.slice(0, letters - 1) + "\u2026";
    }
  }
  function zoom(frame) { draw(frame.begin, Math.max(frame.hits, 1), frame.y); }
  function reset() { draw(0, all, -1); }
  // Marks frames with that text; answers how many hits are inside of them.
  function search(text) {
    const ranges = [];
    for (const frame of frames) {
      const is = text !== "" && frame.name.includes(text);
      frame.rect.setAttribute("stroke", is ? "#d020d0" : "none");
      frame.rect.setAttribute("stroke-width", is ? 2 : 0);
      if (is) ranges.push([frame.begin, frame.begin + frame.hits]);
    }
    let hits = 0, end = 0;
    for (const [from, to] of ranges.sort((a, b) => a[0] - b[0])) {
      hits += Math.max(0, to - Math.max(from, end));
      end = Math.max(end, to);
    }
    found.textContent = text === "" ? " " : `'${text}': ${hits} hits, ${(100 * hits / all).toFixed(1)}%`;
    return hits;
  }
  for (const frame of frames) frame.g.addEventListener("click", () => zoom(frame));
  svg.querySelector(".reset").addEventListener("click", reset);
  svg.querySelector(".search").addEventListener("click", () => search(prompt("Part of a function's name:") || ""));
  reset();
  return {frames, zoom, reset, search};
}
