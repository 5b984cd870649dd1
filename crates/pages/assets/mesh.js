// The mesh of ranks: drawn as columns and rows of ranks, columns and rows of such tables, and so on. A rank that is chosen shows
// with whom it talks along each axis.
"use strict";

const AXIS_NAMES = ["x", "y", "z", "context", "expert", "data", "pipe"];
const AXIS_COLOURS = ["#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#e15759", "#76b7b2", "#9c755f"];
const axisColour = (axis) => AXIS_COLOURS[AXIS_NAMES.indexOf(axis)];

/** An element of a drawing. */
function drawn(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

/** The places of an axis that are drawn: all of a short one, else the first ones, a gap (`null`), and the last. */
const placesOf = (size, most) => (size <= most ? [...Array(size).keys()] : [...Array(most - 2).keys(), null, size - 1]);

/** Where ranks are drawn: `{ rank, x, y }` in cells, `null` ranks are gaps; and how many cells there are in each direction. */
function meshPlaces(axes, most) {
  let cells = [{ rank: 0, x: 0, y: 0 }], width = 1, height = 1;
  axes.forEach(({ size, stride }, level) => {
    const across = level % 2 === 0, space = level < 2 ? 0 : level < 4 ? 0.5 : 1;
    const step = (across ? width : height) + space, places = placesOf(size, most);
    cells = places.flatMap((place, at) =>
      cells.map((cell) => ({
        rank: place === null || cell.rank === null ? null : cell.rank + place * stride,
        x: cell.x + (across ? at * step : 0),
        y: cell.y + (across ? 0 : at * step),
      })),
    );
    if (across) width = step * (places.length - 1) + width;
    else height = step * (places.length - 1) + height;
  });
  return { cells, width, height };
}

/** The place of a rank on each axis. */
const placesOfRank = (mesh, rank) => mesh.axes.map(({ size, stride }) => Math.floor(rank / stride) % size);

/** The mesh of the document's `mesh`, with a table of the axes. */
function meshDrawing(mesh) {
  if (mesh.axes.length === 0) return element("p", {}, "One rank: nobody to talk to.");
  let chosen = mesh.rank;
  const place = element("div", { class: "mesh" });
  const said = element("p", { class: "soft", role: "status" });
  const draw = () => {
    const room = place.clientWidth;
    let fitting = null;
    for (const most of [16, 8, 6, 4, 3]) {
      fitting = meshPlaces(mesh.axes, most);
      if (fitting.width * 22 <= room && fitting.height * 20 <= 700) break;
    }
    const { cells, width, height } = fitting;
    const cell = Math.max(16, Math.min(46, (room - 4) / width)), tall = Math.max(16, Math.min(30, cell * 0.8));
    const here = placesOfRank(mesh, chosen);
    const ranks = cells.map(({ rank, x, y }) => {
      const [left, top] = [2 + x * cell, 2 + y * tall];
      if (rank === null) return drawn("text", { x: left + cell / 2, y: top + tall / 2 + 4, "text-anchor": "middle", class: "gap" }, "·");
      const apart = placesOfRank(mesh, rank).map((at, level) => (at === here[level] ? null : level)).filter((level) => level !== null);
      const axis = apart.length === 1 ? mesh.axes[apart[0]].axis : null;
      const sameNode = Math.floor(rank / mesh.per_node) === Math.floor(chosen / mesh.per_node);
      const fill = rank === chosen ? "var(--accent)" : axis ? axisColour(axis) : "var(--card)";
      const box = drawn("rect", { x: left + 1, y: top + 1, width: cell - 2, height: tall - 2, rx: 3, fill, class: sameNode ? "rank node" : "rank" });
      const label = drawn("text", { x: left + cell / 2, y: top + tall / 2 + 4, "text-anchor": "middle", class: rank === chosen || axis ? "lit" : "" }, cell < 26 && rank > 99 ? "" : String(rank));
      const coordinates = placesOfRank(mesh, rank).map((at, level) => `${mesh.axes[level].axis} ${at}`).join(", ");
      const told = drawn("title", {}, `rank ${rank}: ${coordinates}${axis ? `; talks to rank ${chosen} along ${axis}` : ""}`);
      return drawn("g", { click: () => choose(rank), class: "pick" }, told, box, label);
    });
    const svg = drawn("svg", { width: width * cell + 4, height: height * tall + 4, role: "img", "aria-label": `the mesh: ${mesh.ranks} ranks` }, ...ranks);
    place.replaceChildren(svg);
    const nodes = Math.ceil(mesh.ranks / mesh.per_node);
    said.textContent = `Rank ${chosen} on node ${Math.floor(chosen / mesh.per_node)} of ${nodes} (outlined); coloured: with whom it talks along each axis. Choose another rank by a click, or here:`;
    input.value = chosen;
    rows.replaceChildren(...tableRows());
  };
  const choose = (rank) => {
    chosen = rank;
    draw();
  };
  const groupOf = ({ size, stride }) => {
    const at = Math.floor(chosen / stride) % size;
    return Array.from({ length: size }, (_, index) => chosen + (index - at) * stride);
  };
  const listed = (ranks) => (ranks.length > 8 ? `${ranks.slice(0, 4).join(" ")} … ${ranks.at(-1)}` : ranks.join(" "));
  const tableRows = () =>
    mesh.axes.map((axis) => {
      const group = groupOf(axis), nodes = new Set(group.map((rank) => Math.floor(rank / mesh.per_node))).size;
      const swatch = element("i", { style: `background:${axisColour(axis.axis)}` });
      const cells = [String(axis.size), listed(group), nodes === 1 ? "one node" : `${nodes} nodes`, axis.splits];
      return element("tr", {}, element("th", { scope: "row", class: "key" }, element("span", {}, swatch, axis.axis)), cells.map((cell) => element("td", {}, cell)));
    });
  const input = element("input", {
    type: "number", min: 0, max: mesh.ranks - 1, step: 1, "aria-label": "rank from which the mesh is seen",
    change: () => (input.value !== "" && input.checkValidity() ? choose(Number(input.value)) : (input.value = chosen)),
  });
  const rows = element("tbody");
  const head = ["Axis", "Ranks", "Talk together", "Within", "Splits"].map((title) => element("th", { scope: "col" }, title));
  const axes = element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "axes" }, element("table", { "aria-label": "axes of the mesh" }, element("thead", {}, element("tr", {}, head)), rows));
  whenPlaced(place, draw);
  return element("div", {}, place, said, element("p", {}, input), axes);
}
