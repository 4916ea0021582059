"""The parts of a comparison's page, in order; style.py puts the page around them."""

from fedlingua.desk.report.style import page_template

HEAD = """
<header>
<h1>{{ title }}</h1>
<p class="soft">{{ found.scores|length }} sites, {{ found.runs|length }} runs; the others are held against <b>{{ first.name }}</b>.</p>
{{ cards(key_figures) }}
</header>
"""

SCORES = """
{% macro plain(value) %}<td class="n" data-v="{{ value }}">{{ value|score }}</td>{% endmacro %}
{% macro difference_cells(one, better) %}
{{ plain(scale * one.second) }}
<td class="n{% if better > 0 %} up{% elif better < 0 %} down{% endif %}" data-v="{{ scale * one.value }}">{{ (scale * one.value)|gain
}}</td>
{% if sampled %}
{% if one.p is none %}<td class="n" data-v=""></td><td class="n" data-v=""></td>
{% else %}<td class="n nowrap" data-v="{{ scale * one.low }}">{{ (scale * one.low)|gain }} to {{ (scale * one.high)|gain }}</td>
<td class="n" data-v="{{ one.p }}">{% if one.p < significant %}<b>{{ "%.3f"|format(one.p) }}</b>{% else %}{{ "%.3f"|format(one.p) }}{%
endif %}</td>
{% endif %}{% endif %}
{% endmacro %}
<section id="scores"><h2>{{ metric.name }} by site</h2>
<p class="soft">On the {{ split }} split{% if not metric.more_is_better %}; less is better{% endif %}.
{% if sampled %}The interval holds 95 % of {{ found.samples|count }} samples of the test sentences, drawn anew and the same for both runs
(paired
bootstrap); p: how often chance alone makes a difference as large, bold below {{ significant }}.
{% else %}The translations are not at hand, so scores are compared as they are: no interval, no p.{% endif %}
Macro: the mean of the sites{% if with_pooled %}; pooled: all sentences as one corpus{% endif %}. A heading sorts.</p>
<div class="scroll"><table class="many">
<thead><tr>{{ sorted_head("site", false, 2) }}{{ sorted_head(first.name, true, 2) }}
{% for one in found.beside %}<th colspan="{{ 4 if sampled else 2 }}" class="over">{{ one.run }}</th>{% endfor %}</tr>
<tr>{% for one in found.beside %}{{ sorted_head(metric.short) }}{{ sorted_head("difference") }}
{% if sampled %}{{ sorted_head("95 %") }}{{ sorted_head("p") }}{% endif %}{% endfor %}</tr></thead>
<tbody>
{% for site, values in found.scores.items() %}
<tr><th scope="row" class="name">{{ site }}</th>{{ plain(scale * values[0]) }}
{% for one in found.beside %}{% set each = one.sites[site] %}{{ difference_cells(each, metric.gain(each.second, each.first)) }}{% endfor
%}</tr>
{% endfor %}
</tbody>
<tfoot>
<tr><th scope="row">macro</th>{{ plain(scale * found.beside[0].macro.first) }}
{% for one in found.beside %}{{ difference_cells(one.macro, metric.gain(one.macro.second, one.macro.first)) }}{% endfor %}</tr>
{% if with_pooled %}
<tr><th scope="row">pooled</th>{{ plain(scale * found.beside[0].pooled.first) }}
{% for one in found.beside %}{{ difference_cells(one.pooled, metric.gain(one.pooled.second, one.pooled.first)) }}{% endfor %}</tr>
{% endif %}
</tfoot></table></div>
{{ plot("scores", metric.name + " of each run at each site", "scores.json") }}
<h3>Differences from {{ first.name }}</h3>
<p class="soft">{% if sampled %}The line through a mark is its 95 % interval; a hollow mark may be chance (p ≥ {{ significant }}). {%
endif %}
To the right of the dotted line {{ first.name }} scores lower{% if not metric.more_is_better %}, and so is better{% endif %}.</p>
{{ plot("differences", "Differences in " + metric.name + " from the first run, by site", "scores.json") }}
</section>
"""

COST = """
<section id="cost"><h2>What it cost</h2>
<p class="soft">Up and down: bytes of a site and round. In all: up and down together, over all rounds.</p>
<div class="scroll"><table>
<thead><tr>{{ sorted_head("run", false) }}{{ sorted_head("folder", false) }}{{ sorted_head("seed") }}
{{ sorted_head("macro " + metric.short) }}
{{ sorted_head("rounds") }}{{ sorted_head("up") }}{{ sorted_head("down") }}{{ sorted_head("in all") }}{{ sorted_head("time") }}</tr></thead>
<tbody>
{% for run in found.runs %}{% set costs = run.costs %}{% set whole = in_all.get(run.name) %}
<tr><th scope="row" class="name">{{ run.name }}</th><td class="wrap">{{ folders[loop.index0] }}</td>{{ numeric(run.seed, run.seed) }}
{{ plain(macros[run.name]) }}{{ numeric(costs.rounds, costs.rounds|count) }}
{{ numeric(costs.uplink_bytes_per_round, costs.uplink_bytes_per_round|data) }}
{{ numeric(costs.downlink_bytes_per_round, costs.downlink_bytes_per_round|data) }}{{ numeric(whole, whole|data) }}
{{ numeric(costs.seconds, costs.seconds|duration) }}</tr>
{% endfor %}
</tbody></table></div>
{% if "bytes" in figures or "seconds" in figures %}
<p class="soft">Better is {{ "up" if metric.more_is_better else "down" }} and to the left. The dashed line joins the runs that no other
beats
in both.{% if pooled_text %} Runs that have the text of several sites in one place have no bytes here: what that takes is nowhere
counted.{% endif %}</p>
{% endif %}
{% if "bytes" in figures %}{{ plot("bytes", "Macro " + metric.name + " of each run against its bytes", "scores.json") }}{% endif %}
{% if "seconds" in figures %}{{ plot("seconds", "Macro " + metric.name + " of each run against its seconds", "run.json") }}{% endif %}
</section>
"""

FAIRNESS = """
<section id="fairness"><h2>For whom</h2>
<p class="soft">Spread: the best site minus the worst. Gain of joining: mean over sites of what each has over its own model, of the run with
the same seed in which every site trains by itself (adapter-local){% if not any_gains %}; none is among these runs{% endif %}. Left behind:
sites that their own model serves better.</p>
<div class="scroll"><table>
<thead><tr>{{ sorted_head("run", false) }}{{ sorted_head("worst site", false) }}{{ sorted_head("its " + metric.short) }}
{{ sorted_head("best") }}{{ sorted_head("spread") }}{{ sorted_head("gain of joining") }}{{ sorted_head("left behind", false) }}</tr></thead>
<tbody>
{% for run in found.runs %}{% set fair = found.fairness[loop.index0] %}
<tr><th scope="row" class="name">{{ run.name }}</th><td class="name">{{ fair.worst_site }}</td>{{ plain(scale * fair.worst) }}
{{ plain(scale * fair.best) }}{{ plain(scale * fair.spread) }}{{ change(none if fair.gain is none else scale * fair.gain) }}
<td class="name">{{ fair.left_behind|join(", ") if fair.left_behind else ("none" if fair.gains else "–") }}</td></tr>
{% endfor %}
</tbody></table></div>
{% if "gains" in figures %}
<h3>Does joining help?</h3>
<p class="soft">To the right of the dotted line a site is better off than with its own model.</p>
{{ plot("gains", "What each site gains over its own model", "scores.json") }}
{% endif %}
</section>
"""

SEEDS = """
{% if found.over_seeds %}
{% macro spread_cell(pair) %}
{% if pair is none %}<td class="n" data-v="">–</td>
{% else %}<td class="n nowrap" data-v="{{ scale * pair[0] }}">{{ (scale * pair[0])|score }} ± {{ (scale * pair[1])|score }}</td>{% endif %}
{% endmacro %}
<section id="seeds"><h2>Over seeds</h2>
<p class="soft">Mean ± sample standard deviation, of the methods that several of these runs have.</p>
<div class="scroll"><table>
<thead><tr>{{ sorted_head("method", false) }}{{ sorted_head("seeds") }}{{ sorted_head("macro " + metric.short) }}
{{ sorted_head("worst site") }}
{{ sorted_head("spread") }}{{ sorted_head("gain of joining") }}</tr></thead>
<tbody>
{% for one in found.over_seeds %}
<tr><th scope="row" class="nowrap">{{ one.method }}</th>{{ numeric(one.seeds|length, one.seeds|join(", ")) }}
{{ spread_cell(one.macro) }}{{ spread_cell(one.worst) }}{{ spread_cell(one.spread) }}{{ spread_cell(one.gain) }}</tr>
{% endfor %}
</tbody></table></div></section>
{% endif %}
"""

SENTENCES = """
{% if found.sentences %}
<section id="sentences"><h2>Sentences that differ most</h2>
<p class="soft">Of each site, those whose chrF differs most between {{ first.name }} and {{ found.runs[1].name }}.</p>
{% for site, of_site in sentences_by_site %}
<details{% if loop.first %} open{% endif %}><summary>{{ site }} {{ of_site[0].direction }}</summary>
<div class="scroll"><table class="sentences">
{% for each in of_site %}{% set source, target = each.direction|sides %}
<tbody>
<tr><th scope="row" class="nowrap">source</th>{{ sentence_cell(source, each.source) }}</tr>
<tr><th scope="row" class="nowrap">reference</th>{{ sentence_cell(target, each.reference) }}</tr>
<tr><th scope="row">{{ first.name }}</th>{{ sentence_cell(target, each.first) }}</tr>
<tr><th scope="row">{{ found.runs[1].name }}<br><span class="{{ 'up' if each.gain > 0 else 'down' }}">chrF {{ each.gain|gain }}</span></th>
{{ sentence_cell(target, each.second) }}</tr>
</tbody>
{% endfor %}
</table></div></details>
{% endfor %}
</section>
{% endif %}
"""

SETTINGS = """
<section id="settings"><h2>Settings in which the runs differ</h2>
{% if differing %}
<div class="scroll"><table>
<thead><tr>{{ sorted_head("setting", false) }}{% for run in found.runs %}<th scope="col" class="name">{{ run.name }}</th>
{% endfor %}</tr></thead>
<tbody>
{% for key, values in differing.items() %}
<tr><th scope="row" class="nowrap">{{ key }}</th>{% for value in values %}<td class="wrap">{{ value }}</td>{% endfor %}</tr>
{% endfor %}
</tbody></table></div>
{% else %}<p>None: all settings are the same.</p>{% endif %}
</section>
<section id="signatures"><h2>Signature of the metric</h2>
{% if signatures %}
<div class="scroll"><table><thead><tr><th scope="col">signature</th><th scope="col">sites</th></tr></thead><tbody>
{% for signature, sites in signatures %}<tr><td class="wrap"><code>{{ signature }}</code></td><td class="name">{{ sites }}</td></tr>
{% endfor %}
</tbody></table></div>
{% else %}<p class="empty">The runs give none.</p>{% endif %}
</section>
"""

COMPARISON_TEMPLATE = page_template(
    "{{ title }}", HEAD, SCORES + COST + FAIRNESS + SEEDS + SENTENCES + SETTINGS, body_class="wide"
)
