"use strict";
const at = (id) => document.getElementById(id);
const site = at("site"),
  source = at("source"),
  target = at("target"),
  text = at("text"),
  output = at("translation");
let models = null, asking = 0;

function option(value, label) {
  const made = document.createElement("option");
  made.value = value;
  made.textContent = label;
  return made;
}

function group(label, options) {
  const made = document.createElement("optgroup");
  made.label = label;
  made.append(...options);
  return made;
}

const name = (code) => models.languages[code]?.name ?? code;
const written = (code) => models.languages[code]?.written ?? "auto";
const site_of = () => models.sites.find((one) => one.site === site.value);
const direction_of = () =>
  models.directions.find((one) => one.source === source.value && one.target === target.value);

// Languages that a site holds come first; the others are answered by the cluster of their relatives.
function languages(side) {
  const held = new Set(models.sites.map((one) => one[side]));
  const known = new Set([
    ...held,
    ...models.directions.map((one) => one[side]),
  ]);
  const sorted = [...known].sort((a, b) => name(a).localeCompare(name(b)));
  const options = (codes) => codes.map((code) => option(code, name(code)));
  const others = sorted.filter((code) => !held.has(code));
  const groups = [
    group("of the sites", options(sorted.filter((code) => held.has(code)))),
  ];
  if (others.length) groups.push(group("by kinship", options(others)));
  return groups;
}

function members(answering) {
  return Object.entries(answering.clusters).filter(([part]) => part !== "shared")
    .map(([part, cluster]) => `${part}: ${cluster} (${(models.clusters[part]?.[cluster] ?? []).join(", ")})`)
    .join("; ");
}

function show() {
  const own = site_of(), answering = own ?? direction_of();
  for (const [place, code] of [[text, source.value], [output, target.value]]) {
    place.lang = code;
    place.dir = written(code);
  }
  at("who").textContent = !answering
    ? "Nobody answers in this direction: " +
      (models.why_no_direction || "no site has a related language")
    : own
    ? `The model of site ${own.site} will answer.`
    : members(answering)
    ? `The nearest clusters will answer. ${members(answering)}`
    : `Answers: ${answering.told}`;
  at("go").disabled = !answering;
  at("swap").disabled = !models.directions.some((one) =>
    one.source === target.value && one.target === source.value
  );
  count();
}

// A translation belongs to the languages and the model that it was made with.
function clear() {
  asking += 1; // an answer on its way is of the choices before
  output.textContent = "";
  output.classList.remove("waiting");
  at("answered").textContent = "";
}

function count() {
  const lines = text.value.split("\n"),
    longest = Math.max(...lines.map((line) => [...line].length));
  const limits = models.limits,
    many = lines.length > limits.sentences,
    long = longest > limits.characters;
  at("count").textContent = long
    ? `a line has ${longest} of ${limits.characters} characters`
    : many
    ? `${lines.length} of ${limits.sentences} lines`
    : text.value
    ? `${lines.length} ${lines.length === 1 ? "line" : "lines"}`
    : "";
}

function fail(message) {
  at("error").textContent = message;
  at("error").hidden = !message;
}

async function translate() {
  if (at("go").disabled || !text.value.trim()) {
    text.focus();
    return;
  }
  const own = site_of(), turn = ++asking;
  const asked = own ? { site: own.site } : { source: source.value, target: target.value };
  fail("");
  output.classList.add("waiting");
  at("go").disabled = true;
  try {
    const answer = await fetch("v1/translate", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({
        ...asked,
        sentences: text.value.split("\n").map((line) => line.replace(/\r$/, "")),
      }),
    });
    const found = await answer.json();
    if (turn !== asking) return;
    if (!answer.ok) throw new Error(found.error ?? answer.statusText);
    output.textContent = found.translations.join("\n");
    output.lang = found.answered_by.target;
    output.dir = written(found.answered_by.target);
    at("answered").textContent = `${found.answered_by.told} · ${found.seconds.toFixed(2)} s`;
  } catch (error) {
    if (turn === asking) {
      fail(
        error instanceof TypeError ? "The server does not answer; is it still running?" : error.message,
      );
    }
  } finally {
    if (turn === asking) {
      output.classList.remove("waiting");
      show();
    }
  }
}

site.addEventListener("change", () => {
  const own = site_of();
  if (own) {
    source.value = own.source;
    target.value = own.target;
  }
  clear();
  show();
});
for (const language of [source, target]) {
  language.addEventListener("change", () => {
    const own = site_of();
    if (own && (own.source !== source.value || own.target !== target.value)) {
      const other = models.sites.find((one) => one.source === source.value && one.target === target.value);
      site.value = models.directions.length ? "" : other?.site ?? "";
    }
    clear();
    show();
  });
}
at("swap").addEventListener("click", () => {
  [source.value, target.value] = [target.value, source.value];
  if (site_of()) site.value = "";
  if (output.textContent) text.value = output.textContent;
  clear();
  show();
});
text.addEventListener("input", count);
text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    translate();
  }
});
at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  translate();
});

(async () => {
  try {
    models = await (await fetch("v1/models")).json();
  } catch {
    fail("The server does not answer; is it still running?");
    return;
  }
  const direction = (one) => `${one.site}: ${name(one.source)} → ${name(one.target)}`;
  site.append(
    option("", models.directions.length ? "nearest clusters" : "choose a site"),
  );
  site.append(...models.sites.map((one) => option(one.site, direction(one))));
  source.append(...languages("source"));
  target.append(...languages("target"));
  at("about").textContent = `method ${models.run.method}, ${models.sites.length} sites`;
  const first = models.sites[0] ?? models.directions[0];
  if (first) {
    site.value = first.site ?? "";
    source.value = first.source;
    target.value = first.target;
  }
  show();
  document.body.dataset.ready = "yes";
})();
