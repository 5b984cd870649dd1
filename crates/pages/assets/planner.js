// The planner: what is asked, kept in the page's address, and the newest answer below it.
"use strict";

const choices = JSON.parse(document.getElementById("data").textContent);

/** Fields of the question: their names are those of the address and of the request; the server has their titles, as its messages call them. */
const FIELDS = [
  { name: "model", options: choices.models, start: "gpt3-175b" },
  { name: "cluster", options: choices.clusters, start: "selene" },
  { name: "gpus", kind: "numeric", start: "1024", hint: "1024" },
  { name: "global_batch", kind: "text", start: "1536", hint: "2 for each device; 4M: tokens" },
  { name: "seq_len", kind: "text", hint: "the model's, e.g. 8k" },
  { name: "framework", options: choices.frameworks, start: "megatron" },
  { name: "products", options: ["", ...choices.products], none: "16 bits" },
  { name: "max.x", steps: ["1", "2", "4", "8", "16", "32", ""], none: "any" },
  { name: "max.pipe", steps: ["1", "2", "4", "8", "16", "32", "64", ""], none: "any" },
  { name: "memory_reserve", steps: ["", "0", "2%", "5%", "10%", "15%", "20%", "30%", "40%"], none: "as usual" },
  { name: "variants", options: ["", "true"], none: "the best of each grid" },
  { name: "tolerance", steps: ["0%", "1%", "2%", "", "5%", "10%", "20%", "50%", "100%"], none: "3%" },
  { name: "tokens", kind: "text", hint: "e.g. 300B or 15T" },
  { name: "days", steps: [1, 2, 3, 5, 7, 10, 14, 21, 30, 45, 60, 90, 120, 180, 365, ""].map(String), none: "any time", unit: "days", with: "tokens" },
  { name: "price_per_hour", hint: "e.g. 2.5", with: "tokens" },
  { name: "flops_convention", options: choices.flops_conventions, start: "native" },
];

const inputs = {};
const status = element("p", { role: "status", class: "soft" });
const answer = element("div", {});

/**
 * Milliseconds without a change after which it is asked again: a slider changes many times on its way. The first change is asked at
 * once.
 */
const TYPED = 60, DRAGGED = 120;

function field({ name, options, steps, kind, hint, none, unit }) {
  const [id, title] = [`ask-${name}`, choices.titles[name]];
  if (steps) return slider({ id, name, title, steps, none, unit });
  const made = options
    ? element("select", { id }, options.map((value) => element("option", { value }, value || none)))
    : element("input", { id, type: "text", placeholder: hint, inputmode: kind ?? "decimal", autocomplete: "off" });
  made.addEventListener("input", () => changed(TYPED));
  inputs[name] = made;
  return element("div", {}, element("label", { for: id }, title), made);
}

/** A range of values with the chosen one beside its title; the empty value is `none`. */
function slider({ id, name, title, steps, none, unit }) {
  const values = [...steps];
  const said = element("output", { for: id });
  const input = element("input", { id, type: "range", min: "0", step: "1", input: () => (tell(), changed(DRAGGED)) });
  const tell = () => {
    const value = values[input.value];
    said.textContent = value === "" ? none : unit ? `${value} ${unit}` : value;
    input.setAttribute("aria-valuetext", said.textContent);
  };
  inputs[name] = {
    get value() {
      return values[input.value];
    },
    set value(value) {
      // What is not among them stays in sight: the server says why it is refused, if it is.
      if (!values.includes(value)) values.push(value);
      input.max = String(values.length - 1);
      input.value = String(values.indexOf(value));
      tell();
    },
    set disabled(is) {
      input.disabled = is;
    },
  };
  return element("div", {}, element("label", { for: id }, `${title} `, said), input);
}

const config = element("textarea", { id: "ask-config", rows: "6", spellcheck: "false", input: () => changed(TYPED) });
inputs.config = config;
const pasted = element("details", {}, element("summary", {}, "A model of Hugging Face in place of that one"), element("label", { for: "ask-config" }, "The text of its config.json"), config);

/** What the fields say, without those that say nothing, or count only with another one that says nothing. */
function asked() {
  const said = Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value.trim()]).filter(([, value]) => value !== ""));
  for (const { name, with: other } of FIELDS.filter((field) => field.with)) {
    inputs[name].disabled = !(other in said);
    if (!(other in said)) delete said[name];
  }
  return said;
}

/** The request that the fields state: names with a point are fields of tables, and a pasted configuration is a model. */
function requestOf({ config, variants, ...said }) {
  const request = variants ? { variants: variants === "true" ? true : variants } : {};
  for (const [name, value] of Object.entries(said)) {
    const [table, key] = name.split(".");
    if (key) (request[table] ??= {})[key] = value;
    else request[name] = value;
  }
  if (config) request.model = { hugging_face: JSON.parse(config) };
  return request;
}

function fill() {
  const said = new URLSearchParams(location.hash.slice(1));
  const isEmpty = [...said].length === 0;
  for (const { name, start, options } of FIELDS) {
    const value = said.get(name) ?? (isEmpty || (options && start) ? (start ?? "") : "");
    // What is not known stays in sight: the server says why it is refused.
    if (options && !options.includes(value)) inputs[name].append(element("option", { value }, value));
    inputs[name].value = value;
  }
  config.value = said.get("config") ?? "";
  pasted.open = config.value !== "";
}

let waiting = null, timer = 0, last = -Infinity;

function changed(after) {
  clearTimeout(timer);
  const now = performance.now();
  if (now - last > after) ask();
  else timer = setTimeout(ask, after);
  last = now;
}

async function ask() {
  waiting?.abort();
  const mine = (waiting = new AbortController());
  const question = asked();
  try {
    history.replaceState(null, "", `#${new URLSearchParams(question)}`);
  } catch {
    // A browser may refuse a long address, or too many: the answer is the same without.
  }
  let request;
  const begin = performance.now();
  const say = (words, kind) => {
    status.className = kind;
    status.textContent = words;
  };
  answer.classList.add("old");
  try {
    request = requestOf(question);
  } catch (error) {
    return say(`config.json: ${error.message}`, "warn");
  }
  say("Searching …", "soft");
  const show = (found, isWhole) => {
    answer.replaceChildren(...drawPlan(found, isWhole ? ({ layout }) => posted("layout", { request, layout }, mine.signal) : null));
  };
  const after = () => seconds((performance.now() - begin) / 1000);
  // Usual layouts are shown at once, then the best of more and more, until everything was looked at: how busy the machine is decides
  // when that is, and nothing else.
  for (let round = 0; ; round += 1) {
    const [isFound, found] = await posted(`plan?round=${round}`, request, mine.signal);
    if (mine !== waiting) return;
    if (!isFound) return say(found ? found.error : "The server does not answer: is it still running?", "warn");
    if (found.plans.length > 0) {
      show(found, !found.stopped);
      answer.classList.remove("old");
    }
    if (!found.stopped) break;
    say(`${found.plans.length > 0 ? "The best" : "None fits"} of what was looked at in ${after()}; searching on …`, "soft");
    await painted();
    if (mine !== waiting) return;
  }
  say(`Answered in ${after()}.`, "soft");
}

/** Time for two frames, so that the answer is on the screen before the search takes all cores again; tabs in the background have no frames. */
const painted = () => new Promise((resolve) => setTimeout(resolve, 34));

/** Whether a question at a path was answered, and what the server says; nothing where it is silent. */
async function posted(path, question, signal) {
  try {
    const response = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(question), signal });
    return [response.ok, await response.json()];
  } catch {
    return [false, null];
  }
}

const link = element("button", { class: "action", type: "button", click: copyLink }, "Copy link");
async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    link.textContent = "Copied";
  } catch {
    link.textContent = "Copy it from the address";
  }
  setTimeout(() => (link.textContent = "Copy link"), 2000);
}

document.getElementById("page").append(
  element("form", { class: "ask", "aria-label": "question", submit: (event) => event.preventDefault() }, FIELDS.map(field), pasted, element("div", { class: "end" }, link, status)),
  answer,
);
addEventListener("hashchange", () => {
  fill();
  ask();
});
fill();
ask();
