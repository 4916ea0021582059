"""The parts of a run's page, in order; style.py puts the page around them."""

from fedlingua.desk.report.style import page_template

HEAD = """
<header>
<h1>{{ run.method|default("unknown method", true) }}, seed {{ run.seed|default("–") }}</h1>
<p><span class="badge {{ folder.status }}">{{ badge }} {{ folder.status }}</span>
<span class="soft name">run {{ folder.name }}</span></p>
{% if run.reason|default(none) %}<p class="reason">{{ run.reason }}</p>{% endif %}
{{ cards(key_figures) }}
</header>
"""

SCORES = """
{% set in_parts = folder.scores|selectattr("parts")|list %}
<section id="scores"><h2>Scores before and after</h2>
{% if folder.scores %}
<p class="soft">On the {{ folder.summary.split|default("test") }} split. Before: the base as it came. After: the model the
site ends up with.{% if in_parts %} Parts: mean ± standard deviation over four parts of the text, after.{% endif %} A heading
sorts.</p>
<div class="scroll"><table>
<thead><tr>{% for label in headers %}{{ sorted_head(label, loop.index0 >= 2) }}{% endfor %}
{% if in_parts %}{{ sorted_head("parts") }}{% endif %}</tr></thead>
<tbody>
{% for line in folder.scores %}
<tr><td class="name">{{ line.site }}</td><td class="nowrap">{{ line.direction }}</td>
{{ numeric(line.sentences, line.sentences|count) }}{{ score_cells(line) }}
{% if in_parts %}{{ parts_cell(line.parts) }}{% endif %}</tr>
{% endfor %}
</tbody>
<tfoot>
{% for line in averages %}
<tr><th scope="row">{{ line.site }}</th><td></td><td></td>{{ score_cells(line) }}{% if in_parts %}<td></td>{% endif %}</tr>
{% endfor %}
</tfoot></table></div>
{% endif %}
{{ plot("scores", folder.metrics[0].name + " of each site before and after", "scores.json") }}
</section>
"""

ROUNDS = """
{% set shown = "perplexity" if folder.metrics[0].key == "perplexity" else "loss" %}
<section id="loss"><h2>{{ shown|capitalize }} by round</h2>
{% if folder.rounds and "rounds.jsonl" in folder.notes %}<p class="empty">{{ note("rounds.jsonl") }}</p>{% endif %}
{% if "loss" in figures %}
<p class="soft">Round 0 is the base before any training. The star marks the best round. A name in the legend hides or
shows its site.{% if shown == "perplexity" %} The dev mean is exp of the mean of the sites' losses.{% endif %}</p>
{% endif %}
{{ plot("loss", "Dev and train " + shown + " of each site by round", "rounds.jsonl") }}</section>
<section id="bytes"><h2>Bytes by round</h2>
{{ plot("bytes", "Bytes up and down by round, summed over the sites", "rounds.jsonl") }}
{% if folder.traffic %}
<p class="soft">That is what training exchanged. All messages of the run, by kind, summed over the sites, as serialized:</p>
<div class="scroll"><table>
<thead><tr>{{ sorted_head("message", false) }}{{ sorted_head("up") }}{{ sorted_head("down") }}</tr></thead>
<tbody>
{% for kind, (up, down) in folder.traffic.items() %}
<tr><th scope="row">{{ kind }}</th>{{ numeric(up, up|data) }}{{ numeric(down, down|data) }}</tr>
{% endfor %}
</tbody>
<tfoot><tr><th scope="row">all</th><td class="n">{{ folder.traffic.values()|sum(attribute=0)|data }}</td>
<td class="n">{{ folder.traffic.values()|sum(attribute=1)|data }}</td></tr></tfoot></table></div>
{% endif %}
</section>
"""

TRANSLATIONS = """
{% if translations.asked or translations.texts or translations.note %}
<section id="translations"><h2>Translations by round</h2>
{% if translations.note %}<p class="empty">{{ translations.note }}</p>{% endif %}
{% if translations.texts %}
<p class="soft">The first dev sentences of each site. Round 0 is the base before any training. The star marks the best round.
Marked is what the round above has not.</p>
{% for text in translations.texts %}
<details{% if loop.first %} open{% endif %}><summary>{{ text.name }} {{ text.direction }}</summary>
<div class="scroll"><table class="sentences">
{% for sentence in text.sentences[:shown_sentences] %}
<tbody>
<tr><th scope="row" class="nowrap">source</th>{{ sentence_cell(text.source, sentence.source) }}</tr>
<tr><th scope="row" class="nowrap">reference</th>{{ sentence_cell(text.target, sentence.reference) }}</tr>
{% for line in shown_lines(text, sentence) %}
<tr><th scope="row" class="nowrap">round {{ line.round }}{% if line.is_best %} <span title="best round">★</span>{% endif %}</th>
<td class="wrap"{{ written(text.target) }}>
{%- for piece, is_new in line.pieces %}{{ "" if loop.first else line.between }}
{%- if is_new %}<mark>{{ piece }}</mark>{% else %}{{ piece }}{% endif %}
{%- endfor %}</td></tr>
{% endfor %}
</tbody>
{% endfor %}
</table></div>
{% if text.sentences|length > shown_sentences %}
<p class="soft">{{ text.sentences|length - shown_sentences }} more in sites/{{ text.site }}/translations-by-round/.</p>
{% endif %}
</details>
{% endfor %}
{% else %}<p class="empty">None in this run folder: each site keeps its own.</p>{% endif %}
</section>
{% endif %}
"""

SENT = """
{% if sent %}
<section id="sent"><h2>What was sent</h2>
{% if sent.number_saving is not none or sent.tensor_saving is not none %}
<p>Not sent: {{ sent.tensor_saving|share }} of the tensors, {{ sent.number_saving|share }} of the numbers of an update, mean over
sites and rounds{% if "number_saving" not in folder.summary %} so far{% endif %}.</p>
{% endif %}
{% if "shares" in figures %}
{{ plot("shares", "Dev loss, and the share of an update's tensors and numbers that was sent, by round", "rounds.jsonl") }}
{% endif %}
{% if "threshold" in figures %}
<h3>The threshold by round</h3>
<p class="soft">{% if sent.thresholds %}Learned on the server{% else %}Every site's own, which nothing learns{% endif %}; sites compare
with it how far each tensor moved.
{% if sent.medians %}The median of a site's deviations stands beside it, mean over sites.{% endif %}

{% if sent.scale is not none %}The dotted line is where it began, {{ "%.3g"|format(sent.scale) }}.{% endif %}</p>
{{ plot("threshold", "The threshold by round", "rounds.jsonl") }}
{% endif %}
{% if "deviations" in figures or sent.deviations.note %}
<h3>How far tensors moved</h3>
{% if sent.deviations.note %}<p class="empty">{{ sent.deviations.note }}</p>{% endif %}
{% endif %}
{% if "deviations" in figures %}
<p class="soft">A tensor's deviation is ‖new − previous‖ / ‖previous‖, in sums of magnitudes. First, middle and last round.
{% if not_drawn|sum %}Of these rounds' tensors, {{ not_drawn[0]|count }} did not move and
{{ not_drawn[1]|count }} were zero before, so that there is nothing to compare with: they are not drawn.{% endif %}</p>
{{ plot("deviations", "Histograms of the tensors' deviations in the first, middle and last round", "deviations.jsonl") }}
{% endif %}
</section>
{% endif %}
"""

CLUSTERS = """
<section id="clusters"><h2>Who shares what</h2>
{% if members %}
<p class="soft">Sites with a mark in the same column train that part together.</p>
<div class="scroll"><table class="clusters">
<thead><tr><td></td>
{% for part, clusters in folder.clusters.items() %}{% if clusters %}
<th scope="colgroup" class="part" colspan="{{ clusters|length }}">{{ part }}</th>
{% endif %}{% endfor %}</tr><tr><td></td>
{% for part, clusters in folder.clusters.items() %}{% for cluster in clusters %}
<th scope="col" class="cluster{% if loop.first %} first{% endif %}"><span>{{ cluster }}</span></th>
{% endfor %}{% endfor %}</tr></thead>
<tbody>
{% for site in members %}
<tr><th scope="row" class="name">{{ site }}</th>
{% for part, clusters in folder.clusters.items() %}{% for cluster, sites in clusters.items() %}
<td class="cell{% if loop.first %} first{% endif %}">{% if site in sites %}<b
 title="{{ site }}: {{ part }} {{ cluster }}" style="background: {{ colours[cluster] }}">×</b>
{% endif %}</td>
{% endfor %}{% endfor %}</tr>
{% endfor %}
</tbody></table></div>
{% else %}<p class="empty">{{ note("clusters.json") }}</p>{% endif %}
</section>
"""

DENDROGRAM = """
{% set parts = folder.site_signatures %}
{% if parts or run.method|default("") == "adapter-gradients" or "cannot" in folder.notes.get("signatures.json", "") %}
<section id="dendrogram"><h2>How alike the sites are</h2>
{% if parts %}<p>{{ parts[0].privacy }} Each site sent {{ parts[0].uplink_bytes|data }}, once.</p>
{% else %}{{ plot("dendrogram-", "", "signatures.json") }}{% endif %}
{% for known in parts %}
{% if known.part %}<h3>{{ known.part|capitalize }}</h3>{% endif %}
<p>{{ known.num_clusters|default("–", true) }} clusters: {{ known.choice }}.
{{ known.algorithm|capitalize }}, {{ known.distance }} distance, over the gradients of {{ known.adapter or "an adapter" }}.
{% if known.algorithm == "k-means" %}The tree is drawn from the distances alone; k-means did not use it.
{% elif cuts[known.part] is not none %}The dotted line cuts the tree into the clusters.{% endif %}</p>
{% if known.silhouettes %}
<p class="soft">Mean silhouette by number of clusters:
{% for count, value in known.silhouettes|dictsort %}
{% if count == known.num_clusters %}<b>{{ count }}: {{ "%.2f"|format(value) }}</b>{% else %}
{{ count }}: {{ "%.2f"|format(value) }}{% endif %}{{ "" if loop.last else ", " }}{% endfor %}.</p>
{% endif %}
{{ plot("dendrogram-" ~ known.part, "Tree of the sites by the distance of their signatures, and the distances", "signatures.json") }}
{% endfor %}
</section>
{% endif %}
"""

COMMUNICATION = """
<section id="communication"><h2>Communication</h2>
{% if communication %}
{% set middle = communication.bandwidths_mbps[1] %}
<p class="soft">The server's line is shared by all {{ communication.num_sites }} sites, so a round's transfer time is sites ×
bytes × 8 / bandwidth, up and down added. Its share is transfer / (transfer + training). A round's training time is that of
its longest site, mean over the rounds:
{{ communication.training_s|duration }}{% if communication.training_s is none %} (none known yet){% endif %}.
{% if "full model" in communication.traffic %}The full model is reckoned in fp32 with the same training time.{% endif %}</p>
<div class="scroll"><table class="many">
<thead><tr>{{ sorted_head("what is sent", false, 2) }}{{ sorted_head("parameters", true, 2) }}
<th colspan="2" class="over">a site and round</th>
{% for each in communication.bandwidths_mbps %}<th colspan="2" class="over">{{ each|bandwidth }}</th>{% endfor %}</tr>
<tr>{{ sorted_head("up") }}{{ sorted_head("down") }}
{% for each in communication.bandwidths_mbps %}{{ sorted_head("transfer") }}{{ sorted_head("share") }}{% endfor %}</tr></thead>
<tbody>
{% for name, traffic in communication.traffic.items() %}
<tr><th scope="row" class="nowrap">{{ name }}</th>{{ numeric(traffic.parameters, traffic.parameters|parameters) }}
{{ numeric(traffic.uplink_bytes, traffic.uplink_bytes|data) }}{{ numeric(traffic.downlink_bytes, traffic.downlink_bytes|data) }}
{% for cost in communication.costs(name) %}
<td class="n" data-v="{{ cost.transfer_s }}" title="up {{ cost.up_s|transfer }}, down {{ cost.down_s|transfer }}">{{
cost.transfer_s|transfer }}</td>
{{ numeric(cost.share, cost.share|share) }}
{% endfor %}</tr>
{% endfor %}
</tbody></table></div>
{% endif %}
{{ plot("communication", "Transfer time of a round and its share, at three bandwidths", "rounds.jsonl") }}
</section>
"""

SITES = """
<section id="time"><h2>Time by phase and site</h2>
{{ plot("time", "Seconds in each phase for each site, all rounds together", "rounds.jsonl") }}
{% if seconds %}
<h3>Seconds of a round</h3>
<p class="soft">{{ seconds_reading }}</p>
{% for parts in seconds %}
{% if not loop.first %}<p class="soft">Of these, inside the meta module:</p>{% endif %}
<div class="scroll"><table><thead><tr>{% for part in parts %}<th class="n">{{ part }}</th>{% endfor %}</tr></thead>
<tbody><tr>{% for value in parts.values() %}<td class="n">{{ value|seconds }}</td>{% endfor %}</tr></tbody></table></div>
{% endfor %}
{% endif %}
</section>
<section id="corpora"><h2>Corpora</h2>
{% if folder.sites %}
<div class="scroll"><table>
<thead><tr>{{ sorted_head("site", false) }}{{ sorted_head("directions", false) }}{{ sorted_head("node") }}{{ sorted_head("train") }}
{{ sorted_head("dev") }}{{ sorted_head("test") }}</tr></thead><tbody>
{% for site in folder.sites %}
<tr><td class="name">{{ site.name }}</td><td>{{ site.directions|join(", ") }}</td><td class="n">{{ site.node }}</td>
{{ numeric(site.train, site.train|count) }}{{ numeric(site.dev, site.dev|count) }}{{ numeric(site.test, site.test|count) }}</tr>
{% endfor %}
</tbody></table></div>
<p class="soft">Pairs read = kept + dropped, by reason.</p>
<div class="scroll"><table>
<thead><tr>{{ sorted_head("site", false) }}{{ sorted_head("direction", false) }}{{ sorted_head("read") }}{{ sorted_head("kept") }}
{% for reason in reasons %}{{ sorted_head(reason) }}{% endfor %}</tr></thead><tbody>
{% for site in folder.sites %}{% for account in site.accounts %}
<tr><td class="name">{{ site.name }}</td><td class="nowrap">{{ account.direction }}</td>
<td class="n" data-v="{{ account.read }}">{% if not account.adds_up %}<span class="down" title="is not kept + dropped">≠</span> {% endif %}
{{ account.read|count }}</td><td class="n">{{ account.kept|count }}</td>
{% for reason in reasons %}<td class="n">{{ account.dropped.get(reason, 0)|count }}</td>{% endfor %}</tr>
{% endfor %}{% endfor %}
</tbody></table></div>
{% if folder.overlap %}
<p class="soft">Distinct sentences, normalised, that stand at another site too, and those of dev and test that another site trains on; pairs
of which one side does{{ " are left out, and counted above as trained-elsewhere" if folder.overlap.removed else " are kept" }}:
{% for site, (dev, test) in folder.overlap.leaks.items() %}{{ site }} {{ dev|count }} of dev and {{ test|count }} of test{{ "; " if not
loop.last else "." }}{% endfor %}</p>
<div class="scroll"><table>
<thead><tr>{{ sorted_head("site", false) }}{{ sorted_head("language", false) }}{{ sorted_head("sentences") }}{{ sorted_head("elsewhere") }}
{{ sorted_head("share") }}{{ sorted_head("dev trained on") }}{{ sorted_head("test trained on") }}</tr></thead><tbody>
{% for each in folder.overlap.languages %}
<tr><td class="name">{{ each.site }}</td><td>{{ each.language }}</td><td class="n">{{ each.sentences|count }}</td>
<td class="n">{{ each.elsewhere|count }}</td><td class="n">{{ each.share }}</td><td class="n">{{ each.dev|count }}</td>
<td class="n">{{ each.test|count }}</td></tr>
{% endfor %}
</tbody></table></div>
{% endif %}
{% if failed_documents %}
<p class="soft">Documents that a site's de-identification hook failed on, by the type of failure; nothing of them is used.</p>
<div class="scroll"><table>
<thead><tr>{{ sorted_head("site", false) }}{{ sorted_head("failure", false) }}{{ sorted_head("documents") }}</tr></thead><tbody>
{% for site, kind, documents in failed_documents %}
<tr><td class="name">{{ site }}</td><td>{{ kind }}</td><td class="n">{{ documents|count }}</td></tr>
{% endfor %}
</tbody></table></div>
{% endif %}
{% else %}<p class="empty">{{ note("sites.json") }}</p>{% endif %}
</section>
<section id="failures"><h2>Failures</h2>
{% if folder.failures %}
<div class="scroll"><table>
<thead><tr>{{ sorted_head("round") }}{{ sorted_head("site", false) }}{{ sorted_head("phase", false) }}
{{ sorted_head("reason", false) }}</tr></thead><tbody>
{% for each in folder.failures %}
<tr><td class="n">{{ each.round }}</td><td class="name">{{ each.site }}</td><td>{{ each.phase }}</td>
<td class="wrap">{{ each.reason }}</td></tr>
{% endfor %}
</tbody></table></div>
{% else %}<p>No failures{% if not folder.rounds %}: no round has finished{% endif %}.</p>{% endif %}
</section>
"""

SETTINGS = """
<section id="settings"><h2>Settings and versions</h2>
<details><summary>Show</summary>
<h3>Run</h3>{{ pairs(facts) }}
<h3>Settings</h3>{% if config %}{{ pairs(config) }}{% else %}<p class="empty">run.json gives none.</p>{% endif %}
<h3>Versions</h3>{% if versions %}{{ pairs(versions) }}{% else %}<p class="empty">run.json gives none.</p>{% endif %}
</details></section>
<section id="signatures"><h2>Signatures of the metrics</h2>
{% if metric_signatures %}
<div class="scroll"><table><thead><tr><th>metric</th><th>signature</th><th>sites</th></tr></thead><tbody>
{% for metric, signature, sites in metric_signatures %}
<tr><td>{{ metric }}</td><td class="wrap"><code>{{ signature }}</code></td><td class="name">{{ sites }}</td></tr>
{% endfor %}
</tbody></table></div>
{% else %}<p class="empty">{{ note("scores.json") }}</p>{% endif %}
</section>
"""

TEMPLATE = page_template(
    "{{ folder.name }}", HEAD, SCORES + ROUNDS + TRANSLATIONS + SENT + COMMUNICATION + CLUSTERS + DENDROGRAM + SITES + SETTINGS
)
