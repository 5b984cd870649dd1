// Components of all pages: numbers with units, elements, tables that sort and filter, charts that fit their place.
"use strict";

/** Draws the page's document: `draw(document)` are the elements of the page. */
const show = (draw) => document.getElementById("page").append(...draw(JSON.parse(document.getElementById("data").textContent)));

/** A number with so many digits and a prefix of 1000s, e.g. 1.23 M. */
function short(value, digits = 3) {
  if (value === 0) return "0";
  const prefixes = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];
  const [scale, prefix] = prefixes.find(([scale]) => Math.abs(value) >= scale * 0.9995) ?? prefixes.at(-1);
  return `${Number((value / scale).toPrecision(digits))}${prefix && " "}${prefix}`;
}

/** A number with two decimals at most and separated thousands, or an exponent; documents have null for what is not finite. */
function plain(value) {
  if (value === null) return "–";
  const isExtreme = value !== 0 && (Math.abs(value) >= 1e15 || Math.abs(value) < 0.005);
  return isExtreme ? value.toExponential(2) : value.toLocaleString("en", { maximumFractionDigits: 2 });
}

const percent = (part, digits = 1) => `${(100 * part).toFixed(digits)}%`;

/** So many digits of a number, with those zeros that count. */
const exactly = (value, digits) => value.toFixed(value === 0 ? 0 : Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value)))));

function seconds(value, digits = 3) {
  const size = Math.abs(value);
  if (size >= 1 || size === 0) return `${exactly(value, digits)} s`;
  return size >= 1e-3 ? `${exactly(1e3 * value, digits)} ms` : `${exactly(1e6 * value, digits)} µs`;
}

const GIB = 2 ** 30;
const gib = (bytes) => `${(bytes / GIB).toFixed(1)} GiB`;

/** Bytes with three digits and a prefix of 1024s. */
function bytes(value) {
  const unit = Math.min(4, Math.max(0, Math.floor(Math.log2(Math.max(1, value)) / 10)));
  return `${unit === 0 ? value : exactly(value / 1024 ** unit, 3)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

/** An element: attributes, of which functions are handlers, then children: elements, or text. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child !== undefined && child !== null));
  return made;
}

/** A number that the head of a page names, in a box. */
function fact(title, value, more) {
  return element("div", { class: "fact" }, title, element("b", {}, value), element("span", { class: "soft" }, more ?? ""));
}

/** A choice of one of `options`, `[value, text]`, with a label before it. */
function choice(id, title, options, change) {
  const made = options.map(([value, text]) => element("option", { value }, text));
  return element("p", {}, element("label", { for: id }, `${title} `), element("select", { id, change: (event) => change(event.target.value) }, made));
}

/** A part of a page with a heading. */
function section(title, ...children) {
  return element("section", {}, element("h2", {}, title), ...children);
}

/**
 * A table. A column has `title`, `value(row)` by which rows are sorted, `text(value)` or, where other values count,
 * `shown(row)`, and `words` where lines may break.
 * With `choose(row)` the first column's cells are buttons, and the chosen row, at first `chosen`, is marked; `kind(row)` is a
 * class of its style. Of more than `most` rows the first are shown until all are asked for; filters look at all.
 */
function table({ label, columns, rows, filter = false, choose, chosen, kind = () => null, most = 200 }) {
  let order = null, wanted = "";
  const further = element("button", { class: "action", type: "button", click: () => ((most = Infinity), draw()) });
  const body = element("tbody");
  const heads = columns.map((column, at) => {
    const sort = () => {
      order = { at, down: order?.at === at ? !order.down : false };
      draw();
    };
    const isNumber = rows.some((row) => typeof column.value(row) === "number");
    return element("th", { scope: "col", class: isNumber ? "number" : undefined }, element("button", { click: sort }, column.title));
  });
  const shown = (column, row) => {
    const value = column.value(row);
    if (value === null || value === undefined) return "";
    return column.shown ? column.shown(row) : (column.text ?? String)(value);
  };
  const cell = (column, row, at) => {
    const text = shown(column, row);
    const kind = column.words ? "words" : typeof column.value(row) === "number" ? "number" : undefined;
    if (at > 0 || !choose) return element("td", { class: kind }, text);
    const pick = () => {
      chosen = row;
      choose(row);
      draw();
      body.querySelector(".chosen button")?.focus();
    };
    return element("td", { class: kind }, element("button", { click: pick, "aria-pressed": String(row === chosen) }, text));
  };
  function draw() {
    heads.forEach((head, at) => {
      if (order?.at === at) head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    let kept = rows.filter((row) => columns.some((column) => shown(column, row).toLowerCase().includes(wanted)));
    if (order) {
      const of = (row) => columns[order.at].value(row) ?? "";
      const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
      kept = kept.toSorted((a, b) => (order.down ? -1 : 1) * compare(of(a), of(b)));
    }
    further.hidden = kept.length <= most;
    further.textContent = `Show all ${plain(kept.length)} rows`;
    body.replaceChildren(
      ...kept.slice(0, most).map((row) =>
        element("tr", { class: [kind(row), choose && row === chosen ? "chosen" : null].filter(Boolean).join(" ") || undefined }, columns.map((column, at) => cell(column, row, at))),
      ),
    );
  }
  draw();
  const made = element("table", { "aria-label": label }, element("thead", {}, element("tr", {}, heads)), body);
  const scrolled = element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": label }, made);
  if (!filter) return element("div", {}, scrolled, further);
  const input = (event) => {
    wanted = event.target.value.trim().toLowerCase();
    draw();
  };
  return element("div", {}, element("input", { class: "filter", type: "search", placeholder: "Filter", "aria-label": `Filter ${label}`, input }), scrolled, further);
}

const COLOURS = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#9c755f", "#edc948", "#ff9da7", "#8e8e8e", "#2f4b7c", "#8cd17d", "#d37295"];

/** The colour of a name: that of its place among all names that there may be. */
const colour = (name, all) => COLOURS[all.indexOf(name) % COLOURS.length];

/** The names of a chart's colours, and what else its marks mean. */
function key(names, all = names, notes = []) {
  const entry = (name) => element("span", {}, element("i", { style: `background:${colour(name, all)}` }), name);
  return element("div", { class: "key" }, names.map(entry), notes.map((note) => element("span", { class: "soft" }, note)));
}

/** What is drawn when the page is on the screen, one after the other. */
const below = [];

function drawBelow() {
  const draw = below.shift();
  if (below.length > 0) setTimeout(drawBelow);
  draw?.();
}

/**
 * Draws something in its place once that is on the page, `draw(width)`, and again whenever its width changes. What is below the
 * window is drawn after what is in it is on the screen: nobody waits for what they do not see.
 */
function whenPlaced(place, draw) {
  let before = 0, isDue = false;
  const drawAnew = () => {
    const width = place.clientWidth;
    if (!isDue || Math.abs(width - before) < 1 || width < 40) return;
    before = width;
    draw(width);
  };
  const begin = () => {
    isDue = true;
    drawAnew();
  };
  setTimeout(() => {
    if (place.getBoundingClientRect().top < innerHeight) return begin();
    if (below.push(begin) === 1) requestAnimationFrame(() => setTimeout(drawBelow));
  });
  // Outside of the observer, since what is drawn changes sizes that are observed.
  new ResizeObserver(() => requestAnimationFrame(drawAnew)).observe(place);
}

/** A chart as wide as its place: `make(width)` are the options of Plot. */
function chart(label, make) {
  const place = element("div", { class: "chart", role: "img", "aria-label": label });
  const draw = (width) => {
    const options = make(width);
    const drawing = Plot.plot({ width, marginTop: 28, marginBottom: 44, style: { fontSize: "12px", background: "none" }, ...options, x: { labelOffset: 38, ...options.x } });
    // The place says what it is; groups without a role may not.
    for (const group of drawing.querySelectorAll("g[aria-label]")) group.removeAttribute("aria-label");
    place.replaceChildren(drawing);
  };
  whenPlaced(place, draw);
  return element("div", {}, place, element("button", { class: "save", type: "button", "aria-label": `Save as SVG: ${label}`, click: () => save(label, place) }, "SVG"));
}

/** Saves a chart as a file, in the colours of print, with the names of its colours above it. */
function save(label, place) {
  const drawing = place.querySelector("svg").cloneNode(true);
  drawing.setAttribute("color", "black");
  const before = place.parentElement.previousElementSibling;
  const names = before?.matches(".key") ? [...before.children] : [];
  const { width, height } = drawing.viewBox.baseVal;
  const above = 20 * names.length;
  drawing.setAttribute("viewBox", `0 ${-above} ${width} ${height + above}`);
  drawing.setAttribute("height", height + above);
  const add = (name, attributes, text = "") => {
    const made = document.createElementNS(drawing.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    drawing.append(made);
  };
  names.forEach((name, line) => {
    const y = 20 * line - above;
    const fill = name.querySelector("i")?.style.background;
    if (fill) add("rect", { x: 8, y: y + 4, width: 11, height: 11, fill });
    add("text", { x: fill ? 25 : 8, y: y + 14, "text-anchor": "start" }, name.textContent);
  });
  const address = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(drawing)], { type: "image/svg+xml" }));
  element("a", { href: address, download: `${label.replaceAll(/[^a-z0-9]+/gi, "-")}.svg` }).click();
  URL.revokeObjectURL(address);
}

/** The numbers of a chart, for those who do not see or hover. */
function numbers(label, columns, rows) {
  return element("details", {}, element("summary", {}, "Numbers"), table({ label, columns, rows }));
}

/** Room on the left of bars for their names, and these as far as they fit; whole they stand among the numbers. */
function named(names, width) {
  const marginLeft = Math.min(7 * Math.max(...names.map((name) => name.length)) + 16, width / 2.2);
  const most = Math.floor((marginLeft - 16) / 7);
  const tickFormat = (name) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);
  return { marginLeft, y: { label: null, domain: names, tickFormat } };
}

/**
 * Bars of several parts: `bars` are `{ name, parts: [[part, value]] }`; `unit` tells a value, `marks(width)` adds to them, `colours`
 * are all parts that there may be, `first` is what a bar is.
 */
function stackedBars({ label, first = "Layout", bars, unit, axis, colours, scale = 1, domain, marks = () => [] }) {
  const names = [...new Set(bars.flatMap((bar) => bar.parts.filter(([, value]) => value > 0).map(([name]) => name)))];
  const cells = bars.flatMap((bar) =>
    bar.parts.filter(([, value]) => value > 0).map(([part, value]) => ({ bar: bar.name, part, value: value / scale, told: `${part}: ${unit(value)}` })),
  );
  const make = (width) => ({
    ...named(bars.map((bar) => bar.name), width),
    height: 34 * bars.length + 52,
    marginTop: 8,
    x: { label: axis, grid: true, domain, nice: domain === undefined, ticks: Math.max(3, width / 110) },
    color: { domain: names, range: names.map((name) => colour(name, colours)) },
    marks: [
      Plot.barX(cells, Plot.stackX({ order: names, x: "value", y: "bar", fill: "part", z: "part", title: "told", tip: true, insetTop: 3, insetBottom: 3 })),
      Plot.ruleX([0]),
      ...marks(width),
    ],
  });
  const of = (name) => (bar) => bar.parts.find(([part]) => part === name)?.[1] ?? 0;
  const columns = [{ title: first, value: (bar) => bar.name }, ...names.map((name) => ({ title: name, value: of(name), text: unit }))];
  return element("div", {}, key(names, colours), chart(label, make), numbers(label, columns, bars));
}
