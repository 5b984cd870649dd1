// The page of layouts that ran on one machine: predicted against measured steps, and what they are spent on.
"use strict";

const SPENT = ["compute", "exposed communication", "other"];

/** The elements that show predicted and measured layouts. */
function drawLocal(found) {
  const { layouts, summary } = found;
  const name = ({ grid }) => grid.split(",").filter((axis) => !axis.endsWith("=1")).join(",") || "-";
  const best = summary.agreement.at(-1)?.best ?? 1;
  const place = (at) => (at === null ? "–" : `place ${at}`);
  const predicted = layouts.filter((row) => row.predicted_seconds !== null);
  const [unit, size] = secondsUnit(layouts.flatMap((row) => [row.predicted_seconds ?? 0, row.measured_seconds]));
  const points = predicted.map((row) => ({
    measured: row.measured_seconds / size,
    predicted: row.predicted_seconds / size,
    kind: row.measured_place !== null && row.measured_place <= best ? `the ${best} best measured` : "the others",
    told: `${name(row)}\npredicted ${seconds(row.predicted_seconds)}, ${place(row.predicted_place)}\nmeasured ${seconds(row.measured_seconds)}, ${place(row.measured_place)}\n${row.error_percent >= 0 ? "+" : "−"}${Math.abs(row.error_percent).toFixed(1)}%`,
  }));
  const kinds = [`the ${best} best measured`, "the others"].filter((kind) => points.some((point) => point.kind === kind));
  const parts = (row, side) => ["compute", "exposed", "other"].map((part, at) => [SPENT[at], row[`${side}_${part}_seconds`]]);
  const bars = layouts.flatMap((row) => [
    ...(row.predicted_seconds === null ? [] : [{ name: `${name(row)}, predicted`, parts: parts(row, "predicted") }]),
    { name: `${name(row)}, measured`, parts: parts(row, "measured") },
  ]);
  const columns = [
    { title: "Layout", value: ({ notation }) => notation },
    { title: "Grid", value: name },
    { title: "Predicted", value: (row) => row.predicted_seconds, text: (time) => seconds(time) },
    { title: "Measured", value: (row) => row.measured_seconds, text: (time) => seconds(time) },
    { title: "Deviation", value: (row) => row.measured_deviation_seconds, text: (time) => `±${seconds(time)}` },
    { title: "Error", value: (row) => row.error_percent, text: (error) => `${error >= 0 ? "+" : "−"}${Math.abs(error).toFixed(1)}%` },
    { title: "Predicted place", value: (row) => row.predicted_place },
    { title: "Measured place", value: (row) => row.measured_place },
    { title: "Ledger", value: (row) => (row.ledger_equal ? "as predicted" : "DIFFERS") },
    ...(predicted.length < layouts.length ? [{ title: "Not predicted because", value: (row) => row.not_predicted_because, words: true }] : []),
  ];
  const lines = (told, kind) => told.map((line) => element("p", { class: kind }, line));
  return [
    element("h1", {}, `${found.model.name} on ${found.cluster}: predicted and measured steps`),
    ...lines(found.told, "soft"),
    element(
      "div",
      { class: "facts" },
      fact("Mean error", `${summary.mean_absolute_error_percent.toFixed(1)}%`, `at most ${summary.largest_absolute_error_percent.toFixed(1)}%, bias ${summary.bias_percent.toFixed(1)}%`),
      fact("Order", summary.kendall_tau_b === null ? "–" : summary.kendall_tau_b.toFixed(2), "Kendall's tau: 1 is the measured order"),
      fact("First choice", `+${summary.regret_percent.toFixed(1)}%`, "beyond the fastest"),
      summary.median_deviation_percent === null ? null : fact("Noise", `${summary.median_deviation_percent.toFixed(1)}%`, "deviation of steps of one layout, the median"),
    ),
    element(
      "div",
      { class: "parts" },
      points.length === 0 ? null : section("Predicted against measured", predictedScatter({ label: "predicted against measured steps", points, unit, kinds })),
      points.length === 0 ? null : section("Errors", errorHistogram({ label: "errors", points, kinds })),
    ),
    section("What a step is spent on", stackedBars({ label: "parts of predicted and measured steps", first: "Grid", bars, unit: seconds, axis: unit, scale: size, colours: SPENT })),
    section("Every layout, the fastest first", table({ label: "layouts", columns, rows: layouts, filter: true })),
    section("In words", lines(found.summary_told, "")),
    found.left_out.length === 0 ? null : section("Left out", lines(found.left_out, "soft")),
  ].filter(Boolean);
}

show(drawLocal);
