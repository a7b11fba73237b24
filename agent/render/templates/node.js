// One node of many, built as node.html has it. Names become text nodes only, so that none of them can be markup.
const SVG = "http://www.w3.org/2000/svg";
const element = (tag, attributes, ...content) => {
  const made = tag === "svg" || tag === "rect" ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...content.flat(9).filter(part => part !== null && part !== "").map(part => part instanceof Node ? part : String(part)));
  return made;
};
const words = (tag, name, ...content) => element(tag, name ? { class: name } : {}, ...content);
const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
const known = figure => figure === null ? "unknown" : figure;
const dashed = text => text.replaceAll(" ", "-");
const section = (prefix, name, title, ...content) => element("section", { "aria-labelledby": `${prefix}-${name}` },
  element("h3", { id: `${prefix}-${name}` }, title), ...content);
const remedy = ways => ways.map(([text, command], place) => [words("br"), place ? [] : [words("span", "label", "remedy"), " "],
  words("bdi", "", text), command ? [" ", words("code", "copy", command)] : []]);

const problems = errors => words("ul", "problems", errors.map(error => words("li", "",
  words("strong", "", error.code), " ", words("bdi", "", error.message), remedy(error.ways))));
const rectangle = (name, width, x) => element("rect", { class: name, ...(x === undefined ? {} : { x }), width, height: 10 });
const bar = (shown, asked) => {
  const amounts = [shown.on_record, shown.in_placement].filter(amount => amount !== null);
  const used = amounts.length ? Math.max(...amounts) : null, free = used === null ? null : shown.capacity - used;
  return words("tr", free !== null && free < 0 ? "over" : "", element("th", { scope: "row" }, shown.resource_class),
    words("td", "bar", used === null ? words("span", "key hidden-use") :
      element("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true", focusable: "false" },
        rectangle("free", 100), rectangle("reserved", shown.reserved_part), rectangle("used", shown.used_part, shown.reserved_part),
        shown.total_mark === null ? [] : rectangle("mark", 0.6, shown.total_mark))),
    [known(shown.on_record), ...(asked ? [shown.in_placement === null ? "not asked" : shown.in_placement] : []), known(free),
      shown.reserved, shown.total, shown.ratio].map(figure => words("td", "", figure)));
};
const provider = (shown, node) => element("tbody", { class: `provider depth-${Math.min(shown.depth, 4)}`, "data-guests": shown.holders.join(" ") },
  words("tr", "head", element("th", { scope: "rowgroup", colspan: node.to_ask ? 7 : 8 }, words("bdi", "name", shown.name), " ",
    words("span", `whose ${shown.owned ? "ours" : "foreign"}`, shown.owned ? "managed" : "foreign"), " ",
    words("span", "dim", shown.generation === null ? "not in Placement yet" : `generation ${shown.generation}`,
      shown.uuid ? [" · ", words("code", "", shown.uuid)] : []), " ",
    shown.traits.length ? words("details", "", words("summary", "", plural(shown.traits.length, "trait")),
      words("ul", "words", shown.traits.map(trait => words("li", "", words("code", "", trait))))) : [],
    shown.aggregates.length ? words("span", "dim", "aggregates ", shown.aggregates.map(uuid => [words("code", "", uuid), " "])) : [])),
  shown.bars.map(one => bar(one, !node.to_ask)));
const key = (name, title) => [words("span", `key ${name}`), title];
const tree = (node, prefix) => section(prefix, "tree", "Tree", node.providers.length ? [
  element("table", { class: "figures bars" }, words("caption", "hidden", `Inventories of ${node.name} and its providers`),
    words("thead", "", words("tr", "", ["class", "", "on record", ...(node.to_ask ? [] : ["in Placement"]), "free", "reserved", "total", "ratio"]
      .map(title => title ? element("th", { scope: "col" }, title) : words("td", "bar")))),
    node.providers.map(one => provider(one, node))),
  words("p", "legend", key("used", " used "), key("reserved", " reserved "), key("free", " free "),
    key("mark", " total; to the right of it, what overcommitment adds"), node.hidden ? [" ", key("hidden-use", " not known")] : []),
  words("p", "legend", "On record: what this agent's own records count.",
    node.to_ask ? [" Placement was not asked what it counts: ", words("code", "copy", node.to_ask), " asks it."] : " Free: what neither counts."),
  words("p", "legend", "Managed: this agent made the provider and corrects it. Foreign: another program's, left as it is.")]
  : words("p", "dim", "Not in Placement yet."));

const device = shown => element("li", { class: "device", "data-guests": shown.holders.join(" ") },
  words("span", `use ${dashed(shown.use)}`, shown.use), " ", words("code", "", shown.address), " ",
  words("span", "dim", shown.words), shown.holder ? [" ", words("bdi", "", shown.holder)] : [],
  shown.functions.length ? words("ul", "", shown.functions.map(device)) : []);
const square = shown => element("span", { class: `cpu ${shown.use}`, title: `CPU ${shown.cpu}: ${shown.text}`, "data-guests": shown.holders.join(" ") },
  shown.cpu, words("span", "hidden", ` ${shown.text}`));
const cell = (shown, prefix) => element("section", { class: "cell", "aria-labelledby": `${prefix}-cell-${shown.id}` },
  element("h4", { id: `${prefix}-cell-${shown.id}` }, `Cell ${shown.id}`),
  words("p", "", `memory ${shown.memory_mb_used} of ${shown.memory_mb} MiB`,
    shown.shared_used ? ` · ${plural(shown.shared_used, "guest CPU")} on shared CPUs` : ""),
  shown.cores.length ? element("ul", { class: "cores", "aria-label": `CPUs of cell ${shown.id}, siblings together` },
    shown.cores.map(core => words("li", "", core.map(square)))) : [],
  shown.pages.map(pages => words("p", "", pages)),
  shown.devices.length ? element("ul", { class: "devices", "aria-label": `Devices of cell ${shown.id}` }, shown.devices.map(device)) : []);
const machine = (shown, prefix) => section(prefix, "machine", "Machine",
  shown.cpu ? words("p", "", shown.cpu) : [],
  shown.problems.length ? words("ul", "problems", shown.problems.map(problem => words("li", "", problem))) : [],
  shown.cells.length ? [
    words("p", "legend", [["shared", " shared "], ["free", " dedicated, free "], ["pinned", " pinned "], ["offline", " offline"]]
      .map(([name, title]) => [words("span", `cpu ${name}`, "n"), title])),
    words("div", "cells", shown.cells.map(part => cell(part, prefix)))] : [],
  shown.devices.length ? [words("h4", "", "Devices of no known cell"), words("ul", "devices", shown.devices.map(device))] : []);

const guest = (shown, prefix) => element("li", { tabindex: "0", "data-guest": shown.number },
  words("p", "", words("bdi", "name", shown.name || shown.uuid), " ", words("span", "dim", `${shown.state} · ${shown.record}`),
    shown.misplaced ? [" ", element("a", { class: "severity info", href: `#${prefix}-drift` }, "misplaced")] : []),
  words("p", "", shown.vcpus === null ? "" : `${plural(shown.vcpus, "CPU")}, `, shown.memory_mb === null ? "" : `${shown.memory_mb} MiB`,
    shown.flavor ? [", flavor ", words("bdi", "", shown.flavor)] : [], " ", words("code", "dim", shown.uuid)),
  shown.cells.length || shown.devices.length || shown.allocation.length ? words("ul", "holdings",
    shown.cells.map(text => words("li", "", text)),
    shown.devices.map(text => words("li", "", "device ", words("bdi", "", text))),
    shown.allocation.map(text => words("li", "", "in Placement ", words("bdi", "", text)))) : [],
  shown.refusals.map(refusal => words("p", "warning", words("bdi", "", refusal.reason), remedy(refusal.ways))));

const step = shown => words("li", "", words("span", `status ${shown.status}`, shown.status), " ", shown.parts.map(part => [words("strong", "", part.op), " "]),
  words("bdi", "", shown.subject), " ", words("span", "dim", shown.reason),
  shown.error ? [words("br"), words("span", "warning", shown.error)] : [],
  words("details", "", words("summary", "", "before and after"), words("dl", "", shown.parts.map(part => [
    words("dt", "", `before ${part.op}`), words("dd", "", words("code", "", part.before || "nothing")),
    words("dt", "", "after"), words("dd", "", words("code", "", part.after || "nothing"))]))));
const plan = (node, prefix) => section(prefix, "plan", "Changes", words("ol", "steps", node.steps.map(step)));
const drift = found => words("ul", "problems", found.map(one => words("li", "", words("span", `severity ${one.severity}`, one.severity), " ",
  words("strong", "", one.kind), " ", words("bdi", "", one.detail), remedy(one.ways))));
const listed = (title, items) => items.length ? element("ul", { class: "problems", "aria-label": title }, items) : [];
const labelled = (name, text) => [words("span", "label", name), " ", words("code", "", text)];
const instance = one => [words("span", "label", "instance"), " ", words("bdi", "", one.guest), " ", words("code", "", one.instance)];
const claims = (node, prefix) => section(prefix, "claims", "Claims and moves",
  listed("Open claims", node.claims.map(claim => words("li", "", words("span", `status ${claim.state}`, claim.state), " ",
    words("strong", "", claim.purpose), " ", claim.half === "only" ? "" : `${claim.half} half, `, claim.amounts, " ",
    words("span", "dim", `since ${claim.since}`), words("br"), instance(claim), " ", labelled("claim", claim.id)))),
  listed("Moves under way", node.moves.map(move => words("li", "", words("span", `status ${move.status}`, move.status), " ",
    words("strong", "", move.type), " ", words("bdi", "", move.way), words("br"), instance(move), " ",
    labelled("migration", move.uuid), move.allocation.map(text => [words("br"), "in Placement ", words("bdi", "", text)])))));

const band = (node, prefix) => {
  const severities = Object.entries(node.severities), operations = steps => steps.reduce((sum, one) => sum + one.parts.length, 0),
    pending = operations(node.steps.filter(one => one.status === "planned"));
  return words("div", `band ${node.tone}`,
    words("p", "", words("span", `state ${node.tone}`, node.state),
      node.errors.length ? [" ", element("a", { class: "severity error", href: `#${prefix}-errors` }, plural(node.errors.length, "error"))] : [],
      severities.length ? severities.map(([severity, count]) => [" ", element("a", { class: `severity ${severity}`, href: `#${prefix}-drift` },
        `drift: ${severity === "warning" ? plural(count, severity) : `${count} ${severity}`}`)]) : [" ", words("span", "", node.no_drift)], " ", words("span", "", "·"), " ",
      node.steps.length ? element("a", { href: `#${prefix}-plan` }, `${pending ? "would change: " : ""}${plural(pending || operations(node.steps), "operation")}`)
        : words("span", "", "nothing to change")),
    words("p", "dim", words("code", "", node.uuid || "uuid not known yet"), node.driver ? ` · driver ${node.driver}` : "",
      node.audited ? ` · audited ${node.audited}` : "", ` · last good audit ${node.last_good_audit || "not known"}`),
    node.hint ? words("p", "", words("bdi", "", node.hint)) : []);
};
const article = node => {
  const prefix = `node-${node.number}`;
  return element("article", { "aria-labelledby": prefix },
    element("h2", { id: prefix, tabindex: "-1" }, words("bdi", "", node.name)),
    band(node, prefix),
    node.errors.length ? section(prefix, "errors", "Errors", problems(node.errors)) : [],
    node.drift.length ? section(prefix, "drift", "Drift", drift(node.drift)) : [],
    node.done ? [] : plan(node, prefix),
    tree(node, prefix),
    node.machine === null ? [] : machine(node.machine, prefix),
    node.guests.length ? section(prefix, "guests", "Guests", words("ul", "guests", node.guests.map(one => guest(one, prefix)))) : [],
    node.claims.length || node.moves.length ? claims(node, prefix) : [],
    node.steps.length && node.done ? plan(node, prefix) : []);
};
