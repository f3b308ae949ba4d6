// SPDX-License-Identifier: MIT
// Draws the page from its data. All text of the trace is set as text, never as markup. `page` is for tests, and for the console.
const page = {ready: false};

function element(id) { return document.getElementById(id); }
function time(ns) {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]]) if (Math.abs(ns) >= size) return (ns / size).toFixed(3) + " " + unit;
  return Math.round(ns) + " ns";
}

async function bytesOf(name) {
  const holder = element("data-" + name);
  const letters = atob(holder.textContent), packed = new Uint8Array(letters.length);
  for (let i = 0; i < packed.length; ++i) packed[i] = letters.charCodeAt(i);
  holder.remove();
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Numbers of variable length, into an array of that kind.
function numbersOf(bytes, into, isSigned = false) {
  for (let at = 0, i = 0; i < into.length; ++i) {
    let byte = bytes[at++], value = byte & 0x7f;
    for (let scale = 128; byte >= 0x80; scale *= 128) {
      byte = bytes[at++];
      value += (byte & 0x7f) * scale;
    }
    into[i] = !isSigned ? value : value % 2 ? -(value + 1) / 2 : value / 2;
  }
  return into;
}

function lowerBound(sorted, value) {
  let from = 0, to = sorted.length;
  while (from < to) {
    const middle = (from + to) >> 1;
    if (sorted[middle] < value) from = middle + 1; else to = middle;
  }
  return from;
}

function colour(name, light = 62) {
  let sum = 7;
  for (let i = 0; i < name.length; ++i) sum = (sum * 31 + name.charCodeAt(i)) >>> 0;
  return `hsl(${sum % 360},55%,${light}%)`;
}

// The columns of the hits: times from the first one on in nanoseconds, in order; of an entry the end of its call, else -1.
async function read() {
  const about = JSON.parse(new TextDecoder().decode(await bytesOf("about")));
  const n = about.rows;
  const raw = await Promise.all(["times", "threads", "types", "links", "depths", "values", "counter-rows", "counter-values"].map(bytesOf));
  const times = numbersOf(raw[0], new Float64Array(n), true);
  for (let i = 1; i < n; ++i) times[i] += times[i - 1];
  const links = numbersOf(raw[3], new Uint32Array(n)), ends = new Float64Array(n).fill(-1);
  for (let i = 0; i < n; ++i) if (links[i]) ends[i - links[i]] = times[i];
  const text = new TextDecoder().decode(raw[5]), starts = new Uint32Array(n + 1);
  for (let i = 0; i < n; ++i) starts[i + 1] = text.indexOf("\n", starts[i]) + 1;
  const points = raw[7].length / 8, pairs = numbersOf(raw[6], new Uint32Array(2 * points)), values = new Float64Array(raw[7].buffer);
  const counters = about.counters.map((name) => ({name, times: [], values: []}));
  for (let i = 0; i < points; ++i) {
    counters[pairs[2 * i + 1]].times.push(times[pairs[2 * i]]);
    counters[pairs[2 * i + 1]].values.push(values[i]);
  }
  let sorted = times;
  for (let i = 1; i < n && sorted === times; ++i) if (times[i] < times[i - 1]) sorted = times.slice().sort();
  return {about, n, times, sorted, links, ends, text, starts, counters, threads: numbersOf(raw[1], new Uint32Array(n)),
          types: numbersOf(raw[2], new Uint16Array(n)), depths: numbersOf(raw[4], new Uint16Array(n))};
}

function summarize({about, n}) {
  const words = [`${about.hits} hits of ${about.events.length} events in ${new Set(about.threads.map(([pid, tid]) => pid + "/" + tid)).size} threads`];
  if (n < about.hits) words.push(`${about.hits - n} of them are counted in the table and in the stacks, and are not in the time line and the list`);
  if (about.valued < n) words.push(`the values of ${n - about.valued} are not in this page`);
  for (const [name, hits, returns] of about.lost) words.push(`${name}: ${hits} hits lost, ${returns} returns missed`);
  element("summary").textContent = words.join("; ") + ".";
}

// A column may be sorted by.
function drawTable({about}) {
  const rows = about.events.map((event) => ({...event, mean: event.calls ? event.sum / event.calls : 0}));
  const columns = [["function", "name"], ["event", "event"], ["hits", "hits"], ["calls", "calls"], ["total", "sum"], ["mean", "mean"],
                   ["least", "min"], ["most", "max"], ["latencies, by powers of two", ""]];
  function cell(row, key) {
    const td = document.createElement("td");
    if (key === "") return bars(td, row.histogram);
    const isTime = ["sum", "mean", "min", "max"].includes(key);
    td.textContent = key === "name" ? row.name + (row.isReturn ? " (return)" : "") : isTime ? (row.calls ? time(row[key]) : "") : row[key];
    if (typeof row[key] === "string") td.className = "name";
    return td;
  }
  function bars(td, histogram) {
    const used = histogram.flatMap((count, i) => count ? [i] : []), most = Math.max(...histogram);
    td.className = "name";
    const box = td.appendChild(document.createElement("span"));
    box.className = "bars";
    for (let i = used[0]; used.length && i <= used[used.length - 1]; ++i) {
      const bar = document.createElement("i");
      bar.style.height = (histogram[i] ? 2 + 22 * histogram[i] / most : 0) + "px";
      bar.title = `${time(i ? 2 ** (i - 1) : 0)} to ${time(2 ** i)}: ${histogram[i]}`;
      box.append(bar);
    }
    return td;
  }
  function draw(key) {
    rows.sort((a, b) => typeof a[key] === "string" ? (a[key] < b[key] ? -1 : 1) : b[key] - a[key]);
    const head = document.createElement("tr");
    for (const [title, by] of columns) {
      const th = document.createElement("th");
      th.textContent = title;
      if (by) th.addEventListener("click", () => draw(by));
      head.append(th);
    }
    element("functions").replaceChildren(head, ...rows.map((row) => {
      const tr = document.createElement("tr");
      tr.append(...columns.map(([, by]) => cell(row, by)));
      return tr;
    }));
  }
  draw("hits");
}

// Where the calls and hits of each thread are drawn: a lane for each depth. Threads are in order of their first hit.
function lanesOf({about, n, threads, depths}) {
  const key = about.threads.map(([pid, tid]) => pid + "/" + tid), lines = new Map(), of = new Uint32Array(about.threads.length);
  about.threads.forEach(([pid, tid, name], i) => {
    if (!lines.has(key[i])) lines.set(key[i], {label: "", names: new Set(), depth: 0, count: 0, number: lines.size, pid, tid});
    lines.get(key[i]).names.add(name);
    of[i] = lines.get(key[i]).number;
  });
  const all = [...lines.values()];
  for (let i = 0; i < n; ++i) {
    const line = all[of[threads[i]]];
    ++line.count;
    if (depths[i] > line.depth) line.depth = Math.min(depths[i], 63);
  }
  for (const line of all) line.rows = new Uint32Array(line.count), line.count = 0;
  for (let i = 0; i < n; ++i) {
    const line = all[of[threads[i]]];
    line.rows[line.count++] = i;
  }
  let y = 0;
  for (const line of all) {
    line.label = `${[...line.names].join(", ")} ${line.tid}` + (line.pid === line.tid ? "" : ` of ${line.pid}`);
    line.y = y;
    y += 14 + 12 * (line.depth + 1) + 6;
  }
  return {all, height: y};
}

function timeLine(data) {
  const {about, times, sorted, ends, links, types, depths, counters} = data;
  const lanes = lanesOf(data), canvas = element("line"), box = element("lanes"), draws = canvas.getContext("2d");
  const colours = about.events.map((event) => colour(event.name)), last = data.n ? Math.max(sorted[data.n - 1], 1) : 1;
  const top = 44 * counters.length;
  let from = 0, to = last;

  // A call is drawn as wide as it is, and one pixel at least. Of calls in one pixel of a lane the first one is drawn: nothing is cut
  // that a closer look would not show.
  function drawLine(line, base, scale, width) {
    draws.fillStyle = "#333";
    draws.fillText(line.label, 4, base + 11);
    const until = new Float64Array(64).fill(-1);
    for (const i of line.rows) {
      if (times[i] > to) break;
      const end = ends[i] < 0 ? times[i] : ends[i];
      if (end < from || links[i]) continue;
      const depth = Math.min(depths[i], 63), x = Math.max(0, (times[i] - from) * scale);
      const right = Math.min(width, Math.max((end - from) * scale, x + 1));
      if (Math.floor(right) <= until[depth]) continue;
      until[depth] = Math.floor(right);
      draws.fillStyle = colours[types[i]];
      const y = base + 14 + 12 * depth;
      draws.fillRect(x, y, right - x, 11);
      if (right - x < 40) continue;
      draws.fillStyle = "#000";
      draws.fillText(about.events[types[i]].name.slice(0, Math.floor((right - x) / 7)), x + 3, y + 9);
    }
  }
  // The least and the most of each pixel.
  function drawCounter(counter, y, scale, width) {
    let least = Infinity, most = -Infinity;
    for (const value of counter.values) least = Math.min(least, value), most = Math.max(most, value);
    const height = 28, at = (value) => y + 14 + height - (most > least ? (value - least) / (most - least) : 0.5) * height;
    draws.fillStyle = "#333";
    draws.fillText(`${counter.name}  ${least} .. ${most}`, 4, y + 11);
    draws.strokeStyle = colour(counter.name, 45);
    draws.beginPath();
    let pixel = -1, low = 0, high = 0;
    const begin = Math.max(0, lowerBound(counter.times, from) - 1);
    for (let i = begin; i < counter.times.length; ++i) {
      const x = Math.floor((counter.times[i] - from) * scale), value = at(counter.values[i]);
      if (x === pixel && value >= low && value <= high) continue;
      if (x !== pixel) low = high = value;
      pixel = x, low = Math.min(low, value), high = Math.max(high, value);
      if (i === begin) draws.moveTo(x, value); else draws.lineTo(x, value);
      if (x > width) break;
    }
    draws.stroke();
  }
  function draw() {
    const width = box.clientWidth, height = box.clientHeight, scale = width / (to - from);
    if (canvas.width !== width || canvas.height !== height) canvas.width = width, canvas.height = height;
    draws.clearRect(0, 0, width, height);
    draws.font = "10px monospace";
    for (const line of lanes.all) {
      const base = top + line.y - box.scrollTop;
      if (base < height && base + 14 + 12 * (line.depth + 2) > 0) drawLine(line, base, scale, width);
    }
    draws.fillStyle = "#fff";
    draws.fillRect(0, 0, width, top);
    counters.forEach((counter, i) => drawCounter(counter, 44 * i, scale, width));
    element("view").textContent = `${time(from)} to ${time(to)}: ${inView()} hits`;
  }
  function inView() { return lowerBound(sorted, to + 0.5) - lowerBound(sorted, from); }
  function view(begin, end) {
    const size = Math.min(Math.max(end - begin, 10), last);
    from = Math.min(Math.max(0, begin), last - size), to = from + size;
    draw();
  }
  function zoom(factor, at = 0.5) {
    const size = (to - from) * factor, middle = from + (to - from) * at;
    view(middle - size * at, middle + size * (1 - at));
  }
  function rowAt(event) {
    const y = event.offsetY - top + box.scrollTop, at = from + event.offsetX / canvas.width * (to - from);
    const line = lanes.all.find((one) => y >= one.y && y < one.y + 14 + 12 * (one.depth + 1) + 6);
    if (!line || event.offsetY < top) return -1;
    const depth = Math.floor((y - line.y - 14) / 12), near = 2 * (to - from) / canvas.width;
    let found = -1;
    for (const i of line.rows) {
      if (times[i] > at + near) break;
      if (!links[i] && Math.min(depths[i], 63) === depth && Math.max(ends[i], times[i] + near) >= at) found = i;
    }
    return found;
  }
  let pressed = null;
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 0.7 : 1 / 0.7, event.offsetX / canvas.width);
  }, {passive: false});
  canvas.addEventListener("mousedown", (event) => pressed = {x: event.offsetX, from, to});
  window.addEventListener("mouseup", () => pressed = null);
  canvas.addEventListener("mousemove", (event) => {
    if (pressed) {
      const moved = (pressed.x - event.offsetX) / canvas.width * (pressed.to - pressed.from);
      view(pressed.from + moved, pressed.to + moved);
      return;
    }
    const row = rowAt(event);
    element("under").textContent = row < 0 ? "" : page.rowText(row);
  });
  canvas.addEventListener("click", (event) => {
    const row = rowAt(event);
    if (row >= 0) page.list.show(row);
  });
  canvas.addEventListener("dblclick", (event) => {
    const row = rowAt(event);
    if (row >= 0 && ends[row] > times[row]) view(times[row], ends[row]);
  });
  box.addEventListener("scroll", draw);
  window.addEventListener("resize", draw);
  element("in").addEventListener("click", () => zoom(0.5));
  element("out").addEventListener("click", () => zoom(2));
  element("all").addEventListener("click", () => view(0, last));
  element("tall").style.height = Math.max(0, top + lanes.height - 340) + "px";
  draw();
  return {view, zoom, inView, last, draw};
}

function list(data) {
  const {about, n, times, threads, types, ends, text, starts} = data, rowHeight = 18, most = 16e6;
  const box = element("rows"), visible = element("visible");
  const labels = about.threads.map(([, tid, name]) => `${name}-${tid}`);
  let chosen = Uint32Array.from({length: n}, (_, i) => i), mark = -1;

  page.rowText = (i) => {
    const latency = ends[i] < 0 ? "" : time(ends[i] - times[i]);
    const seconds = ((about.first % 1e9 + times[i]) / 1e9 + Math.floor(about.first / 1e9)).toFixed(6);
    const values = text.slice(starts[i], starts[i + 1] - 1);
    return `${seconds.padStart(14)} ${labels[threads[i]].padEnd(24)} ${about.events[types[i]].event.padEnd(20)} ${latency.padStart(12)}  ${values}`;
  };
  function whole() { return Math.min(chosen.length * rowHeight, most); }
  function draw() {
    const height = box.clientHeight, count = Math.ceil(height / rowHeight) + 1, room = Math.max(1, whole() - height);
    const rows = Math.max(0, chosen.length - Math.floor(height / rowHeight));
    const first = Math.min(rows, Math.round(box.scrollTop / room * rows)), lines = [];
    for (let i = first; i < Math.min(first + count, chosen.length); ++i) {
      const line = document.createElement("div");
      line.textContent = page.rowText(chosen[i]);
      if (chosen[i] === mark) line.className = "chosen";
      lines.push(line);
    }
    visible.style.top = Math.min(box.scrollTop, Math.max(0, whole() - lines.length * rowHeight)) + "px";
    visible.replaceChildren(...lines);
  }
  function fit() {
    element("high").style.height = whole() + "px";
    element("matches").textContent = `${chosen.length} of ${n} events`;
    draw();
  }
  // Events with that part in the name of the event, of the task, or in the values.
  function filter(part) {
    const is = new Uint8Array(n), names = about.events.map((event) => event.event.includes(part)), tasks = labels.map((one) => one.includes(part));
    for (let i = 0; i < n; ++i) if (names[types[i]] || tasks[threads[i]]) is[i] = 1;
    for (let at = part ? text.indexOf(part) : -1, row; at >= 0; at = text.indexOf(part, starts[row + 1])) {
      row = lowerBound(starts, at + 1) - 1;
      if (row >= n - 1 && (is[row] = 1)) break;
      is[row] = 1;
    }
    let count = 0;
    for (let i = 0; i < n; ++i) count += is[i];
    chosen = new Uint32Array(count);
    for (let i = 0, at = 0; i < n; ++i) if (is[i]) chosen[at++] = i;
    box.scrollTop = 0;
    fit();
    return count;
  }
  function show(row) {
    mark = row;
    const rows = Math.max(1, chosen.length - Math.floor(box.clientHeight / rowHeight));
    box.scrollTop = Math.min(1, lowerBound(chosen, row) / rows) * (whole() - box.clientHeight);
    draw();
  }
  let waiting = 0;
  element("filter").addEventListener("input", (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => filter(event.target.value), 150);
  });
  box.addEventListener("scroll", draw);
  fit();
  return {filter, show};
}

async function start() {
  const data = await read();
  page.about = data.about;
  summarize(data);
  drawTable(data);
  page.list = list(data);
  page.line = timeLine(data);
  page.flame = flame(document.querySelector("#flame svg"));
  page.rows = data;
  page.ready = true;
}
start().catch((error) => { element("summary").textContent = "This page cannot be shown: " + error; page.error = String(error); });
