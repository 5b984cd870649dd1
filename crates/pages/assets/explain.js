// The page of a layout that is explained: its mesh, what a layer computes and sends and why, its memory, its timeline.
"use strict";

const kindName = (kind) => kind.replaceAll("_", "-");
const KIND_COLOURS = { all_gather: 0, reduce_scatter: 1, all_reduce: 2, all_to_all: 4, send: 6, receive: 6, broadcast: 5, reduce: 7, fetch: 9, store: 9 };

/** Where waits stand, the later ones last, and in words. */
const WAITED = ["at_once", "later", "in_another_pass", "in_next_step", "before_pass", "by_others"];

/** What hides two moves together. */
function bothHidden(one, other) {
  const sum = (name) => (one[name] === undefined || other[name] === undefined ? undefined : one[name] + other[name]);
  const waited = WAITED[Math.max(WAITED.indexOf(one.waited), WAITED.indexOf(other.waited))];
  return { waited, under: [...new Set([...one.under, ...other.under])], seconds: sum("seconds"), hidden_s: sum("hidden_s") };
}

/** What hides a move, in words. */
function hiding({ waited, under, seconds: time, hidden_s: hidden }) {
  const work = under.length === 0 ? "nothing" : under.length > 3 ? `${under.slice(0, 3).join(", ")} and others` : under.join(", ");
  const place = { at_once: "waited for at once", later: `under ${work}`, in_another_pass: "under the rest of the pass", in_next_step: "until the forward pass of the next step waits for it", before_pass: "waited for before the pass begins", by_others: "under the next pass" }[waited];
  return time ? `${percent(hidden / time, 0)} of ${seconds(time)} hidden, ${place}.` : `${place[0].toUpperCase()}${place.slice(1)}.`;
}

/** A matrix with the rank's tile in it. */
function tileDrawing(tile) {
  const [rows, cols] = tile.stored;
  const wide = 120, high = Math.max(24, Math.min(120, (wide * rows) / cols));
  const across = Math.max(24, Math.min(wide, (high * cols) / rows));
  const [x, y] = [(tile.held_cols.start / cols) * across, (tile.held_rows.start / rows) * high];
  const [w, h] = [((tile.held_cols.end - tile.held_cols.start) / cols) * across, ((tile.held_rows.end - tile.held_rows.start) / rows) * high];
  const [part, parts] = tile.part;
  const held = drawn("rect", { x: x + 1, y: y + 1 + (h * part) / parts, width: Math.max(1, w), height: Math.max(1, h / parts), class: "held" });
  const used = parts > 1 ? [drawn("rect", { x: x + 1, y: y + 1, width: w, height: h, class: "used" })] : [];
  return drawn("svg", { width: across + 2, height: high + 2, role: "img", "aria-label": `${tile.name}: the tile of this rank` }, drawn("rect", { x: 1, y: 1, width: across, height: high, class: "matrix" }), ...used, held);
}

const span = ({ start, end }, size) => (end - start === size ? "all" : `${plain(start)} to ${plain(end - 1)}`);

function tileCard(tile) {
  const experts = tile.experts > 1 ? `, ${span(tile.held_experts, tile.experts)} of ${tile.experts} experts` : "";
  const part = tile.part[1] > 1 ? ` It stores part ${tile.part[0] + 1} of ${tile.part[1]} of it, and gathers the rest (pale) before use.` : "";
  const same = tile.same_count === 1 ? "Nobody else holds the same." : `The same on ${plain(tile.same_count)} ranks, along ${tile.same_over.replaceAll("+", " and ")}.`;
  const [rows, cols] = tile.stored;
  const copied = tile.copies > 1 ? ` ${tile.copies} ranks next to each other along x hold copies of the same keys and values: with them there are ${plain(cols)} columns.` : "";
  const padded = rows > tile.rows ? ` The vocabulary is padded to ${plain(rows)} rows.` : "";
  const words = `Inputs (rows) ${span(tile.held_rows, rows)}, outputs (columns) ${span(tile.held_cols, cols)}${experts}.${part}${copied}${padded} ${same}`;
  const name = element("b", {}, tile.name.replace(/\.weight$/, ""));
  return element("div", { class: "fact tile" }, tileDrawing(tile), element("div", {}, name, element("span", { class: "soft" }, `${plain(tile.rows)} × ${plain(tile.cols)}, ${bytes(tile.bytes)} here. `), words));
}

/** What a layer computes and moves in a pass, in order. */
function story(lesson, pass, layer, others) {
  // What the update moves comes for many values alike, in no order that says anything.
  const alike = new Map();
  for (const move of lesson.moves.filter((move) => move.pass === pass && move.layers.includes(layer))) {
    const key = [move.kind, move.key, move.reason, ...(pass === "update" ? [] : [move.at])].join(" ");
    const same = alike.get(key);
    const sum = (name) => same[name] + move[name];
    if (!same) alike.set(key, { ...move, values: [move.value] });
    else alike.set(key, { ...same, values: [...same.values, move.value], calls: sum("calls"), payload_bytes: sum("payload_bytes"), wire_bytes: sum("wire_bytes"), hidden: bothHidden(same.hidden, move.hidden) });
  }
  const moves = [...alike.values()].map((move) => ({ at: move.at, move }));
  const computes = (others ? [] : lesson.computes).filter((each) => each.pass === pass).map((computed) => ({ at: computed.at, computed }));
  const steps = [...moves, ...computes].sort((a, b) => a.at - b.at);
  const item = ({ move, computed }) => {
    if (computed) {
      const { operation, value, local, sharding } = computed;
      return element("li", { class: "computed" }, element("b", {}, `${operation} `), `${value} [${local.join(" × ")}]`, element("span", { class: "soft" }, ` ${sharding}`));
    }
    const mark = element("i", { style: `background:${COLOURS[KIND_COLOURS[move.kind] ?? 9]}` });
    const change = move.from && move.from !== move.to ? element("div", { class: "soft change" }, `${move.from} → ${move.to}`) : null;
    const counts = `${plain(move.calls)} times a step, ${bytes(move.payload_bytes)}, sends ${bytes(move.wire_bytes)}`;
    const values = move.values.length > 4 ? `${move.values.slice(0, 3).join(", ")} and ${move.values.length - 3} more` : move.values.join(", ");
    return element("li", { class: "moved" }, element("div", {}, mark, element("b", {}, `${kindName(move.kind)} ${move.axes}`), ` ${values}`, element("span", { class: "soft" }, ` ${counts}`)), change, element("div", {}, `${move.reason[0].toUpperCase()}${move.reason.slice(1)}.`), element("div", { class: "soft" }, hiding(move.hidden)));
  };
  return steps.length === 0 ? null : element("ol", { class: "story" }, steps.map(item));
}

/** The most memory of each pass, a bar each. */
function memoryBars({ passes, peak_bytes: peak }) {
  const place = element("div", { class: "mesh" });
  const said = element("p", { class: "soft", role: "status" }, `${plain(passes.length)} passes in their order; the highest bar is ${bytes(peak)}`);
  const draw = () => {
    const [width, height] = [place.clientWidth, 160];
    const each = width / passes.length;
    const bars = passes.map(({ pass, bytes: most }, at) => {
      const tall = Math.max(1, (most / peak) * height), words = `${pass}: ${bytes(most)}`;
      const bar = drawn("rect", { x: at * each, y: height - tall, width: Math.max(0.5, each - (each > 4 ? 1 : 0)), height: tall, fill: COLOURS[0] });
      return drawn("g", { mouseenter: () => (said.textContent = words) }, drawn("title", {}, words), bar);
    });
    place.replaceChildren(drawn("svg", { width, height, role: "img", "aria-label": "most memory of each pass" }, ...bars));
  };
  whenPlaced(place, draw);
  return element("div", {}, place, said);
}

/** The elements that show a layout, the document of `explain --html`. */
function drawExplained(document) {
  const { lesson, ledger, layout, model, numbers, device_memory_bytes: room } = document;
  const peak = lesson.memory.peak_bytes;
  const passes = ["forward", "backward", "weight gradients", "update", "before each pass"];
  const sent = lesson.moves.reduce((sum, { wire_bytes: bytes, layers }) => sum + bytes * layers.length, 0);

  const stories = (layer, others) =>
    passes.flatMap((pass) => {
      const told = story(lesson, pass, layer, others);
      return told === null ? [] : [element("div", {}, element("h3", {}, pass), told)];
    });

  function layerSection() {
    const place = lesson.mesh.axes.map(({ axis, coordinate }) => `${axis} ${coordinate}`).join(", ");
    const title = `${lesson.layer} on rank ${lesson.rank}${place ? ` (${place})` : ""}`;
    return [
      lesson.tiles.length ? section(`What rank ${lesson.rank} holds of ${lesson.layer}`, element("div", { class: "tiles" }, lesson.tiles.map(tileCard))) : null,
      section(`${title}: what it computes, what follows, and why`, element("div", { class: "parts stories" }, stories(lesson.layer, false))),
    ];
  }

  function otherLayers() {
    if (lesson.others.length === 0) return null;
    const name = ([first, ...more]) => (more.length === 0 ? first : `${first} and ${more.length} more`);
    return section("The other layers of the rank", lesson.others.map((same) => element("details", {}, element("summary", {}, name(same)), element("div", { class: "parts stories" }, stories(same[0], true)))));
  }

  function allMoves() {
    const columns = [
      { title: "Collective", value: ({ kind }) => kindName(kind) },
      { title: "Axes", value: ({ axes }) => axes },
      { title: "Pass", value: ({ pass }) => pass },
      { title: "Value", value: ({ value }) => value },
      { title: "Layers", value: ({ layers }) => (layers.length === 1 ? layers[0] : `${layers[0]} and ${layers.length - 1} more`) },
      { title: "Calls", value: ({ calls, layers }) => calls * layers.length, text: plain },
      { title: "Payload", value: ({ payload_bytes: bytes, layers }) => bytes * layers.length, text: bytes },
      { title: "Sent", value: ({ wire_bytes: bytes, layers }) => bytes * layers.length, text: bytes },
      { title: "Why", value: ({ reason }) => reason, words: true },
    ];
    const all = table({ label: "all moves", columns, rows: lesson.moves, filter: true });
    return section("All that the rank moves in a step", element("details", {}, element("summary", {}, `${plain(lesson.moves.length)} kinds, together the rank's ledger`), all));
  }

  function memory() {
    const { memory: held } = lesson;
    const columns = [
      { title: "Lives at the fullest moment", value: ({ name }) => name },
      { title: "Counted as", value: ({ class: kind }) => kind },
      { title: "How many", value: ({ count }) => count, text: plain },
      { title: "Bytes", value: ({ bytes }) => bytes, text: bytes },
    ];
    const others = held.others_bytes + held.living.slice(12).reduce((sum, { bytes }) => sum + bytes, 0);
    const rest = others ? element("p", { class: "soft" }, `And ${bytes(others)} in smaller parts.`) : null;
    return section(`Memory over the step: ${bytes(held.peak_bytes)} at most, in the ${held.moment}`, element("div", { class: "parts" }, memoryBars(held), element("div", {}, table({ label: "what lives", columns, rows: held.living.slice(0, 12) }), rest)));
  }

  return [
    element("h1", {}, `${model.name} on ${plain(lesson.mesh.ranks)} ${lesson.mesh.ranks === 1 ? "rank" : "ranks"}`),
    element("p", { class: "soft" }, lesson.mesh.axes.length ? `grid ${lesson.mesh.axes.map(({ axis, size }) => `${axis}=${size}`).join(", ")}; ${layout.schedule} schedule; ${layout.activations} activations; overlap ${layout.overlap}; ${numbers}` : "serial"),
    element(
      "div",
      { class: "facts" },
      fact("Looked at", `rank ${lesson.rank}`, `stage ${lesson.stage}, ${lesson.layer}`),
      fact("Sent in a step", bytes(sent), "by this rank"),
      fact("Memory", bytes(peak), room && peak > room ? `at most: more than the ${bytes(room)} of a device` : "at most"),
      fact("Work", short(Object.values(ledger.flops).reduce((sum, each) => sum + each, 0)), "FLOP of products and attention"),
      lesson.timeline ? fact("Step", seconds(lesson.timeline.step_s), "simulated") : null,
    ),
    section("The mesh", meshDrawing(lesson.mesh)),
    ...layerSection(),
    otherLayers(),
    lesson.timeline ? section("When passes run", timelineDrawing(lesson.timeline)) : null,
    memory(),
    allMoves(),
  ].filter(Boolean);
}
