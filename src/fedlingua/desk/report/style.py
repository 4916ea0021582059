"""What every page looks like: style sheet, scripts and macros in strings, as the app bundle carries no other kind of file."""

STYLE = """
:root { color-scheme: light dark; --ground: #fcfcfb; --card: #ffffff; --ink: #1b1f24; --soft: #59626c; --line: #d9dde1;
  --good: #00694d; --bad: #a83f00; --accent: #005a8e; --badge: #e8ecef; --mark: #ffe58a; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171a; --card: #1c2024; --ink: #e8eaec; --soft: #a3abb3;
  --line: #363c42; --good: #4cc9a0; --bad: #ff9a5c; --accent: #6cbcf0; --badge: #2a3036; --mark: #5c4a00; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 4rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .5rem; padding-top: .8rem; border-top: 1px solid var(--line); }
p { margin: .3rem 0; } a { color: var(--accent); }
.soft, .empty, caption { color: var(--soft); font-size: .9rem; }
.empty { padding: .6rem .8rem; border: 1px dashed var(--line); border-radius: 6px; }
.badge { display: inline-block; padding: .05rem .6rem; border-radius: 1rem; font-weight: 600; background: var(--badge); }
.badge.completed { background: #00694d; color: #fff; } .badge.running { background: #005a8e; color: #fff; }
.badge.failed { background: #a83f00; color: #fff; } .badge.interrupted { background: #f0b429; color: #1b1f24; }
.reason { border-left: 4px solid var(--bad); padding: .4rem .8rem; margin: .8rem 0; background: var(--card);
  white-space: pre-wrap; overflow-wrap: anywhere; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); gap: .7rem; margin: 1.2rem 0; }
.figures div { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .6rem .8rem; }
.figures dt { color: var(--soft); font-size: .82rem; } .figures dd { margin: 0; }
.figures .value { font-size: 1.2rem; font-weight: 650; white-space: nowrap; font-variant-numeric: tabular-nums; }
.figures .word { color: var(--soft); font-size: .82rem; }
.scroll { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; font-size: .9rem; min-width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .32rem .6rem; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
.n { text-align: right; white-space: nowrap; }
.name { overflow-wrap: anywhere; min-width: 9rem; }
thead th { white-space: nowrap; } thead th.n { white-space: normal; }
.nowrap { white-space: nowrap; }
body.wide { max-width: 76rem; }
.many td, .many th { padding: .32rem .42rem; }
th.turned { vertical-align: bottom; } th.turned button { writing-mode: vertical-rl; transform: rotate(180deg); white-space: nowrap; }
th.over { text-align: center; border-left: 1px solid var(--line); }
.scroll tr > :first-child { position: sticky; left: 0; background: var(--ground); }
tfoot td, tfoot th { font-weight: 650; } tfoot tr:first-child > * { border-top: 2px solid var(--soft); }
.up { color: var(--good); } .down { color: var(--bad); }
th button { all: unset; cursor: pointer; } th button:focus-visible { outline: 2px solid var(--accent); }
th button::after { content: "\\a0↕"; opacity: .45; }
th[aria-sort=ascending] button::after { content: "\\a0↑"; opacity: 1; }
th[aria-sort=descending] button::after { content: "\\a0↓"; opacity: 1; }
.plot { width: 100%; margin: .5rem 0; }
.clusters { min-width: 0; } .clusters th, .clusters td { border: 1px solid var(--line); }
.clusters .part { text-align: center; border-left: 3px solid var(--soft); }
.clusters .first { border-left: 3px solid var(--soft); }
.clusters .cluster { vertical-align: bottom; padding: .4rem .2rem; min-width: 2.1rem; }
.clusters .cluster span { writing-mode: vertical-rl; transform: rotate(180deg); max-height: 10rem; overflow: hidden;
  display: inline-block; }
.clusters .cell { text-align: center; padding: .2rem; }
.clusters .cell b { display: inline-block; width: 1.5rem; height: 1.1rem; border-radius: 3px; color: transparent;
  print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.wrap { overflow-wrap: anywhere; min-width: 9rem; }
.sentences tbody { border-top: 2px solid var(--soft); } .sentences th { color: var(--soft); font-weight: 600; }
.sentences td { width: 100%; } td[dir=rtl] { text-align: right; }
mark { background: var(--mark); color: inherit; border-radius: 3px; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
code { font-size: .85rem; overflow-wrap: anywhere; }
summary { cursor: pointer; font-weight: 600; }
h3 { font-size: 1rem; margin: 1.2rem 0 .2rem; }
/* The plots are drawn in one marked grey; here it becomes the text colour of the ground, in print as well. */
.plot [style*="fill: rgb(119, 119, 120)"]:not(.hoverlayer *) { fill: var(--ink) !important; }
.plot [style*="stroke: rgb(119, 119, 120)"]:not(.hoverlayer *) { stroke: var(--ink) !important; }
@media (max-width: 30rem) { body { padding: 1rem .7rem 3rem; } h1 { font-size: 1.35rem; }
  .figures { grid-template-columns: 1fr 1fr; gap: .5rem; } .figures .value { font-size: 1rem; white-space: normal; }
  table { font-size: .84rem; } th, td { padding: .3rem .35rem; } .name { min-width: 5rem; } }
@page { margin: 13mm; }
@media print { :root { color-scheme: light; --ground: #fff; --card: #fff; --ink: #000; --soft: #444; --line: #bbb;
  --good: #00694d; --bad: #a83f00; --accent: #005a8e; --badge: #eee; --mark: #ffe58a; }
  body { max-width: none; padding: 0; font-size: 11pt; } .scroll { overflow: visible; } th button::after { content: ""; }
  tr, p, .plot, .figures div { break-inside: avoid; } h2, h3, p.soft { break-after: avoid; }
  .plot { min-width: 0 !important; }
  .scroll tr > :first-child { position: static; background: none; }
  .badge { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""

TABLES = """
// Pixels between the margins of a sheet of A4; those of Letter lie farther apart.
const PAPER = 680;
// On paper nobody can unfold the settings, or scroll: what is too wide for it is made smaller.
addEventListener("beforeprint", () => {
  document.querySelectorAll("details").forEach(each => { each.open = true; });
  document.body.style.width = PAPER + "px";
  for (const table of document.querySelectorAll(".scroll > table"))
    for (let zoom = 1, pass = 0; pass < 3; pass += 1) {  // what is made smaller may break its lines elsewhere
      zoom *= Math.min(1, PAPER / table.getBoundingClientRect().width);
      table.style.zoom = zoom;
    }
});
addEventListener("afterprint", () => {
  document.body.style.width = "";
  document.querySelectorAll(".scroll > table").forEach(table => { table.style.zoom = ""; });
});
// The columns of a head of several rows: where a cell begins, once those that reach over rows and columns are counted.
const places = head => {
  const found = new Map(), taken = [...head.rows].map(() => []);
  [...head.rows].forEach((row, line) => {
    let place = 0;
    for (const cell of row.cells) {
      while (taken[line][place]) place += 1;
      found.set(cell, place);
      for (let down = 0; down < cell.rowSpan; down += 1)
        for (let right = 0; right < cell.colSpan; right += 1) (taken[line + down] ??= [])[place + right] = true;
    }
  });
  return found;
};
for (const table of document.querySelectorAll("table:has(th button)")) {
  // Totals stand in the foot, which is never sorted.
  const head = table.tHead, body = table.tBodies[0], columns = places(head), asItCame = [...body.rows];
  for (const button of head.querySelectorAll("th button")) {
    const cell = button.parentElement, place = columns.get(cell), numeric = cell.classList.contains("n");
    button.title = "sort";
    button.addEventListener("click", () => {
      const was = cell.getAttribute("aria-sort");
      // The first click puts the largest number, or the first letter, on top.
      const down = was ? was === "ascending" : numeric;
      for (const other of head.querySelectorAll("[aria-sort]")) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = row => row.cells[place].dataset.v ?? row.cells[place].textContent.trim().replaceAll(numeric ? "," : "\\0", "");
      const order = (a, b) => {
        const x = key(a), y = key(b);
        // What is not known goes last, whichever way.
        if (numeric && (x === "" || y === "" || isNaN(x) || isNaN(y)))
          return (x === "" || isNaN(x)) - (y === "" || isNaN(y));
        return (numeric ? x - y : x.localeCompare(y, undefined, {numeric: true})) * (down ? -1 : 1);
      };
      body.append(...[...asItCame].sort(order));
    });
  }
}
"""

DRAWING = """
const figures = JSON.parse(document.getElementById("figures").textContent);
const waiting = [...document.querySelectorAll(".plot")];
const draw = place => {
  const figure = figures[place.id.slice("plot-".length)];
  Plotly.newPlot(place, figure.data, figure.layout, {responsive: true, displayModeBar: false});
};
// From the top, one at a time: the page can be read and scrolled before the last is there.
const drawNext = () => {
  if (waiting.length) {
    draw(waiting.shift());
    setTimeout(drawNext);
  } else document.documentElement.dataset.drawn ??= Math.round(performance.now());
};
drawNext();
// Paper has another width than the window.
const fit = width => document.querySelectorAll(".plot").forEach(plot =>
  Plotly.relayout(plot, width ? {width} : {width: null, autosize: true}));
addEventListener("beforeprint", () => {
  while (waiting.length) draw(waiting.shift());
  fit(PAPER);
});
addEventListener("afterprint", () => fit());
"""

MACROS = """
{% macro sorted_head(label, numeric=true, rows=1) %}
<th scope="col"{% if numeric %} class="n"{% endif %}{% if rows > 1 %} rowspan="{{ rows }}"{% endif %}>
<button type="button">{{ label }}</button></th>
{% endmacro %}
{% macro numeric(value, shown) %}
<td class="n" data-v="{{ '' if value is none else value }}">{{ shown }}</td>
{% endmacro %}
{% macro change(value) %}
<td class="n{% if value is not none and value > 0 %} up{% elif value is not none and value < 0 %} down{% endif %}"
 data-v="{{ '' if value is none else value }}">{{ value|gain }}</td>
{% endmacro %}
{% macro score_cells(line) %}
{% for each in (line.first, line.second) %}
{{ numeric(each.before, each.before|score) }}{{ numeric(each.after, each.after|score) }}{{ change(each.gain) }}
{% endfor %}
{% endmacro %}
{% macro parts_cell(parts) %}
{% if parts %}<td class="n nowrap" data-v="{{ parts[0] }}">{{ parts[0]|score }} ± {{ parts[1]|score }}</td>
{% else %}<td class="n" data-v=""></td>{% endif %}
{% endmacro %}
{% macro written(language) %} lang="{{ language }}" dir="{{ language|dir }}"{% endmacro %}
{% macro sentence_cell(language, text) %}<td class="wrap"{{ written(language) }}>{{ text }}</td>{% endmacro %}
{% macro plot(name, words, file) %}
{% if name in figures %}
{% set least = figures[name].layout.get("meta", {}).get("least_width") %}
{% if least %}<div class="scroll">{% endif %}
<div class="plot" id="plot-{{ name }}" role="img" aria-label="{{ words }}"
 style="min-height: {{ figures[name].layout.height }}px{% if least %}; min-width: {{ least }}px{% endif %}"></div>
{% if least %}</div>{% endif %}
{% else %}<p class="empty">{{ note(file) }}</p>{% endif %}
{% endmacro %}
{% macro cards(figures) %}
<dl class="figures">
{% for name, value, word in figures %}
<div><dt>{{ name }}</dt><dd class="value">{{ value }}</dd>{% if word %}<dd class="word">{{ word }}</dd>{% endif %}</div>
{% endfor %}
</dl>
{% endmacro %}
{% macro pairs(values) %}
<div class="scroll"><table>
{% for key, value in values.items() %}<tr><th scope="row">{{ key }}</th><td class="wrap">{{ value }}</td></tr>{% endfor %}
</table></div>
{% endmacro %}
"""

# The policy lets the page load nothing from anywhere, whatever a name in the data or a library may try.
_BEFORE_TITLE = f"""{MACROS}<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'">
"""

_AFTER_BODY = f"""
{{% if figures %}}
<noscript><p class="empty">The plots need JavaScript; the tables do not.</p></noscript>
<script type="application/json" id="figures">{{{{ figures|tojson }}}}</script>
<script id="plotly">{{{{ plotly }}}}</script>
{{% endif %}}
<script>{TABLES}</script>
{{% if figures %}}<script>{DRAWING}</script>{{% endif %}}
</body></html>
"""


def page_template(title: str, header: str, sections: str, body_class: str = "") -> str:
    """A whole page around its own parts, all of them Jinja; it is rendered with `figures` and `plotly`, see frame.py."""
    body = f'<body class="{body_class}">' if body_class else "<body>"
    head = f"<title>{title} – fedlingua report</title><style>{STYLE}</style></head>"
    return f"{_BEFORE_TITLE}{head}\n{body}{header}<main>{sections}</main>{_AFTER_BODY}"
