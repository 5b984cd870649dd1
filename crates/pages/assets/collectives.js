// The page of collectives: how much faster than the native ones each algorithm is, by size and number of ranks, and bandwidths.
"use strict";

/** The elements that show measured collectives. */
function drawCollectives({ collectives: rows }) {
  const distinct = (values) => [...new Set(values)];
  const kinds = distinct(rows.map(({ collective }) => collective));
  const ours = rows.filter(({ algorithm }) => algorithm !== "native");
  const algorithms = distinct(rows.map(({ algorithm }) => algorithm));
  const numbersOfRanks = distinct(rows.map(({ ranks }) => ranks)).toSorted((a, b) => a - b);
  // What is furthest from the native one, within bounds, has the darkest colour.
  const factor = Math.min(32, Math.max(2, ...ours.map(({ ratio_to_native: ratio }) => Math.max(ratio, 1 / ratio))));
  const times = (ratio) => exactly(ratio, ratio < 9.95 ? 2 : 3);

  /** A panel of one collective: of an algorithm, or of the best at each place. */
  function panel(kind, algorithm) {
    const of = ours.filter((row) => row.collective === kind && (algorithm === undefined || row.algorithm === algorithm));
    const best = new Map();
    for (const row of of) {
      const place = `${row.size} ${row.ranks}`;
      if (!best.has(place) || best.get(place).ratio_to_native < row.ratio_to_native) best.set(place, row);
    }
    const cells = [...best.values()].map((row) => ({
      row: bytes(row.size),
      column: String(row.ranks),
      value: Math.log(row.ratio_to_native) / Math.log(factor),
      text: times(row.ratio_to_native),
      told: `${row.collective} by ${row.algorithm}\n${bytes(row.size)} on ${row.ranks} ranks: ${seconds(row.seconds)}\n${times(row.ratio_to_native)} times as fast as native`,
    }));
    const sizes = distinct(of.map(({ size }) => size)).toSorted((a, b) => b - a).map(bytes);
    const title = `${kind}, ${algorithm ?? "the best"}`;
    return section(title, heatMap({ label: `speed-up over native: ${title}`, cells, rows: sizes, columns: distinct(of.map(({ ranks }) => ranks)).toSorted((a, b) => a - b).map(String), axis: "ranks" }));
  }

  function panels() {
    const of = (kind) => {
      const measured = algorithms.filter((algorithm) => ours.some((row) => row.collective === kind && row.algorithm === algorithm));
      return [...measured.map((algorithm) => panel(kind, algorithm)), measured.length > 1 ? panel(kind) : null];
    };
    if (ours.length === 0) return element("p", { class: "soft" }, "No algorithm was measured beside the native one.");
    const scale = [1 / factor, 1 / Math.sqrt(factor), 1, Math.sqrt(factor), factor];
    const entry = (ratio) => element("span", {}, element("i", { style: `background:${shade(Math.log(ratio) / Math.log(factor), false)}` }), times(ratio));
    return section(
      "Speed-up over the native collective",
      element("p", { class: "soft" }, "The time of the native collective over that of the algorithm: above 1, the algorithm is faster."),
      element("div", { class: "key" }, scale.map(entry)),
      kinds.map((kind) => element("div", { class: "panels" }, of(kind))),
    );
  }

  function bandwidths() {
    const place = element("div", { class: "parts" });
    const draw = (ranks) => {
      const of = (kind) => {
        const shown = rows.filter((row) => row.collective === kind && row.ranks === Number(ranks));
        if (shown.length === 0) return null;
        const series = algorithms.map((name) => ({ name, points: shown.filter((row) => row.algorithm === name).toSorted((a, b) => a.bytes - b.bytes).map((row) => [row.bytes, row.bus_gb_s]) }));
        const copy = Math.max(...shown.map((row) => row.copy_gb_s));
        return section(kind, lines({ label: `bus bandwidth of ${kind} over size`, series, colours: algorithms, dots: true, x: { label: "size", ticks: distinct(shown.map((row) => row.bytes)).toSorted((a, b) => a - b), format: bytes, text: bytes }, y: { label: "GB/s on the bus", text: (rate) => `${exactly(rate, 3)} GB/s` }, level: { value: copy, name: `a copy, ${exactly(copy, 3)} GB/s` } }));
      };
      place.replaceChildren(...kinds.map(of).filter(Boolean));
    };
    draw(numbersOfRanks.at(-1));
    const options = numbersOfRanks.toReversed().map((ranks) => [ranks, String(ranks)]);
    return section("Bandwidth", choice("ranks", "Ranks", options, draw), place);
  }

  const columns = [
    { title: "Collective", value: ({ collective }) => collective },
    { title: "Ranks", value: ({ ranks }) => ranks },
    { title: "Size", value: (row) => row.bytes, text: bytes },
    { title: "Algorithm", value: ({ algorithm }) => algorithm },
    { title: "Time", value: (row) => row.seconds, text: (time) => seconds(time) },
    { title: "Spread", value: ({ spread }) => spread, text: (part) => percent(part) },
    { title: "Bus GB/s", value: (row) => row.bus_gb_s, text: (rate) => exactly(rate, 3) },
    { title: "Of native", value: (row) => row.ratio_to_native, text: times },
    { title: "Bus / copy", value: (row) => row.ratio_to_copy, text: (part) => percent(part) },
    ...(rows.some((row) => row.predicted_seconds != null)
      ? [
          { title: "Predicted", value: (row) => row.predicted_seconds, text: (time) => seconds(time) },
          { title: "Error", value: (row) => row.predicted_error, text: (error) => `${error >= 0 ? "+" : "−"}${percent(Math.abs(error), 0)}` },
        ]
      : []),
  ];
  return [
    element("h1", {}, "Collectives: speed-up over the native ones"),
    panels(),
    bandwidths(),
    section("Everything that was measured", table({ label: "collectives", columns, rows, filter: true })),
  ];
}

show(drawCollectives);
