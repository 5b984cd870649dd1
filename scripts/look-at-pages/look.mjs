// Looks at pages in Chromium: takes pictures at three widths in light and dark, says what the console and axe say and whether a page is
// wider than the window. Of the planner's page it also measures the time from a change of the batch to the picture of its answer.
import fs from "node:fs";
import path from "node:path";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const [folder, ...pages] = process.argv.slice(2);
if (pages.length === 0) {
  console.error("usage: node look.mjs FOLDER-FOR-PICTURES FILE.html|http://127.0.0.1:8321/ ...");
  process.exit(2);
}
const axe = fs.readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const flags = ["--no-sandbox", "--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: flags });
const question = "model=gpt3-175b&cluster=selene&gpus=1024&global_batch=1536&framework=megatron";

/** Milliseconds from typing a batch to the frame that shows a first answer, and to the whole one. */
async function changed(batch) {
  const shown = `${batch.toLocaleString("en")} sequences`;
  const isDrawn = () => document.querySelector("h1 + p")?.textContent.includes(shown) && document.querySelector(".facts") && !document.querySelector(".old");
  const input = document.getElementById("ask-global_batch");
  const begin = performance.now();
  input.value = String(batch);
  input.dispatchEvent(new Event("input"));
  while (!isDrawn()) await new Promise((resolve) => setTimeout(resolve, 2));
  await new Promise((resolve) => requestAnimationFrame(resolve));
  const first = performance.now() - begin;
  while (!document.querySelector("main").textContent.includes("Answered in ")) await new Promise((resolve) => setTimeout(resolve, 2));
  await new Promise((resolve) => requestAnimationFrame(resolve));
  return [first, performance.now() - begin];
}

async function look(address, isServed, width, colorScheme) {
  const page = await browser.newPage({ viewport: { width, height: 1000 }, colorScheme });
  const told = [];
  page.on("console", (message) => told.push(message.text()));
  page.on("pageerror", (error) => told.push(String(error)));
  await page.goto(isServed ? `${address}#${question}` : `file://${path.resolve(address)}`);
  await page.waitForSelector("svg", { timeout: 10000 }).catch(() => told.push("nothing is drawn"));
  await page.waitForTimeout(300);
  const name = isServed ? "planner" : path.basename(address, ".html");
  await page.screenshot({ path: `${folder}/${name}-${width}-${colorScheme}.png`, fullPage: true });
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => axe.run());
  const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  console.log(`${name} ${width} ${colorScheme}: ${wider} pixels wider than the window; console ${JSON.stringify(told)}`);
  for (const { impact, id, nodes } of violations) console.log(`  axe: ${impact} ${id}, ${nodes.length} elements, e.g. ${nodes[0].html.slice(0, 160)}`);
  if (isServed && width === 1600 && colorScheme === "light") {
    const times = [];
    for (let batch = 1024; batch < 1024 + 32 * 40; batch += 32) times.push(await page.evaluate(changed, batch));
    for (const [at, what] of ["the first picture", "the whole answer"].entries()) {
      const sorted = times.map((both) => both[at]).sort((a, b) => a - b);
      console.log(`change to ${what}, ${times.length} times: median ${sorted[20].toFixed(0)} ms, 95% ${sorted[37].toFixed(0)} ms`);
    }
  }
  await page.close();
}

for (const address of pages)
  for (const [width, colorScheme] of [400, 900, 1600].flatMap((width) => ["light", "dark"].map((scheme) => [width, scheme])))
    await look(address, address.startsWith("http"), width, colorScheme);
await browser.close();
