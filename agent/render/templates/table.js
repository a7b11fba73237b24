// The table of many nodes: search, sort, and the node that is chosen.
const list = document.getElementById("table");
if (list) {
  const body = list.tBodies[0], rows = [...body.rows], shown = document.getElementById("node");
  rows.forEach((row, place) => { row.place = place; });
  const size = Number(list.dataset.batch), batches = document.querySelectorAll("script[type='application/gzip']");
  const unpack = async number => {
    const packed = Uint8Array.from(atob(batches[number].textContent), character => character.charCodeAt(0));
    return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  };
  let wanted = null;
  const show = async row => {
    wanted = row;
    const nodes = await unpack(Math.floor(row.place / size));
    // A later choice counts, whichever is unpacked first.
    if (wanted !== row) return;
    for (const chosen of body.querySelectorAll("[aria-current]")) chosen.removeAttribute("aria-current");
    row.setAttribute("aria-current", "true");
    shown.replaceChildren(article(nodes[row.place % size]));
    shown.scrollTop = 0;
    shown.querySelector("h2").focus({ preventScroll: true });
    if (shown.getBoundingClientRect().top > innerHeight / 2) shown.scrollIntoView();
  };
  body.addEventListener("click", event => { const row = event.target.closest("tr"); if (row) show(row); });
  const search = document.getElementById("search"), matches = document.getElementById("matches");
  search.addEventListener("input", () => {
    const text = search.value.toLowerCase();
    let count = 0;
    for (const row of rows) {
      const fits = `${row.cells[0].textContent} ${row.cells[1].textContent}`.toLowerCase().includes(text);
      row.hidden = !fits;
      count += fits;
    }
    matches.textContent = plural(count, "node");
  });
  const compare = new Intl.Collator(undefined, { numeric: true }).compare;
  [...list.tHead.rows[0].cells].forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of list.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const keyed = rows.map(row => [row.cells[column].textContent, row]);
    keyed.sort((one, two) => (down ? -1 : 1) * compare(one[0], two[0]));
    body.append(...keyed.map(([, row]) => row));
  }));
}
