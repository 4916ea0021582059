"""The page to type in: which site's model answers stands beside every translation."""

from fedlingua.desk.serving.pages import STYLE, Page, page

TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ run }} – fedlingua translate</title><link rel="icon" href="data:,">
<style>{{ style }}</style></head>
<body>
<header><h1>fedlingua <span class="badge">{{ run }}</span></h1>
<p class="soft" id="about">&nbsp;</p></header>
<main>
<form id="form" autocomplete="off">
<div class="choices">
<div class="choice"><label for="site">Site</label><select id="site"></select></div>
<div class="choice"><label for="source">From</label><select id="source"></select></div>
<button type="button" id="swap" title="Swap languages" aria-label="Swap languages">⇄</button>
<div class="choice"><label for="target">To</label><select id="target"></select></div>
</div>
<div class="sides">
<div class="side"><label for="text">Text, a sentence a line</label>
<textarea id="text" rows="7" spellcheck="false" aria-describedby="count"></textarea>
<div class="under"><span class="soft" id="count"></span>
<button type="submit" id="go" aria-keyshortcuts="Control+Enter" title="Ctrl + Enter">Translate</button></div></div>
<div class="side"><span class="label" id="label">Translation</span>
<output id="translation" for="text" aria-labelledby="label" aria-live="polite" tabindex="0"></output>
<div class="under"><span class="soft" id="answered"></span></div></div>
</div>
<p id="error" role="alert" hidden></p>
</form>
<p class="soft" id="who"></p>
</main>
<footer class="soft"><a href="docs">HTTP interface</a> · <a href="v1/models">models</a> · <a href="health">health</a></footer>
<noscript><p class="error">This page needs JavaScript; the HTTP interface does not.</p></noscript>
<script>{{ script }}</script></body></html>
"""

OWN_STYLE = (
    STYLE
    + """
.choices { display: grid; grid-template-columns: 1.3fr 1fr auto 1fr; gap: .7rem; align-items: end; margin: 1.2rem 0 .9rem; }
.choice { min-width: 0; } label, .label { display: block; font-size: .85rem; color: var(--soft); margin-bottom: .2rem; }
select, textarea, output, button { font: inherit; color: inherit; border: 1px solid var(--line); border-radius: 8px;
  background: var(--card); }
select { width: 100%; height: 2.6rem; padding: 0 .5rem; text-overflow: ellipsis; }
.sides { display: grid; grid-template-columns: 1fr 1fr; gap: .9rem; }
.side { display: flex; flex-direction: column; min-width: 0; }
textarea, output { width: 100%; min-height: 12rem; padding: .7rem .8rem; overflow-wrap: anywhere; white-space: pre-wrap; flex: 1; }
textarea { resize: vertical; display: block; } output { display: block; }
output.waiting { opacity: .55; }
.under { display: flex; justify-content: space-between; align-items: center; gap: .8rem; min-height: 2.6rem; margin-top: .5rem; }
button { cursor: pointer; padding: .45rem 1rem; height: 2.6rem; }
#go { background: var(--accent); border-color: var(--accent); color: var(--on-accent); font-weight: 650; white-space: nowrap; }
button:disabled { opacity: .6; cursor: default; }
#answered { font-weight: 600; }
#error, .error { border-left: 4px solid var(--bad); background: var(--card); padding: .4rem .8rem; margin: .9rem 0;
  overflow-wrap: anywhere; }
footer { margin-top: 2rem; padding-top: .8rem; border-top: 1px solid var(--line); }
@media (max-width: 40rem) { body { padding: 1rem .7rem 2rem; } .choices { grid-template-columns: 1fr auto 1fr; }
  .choices .choice:first-child { grid-column: 1 / -1; } .sides { grid-template-columns: 1fr; } textarea, output { min-height: 8rem; } }
"""
)

SCRIPT = """
"use strict";
const at = id => document.getElementById(id);
const site = at("site"), source = at("source"), target = at("target"), text = at("text"), output = at("translation");
let models = null, asking = 0;

function option(value, label) {
  const made = document.createElement("option");
  made.value = value; made.textContent = label;
  return made;
}

function group(label, options) {
  const made = document.createElement("optgroup");
  made.label = label; made.append(...options);
  return made;
}

const name = code => models.languages[code]?.name ?? code;
const written = code => models.languages[code]?.written ?? "auto";
const site_of = () => models.sites.find(one => one.site === site.value);
const direction_of = () => models.directions.find(one => one.source === source.value && one.target === target.value);

// Languages that a site holds come first; the others are answered by the cluster of their relatives.
function languages(side) {
  const held = new Set(models.sites.map(one => one[side]));
  const known = new Set([...held, ...models.directions.map(one => one[side])]);
  const sorted = [...known].sort((a, b) => name(a).localeCompare(name(b)));
  const options = codes => codes.map(code => option(code, name(code)));
  const others = sorted.filter(code => !held.has(code));
  const groups = [group("of the sites", options(sorted.filter(code => held.has(code))))];
  if (others.length) groups.push(group("by kinship", options(others)));
  return groups;
}

function members(answering) {
  return Object.entries(answering.clusters).filter(([part]) => part !== "shared")
    .map(([part, cluster]) => `${part}: ${cluster} (${(models.clusters[part]?.[cluster] ?? []).join(", ")})`).join("; ");
}

function show() {
  const own = site_of(), answering = own ?? direction_of();
  for (const [place, code] of [[text, source.value], [output, target.value]]) {
    place.lang = code; place.dir = written(code);
  }
  at("who").textContent = !answering ? "Nobody answers in this direction: " + (models.why_no_direction || "no site has a related language")
    : own ? `The model of site ${own.site} will answer.`
    : members(answering) ? `The nearest clusters will answer. ${members(answering)}` : `Answers: ${answering.told}`;
  at("go").disabled = !answering;
  at("swap").disabled = !models.directions.some(one => one.source === target.value && one.target === source.value);
  count();
}

function count() {
  const lines = text.value.split("\\n"), longest = Math.max(...lines.map(line => [...line].length));
  const limits = models.limits, many = lines.length > limits.sentences, long = longest > limits.characters;
  at("count").textContent = long ? `a line has ${longest} of ${limits.characters} characters`
    : many ? `${lines.length} of ${limits.sentences} lines` : text.value ? `${lines.length} ${lines.length === 1 ? "line" : "lines"}` : "";
}

function fail(message) {
  at("error").textContent = message;
  at("error").hidden = !message;
}

async function translate() {
  if (at("go").disabled || !text.value.trim()) { text.focus(); return; }
  const own = site_of(), turn = ++asking;
  const asked = own ? {site: own.site} : {source: source.value, target: target.value};
  fail(""); output.classList.add("waiting"); at("go").disabled = true;
  try {
    const answer = await fetch("v1/translate", {method: "POST", headers: {"Content-Type": "application/json"},
      body: JSON.stringify({...asked, sentences: text.value.split("\\n").map(line => line.replace(/\\r$/, ""))})});
    const found = await answer.json();
    if (turn !== asking) return;
    if (!answer.ok) throw new Error(found.error ?? answer.statusText);
    output.textContent = found.translations.join("\\n");
    output.lang = found.answered_by.target; output.dir = written(found.answered_by.target);
    at("answered").textContent = `${found.answered_by.told} · ${found.seconds.toFixed(2)} s`;
  } catch (error) {
    if (turn === asking) fail(error instanceof TypeError ? "The server does not answer; is it still running?" : error.message);
  } finally {
    if (turn === asking) { output.classList.remove("waiting"); show(); }
  }
}

site.addEventListener("change", () => {
  const own = site_of();
  if (own) { source.value = own.source; target.value = own.target; }
  show();
});
for (const language of [source, target]) language.addEventListener("change", () => {
  const own = site_of();
  if (own && (own.source !== source.value || own.target !== target.value)) {
    const other = models.sites.find(one => one.source === source.value && one.target === target.value);
    site.value = models.directions.length ? "" : other?.site ?? "";
  }
  show();
});
at("swap").addEventListener("click", () => {
  [source.value, target.value] = [target.value, source.value];
  if (site_of()) site.value = "";
  if (output.textContent) { text.value = output.textContent; output.textContent = ""; at("answered").textContent = ""; }
  show();
});
text.addEventListener("input", count);
text.addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); translate(); }
});
at("form").addEventListener("submit", event => { event.preventDefault(); translate(); });

(async () => {
  try {
    models = await (await fetch("v1/models")).json();
  } catch { fail("The server does not answer; is it still running?"); return; }
  const direction = one => `${one.site}: ${name(one.source)} → ${name(one.target)}`;
  site.append(option("", models.directions.length ? "nearest clusters" : "choose a site"));
  site.append(...models.sites.map(one => option(one.site, direction(one))));
  source.append(...languages("source")); target.append(...languages("target"));
  at("about").textContent = `method ${models.run.method}, ${models.sites.length} sites`;
  const first = models.sites[0] ?? models.directions[0];
  if (first) { site.value = first.site ?? ""; source.value = first.source; target.value = first.target; }
  show();
  document.body.dataset.ready = "yes";
})();
"""


def translation_page(run: str) -> Page:
    """The page for a run of that name."""
    return page(TEMPLATE, OWN_STYLE, SCRIPT, run=run)
