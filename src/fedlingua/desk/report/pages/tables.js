// Pixels between the margins of a sheet of A4; Letter is wider.
const PAPER = 680;
// Most rows of a table that is shown whole.
const WHOLE = 40;
// On paper settings cannot be unfolded and tables cannot scroll: unfold all details and shrink tables that are too wide.
addEventListener("beforeprint", () => {
  document.querySelectorAll("details").forEach((each) => {
    each.open = true;
  });
  document.body.style.width = PAPER + "px";
  for (const table of document.querySelectorAll(".scroll > table")) {
    for (let zoom = 1, pass = 0; pass < 3; pass += 1) { // a smaller table may break its lines elsewhere
      zoom *= Math.min(1, PAPER / table.getBoundingClientRect().width);
      table.style.zoom = zoom;
    }
  }
});
addEventListener("afterprint", () => {
  document.body.style.width = "";
  document.querySelectorAll(".scroll > table").forEach((table) => {
    table.style.zoom = "";
  });
});
// The first column of each cell in a head of several rows, in which cells may span rows and columns.
const places = (head) => {
  const found = new Map(), taken = [...head.rows].map(() => []);
  [...head.rows].forEach((row, line) => {
    let place = 0;
    for (const cell of row.cells) {
      while (taken[line][place]) place += 1;
      found.set(cell, place);
      for (let down = 0; down < cell.rowSpan; down += 1) {
        for (let right = 0; right < cell.colSpan; right += 1) {
          (taken[line + down] ??= [])[place + right] = true;
        }
      }
    }
  });
  return found;
};
const columnsOf = new Map(
  [...document.querySelectorAll("table:has(thead)")].map((table) => [table, places(table.tHead)]),
);
// Hide columns that are empty in every row.
for (const table of document.querySelectorAll(".scroll > table:has(thead)")) {
  const columns = columnsOf.get(table),
    rows = [...table.tBodies].flatMap((body) => [...body.rows]),
    spoken = (place) => rows.some((row) => !/^[–\s]*$/.test(row.cells[place]?.textContent ?? "")),
    width = Math.max(0, ...rows.map((row) => row.cells.length));
  if (table.matches(".clusters") || rows.some((row) => row.cells.length < width)) continue;
  for (let place = 0; place < width; place += 1) {
    if (!rows.length || spoken(place)) continue;
    for (const row of [...rows, ...(table.tFoot?.rows ?? [])]) row.cells[place].hidden = true;
    for (const [cell, first] of columns) {
      if (first > place || first + cell.colSpan <= place) continue;
      cell.dataset.empty = 1 + Number(cell.dataset.empty ?? 0);
      cell.hidden = Number(cell.dataset.empty) === cell.colSpan;
    }
  }
  for (const cell of columns.keys()) {
    if (!cell.hidden) cell.colSpan -= Number(cell.dataset.empty ?? 0);
  }
}
for (const table of document.querySelectorAll("table:has(th button)")) {
  // Totals stand in the foot, which is never sorted.
  const head = table.tHead,
    body = table.tBodies[0],
    columns = columnsOf.get(table),
    asItCame = [...body.rows];
  for (const button of head.querySelectorAll("th button")) {
    const cell = button.parentElement,
      place = columns.get(cell),
      numeric = cell.classList.contains("n");
    button.title = "sort";
    button.addEventListener("click", () => {
      const was = cell.getAttribute("aria-sort");
      // The first click puts the largest number, or the first letter, on top.
      const down = was ? was === "ascending" : numeric;
      for (const other of head.querySelectorAll("[aria-sort]")) {
        other.removeAttribute("aria-sort");
      }
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => {
        const text = row.cells[place].dataset.v ?? row.cells[place].textContent.trim();
        return numeric ? parseFloat(text.replaceAll(",", "")) : text;
      };
      const order = (a, b) => {
        const x = key(a), y = key(b);
        // Unknown values go last in either order.
        if (numeric && (isNaN(x) || isNaN(y))) return isNaN(x) - isNaN(y);
        return (numeric ? x - y : x.localeCompare(y, undefined, { numeric: true })) * (down ? -1 : 1);
      };
      body.append(...[...asItCame].sort(order));
    });
  }
}
// A table of many sites scrolls, and a field finds rows in it.
for (const table of document.querySelectorAll(".scroll > table:has(thead)")) {
  const rows = [...table.tBodies].flatMap((body) => [...body.rows]);
  if (rows.length <= WHOLE) continue;
  table.parentElement.classList.add("tall");
  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = `find among ${rows.length} rows`;
  field.setAttribute("aria-label", field.placeholder);
  field.addEventListener("input", () => {
    const asked = field.value.trim().toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(asked);
  });
  addEventListener("beforeprint", () => { // on paper there is no field, and so no choice
    for (const row of rows) row.hidden = false;
    field.value = "";
  });
  table.parentElement.before(field);
}
