// The page of a sweep: how fast the best layouts are over what varies, and what their steps are spent on.
"use strict";

/** The elements that show a sweep. */
function drawSweep(sweep) {
  const { variables, points } = sweep;
  // Over the number of devices, if that varies.
  const at = variables.length === 2 && variables[1].is_devices && !variables[0].is_devices ? 1 : 0;
  const [across, along] = [variables[at], variables[1 - at]];
  const number = (value) => (Math.abs(value) >= 1e6 ? short(value) : String(value));
  const valuesOf = (point) => point.values.map((value, of) => `${variables[of].name} ${number(value)}`).join(", ");
  const found = points.filter(({ plan }) => plan !== null);
  const isTimed = found.some(({ plan }) => plan.days !== undefined);
  const names = along ? along.values.map((value) => `${along.name} ${number(value)}`) : ["best layout"];

  /** A line over what is across for each value of what is along. */
  const series = (of) =>
    names.map((name, line) => ({
      name,
      points: points.filter(({ values }) => !along || values[1 - at] === along.values[line]).map(({ values, plan }) => [values[at], plan === null ? null : of(plan)]),
    }));

  /** What as many times more devices as there are would give the first point of a line. */
  const ideal = (of) => {
    const first = found[0];
    if (!across.is_devices || along || found.length < 2) return [];
    return [{ name: "as fast as devices are many", dashed: true, points: found.map(({ values, plan }) => [values[0], (of(first.plan) * first.plan.devices) / plan.devices]) }];
  };

  /** The seconds between which 8 of 10 runs like a plan lie; none where too few runs of its kind are published. */
  const between = ({ time_s: time, error_band: band }) => band && `${seconds(band.low * time)} to ${seconds(band.high * time)} for 8 in 10 runs like it`;

  function headline() {
    const says = (name, words) => (variables.some((variable) => variable.name === name) ? null : words);
    const isDevices = variables.some((variable) => variable.is_devices);
    const parts = [
      sweep.framework,
      isDevices ? null : `${plain(sweep.gpus)} devices`,
      says("batch", says("global-batch", `${plain(sweep.global_batch)} sequences a step`)),
      says("seq-len", `${plain(sweep.seq_len)} tokens a sequence`),
      sweep.tokens === null ? null : `${short(sweep.tokens)} tokens in all`,
    ];
    const best = found.toSorted((a, b) => a.plan.time_s - b.plan.time_s)[0];
    const cheapest = found.toSorted((a, b) => b.plan.mfu - a.plan.mfu)[0];
    return [
      element("h1", {}, `${sweep.model} on ${sweep.cluster} by ${variables.map(({ name }) => name).join(" and ")}`),
      element("p", { class: "soft" }, parts.filter(Boolean).join(", ")),
      best
        ? element(
            "div",
            { class: "facts" },
            fact("Points", `${found.length} of ${points.length}`, "have a layout"),
            fact("Fastest step", seconds(best.plan.time_s), `${valuesOf(best)}: ${layoutOf(best.plan)}; ${between(best.plan) ?? "no error band"}`),
            fact("Most of the peak", `${percent(cheapest.plan.mfu)}, ${cheapest.plan.tflops_per_device.toFixed(1)} TFLOP/s a device`, `counted as ${sweep.flops_convention}; ${valuesOf(cheapest)}: ${layoutOf(cheapest.plan)}`),
          )
        : element("p", { class: "warn" }, "No layout fits anywhere."),
      points.some(({ stopped }) => stopped) ? element("p", { class: "warn" }, "Some searches have not looked at everything: there may be faster layouts.") : null,
    ];
  }

  // Over devices both axes are logarithmic: what scales is a straight line.
  const wide = across.is_devices ? 2 : 10;
  const over = { wide, label: across.name, ticks: across.values, text: number, format: number };
  const drawn = (title, y, of, more = []) => {
    const chartLines = series(of);
    return section(title, lines({ label: `${title} over ${across.name}`, series: [...chartLines, ...more], x: over, y, dots: true }));
  };

  function overVaried() {
    const times = found.map(({ plan }) => plan.time_s);
    const [unit, size] = secondsUnit(times);
    const inUnit = (plan) => plan.time_s / size;
    return element(
      "div",
      { class: "parts" },
      isTimed
        ? drawn("Days of training", { label: "days", zero: true, wide, text: (days) => `${plain(days)} days` }, (plan) => plan.days, ideal((plan) => plan.days))
        : drawn("Time of a step", { label: unit, zero: true, wide, text: (time) => seconds(time * size, 4) }, inUnit, ideal(inUnit)),
      drawn("Model FLOPs", { label: "% of the devices' peak", zero: true, text: (share) => `${share.toFixed(1)}% of the peak` }, (plan) => 100 * plan.mfu),
      drawn("Tokens a second", { label: "tokens a second", zero: true, wide, text: short }, (plan) => plan.tokens_per_s),
      drawn("Memory of the fullest device", { label: "GiB", zero: true, text: (size) => `${size.toFixed(1)} GiB` }, (plan) => plan.memory_bytes / GIB),
      found.some(({ plan }) => plan.cost !== undefined) ? drawn("Cost of training", { label: found[0].plan.currency, zero: true, text: plain }, (plan) => plan.cost) : null,
    );
  }

  /** Shares of each part of a step: seconds are those of the chart above. */
  function shares() {
    const place = element("div");
    const draw = (line) => {
      const shown = found.filter(({ values }) => !along || values[1 - at] === along.values[line]);
      const bars = shown.map(({ values, plan }) => ({ name: `${number(values[at])}: ${seconds(plan.time_s)}`, parts: timeParts(plan).map(([part, time]) => [part, time / plan.time_s]) }));
      place.replaceChildren(
        bars.length === 0
          ? element("p", { class: "soft" }, "no layout")
          : stackedBars({ label: `shares of a step by ${across.name}`, first: across.name, bars, unit: percent, axis: "% of the step", colours: TIME, scale: 0.01, domain: [0, 100] }),
      );
    };
    const chosen = along && choice("along", along.name, along.values.map((value, line) => [line, number(value)]), draw);
    draw(0);
    return section("What a step is spent on", chosen, place);
  }

  function everyPoint() {
    const of = (value) => ({ plan }) => (plan === null ? null : value(plan));
    const columns = [
      { title: "Layout", value: of(layoutOf) },
      ...variables.map(({ name }, place) => ({ title: name, value: ({ values }) => values[place], text: number })),
      ...(found.length < points.length ? [{ title: "Why there is none", value: ({ reason }) => reason, words: true }] : []),
      { title: "Step", value: of((plan) => plan.time_s), text: (time) => seconds(time, 4) },
      { title: "Error band", value: of((plan) => (plan.error_band ? plan.error_band.high - plan.error_band.low : Infinity)), shown: ({ plan }) => between(plan) ?? plan.error_band_reason, words: true },
      ...(isTimed ? [{ title: "Days", value: of((plan) => plan.days), text: plain }] : []),
      ...(found.some(({ plan }) => plan.cost !== undefined) ? [{ title: "Cost", value: of((plan) => plan.cost), text: plain }] : []),
      { title: "TFLOP/s a device", value: of((plan) => plan.tflops_per_device), text: (rate) => rate.toFixed(1) },
      { title: "MFU", value: of((plan) => plan.mfu), text: (share) => percent(share) },
      { title: "Tokens/s", value: of((plan) => plan.tokens_per_s), text: short },
      { title: "Memory", value: of((plan) => plan.memory_bytes), text: gib },
      { title: "Microbatch", value: of((plan) => plan.layout.microbatch) },
      { title: "Schedule", value: of((plan) => plan.layout.schedule) },
      { title: "Recompute", value: of((plan) => plan.layout.recompute) },
      { title: "ZeRO", value: of((plan) => plan.layout.zero) },
    ];
    return section("Every point", table({ label: "points", columns, rows: points, filter: true }));
  }

  return [...headline(), ...(found.length > 0 ? [overVaried(), shares()] : []), everyPoint()].filter(Boolean);
}

show(drawSweep);
