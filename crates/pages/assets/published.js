// The page of published runs: predicted against measured seconds and bytes, errors by source, every row.
"use strict";

const DEVICES = ["A100", "H100", "B200", "V100", "MI250X", "others"];

/** The kind of a device among those, by what a source calls it. */
function deviceKind(gpu) {
  const named = [[/A100/i, "A100"], [/H100|H200|H800|GH200/i, "H100"], [/B[23]00/i, "B200"], [/V100/i, "V100"], [/MI250/i, "MI250X"]];
  return named.find(([pattern]) => pattern.test(gpu))?.[1] ?? "others";
}

/** The elements that show published runs beside predictions. */
function drawPublished(found) {
  const rows = found.predicted_rows.map(([source, table, model, gpu, layout, isTime, measured, predicted]) => ({ source, table, model, gpu, layout, isTime, measured, predicted, kind: deviceKind(gpu) }));
  const sources = [...new Set(rows.map(({ source }) => source))];
  const signed = (part) => `${part >= 0 ? "+" : "−"}${percent(Math.abs(part))}`;
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const errorOf = ({ measured, predicted }) => predicted / measured - 1;

  function headline() {
    const of = (isTime) => rows.filter((row) => row.isTime === isTime).map((row) => Math.abs(errorOf(row)));
    const [times, memory] = [of(true), of(false)];
    const weighed = found.crossed.filter(({ without }) => without !== null).map(({ without }) => [without.mean_absolute, without.count]);
    const without = weighed.reduce((sum, [error, count]) => sum + error * count, 0) / weighed.reduce((sum, [, count]) => sum + count, 0);
    const { out_of_memory: ended, called_fitting: fitting } = found.summary.fits;
    return [
      element("h1", {}, "Published runs: predicted and measured"),
      element("p", { class: "soft" }, `${plain(found.predicted)} of ${plain(found.rows)} rows are predicted. Fitted: parameters of devices or networks come from these step times, constants of frameworks from these bytes.`),
      element(
        "div",
        { class: "facts" },
        times.length === 0 ? null : fact("Seconds", percent(mean(times)), `off in the mean of ${plain(times.length)} runs`),
        weighed.length === 0 ? null : fact("Seconds, unseen", percent(without), "by numbers that were fitted without the source"),
        memory.length === 0 ? null : fact("Bytes", percent(mean(memory)), `off in the mean of ${plain(memory.length)} runs`),
        ended === 0 ? null : fact("Out of memory", `${ended - fitting} of ${ended}`, "are called too large"),
      ),
    ];
  }

  /** Charts of one quantity. */
  function compared(title, shown, unit, told) {
    if (shown.length === 0) return null;
    const kinds = DEVICES.filter((kind) => shown.some((row) => row.kind === kind));
    const points = shown.map((row) => ({ ...row, told: `${row.source}, ${row.table}\n${row.model}, ${row.gpu}\n${row.layout}\nmeasured ${told(row.measured)}, predicted ${told(row.predicted)} (${signed(errorOf(row))})` }));
    return [
      section(`${title}: predicted against measured`, predictedScatter({ label: `${title}, predicted against measured`, points, unit, kinds })),
      section(`${title}: errors`, errorHistogram({ label: `errors of ${title}`, points, kinds })),
    ];
  }

  function charts() {
    const place = element("div", { class: "parts" });
    const draw = (source) => {
      const of = (isTime) => rows.filter((row) => row.isTime === isTime && (source === "" || row.source === source));
      const memory = of(false).map((row) => ({ ...row, measured: row.measured / GIB, predicted: row.predicted / GIB }));
      const parts = [
        compared("Seconds of a step", of(true), "seconds", (time) => seconds(time)),
        compared("Bytes of a device", memory, "GiB", (size) => `${size.toFixed(1)} GiB`),
      ];
      place.replaceChildren(...parts.flat().filter(Boolean));
    };
    const chosen = choice("source", "Source", [["", "all"], ...sources.map((source) => [source, source])], draw);
    draw("");
    return section("Runs", chosen, place);
  }

  const fitted = { no: "", partly: "partly", yes: "yes" };
  const error = (title, of) => ({ title, value: (row) => of(row), text: (part) => percent(part) });

  function bySource() {
    const of = (field) => (row) => row.errors[field];
    const columns = [
      { title: "Source", value: ({ source }) => source },
      { title: "Table", value: ({ table }) => table ?? "all" },
      { title: "Fitted", value: (row) => fitted[row.fitted] },
      { title: "Rows", value: of("count") },
      error("Mean error", of("mean_absolute")),
      { title: "Bias", value: of("bias"), text: signed },
      error("Largest", of("largest")),
    ];
    const without = (field) => (row) => row.without?.[field] ?? null;
    const crossed = [
      { title: "Source", value: ({ source }) => source },
      { title: "Rows", value: without("count") },
      error("Without source", without("mean_absolute")),
      { title: "Bias", value: without("bias"), text: signed },
      error("Largest", without("largest")),
      error("Without model", (row) => row.familiar?.mean_absolute ?? null),
      { title: "Bias without model", value: (row) => row.familiar?.bias ?? null, text: signed },
      error("With all", (row) => row.with?.mean_absolute ?? null),
    ];
    return [
      section("Seconds, by source", table({ label: "errors of seconds", columns, rows: found.summary.times, filter: true, most: 40 })),
      section("Seconds, by numbers that were fitted without the source, or its runs of a model", table({ label: "crossed errors", columns: crossed, rows: found.crossed })),
      found.summary.memory.length === 0 ? null : section("Bytes, by source", table({ label: "errors of bytes", columns, rows: found.summary.memory })),
    ];
  }

  function order() {
    const { all, sources: ordered } = found.summary.ranking;
    const columns = [
      { title: "Source", value: ({ source }) => source ?? "all" },
      { title: "Fitted", value: (row) => fitted[row.fitted] },
      { title: "Groups", value: ({ groups }) => groups },
      { title: "Layouts", value: ({ layouts }) => layouts },
      { title: "Mean tau", value: (row) => row.mean_tau, text: (tau) => tau.toFixed(2) },
      error("Mean regret", (row) => row.mean_regret),
      error("Largest regret", (row) => row.largest_regret),
    ];
    const rows = all === null ? ordered : [...ordered, all];
    const about = "Of the layouts of one model on one machine. Tau: 1 is the measured order. Regret: the chosen layout's time over the best, less 1.";
    return rows.length === 0 ? null : section("Order of layouts", element("p", { class: "soft" }, about), table({ label: "order of layouts", columns, rows }));
  }

  function everyRow() {
    const amount = (field) => ({ title: field === "measured" ? "Measured" : "Predicted", value: (row) => row[field], shown: (row) => (row.isTime ? seconds(row[field]) : gib(row[field])) });
    const columns = [
      { title: "Source", value: ({ source }) => source },
      { title: "Table", value: ({ table }) => table },
      { title: "Model", value: ({ model }) => model },
      { title: "Device", value: ({ gpu }) => gpu },
      { title: "Layout", value: ({ layout }) => layout },
      { title: "Of", value: ({ isTime }) => (isTime ? "seconds" : "bytes") },
      amount("measured"),
      amount("predicted"),
      { title: "Error", value: errorOf, text: signed },
    ];
    const reasons = [
      { title: "Reason", value: ({ reason }) => reason, words: true },
      { title: "Rows", value: ({ rows }) => rows },
    ];
    return [
      section("Every row", table({ label: "rows", columns, rows, filter: true, most: 50 })),
      found.unmapped.length === 0 ? null : section("Not predicted", table({ label: "reasons", columns: reasons, rows: found.unmapped })),
    ];
  }

  return [headline(), charts(), bySource(), order(), everyRow()].flat().filter(Boolean);
}

show(drawPublished);
