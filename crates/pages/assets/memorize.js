// The page of documents that were learned by heart: how many of each bucket, by which loss.
"use strict";

/** The elements that show what was memorised. */
function drawMemorized(found) {
  const { runs } = found;
  const names = runs.map(({ name }) => name);
  const epochs = (times) => `${plain(times)} ${times === 1 ? "epoch" : "epochs"}`;
  const bars = runs[0].buckets.flatMap((bucket, at) => runs.map((run) => ({ name: `${epochs(bucket.epochs)}, ${run.name}`, parts: [[run.name, run.buckets[at].exact_share]] })));
  const rows = runs.flatMap((run) => run.buckets.map((bucket) => ({ ...bucket, run: run.name })));
  const columns = [
    { title: "Epochs", value: ({ epochs: times }) => times },
    { title: "Loss", value: ({ run }) => run },
    { title: "Documents", value: ({ documents }) => documents },
    { title: "Memorised", value: ({ exact }) => exact },
    { title: "Share", value: (row) => row.exact_share, text: (part) => percent(part) },
    { title: "Right tokens", value: (row) => row.equal_share, text: (part) => percent(part) },
  ];
  const losses = runs.map(({ name, losses: points }) => ({ name, points }));
  return [
    element("h1", {}, `${found.model.name}: documents memorised, by how often they were seen`),
    element("p", { class: "soft" }, found.told),
    element("div", { class: "facts" }, runs.map((run) => fact(run.name, percent(run.buckets.at(-1).exact_share), `of the documents that were seen ${epochs(run.buckets.at(-1).epochs)}`))),
    element(
      "div",
      { class: "parts" },
      section("Documents whose last tokens are all right", stackedBars({ label: "share of documents memorised", first: "Bucket", bars, unit: percent, axis: "% of the documents", colours: names, scale: 0.01, domain: [0, 100] })),
      section("Loss", lines({ label: "loss over steps", series: losses, x: { label: "step", text: plain, wide: Infinity, whole: true }, y: { label: "nats per token", text: (loss) => exactly(loss, 5) } })),
    ),
    section("Every bucket", table({ label: "buckets", columns, rows })),
  ];
}

show(drawMemorized);
