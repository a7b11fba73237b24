"use strict";
// A guest that is pointed at or focused lights up its CPUs.
for (const guest of document.querySelectorAll("[data-guest]")) {
  const light = on => {
    for (const cpu of guest.closest("article").querySelectorAll("[data-guests]")) {
      if (on && cpu.dataset.guests.split(" ").includes(guest.dataset.guest)) cpu.classList.add("lit");
      else cpu.classList.remove("lit");
    }
  };
  for (const name of ["mouseenter", "focus"]) guest.addEventListener(name, () => light(true));
  for (const name of ["mouseleave", "blur"]) guest.addEventListener(name, () => light(false));
}
const table = document.getElementById("table");
if (table) {
  const { texts, nodes } = JSON.parse(document.getElementById("details").textContent);
  const body = table.tBodies[0], rows = [...body.rows], shown = document.getElementById("node");
  rows.forEach((row, place) => { row.place = place; });
  // Names become text nodes only, so that none of them can be markup.
  const make = (tag, attributes, ...content) => {
    const made = tag === "svg" || tag === "rect" ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...content.filter(one => one !== null).map(one => one instanceof Node ? one : String(one)));
    return made;
  };
  const bar = ([name, used, reserved, total, room, ratio]) => {
    const whole = Math.max(room + reserved, total, reserved + (used || 0), 1), part = amount => 100 * amount / whole;
    const picture = make("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
      make("rect", { class: "free", width: 100, height: 10 }),
      make("rect", { class: "reserved", width: part(reserved), height: 10 }),
      make("rect", { class: "used", x: part(reserved), width: part(used || 0), height: 10 }),
      total < room + reserved ? make("rect", { class: "mark", x: part(total), width: 0.6, height: 10 }) : null);
    const figures = [used === null ? "unknown" : used, reserved, used === null ? "unknown" : room - used, total, ratio];
    return make("tr", { class: used !== null && used > room ? "over" : "" }, make("th", { scope: "row" }, texts[name]),
      make("td", { class: "bar" }, picture), ...figures.map(figure => make("td", {}, figure)));
  };
  const provider = ([name, generation, ours, bars, traits, aggregates, children]) => make("li", {},
    make("div", { class: "provider" },
      make("p", {}, make("bdi", { class: "name" }, name), " ",
        make("span", { class: ours ? "whose ours" : "whose foreign" }, ours ? "the agent's" : "foreign"), " ",
        make("span", { class: "dim" }, `generation ${generation === null ? "none yet" : generation}`)),
      bars.length ? make("table", { class: "figures bars" },
        make("thead", {}, make("tr", {}, ...["class", "", "used", "reserved", "free", "total", "ratio"].map(
          title => title ? make("th", { scope: "col" }, title) : make("td", { class: "bar" })))),
        make("tbody", {}, ...bars.map(bar))) : null,
      traits.length ? make("details", {}, make("summary", {}, traits.length === 1 ? "1 trait" : `${traits.length} traits`),
        make("ul", { class: "words" }, ...traits.map(trait => make("li", {}, make("code", {}, texts[trait]))))) : null,
      aggregates.length ? make("p", { class: "dim" }, "aggregates ", aggregates.map(one => texts[one]).join(" ")) : null),
    children.length ? make("ul", {}, ...children.map(provider)) : null);
  const remedy = place => texts[place] ? make("p", {}, make("span", { class: "label" }, "remedy"), " ", make("code", { class: "copy" }, texts[place])) : null;
  const section = (title, tag, items) => items.length ? [make("h4", {}, title), make("ul", { class: tag }, ...items)] : [];
  const show = row => {
    const [roots, steps, drift, errors, guests, uuid, audited, good] = nodes[row.place];
    for (const chosen of body.querySelectorAll(".chosen")) chosen.classList.remove("chosen");
    row.classList.add("chosen");
    const name = row.cells[0].textContent, state = row.cells[1].textContent;
    shown.replaceChildren(
      make("h3", {}, make("bdi", {}, name), " ", make("span", { class: `state ${state}` }, state)),
      make("p", { class: "dim" }, make("code", {}, uuid || "uuid not known yet"),
        texts[audited] ? ` · audited ${texts[audited]}` : "", texts[good] ? ` · last good audit ${texts[good]}` : ""),
      ...section("Errors", "problems", errors.map(([code, message, help]) => make("li", {}, make("strong", {}, texts[code]), " ", make("bdi", {}, message), remedy(help)))),
      ...section("Tree", "tree", roots.map(provider)),
      ...section("Guests", "problems", guests.map(([guest, mood, ...cells]) => make("li", {}, make("bdi", { class: "name" }, guest), " ", make("span", { class: "dim" }, [texts[mood], ...cells].join(" · "))))),
      ...section("Changes", "problems", steps.map(([op, whose, reason, status]) => make("li", {}, make("span", { class: `status ${texts[status]}` }, texts[status]), " ", make("strong", {}, texts[op]), " ", make("bdi", {}, whose), " ", make("span", { class: "dim" }, texts[reason])))),
      ...section("Drift", "problems", drift.map(([kind, severity, detail, help]) => make("li", {}, make("span", { class: `severity ${texts[severity]}` }, texts[severity]), " ", make("strong", {}, texts[kind]), " ", make("bdi", {}, detail), remedy(help)))));
    shown.focus({ preventScroll: true });
  };
  body.addEventListener("click", event => { const row = event.target.closest("tr"); if (row) show(row); });
  const search = document.getElementById("search"), matches = document.getElementById("matches");
  search.addEventListener("input", () => {
    const wanted = search.value.toLowerCase();
    let count = 0;
    for (const row of rows) {
      const fits = `${row.cells[0].textContent} ${row.cells[1].textContent}`.toLowerCase().includes(wanted);
      row.hidden = !fits;
      count += fits;
    }
    matches.textContent = count === 1 ? "1 node" : `${count} nodes`;
  });
  const compare = new Intl.Collator(undefined, { numeric: true }).compare;
  [...table.tHead.rows[0].cells].forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const keyed = rows.map(row => [row.cells[column].textContent, row]);
    keyed.sort((one, two) => (down ? -1 : 1) * compare(one[0], two[0]));
    body.append(...keyed.map(([, row]) => row));
  }));
}
