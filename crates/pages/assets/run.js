// The page of a run: what it is, its curves, its step, its events and checkpoints.
"use strict";

const STEPS = { label: "step", text: plain, wide: Infinity, whole: true };

const GROUPS = ["products", "attention", "element-wise", "waits for collectives", "waits for stages", "other"];

/** The elements that show a run. */
function drawRun(run) {
  const ofSteps = (title, label, points, y = {}) =>
    section(title, lines({ label: `${title} over steps`, series: [{ name: title, points }], x: STEPS, y: { label, ...y }, height: 220 }));

  function headline() {
    const last = run.steps_wanted === null ? "" : `of ${plain(run.steps_wanted)}`;
    const speeds = (run.curves?.tokens_per_second ?? []).map(([, speed]) => speed).filter(Number.isFinite).toSorted((a, b) => a - b);
    return [
      element("h1", {}, `${run.run}: ${run.model}`),
      element(
        "div",
        { class: "facts" },
        fact("Steps", plain(run.steps), last),
        run.tokens === null ? null : fact("Loss", run.loss === null ? "not finite" : exactly(run.loss, 5), `after ${short(run.tokens)} ${run.unit}`),
        run.validation_loss === null ? null : fact("Validation", exactly(run.validation_loss, 5), `perplexity ${exactly(Math.exp(run.validation_loss), 4)}, after step ${plain(run.validation_step)}`),
        speeds.length === 0 ? null : fact("Speed", `${short(speeds[speeds.length >> 1])}/s`, `${run.unit} a second, the median`),
        run.ledger.equal === null ? null : fact("Ledger", run.ledger.equal ? "as predicted" : "DIFFERS", "bytes, FLOPs, memory"),
      ),
      ...run.notes.map((note) => element("p", { class: "warn" }, note)),
      element("dl", {}, run.about.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)])),
    ];
  }

  function curves() {
    const of = run.curves;
    if (of === null) return element("p", { class: "warn" }, "No step is done.");
    const kinds = ["training", "validation", "stands out", "not applied"];
    const highest = Math.max(...of.loss.map(([, loss]) => loss ?? -Infinity));
    // What is not finite lies at the upper edge.
    const marks = of.marks.map(({ step, loss, kind }) => ({ step, loss: loss ?? highest, kind, told: `step ${plain(step)}: loss ${loss ?? "not finite"}, ${kind}` }));
    const marked = () => Plot.dot(marks, { x: "step", y: "loss", stroke: "kind", fill: "kind", symbol: ({ kind }) => (kind === "stands out" ? "triangle" : "times"), r: 5, title: "told", tip: true });
    const loss = lines({
      label: "loss over steps",
      series: [
        { name: "training", points: of.loss },
        { name: "validation", points: of.validation },
      ],
      colours: kinds,
      x: STEPS,
      y: { label: run.is_of_patches ? "mean squared error" : "nats per token", text: (loss) => exactly(loss, 5) },
      level: of.floor === null ? undefined : { value: of.floor, name: `floor ${exactly(of.floor, 5)}, the least that a model can reach` },
      more: () => [marked()],
      height: 340,
    });
    const marksKey = marks.length === 0 ? null : key(kinds.filter((kind) => marks.some((mark) => mark.kind === kind)), kinds);
    const routed = of.router && [
      ofSteps("Balance loss of experts", "balance loss", of.router.balance, { zero: true }),
      ofSteps("Choices that found no place", "share of choices", of.router.dropped, { zero: true }),
      ofSteps("Largest load of an expert", "times the mean", of.router.most, { zero: true }),
      ofSteps("Load of the fullest ranks", "times the mean", of.router.imbalance, { zero: true }),
    ];
    return [
      section("Loss", loss, marksKey),
      element(
        "div",
        { class: "parts" },
        ofSteps("Gradient norm, before clipping", "norm", of.grad_norm),
        ofSteps("Learning rate", "rate", of.lr, { zero: true, text: (rate) => rate.toPrecision(4) }),
        ofSteps("Speed", `${run.unit} per second`, of.tokens_per_second, { zero: true, text: short }),
        routed,
      ),
    ];
  }

  function loads() {
    if (run.expert_loads.length === 0) return null;
    const mean = (chosen) => chosen.reduce((sum, each) => sum + each, 0) / chosen.length;
    const cells = run.expert_loads.flatMap(({ block, chosen }) =>
      chosen.map((times, expert) => {
        const multiple = times / mean(chosen);
        return { row: `block ${block}`, column: String(expert), value: multiple / 2, text: multiple.toFixed(1), told: `block ${block}, expert ${expert}\n${multiple.toFixed(3)} of the mean, ${plain(times)} times` };
      }),
    );
    const most = Math.max(...run.expert_loads.map(({ chosen }) => chosen.length));
    const columns = Array.from({ length: most }, (_, expert) => String(expert));
    const extreme = (better) => ({ chosen }) => chosen.indexOf(better(...chosen));
    const [highest, lowest] = [extreme(Math.max), extreme(Math.min)];
    const share = (of) => (load) => load.chosen[of(load)] / mean(load.chosen);
    const told = [
      { title: "Block", value: ({ block }) => block },
      { title: "Most", value: share(highest), text: (multiple) => multiple.toFixed(3) },
      { title: "Expert", value: highest },
      { title: "Least", value: share(lowest), text: (multiple) => multiple.toFixed(3) },
      { title: "Expert", value: lowest },
      { title: "Never chosen", value: ({ chosen }) => chosen.filter((times) => times === 0).length },
    ];
    return section(
      "Loads of experts",
      element("p", { class: "soft" }, "How often each expert was chosen in the run's last part, as a multiple of its block's mean: white is never, the darkest twice the mean and above."),
      heatMap({ label: "loads of experts", cells, rows: run.expert_loads.map(({ block }) => `block ${block}`), columns, axis: "expert", rising: true, size: 20 }),
      table({ label: "loads of experts", columns: told, rows: run.expert_loads }),
    );
  }

  function breakdown() {
    const { told, step, groups } = run.breakdown;
    const side = (name, field) => ({ name, parts: groups.map((group) => [group.name, group[field] ?? 0]) });
    const bars = [side("measured", "measured_s"), side("predicted", "predicted_s")].filter((bar) => bar.parts.some(([, time]) => time > 0));
    const [unit, size] = secondsUnit(bars.map((bar) => bar.parts.reduce((sum, [, time]) => sum + time, 0)));
    const rows = [...groups.flatMap((group) => [group, ...group.kinds.map((kind) => ({ ...kind, name: `\u2003${kind.name}` }))]), { name: "whole step", ...step }];
    const columns = [
      { title: "Operation", value: ({ name }) => name },
      { title: "Measured", value: (row) => row.measured_s, text: (time) => seconds(time) },
      { title: "Predicted", value: (row) => row.predicted_s, text: (time) => seconds(time) },
      { title: "Predicted / measured", value: (row) => (row.predicted_s !== null && row.measured_s > 0 ? row.predicted_s / row.measured_s : null), text: (ratio) => ratio.toFixed(2) },
    ];
    return section(
      "What a step is spent on",
      told.map((line) => element("p", { class: "soft" }, line)),
      bars.length === 0 ? null : stackedBars({ label: "parts of a step", first: "side", bars, unit: seconds, axis: unit, scale: size, colours: GROUPS }),
      table({ label: "seconds of a step by operation", columns, rows }),
    );
  }

  /** Numbers as pairs of predicted and counted ones; where they differ they are written out. */
  function ledger() {
    const { told, ranks, equal, transfers, flops, memory } = run.ledger;
    const differ = ([predicted, counted]) => counted !== null && counted !== predicted;
    const pair = (title, field, text) =>
      ["predicted", "counted"].map((side, at) => ({
        title: `${title}, ${side}`,
        value: (row) => row[field][at],
        shown: (row) => (differ(row[field]) ? row[field][at].toLocaleString("en") : text(row[field][at])),
      }));
    const part = (title, label, first, rows, ...pairs) =>
      element(
        "div",
        {},
        element("h3", {}, title),
        rows.length === 0 ? element("p", { class: "soft" }, "nothing") : table({ label, columns: [{ title: first, value: ({ name }) => name }, ...pairs.flat()], rows }),
      );
    return section(
      "Ledger of a step",
      element("p", { class: equal === false ? "warn" : "soft" }, told),
      part(`Sent by ${ranks === 1 ? "1 rank" : `${ranks} ranks together`}`, "bytes sent", "Axes and collective", transfers, pair("Calls", "calls", plain), pair("Payload", "payload", bytes), pair("On the wire", "wire", bytes)),
      element(
        "div",
        { class: "parts" },
        part(`Computed by ${ranks === 1 ? "1 rank" : `${ranks} ranks together`}`, "FLOPs", "Work", flops, pair("FLOP", "flops", short)),
        part("Held by the rank that holds most of it", "bytes held", "Memory", memory, pair("Held", "bytes", bytes)),
      ),
    );
  }

  function happened() {
    const events = [
      { title: "Step", value: ({ step }) => step, text: plain },
      { title: "What", value: ({ kind }) => kind },
      { title: "Text", value: ({ text }) => text, words: true },
    ];
    const stored = [
      { title: "Checkpoint", value: ({ name }) => name },
      { title: "Step", value: ({ step }) => step, text: plain },
      { title: "Size", value: ({ bytes }) => bytes, text: bytes },
    ];
    const none = () => element("p", { class: "soft" }, "none");
    const { unfinished_checkpoints: unfinished, earlier_events: earlier } = run;
    return [
      section(
        "Events",
        earlier === 0 ? null : element("p", { class: "soft" }, `the newest; ${plain(earlier)} earlier ones are in events.jsonl`),
        run.events.length === 0 ? none() : table({ label: "events", columns: events, rows: run.events, filter: run.events.length > 10, most: 50 }),
      ),
      section(
        "Checkpoints",
        run.checkpoints.length === 0 ? none() : table({ label: "checkpoints", columns: stored, rows: run.checkpoints, most: 50 }),
        unfinished === 0 ? null : element("p", { class: "warn" }, `${plain(unfinished)} unfinished: being written, or left by a run that was killed`),
      ),
    ];
  }

  return [headline(), curves(), loads(), breakdown(), ledger(), happened()].flat().filter(Boolean);
}

show(drawRun);
