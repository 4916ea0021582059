"""The parts of a suite's page, in order; style.py puts the page around them."""

from fedlingua.desk.report.style import page_template

HEAD = """
<header>
<h1>{{ result.title }}</h1>
{% if result.failed %}
<p><span class="badge failed">✗ {{ result.failed|length }} of {{ result.runs|length }} runs did not complete</span>
<a href="#failures">which</a></p>
{% endif %}
{{ cards(key_figures) }}
</header>
"""

TABLE = """
{% macro cell(value, best) %}
<td class="n" data-v="{{ '' if value is none else value }}">{% if value is not none and value|score == best %}
<b>{{ value|score }}</b>{% else %}{{ value|score }}{% endif %}</td>
{% endmacro %}
<section id="table"><h2>{{ metric }}</h2>
{% if "suite.json" in result.notes %}<p class="empty">{{ result.notes["suite.json"] }}</p>{% endif %}
<p class="soft">On the {{ result.settings.get("score-split", "test") }} split, mean over the seeds. Macro: the mean of the
{% if result.metric.key == "perplexity" %}languages; micro: of sites by their masked pieces
{%- else %}sites; micro: weighted by their test sentences{% endif %}; pooled: all sentences as one corpus.
Bold: the best of a column, the base not counted. A heading sorts.</p>
<div class="scroll"><table class="many">
<thead><tr>{{ sorted_head("method", false) }}{{ sorted_head("seeds") }}{{ sorted_head("macro") }}{{ sorted_head("± sd") }}
{{ sorted_head("over base") }}{% if result.paper %}{{ sorted_head("paper's macro") }}{% endif %}
{{ sorted_head("micro") }}{{ sorted_head("pooled") }}
{% for site in result.sites %}<th scope="col" class="n turned"><button type="button">{{ site }}</button></th>{% endfor %}
</tr></thead>
<tbody>
{% for row in result.rows %}
{% set cells = columns[row.name] %}
{% set over = result.gain(row.macro, result.base_macro) %}
<tr><th scope="row" class="nowrap">{{ row.name }}</th>{{ numeric(row.seeds, row.seeds|count) }}
{% set bold = {} if row.name == "base" else best %}
{{ cell(row.macro, bold.get("macro")) }}
{{ numeric(row.macro_sd, row.macro_sd|score) }}
{% if row.name == "base" %}{{ numeric(none, "") }}{% else %}{{ change(over) }}{% endif %}
{% if result.paper %}{% set told = result.paper.rows.get(row.name, {}).get("macro") %}{{ numeric(told, told|score) }}{% endif %}
{% for column in ["micro", "pooled"] + result.sites %}{{ cell(cells.get(column), bold.get(column)) }}{% endfor %}
</tr>
{% endfor %}
</tbody></table></div>
{{ plot("macro", "Macro " + metric + " of each row, with every seed", "table.csv") }}
{% if result.base_macro is not none %}<p class="soft">The dotted line is the base.</p>{% endif %}
</section>
"""

MASKED = """
{% if result.rows|selectattr("accuracy")|list %}
<section id="accuracy"><h2>Masked pieces guessed, %</h2>
<div class="scroll"><table class="many">
<thead><tr>{{ sorted_head("method", false) }}{{ sorted_head("macro") }}
{% for site in result.sites %}<th scope="col" class="n turned"><button type="button">{{ site }}</button></th>{% endfor %}
</tr></thead>
<tbody>
{% for row in result.rows %}
<tr><th scope="row" class="nowrap">{{ row.name }}</th>{{ numeric(row.macro_accuracy, row.macro_accuracy|score) }}
{% for site in result.sites %}{% set value = row.accuracy.get(site) %}{{ numeric(value, value|score) }}{% endfor %}</tr>
{% endfor %}
</tbody></table></div></section>
{% endif %}
{% if result.rows|selectattr("parts")|list %}
<section id="parts"><h2>{{ metric|capitalize }} of four parts of each text</h2>
<p class="soft">Each site's text is split into four parts: mean ± sample standard deviation over them, both mean over the seeds.</p>
<div class="scroll"><table class="many">
<thead><tr>{{ sorted_head("method", false) }}
{% for site in result.sites %}<th scope="col" class="n turned"><button type="button">{{ site }}</button></th>{% endfor %}
</tr></thead>
<tbody>
{% for row in result.rows %}
<tr><th scope="row" class="nowrap">{{ row.name }}</th>
{% for site in result.sites %}{{ parts_cell(row.parts.get(site)) }}{% endfor %}</tr>
{% endfor %}
</tbody></table></div></section>
{% endif %}
"""

CONVERGENCE = """
{% if "convergence" in figures %}
<section id="convergence"><h2>Dev {{ metric }} by round</h2>
<p class="soft">Mean over the seeds, in the rounds that all of them measured; round 0 is the base. All text: every site's dev pieces at
once. A row that trains on some sites' text alone is measured on no other, so it has a line there only.</p>
{{ plot("convergence", "Dev " + metric + " of each row by round", "suite.json") }}</section>
{% endif %}
"""

GAINS = """
<section id="gains"><h2>{{ metric }}: better than the base, by site</h2>
{{ plot("gains", metric + " of each row and site, better than the base", "table.csv") }}</section>
"""

OWN = """
{% if "own" in figures %}
<section id="own"><h2>{{ metric }}: better than the site's own model</h2>
<p class="soft">The own model was trained on the site's text alone (silo-…).</p>
{{ plot("own", metric + " of each row and site, better than the site's own model", "table.csv") }}</section>
{% endif %}
"""

SAVING = """
{% macro base_told() %}
{% if base_in_view %}The dotted line is the base.
{% elif result.base_macro is not none %}The base lies far off, at {{ result.base_macro|score }}.{% endif %}
{% endmacro %}
{% set up = "up" if result.metric.more_is_better else "down" %}
{% if "saving" in figures or "uplink" in figures %}
<section id="saving"><h2>Quality and what was {{ "not sent" if "saving" in figures else "sent" }}</h2>
{% if "saving" in figures %}
<p class="soft">Macro {{ metric }}, mean ± standard deviation over seeds, against the share of an update's numbers that a site did not send,
mean over sites, rounds and seeds; better is {{ up }} and to the right. The dashed line joins the rows that no other row
beats in both. {{ base_told() }}</p>
{{ plot("saving", "Macro " + metric + " of each row against the share of numbers that it did not send", "table.csv") }}
{% endif %}
{% if "uplink" in figures %}
<p class="soft">{% if "saving" in figures %}The same against
{%- else %}Macro {{ metric }}, mean ± standard deviation over seeds, against{% endif %} the bytes that a site sent in a round: better is
{{ up }} and to the left.{% if "saving" not in figures %} The dashed line joins the rows that no other row
beats in both. {{ base_told() }}{% endif %}</p>
{{ plot("uplink", "Macro " + metric + " of each row against its uplink", "table.csv") }}
{% endif %}
</section>
{% endif %}
"""

COST = """
<section id="cost"><h2>Communication</h2>
{% if costs %}
<p class="soft">One round at {{ bandwidth_mbps|bandwidth }}, which {{ result.num_sites }} sites share: transfer time is
sites × bytes × 8 / bandwidth. Its share is transfer / (transfer + training), up and down together. A round's training time is
that of its longest site.{% if "full model" in costs %} The full model is reckoned in fp32, with the mean training time of
the rows.{% endif %}</p>
<div class="scroll"><table>
<thead><tr>{{ sorted_head("method", false, 2) }}{{ sorted_head("parameters", true, 2) }}<th colspan="2" class="over">a site and round</th>
<th colspan="3" class="over">transfer of a round</th>{{ sorted_head("training", true, 2) }}{{ sorted_head("share", true, 2) }}</tr>
<tr>{% for head in ("up", "down", "up", "down", "together") %}{{ sorted_head(head) }}{% endfor %}</tr></thead>
<tbody>
{% for name, cost in costs.items() %}
<tr><th scope="row" class="nowrap">{{ name }}</th>{{ numeric(traffic[name].parameters, traffic[name].parameters|parameters) }}
{{ numeric(traffic[name].uplink_bytes, traffic[name].uplink_bytes|data) }}
{{ numeric(traffic[name].downlink_bytes, traffic[name].downlink_bytes|data) }}
{{ numeric(cost.up_s, cost.up_s|transfer) }}{{ numeric(cost.down_s, cost.down_s|transfer) }}
{{ numeric(cost.transfer_s, cost.transfer_s|transfer) }}{{ numeric(cost.training_s, cost.training_s|duration) }}
{{ numeric(cost.share, cost.share|share) }}</tr>
{% endfor %}
</tbody></table></div>
{% endif %}
{{ plot("cost", "Transfer time of a round and its share, for each row", "table.csv") }}
</section>
"""

PAPER = """
{% if result.paper %}
<section id="paper"><h2>The paper's figures</h2>
<p class="soft">{{ result.paper.by }}, {{ result.paper.table }}: on its own data, with its own backbone. What can be set beside each
other is the order of the rows and their distances.</p>
<div class="scroll"><table class="many">
<thead><tr>{{ sorted_head("method", false) }}{% for column in result.paper.columns %}
<th scope="col" class="n{{ '' if column in ('macro', 'micro') else ' turned' }}"><button type="button">{{ column }}</button></th>
{% endfor %}</tr></thead>
<tbody>
{% for name, scores in result.paper.rows.items() %}
<tr><th scope="row" class="nowrap">{{ name }}</th>
{% for column in result.paper.columns %}{{ cell(scores.get(column), paper_best.get(column)) }}{% endfor %}</tr>
{% endfor %}
</tbody></table></div></section>
{% endif %}
"""

FAILURES = """
<section id="failures"><h2>Runs that did not complete</h2>
{% if result.failed %}
<div class="scroll"><table><thead><tr>
{% for head in ("method", "seed", "status", "reason") %}{{ sorted_head(head, false) }}{% endfor %}</tr></thead><tbody>
{% for run in result.failed %}
<tr><td class="nowrap">{{ run.row }}</td><td>{{ run.seed }}</td><td>{{ run.status }}</td><td class="wrap">{{ run.reason }}</td></tr>
{% endfor %}
</tbody></table></div>
{% elif result.runs %}<p>None: all {{ result.runs|length }} completed.</p>
{% else %}<p class="empty">{{ note("suite.json") }}</p>{% endif %}
</section>
<section id="settings"><h2>Settings and versions</h2>
<details><summary>Show</summary>
<h3>Settings</h3>{% if settings %}{{ pairs(settings) }}{% else %}<p class="empty">{{ note("suite.json") }}</p>{% endif %}
<h3>Versions</h3>{% if result.versions %}{{ pairs(result.versions) }}{% else %}<p class="empty">{{ note("suite.json") }}</p>{% endif %}
</details></section>
"""

SUITE_TEMPLATE = page_template(
    "{{ result.title }}", HEAD, TABLE + CONVERGENCE + MASKED + GAINS + OWN + SAVING + COST + PAPER + FAILURES, body_class="wide"
)
