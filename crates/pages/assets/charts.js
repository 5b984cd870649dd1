// Charts of all pages: lines, scatters with a diagonal, histograms of errors, heat maps. Axes are logarithmic where what is on them is
// far apart, ticks are round, and every chart tells its numbers under the pointer.
"use strict";

/** From this ratio of the largest to the smallest value on, an axis that may be is logarithmic. */
const WIDE = 50;

/** The label of a tick: so many digits at most, thousands and more with a prefix. */
function tick(value, digits = 4) {
  const size = Math.abs(value);
  if (size >= 1e4) return short(value, digits);
  if (size === 0 || size >= 1e-3) return String(Number(value.toPrecision(digits)));
  return value.toExponential().replace("e-", "e−");
}

/** The unit in which seconds are shown on an axis: its name, and how many seconds it has. */
function secondsUnit(values) {
  const most = Math.max(...values.filter(Number.isFinite));
  return [["seconds", 1], ["milliseconds", 1e-3]].find(([, scale]) => most >= scale) ?? ["microseconds", 1e-6];
}

/**
 * The scale of an axis for its values. `zero`: a linear one begins at 0, as shares and speeds do. `ticks`: those that are wanted, if
 * they are few, as of numbers that were swept. `wide`: from which ratio on it is logarithmic. `whole`: no tick lies between whole
 * numbers.
 */
function scale(label, values, { zero = false, whole = false, ticks, format, grid = true, wide = zero ? Infinity : ticks ? 8 : WIDE } = {}) {
  const known = values.filter(Number.isFinite);
  const [least, most] = [Math.min(...known), Math.max(...known)];
  const isLog = least > 0 && most / least >= wide;
  // Ticks of a narrow range differ in late digits.
  const digits = Math.min(12, Math.max(4, 2 - Math.floor(Math.log10((most - least) / Math.abs(most))))) || 4;
  // Plot leaves out labels of a logarithmic axis that are not the first ones of a power of its base: none are with a large one.
  const options = isLog ? { type: "log", base: 1e6 + 0.5 } : { nice: true };
  if (known.length > 0) options.domain = isLog ? (ticks ? [least, most] : [least / 1.1, most * 1.1]) : apart(zero ? [Math.min(0, least), most] : [least, most]);
  return { label: isLog ? `${label} (logarithmic)` : label, grid, ...options, tickFormat: format ?? ((value) => tick(value, digits)), isLog, whole, given: ticks };
}

/** The ends of a linear axis, which are apart from each other. */
const apart = ([least, most]) => {
  const room = least < most ? 0 : 0.1 * Math.abs(most) || 1;
  return [least - (least === 0 ? 0 : room), most + room];
};

/** Ticks of a scale on so many pixels: round ones, or those of the given values that have room. */
function ticked({ isLog, whole, given, ...options }, pixels, each = 70) {
  const room = Math.max(2, Math.floor(pixels / each));
  const most = whole ? Math.max(1, Math.min(room, options.domain[1] - options.domain[0])) : room;
  if (given && given.length <= 2 * most) {
    const step = Math.ceil(given.length / most);
    return { ...options, ticks: given.filter((_, at) => at % step === 0) };
  }
  return { ...options, ticks: isLog ? roundOnLog(options.domain, most) : most };
}

/** 1, 2 and 5 times powers of ten, or fewer of them, between the ends of a logarithmic scale. */
function roundOnLog([least, most], wanted) {
  const decades = Array.from({ length: 40 }, (_, at) => at - 20);
  const of = (within, every) =>
    decades.filter((decade) => decade % every === 0).flatMap((decade) => within.map((digit) => Number(`${digit}e${decade}`))).filter((value) => value >= least * 0.999 && value <= most * 1.001);
  const choices = [of([1, 2, 5], 1), of([1, 3], 1), of([1], 1), of([1], 2), of([1], 3), of([1], 6)];
  return choices.find((ticks) => ticks.length <= wanted && ticks.length > 0) ?? choices[0].slice(0, 1);
}

/** Room for the labels of a vertical axis. */
const MARGIN = 58;

/** Room for half of the last label of a horizontal axis. */
const RIGHT = 34;

/**
 * Lines over a number. `series` are `{ name, points: [[x, y]], dashed }`, where a `y` that is null leaves a gap; `x` and `y` are
 * `{ label, text, ... }` with options of `scale` and `text(value)` for the pointer; `more` are other marks, `dots` marks each point.
 */
function lines({ label, series, x, y, colours = series.map(({ name }) => name), dots = false, more = () => [], height = 260, level }) {
  const told = (name, [at, value]) => `${series.length > 1 ? `${name}\n` : ""}${x.label} ${(x.text ?? String)(at)}\n${(y.text ?? ((value) => tick(value)))(value)}`;
  const points = series.flatMap(({ name, points, dashed }) => points.map((point) => ({ name, at: point[0], value: point[1], dashed: Boolean(dashed), told: Number.isFinite(point[1]) ? told(name, point) : "" })));
  const known = points.filter(({ value }) => Number.isFinite(value));
  const names = series.filter(({ points }) => points.some(([, value]) => Number.isFinite(value))).map(({ name }) => name);
  if (known.length === 0) return element("p", { class: "soft" }, "no finite value");
  const across = scale(x.label, points.map(({ at }) => at), { grid: false, ...x });
  const along = scale(y.label, [...known.map(({ value }) => value), ...(level ? [level.value] : [])], y);
  const style = { x: "at", y: "value", z: "name", stroke: "name", strokeWidth: 1.8 };
  const lonely = series.flatMap(({ name, points }) => points.filter(([, value], at) => Number.isFinite(value) && !Number.isFinite(points[at - 1]?.[1]) && !Number.isFinite(points[at + 1]?.[1])).map(([at, value]) => ({ name, at, value })));
  const make = (width) => ({
    height,
    marginLeft: MARGIN,
    marginRight: RIGHT,
    x: ticked(across, width - MARGIN - RIGHT),
    y: ticked(along, height - 70, 34),
    color: { domain: colours, range: colours.map((name) => colour(name, colours)) },
    marks: [
      ...(along.isLog || !(along.domain[0] <= 0) ? [] : [Plot.ruleY([0])]),
      ...(level ? [Plot.ruleY([level.value], { strokeDasharray: "4 3" })] : []),
      Plot.line(points.filter(({ dashed }) => dashed), { ...style, strokeDasharray: "5 4" }),
      Plot.line(points.filter(({ dashed }) => !dashed), style),
      Plot.dot(dots ? known.filter(({ dashed }) => !dashed) : lonely, { x: "at", y: "value", fill: "name", r: dots ? 3.5 : 2.5 }),
      ...more(),
      Plot.tip(known, Plot.pointerX({ x: "at", y: "value", title: "told", maxRadius: 200 })),
    ],
  });
  return element("div", {}, names.length > 1 || level ? key(names, colours, level && [`dashed: ${level.name}`]) : null, chart(label, make));
}

/** Options of a plot for times or bytes that were predicted and measured: the diagonal is exact, beside it 10% more and less. */
function predictedScatter({ label, points, unit, kinds, height = 420 }) {
  const values = points.flatMap(({ measured, predicted }) => [measured, predicted]);
  const ends = [Math.min(...values), Math.max(...values)];
  const both = { ...scale(unit, ends, { wide: 3 }), nice: false };
  const room = both.isLog ? [ends[0] / 1.15, ends[1] * 1.15] : [ends[0] * 0.88, ends[1] * 1.12 || 1];
  const line = (factor) => Array.from({ length: 41 }, (_, at) => {
    const x = both.isLog ? room[0] * (room[1] / room[0]) ** (at / 40) : room[0] + ((room[1] - room[0]) * at) / 40;
    return [x, factor * x];
  }).filter(([, y]) => y >= room[0] && y <= room[1]);
  const make = (width) => ({
    height: Math.min(height, width),
    marginLeft: MARGIN,
    marginRight: RIGHT,
    x: { ...ticked({ ...both, domain: room }, width - MARGIN - RIGHT), label: `measured, ${both.label}` },
    y: { ...ticked({ ...both, domain: room }, Math.min(height, width) - 70, 34), label: `predicted, ${unit}` },
    color: { domain: kinds, range: kinds.map((kind) => colour(kind, kinds)) },
    symbol: { domain: kinds },
    marks: [
      Plot.line(line(1), { stroke: "currentColor" }),
      ...[0.9, 1.1].map((factor) => Plot.line(line(factor), { stroke: "currentColor", strokeDasharray: "4 3", strokeOpacity: 0.6 })),
      Plot.dot(points, { x: "measured", y: "predicted", stroke: "kind", symbol: "kind", r: points.length > 300 ? 2.5 : 4.5, strokeOpacity: points.length > 300 ? 0.6 : 1 }),
      Plot.tip(points, Plot.pointer({ x: "measured", y: "predicted", title: "told" })),
    ],
  });
  return element("div", {}, key(kinds, kinds, ["line: predicted as measured; dashed: 10% more and less"]), chart(label, make));
}

/** How many predictions are how far off, by kind; what is further off than almost all lies in the last bars. */
function errorHistogram({ label, points, kinds, height = 260 }) {
  const errors = points.map(({ measured, predicted }) => predicted / measured - 1);
  const far = errors.map(Math.abs).toSorted((a, b) => a - b)[Math.floor(0.98 * (points.length - 1))];
  const [most, step] = [[0.2, 0.02], [0.6, 0.05], [1, 0.1]].find(([end]) => far <= end) ?? [2, 0.2];
  const within = (error) => Math.max(-most + step / 2, Math.min(most - step / 2, error));
  const clamped = points.map(({ kind }, at) => ({ kind, error: 100 * within(errors[at]) }));
  const beyond = errors.filter((error) => Math.abs(error) > most).length;
  const edges = Array.from({ length: Math.round((2 * most) / step) + 1 }, (_, at) => Math.round(100 * (at * step - most)));
  const make = (width) => ({
    height,
    marginLeft: MARGIN,
    marginRight: RIGHT,
    x: { label: `predicted over measured − 1${beyond > 0 ? `; the ends hold ${beyond} beyond` : ""}`, domain: [-100 * most, 100 * most], ticks: width > 500 ? 11 : 5, tickFormat: (value) => `${value > 0 ? "+" : ""}${value}%` },
    y: { label: "runs", grid: true, nice: true, ticks: Math.min(5, points.length) },
    color: { domain: kinds, range: kinds.map((kind) => colour(kind, kinds)) },
    marks: [
      Plot.rectY(clamped, Plot.binX({ y: "count", title: (bin) => `${bin.length} of ${bin[0]?.kind ?? ""}` }, { x: "error", fill: "kind", thresholds: edges, order: kinds, tip: true, insetLeft: 0.5, insetRight: 0.5 })),
      Plot.ruleX([0]),
      Plot.ruleY([0]),
    ],
  });
  return element("div", {}, key(kinds), chart(label, make));
}

/**
 * Cells in rows and columns, coloured by `value` from -1 to 1 (less and more than usual, 0 in between) or from 0 to 1 with `rising`:
 * `cells` are `{ row, column, value, text, told }`, `rows` and `columns` their names in order.
 */
function heatMap({ label, cells, rows, columns, axis, rising = false, size = 26 }) {
  const longest = Math.max(...rows.map((row) => row.length));
  const make = (width) => {
    const marginLeft = 7.5 * longest + 16;
    const each = Math.min(90, (width - marginLeft - 10) / columns.length);
    const every = Math.ceil(columns.length / Math.max(1, Math.floor((each * columns.length) / 34)));
    return {
      width: Math.ceil(marginLeft + each * columns.length + 10),
      height: size * rows.length + 46,
      marginTop: 6,
      marginLeft,
      marginRight: 10,
      x: { label: axis, domain: columns, ticks: columns.filter((_, at) => at % every === 0), tickSize: 0 },
      y: { label: null, domain: rows, tickSize: 0 },
      marks: [
        Plot.cell(cells, { x: "column", y: "row", fill: (cell) => shade(cell.value, rising), inset: each > 4 ? 0.5 : 0, title: "told", tip: true }),
        ...(each < 38 ? [] : [Plot.text(cells, { x: "column", y: "row", text: "text", fill: "#111" })]),
      ],
    };
  };
  return chart(label, make);
}

/** From white to blue for more, to orange for less. */
function shade(value, rising) {
  const [part, end] = [Math.min(1, Math.abs(value)), value >= 0 || rising ? [78, 140, 205] : [235, 120, 60]];
  return `rgb(${end.map((to) => Math.round(255 + (to - 255) * part)).join(",")})`;
}
