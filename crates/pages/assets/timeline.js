// The timeline of a pipeline: a line per stage, chunks by shade, zoomed by Ctrl and the wheel or by keys, moved by dragging.
"use strict";

const PASS_COLOURS = { forward: [78, 121, 167], backward: [242, 142, 43], "weight gradients": [89, 161, 79], update: [142, 142, 142] };

/** The colour of a pass: later chunks are darker. */
function passColour(pass, chunk, chunks) {
  const dark = chunks > 1 ? 1 - (0.5 * chunk) / (chunks - 1) : 1;
  return `rgb(${PASS_COLOURS[pass].map((part) => Math.round(part * dark)).join(",")})`;
}

/** The timeline of the document's `timeline`. */
function timelineDrawing(timeline) {
  const { stages, chunks, columns } = timeline;
  const at = Object.fromEntries(columns.map((name, index) => [name, index]));
  const passes = timeline.passes.map((pass) => Object.fromEntries(columns.map((name) => [name, pass[at[name]]])));
  // Parts that are shown stand beside each other, with a gap for what is left out.
  const gap = timeline.shown.length > 1 ? 0.02 * timeline.shown.reduce((sum, { start, end }) => sum + end - start, 0) : 0;
  let begin = 0;
  const parts = timeline.shown.map(({ start, end }) => {
    const part = { start, end, at: begin };
    begin += end - start + gap;
    return part;
  });
  const whole = begin - gap;
  const pieces = passes.flatMap((pass) =>
    parts.filter(({ start, end }) => pass.start_s < end && pass.end_s > start).map((part) => ({
      pass,
      from: part.at + Math.max(pass.start_s, part.start) - part.start,
      to: part.at + Math.min(pass.end_s, part.end) - part.start,
    })),
  );
  let view = [0, whole];
  const margin = 34, row = Math.max(10, Math.min(30, 360 / stages)), height = stages * row + 26;
  const place = element("div", { class: "timeline", tabindex: "0", role: "group", "aria-label": "timeline of the passes: + and - zoom, arrows move" });
  const said = element("p", { class: "soft", role: "status" });
  const label = ({ pass, chunk, microbatch, stage, start_s: start, end_s: end }) => {
    const what = pass === "update" ? "update" : `${pass} of microbatch ${microbatch}${chunks > 1 ? `, chunk ${chunk}` : ""}`;
    return `stage ${stage}: ${what}, ${seconds(end - start)} from ${seconds(start)} on`;
  };
  function draw() {
    const width = place.clientWidth;
    const scale = (width - margin - 2) / (view[1] - view[0]);
    const x = (time) => margin + (time - view[0]) * scale;
    const seen = pieces.filter(({ from, to }) => to > view[0] && from < view[1] && (to - from) * scale > 0.3);
    const boxes = seen.map(({ pass, from, to }) => {
      const left = Math.max(margin, x(from)), wide = Math.max(0.4, Math.min(width - 2, x(to)) - left);
      const fill = passColour(pass.pass, pass.chunk, chunks);
      const box = drawn("rect", { x: left, y: pass.stage * row + 1, width: wide, height: row - 2, fill, class: "pass" });
      const text = pass.pass === "update" ? "u" : String(pass.microbatch);
      const name = wide > 7 * text.length + 3 && row > 11 ? [drawn("text", { x: left + wide / 2, y: pass.stage * row + row / 2 + 4, "text-anchor": "middle", class: "inside" }, text)] : [];
      return drawn("g", { mouseenter: () => (said.textContent = label(pass)) }, drawn("title", {}, label(pass)), box, ...name);
    });
    const every = Math.ceil(14 / row);
    const stageNames = Array.from({ length: stages }, (_, stage) => stage).filter((stage) => stage % every === 0);
    const names = stageNames.map((stage) => drawn("text", { x: margin - 6, y: stage * row + row / 2 + 4, "text-anchor": "end" }, String(stage)));
    const cuts = parts.slice(1).map(({ at: cut }) => cut - gap / 2).filter((cut) => cut > view[0] && cut < view[1]).map((cut) => drawn("line", { x1: x(cut), x2: x(cut), y1: 0, y2: stages * row, class: "cut" }));
    const axis = parts.flatMap((part) => {
      const shown = [Math.max(view[0], part.at), Math.min(view[1], part.at + part.end - part.start)];
      if (shown[1] <= shown[0] || (shown[1] - shown[0]) * scale < 60) return [];
      const time = (seen) => seconds(part.start + seen - part.at);
      const line = (seen, anchor) => drawn("text", { x: x(seen), y: height - 8, "text-anchor": anchor }, time(seen));
      return (shown[1] - shown[0]) * scale < 150 ? [line(shown[0], "start")] : [line(shown[0], "start"), line(shown[1], "end")];
    });
    const svg = drawn("svg", { width, height, role: "img", "aria-label": `passes of ${stages} stages over a step` }, ...boxes, ...names, ...cuts, ...axis);
    place.replaceChildren(svg);
  }
  const show = (from, to) => {
    const length = Math.min(whole, Math.max(whole / 2000, to - from));
    const start = Math.max(0, Math.min(whole - length, from));
    view = [start, start + length];
    draw();
  };
  const zoom = (factor, centre = (view[0] + view[1]) / 2) => show(centre - (centre - view[0]) * factor, centre + (view[1] - centre) * factor);
  const timeAt = (event) => {
    const box = place.getBoundingClientRect();
    return view[0] + ((event.clientX - box.left - margin) / Math.max(1, box.width - margin - 2)) * (view[1] - view[0]);
  };
  place.addEventListener("wheel", (event) => {
    // The wheel alone scrolls the page.
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event));
  }, { passive: false });
  let dragged = null;
  place.addEventListener("pointerdown", (event) => {
    dragged = { time: timeAt(event) };
    place.setPointerCapture(event.pointerId);
  });
  place.addEventListener("lostpointercapture", () => (dragged = null));
  place.addEventListener("pointermove", (event) => {
    if (!dragged) return;
    const moved = dragged.time - timeAt(event);
    show(view[0] + moved, view[1] + moved);
  });
  place.addEventListener("keydown", (event) => {
    const step = (view[1] - view[0]) / 4;
    const doing = { "+": () => zoom(0.7), "-": () => zoom(1.4), ArrowLeft: () => show(view[0] - step, view[1] - step), ArrowRight: () => show(view[0] + step, view[1] + step), 0: () => show(0, whole) }[event.key];
    if (!doing) return;
    event.preventDefault();
    doing();
  });
  const button = (title, words, click) => element("button", { class: "action", type: "button", title, "aria-label": title, click }, words);
  const buttons = element("span", {}, button("zoom in", "+", () => zoom(0.6)), " ", button("zoom out", "−", () => zoom(1.6)), " ", button("all of the step", "all", () => show(0, whole)));
  const used = Object.keys(PASS_COLOURS).filter((name) => passes.some(({ pass }) => pass === name));
  const keys = element("div", { class: "key" }, used.map((name) => element("span", {}, element("i", { style: `background:${passColour(name, 0, 1)}` }), name)), chunks > 1 ? element("span", {}, `darker: later of ${chunks} chunks`) : null, buttons);
  const left = timeline.left_out ? ` ${plain(timeline.left_out)} passes between the dashed lines repeat and are left out.` : "";
  const about = element("p", { class: "soft" }, `${plain(timeline.microbatches)} ${timeline.microbatches === 1 ? "microbatch" : "microbatches"} through ${stages} ${stages === 1 ? "stage" : "stages"} in ${seconds(timeline.step_s)}; in the mean a stage waits for others for ${percent(timeline.bubble)} of its other time, the busiest one least.${left} Ctrl and the wheel zoom, as + and − do; dragging and arrow keys move.`);
  whenPlaced(place, draw);
  return element("div", {}, keys, place, said, about);
}
