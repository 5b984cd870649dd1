// Looks at the planner's page in Chromium: takes pictures at three widths, says what its console and axe say and whether it is wider
// than the window, and measures the time from a change of the batch to the picture of its answer.
import fs from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const [address, folder = "."] = process.argv.slice(2);
if (!address) {
  console.error("usage: node look.mjs http://127.0.0.1:8321/ [FOLDER for pictures]");
  process.exit(2);
}
const axe = fs.readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const flags = ["--no-sandbox", "--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: flags });
const question = "model=gpt3-175b&cluster=selene&gpus=1024&global_batch=1536&framework=megatron";

/** Milliseconds from typing a batch to the frame that shows its answer. */
async function changed(batch) {
  const shown = `${batch.toLocaleString("en")} sequences`;
  const isDrawn = () =>
    document.querySelector("h1 + p")?.textContent.includes(shown) && document.querySelectorAll("svg").length === 4 && !document.querySelector(".old");
  const input = document.getElementById("ask-global_batch");
  const begin = performance.now();
  input.value = String(batch);
  input.dispatchEvent(new Event("input"));
  while (!isDrawn()) await new Promise((resolve) => setTimeout(resolve, 2));
  await new Promise((resolve) => requestAnimationFrame(resolve));
  return performance.now() - begin;
}

for (const [width, colorScheme] of [[400, "light"], [900, "dark"], [1600, "light"]]) {
  const page = await browser.newPage({ viewport: { width, height: 1000 }, colorScheme });
  const told = [];
  page.on("console", (message) => told.push(message.text()));
  page.on("pageerror", (error) => told.push(String(error)));
  await page.goto(`${address}#${question}`);
  await page.waitForSelector("svg");
  await page.screenshot({ path: `${folder}/planner-${width}.png`, fullPage: true });
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => axe.run());
  const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  console.log(`${width} ${colorScheme}: ${wider} pixels wider than the window; console ${JSON.stringify(told)}`);
  for (const { impact, id, nodes } of violations) console.log(`  axe: ${impact} ${id}, ${nodes.length} elements, e.g. ${nodes[0].html.slice(0, 100)}`);
  if (width === 1600) {
    const times = [];
    for (let batch = 1024; batch < 1024 + 32 * 40; batch += 32) times.push(await page.evaluate(changed, batch));
    times.sort((a, b) => a - b);
    console.log(`change to picture, ${times.length} times: median ${times[20].toFixed(0)} ms, 95% ${times[37].toFixed(0)} ms`);
  }
  await page.close();
}
await browser.close();
