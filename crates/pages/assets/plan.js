// The page of a plan: what is advised and how sure that is, the other layouts beside it, where time and memory go.
"use strict";

const AXES = { x: "TP (x)", y: "y", z: "z", context: "CP", expert: "EP", data: "DP", pipe: "PP" };

const TIME = ["compute", "memory-bound", "launch", ...Object.values(AXES).map((axis) => `communication ${axis}`), "bubble", "optimizer", "tokens"];
const MEMORY = ["parameters", "gradients", "optimizer", "activations", "buffers", "framework"];

/** A number with a prefix, if it has one, in its unit, if it has one: `450 G` as `450 GB/s`. */
const inUnit = (number, unit) => (unit === "" || number.includes(" ") ? number + unit : `${number} ${unit}`);

const layoutOf = (entry) => (entry.devices === 1 ? "1 device" : entry.notation);

/** The seconds of a step of an entry, by what they are spent on. */
const timeParts = ({ parts_s: parts }) => [
  ["compute", parts.compute],
  ["memory-bound", parts.memory_bound],
  ["launch", parts.launch],
  ...Object.entries(parts.communication).map(([axis, time]) => [`communication ${AXES[axis]}`, time]),
  ["bubble", parts.bubble],
  ["optimizer", parts.optimizer],
  ["tokens", parts.tokens],
];

/**
 * The elements that show a plan, the document of `plan` with `exports`. Where layouts come without `mesh` and `timeline`,
 * `draws(entry)` asks for them, whether it gets them and they or the reason; `null`: they are not shown yet.
 */
function drawPlan(plan, draws = null) {
  const memoryParts = ({ memory: { stage, ...classes } }) => Object.entries(classes);

  // The advised layout need not be among the fastest.
  const advised = plan.advised.index === null ? plan.advised.plan : plan.plans[plan.advised.index];
  const isAdvised = (entry) => entry === advised;
  const entries = [advised, ...plan.plans.filter((entry) => entry !== advised)];
  const place = (entry) => (plan.plans.includes(entry) ? plan.plans.indexOf(entry) + 1 : null);
  const usable = plan.device_memory_bytes === null ? null : plan.device_memory_bytes - plan.reserved_bytes;

  function headline() {
    const band = plan.error_band;
    const between = band && `${seconds(band.low * advised.time_s)} to ${seconds(band.high * advised.time_s)} for 8 in 10 runs like it`;
    return [
      element("h1", {}, `${plan.model} on ${plain(advised.devices)} ${advised.devices === 1 ? "device" : "devices"} of ${plan.cluster}`),
      element("p", { class: "soft" }, `${plan.framework}, ${plain(plan.global_batch)} sequences of ${plain(plan.seq_len)} tokens a step`),
      element(
        "div",
        { class: "facts" },
        fact("Layout", layoutOf(advised), advised.layout.grid.split(",").filter((axis) => !axis.endsWith("=1")).join(" ")),
        fact("Step", seconds(advised.time_s), between ?? "no error band: too few published runs of this kind"),
        fact("Tokens a second", short(advised.tokens_per_s), `${short(advised.tokens_per_s / advised.devices)} a device`),
        fact("Model FLOPs", `${advised.tflops_per_device.toFixed(1)} TFLOP/s a device`, `${percent(advised.mfu)} of the peak; counted as ${plan.flops_convention}`),
        fact("Memory", gib(advised.memory_bytes), usable === null ? "of a device" : `of ${gib(usable)} that may be used`),
        advised.days === undefined ? null : fact("Training", `${plain(advised.days)} days`, advised.cost === undefined ? "" : `${plain(advised.cost)} ${advised.currency}`),
      ),
      plan.stopped ? element("p", { class: "warn" }, "The search has not looked at everything: there may be faster layouts.") : null,
      ...(plan.told ?? []).map((words) => element("p", { class: words.startsWith("Warning") ? "warn" : "soft" }, words)),
    ];
  }

  function ranking(choose) {
    const layout = (field) => (entry) => entry.layout[field];
    // Where 8 in 10 runs of a layout lie does not meet where those of the fastest lie: it is slower. Else it may be as fast.
    const { low, high } = plan.error_band ?? {};
    const fastest = plan.plans[0]?.time_s ?? advised.time_s;
    const isSlower = (entry) => low * entry.time_s > high * fastest;
    const later = (entry) => entry.time_s / fastest - 1;
    const beside = (entry) => (later(entry) === 0 ? "fastest" : `${later(entry) > 0 ? "+" : "−"}${percent(Math.abs(later(entry)))}, ${isSlower(entry) ? "slower" : "may be as fast"}`);
    const band = { title: "Beside the fastest", value: later, shown: beside };
    const columns = [
      { title: "Layout", value: (entry) => layoutOf(entry) + (isAdvised(entry) ? " (advised)" : "") },
      { title: "Place", value: place },
      { title: "Step", value: (entry) => entry.time_s, text: (time) => seconds(time, 4) },
      ...(plan.error_band ? [band] : []),
      { title: "TFLOP/s a device", value: (entry) => entry.tflops_per_device, text: (rate) => rate.toFixed(1) },
      { title: "MFU", value: (entry) => entry.mfu, text: (share) => percent(share) },
      { title: "Memory", value: (entry) => entry.memory_bytes, text: gib },
      { title: "Tokens/s", value: (entry) => entry.tokens_per_s, text: short },
      { title: "Microbatch", value: layout("microbatch") },
      { title: "Schedule", value: layout("schedule") },
      { title: "Recompute", value: layout("recompute") },
      { title: "ZeRO", value: layout("zero") },
      ...(entries.some((entry) => entry.variants !== undefined) ? [{ title: "Variants", value: (entry) => entry.variants, text: plain }] : []),
      { title: "Grid", value: layout("grid") },
    ];
    return table({ label: "layouts", columns, rows: entries, filter: true, choose, chosen: advised, kind: (entry) => plan.error_band && (isSlower(entry) ? "slower" : "near") });
  }

  /**
   * Of the layouts that are known those than which none has both less memory and less time, by memory. Where a front was searched
   * they are its layouts too: it tells memory apart by a 32nd of what a device has for them.
   */
  function front() {
    const known = [...entries, ...(plan.pareto ?? []).filter((entry) => entry.devices === advised.devices)];
    const byMemory = known.toSorted((a, b) => a.memory_bytes - b.memory_bytes || a.time_s - b.time_s);
    let least = Infinity;
    return byMemory.filter((entry) => entry.time_s < least && ((least = entry.time_s), true));
  }

  function timeAgainstMemory(chosen) {
    const point = (entry) => ({
      gib: entry.memory_bytes / GIB,
      time: entry.time_s,
      kind: isAdvised(entry) ? "advised" : entry === chosen ? "chosen" : "others",
      told: `${layoutOf(entry)}\n${seconds(entry.time_s)}, ${gib(entry.memory_bytes)}`,
    });
    const onFront = front().map(point);
    const points = [...entries, ...front().filter((entry) => !entries.includes(entry))].map(point);
    const kinds = ["advised", "others", "chosen"];
    const make = (width) => ({
      height: 320,
      marginLeft: 52,
      x: { label: "memory of a device, GiB", grid: true, nice: true, ticks: Math.max(3, width / 110) },
      y: { label: "seconds a step", grid: true, nice: true },
      color: { domain: kinds, range: kinds.map((_, at) => COLOURS[at]) },
      symbol: { domain: kinds, range: ["star", "circle", "diamond"] },
      marks: [
        // Between two of them no known layout is faster.
        Plot.line(onFront, { x: "gib", y: "time", curve: "step-after", strokeOpacity: 0.6 }),
        Plot.dot(points, { x: "gib", y: "time", fill: "kind", symbol: "kind", r: 5, title: "told", tip: true }),
        ...(usable === null ? [] : [Plot.ruleX([usable / GIB], { strokeDasharray: "4 3" })]),
      ],
    });
    const of = plan.pareto === undefined ? "the layouts that are shown, not of all" : "all layouts on so many devices, memory told apart by a 32nd of a device's";
    const notes = [`line: front of ${of}`, ...(usable === null ? [] : ["dashed: what may be used"])];
    // Its numbers are those of the table of layouts.
    return element("div", {}, key(kinds, kinds, notes), chart("seconds a step against memory of a device, by layout", make));
  }

  function detail(entry) {
    // The chosen one beside the advised one and the fastest.
    const beside = [...new Set([entry, advised, plan.plans[0]])].filter(Boolean);
    const name = (each) => (isAdvised(each) ? "advised" : `place ${place(each)}`);
    const bars = (of) => beside.map((each) => ({ name: name(each), parts: of(each) }));
    const limit = usable === null ? [] : [Plot.ruleX([usable / GIB], { strokeDasharray: "4 3" })];
    return element(
      "div",
      { class: "parts" },
      section("Where the time of a step goes", stackedBars({ label: "parts of a step", bars: bars(timeParts), unit: seconds, axis: "seconds", colours: TIME })),
      section(
        "What fills the fullest device",
        stackedBars({ label: "memory by class", bars: bars(memoryParts), unit: gib, axis: "GiB; dashed: what may be used", scale: GIB, marks: () => limit, colours: MEMORY }),
      ),
      section("Time against memory", timeAgainstMemory(entry)),
      ...pictures(entry, name(entry)),
      gains(),
    );
  }

  /** The passes and the mesh of a layout, as soon as they are known. */
  function pictures(entry, name) {
    if (!entry.mesh && !draws) return [];
    const passes = section(`When passes run: ${name}`), mesh = section(`Who talks to whom: ${name}`);
    const long = "The step has more passes than are simulated for a picture: fewer microbatches, stages or chunks have one.";
    const draw = () => {
      passes.append(entry.timeline ? timelineDrawing(entry.timeline) : element("p", { class: "soft" }, long));
      mesh.append(meshDrawing(entry.mesh));
    };
    const ask = async () => {
      // Whoever chooses a layout again waits for what was asked already.
      entry.asked ??= draws(entry);
      const [isDrawn, found] = await entry.asked;
      if (isDrawn) return draw(Object.assign(entry, found));
      entry.asked = undefined;
      if (found) passes.append(element("p", { class: "warn" }, found.error));
    };
    if (entry.mesh) draw();
    else ask();
    return [passes, mesh];
  }

  /** What a tenth more of each number of the hardware gives the advised layout. */
  function gains() {
    const felt = (plan.explanation?.sensitivities ?? []).filter((each) => Math.abs(each.gained_share) > 5e-4).slice(0, 12);
    if (felt.length === 0) return null;
    const amount = (each, value) => inUnit(short(value), each.unit);
    const rows = felt.map((each) => ({ name: each.name, gained: 100 * each.gained_share, told: `${each.name}\n${amount(each, each.from)} to ${amount(each, each.to)} (${each.origin.replace("_", " ")})\n${percent(each.gained_share, 2)} of a step` }));
    const make = (width) => ({
      ...named(rows.map((row) => row.name), width),
      height: 26 * rows.length + 46,
      x: { label: "% of a step saved (left of 0: lost)", grid: true, nice: true, ticks: Math.max(3, width / 110) },
      marks: [Plot.barX(rows, { x: "gained", y: "name", fill: COLOURS[0], title: "told", tip: true, insetTop: 3, insetBottom: 3 }), Plot.ruleX([0])],
    });
    const columns = [
      { title: "Number", value: (each) => each.name },
      { title: "From", value: (each) => each.from, shown: (each) => amount(each, each.from) },
      { title: "To", value: (each) => each.to, shown: (each) => amount(each, each.to) },
      { title: "Origin", value: (each) => each.origin.replace("_", " ") },
      { title: "Of a step", value: (each) => each.gained_share, text: (share) => percent(share, 2) },
    ];
    const drawn = chart("share of a step saved by a tenth more of each number of the hardware", make);
    return section("A tenth more of a number of the hardware", drawn, numbers("gains", columns, felt));
  }

  function reasons() {
    const explained = plan.explanation;
    const changes = explained && [
      { title: "One choice changed", value: (each) => each.change, words: true },
      { title: "Step", value: (each) => each.time_s, text: seconds },
      { title: "Saved", value: (each) => each.gained_s, text: seconds },
      { title: "Memory", value: (each) => each.memory_bytes, text: gib },
    ];
    const refusals = [
      { title: "Refused", value: (each) => each.example || each.rule, words: true },
      { title: "Grids", value: (each) => each.grids, text: plain },
      { title: "Configurations", value: (each) => each.configurations, text: plain },
    ];
    return [
      explained?.changes.length ? section("What another choice would give", table({ label: "other choices", columns: changes, rows: explained.changes, filter: true })) : null,
      plan.refusals.length ? section("What rules refuse", table({ label: "refusals", columns: refusals, rows: plan.refusals })) : null,
    ];
  }

  /** The advised layout in the words of frameworks, to copy. */
  function exported() {
    const text = element("pre", { tabindex: "0", class: "wide", role: "region", "aria-label": "the layout in the framework's words" });
    const copying = element("button", { class: "action", click: () => copy() }, "Copy");
    const gaps = element("ul", { class: "soft" });
    const said = element("span", { role: "status", class: "soft" });
    const show = ({ text: flags, refused, cannot_express: missing }) => {
      text.textContent = refused ?? flags;
      copying.disabled = refused !== undefined;
      gaps.replaceChildren(...(missing ?? []).map((part) => element("li", {}, `cannot be said: ${part}`)));
      said.textContent = "";
    };
    const options = plan.exports.map(({ framework }, at) => element("option", { value: String(at) }, framework));
    const select = element("select", { id: "framework", change: (event) => show(plan.exports[event.target.value]) }, options);
    const copy = async () => {
      try {
        await navigator.clipboard.writeText(text.textContent);
        said.textContent = "copied";
      } catch {
        getSelection().selectAllChildren(text);
        said.textContent = "selected: copy it by keyboard";
      }
    };
    show(plan.exports[0]);
    const line = element("p", {}, element("label", { for: "framework" }, "Framework "), select, " ", copying, " ", said);
    return section("The advised layout in a framework's words", line, text, gaps);
  }

  function counts() {
    const { legal_grids: grids, legal, priced, too_large: large, too_slow: slow } = plan.counts;
    const left = `${plain(large)} are too large and ${plain(slow)} too slow by bounds`;
    return element("p", { class: "soft" }, `${plain(legal)} legal configurations on ${plain(grids)} grids in ${seconds(plan.seconds)}: ${plain(priced)} priced by their programs, ${left}.`);
  }

  const chosenPart = element("div", {}, detail(advised));
  return [
    ...headline(),
    section("Layouts: the advised one, then the fastest", ranking((entry) => chosenPart.replaceChildren(detail(entry)))),
    element("section", {}, chosenPart),
    exported(),
    ...reasons(),
    counts(),
  ].filter(Boolean);
}
