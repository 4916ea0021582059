"""The tree of the sites' signatures: how it lies, where it is cut, and what is said of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedlingua.desk.report.read import read_run
from fedlingua.desk.report.run_page import write_report
from fedlingua.desk.report.signatures import dendrogram_plot, read_site_signatures

# a and c lie 1 apart, b is 3.5 from both on average.
CONTENT: dict[str, Any] = {
    "form": "raw",
    "adapter": "encoder.1.fc2",
    "dimensions": 131072,
    "examples": {"a": 10, "b": 10, "c": 10},
    "distance": "euclidean",
    "algorithm": "agglomerative",
    "sites": ["a", "b", "c"],
    "distances": [[0, 3, 1], [3, 0, 4], [1, 4, 0]],
    "merges": [[0, 2, 1.0, 2], [1, 3, 3.5, 3]],
    "num_clusters": 2,
    "chosen_by": "silhouette",
    "silhouettes": {"2": 0.4},
    "clusters": {"a": "gradients-1", "b": "gradients-2", "c": "gradients-1"},
    "uplink_bytes": 524288,
    "epsilon": None,
    "delta": None,
    "noise": None,
    "clip": None,
}
PRIVATE = {"form": "private", "dimensions": 64, "epsilon": 3.2, "delta": 1e-5, "noise": 1.0, "clip": 0.5}


def write(folder: Path, **changes: Any) -> Path:
    (folder / "run.json").write_text(json.dumps({"method": "adapter-gradients", "status": "completed"}))
    (folder / "signatures.json").write_text(json.dumps(CONTENT | changes))
    return folder / "signatures.json"


def page(folder: Path) -> str:
    return " ".join(write_report(folder).read_text().split('id="dendrogram"')[1].split("</section>")[0].split())


def test_neighbours_of_the_tree_are_neighbours_of_the_heat_map(tmp_path: Path) -> None:
    figure = dendrogram_plot(read_site_signatures(write(tmp_path))[0], {"gradients-1": "#111111"})
    heat = next(trace for trace in figure.data if trace.type == "heatmap")
    names = list(figure.layout.yaxis.ticktext)
    assert sorted(names) == ["a", "b", "c"]
    assert abs(names.index("a") - names.index("c")) == 1
    shown = {(names[i], names[j]): heat.z[i][j] for i in range(3) for j in range(3)}
    assert (shown["a", "b"], shown["a", "c"], shown["b", "c"]) == (3, 1, 4)
    assert shown["a", "a"] is None


def test_branches_stand_at_the_height_of_their_merge(tmp_path: Path) -> None:
    figure = dendrogram_plot(read_site_signatures(write(tmp_path))[0], {})
    names = list(figure.layout.yaxis.ticktext)
    tree = next(trace for trace in figure.data if trace.type == "scatter" and trace.mode == "lines")
    brackets = [list(tree.x[place : place + 4]) for place in (0, 5)]
    assert sorted(max(heights) for heights in brackets) == [1.0, 3.5]
    first = brackets.index([0.0, 1.0, 1.0, 0.0]) * 5
    assert {tree.y[first], tree.y[first + 3]} == {names.index("a"), names.index("c")}


def test_leaves_wear_the_colour_of_their_cluster(tmp_path: Path) -> None:
    figure = dendrogram_plot(read_site_signatures(write(tmp_path))[0], {"gradients-1": "#111111"})
    names = list(figure.layout.yaxis.ticktext)
    leaves = next(trace for trace in figure.data if trace.name == "gradients-1")
    assert {names[row] for row in leaves.y} == {"a", "c"}
    assert leaves.marker.color == "#111111"


def test_the_page_says_who_chose_and_what_the_raw_form_gives_away(tmp_path: Path) -> None:
    write(tmp_path)
    told = page(tmp_path)
    assert "2 clusters: the number with the highest mean silhouette" in told
    assert "can read training text" in told
    assert "524.29 kB" in told
    assert "<b>2: 0.40</b>" in told


def test_the_page_says_what_the_private_form_promises(tmp_path: Path) -> None:
    write(tmp_path, **PRIVATE)
    told = page(tmp_path)
    assert "projected to 64 dimensions, clipped to 0.5, noised; epsilon 3.2 at delta 1e-5" in told
    assert "can read training text" not in told
    write(tmp_path, **(PRIVATE | {"epsilon": None}))
    assert "no guarantee holds" in page(tmp_path)


def test_k_means_did_not_use_the_tree(tmp_path: Path) -> None:
    write(tmp_path, algorithm="k-means", chosen_by="families")
    told = page(tmp_path)
    assert "k-means did not use it" in told
    assert "as many as the language families make" in told


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"distances": [[0, 1], [1, 0]]}, "3 x 3 numbers"),
        ({"distances": [[0, 1, None]] * 3}, "3 x 3 numbers"),
        ({"merges": [[0, 2, 1.0, 2]]}, "merges has 1 rows; 3 sites need 2"),
        ({"merges": [[0, 2, 1.0, 2], [0, 1, 2.0, 3]]}, "row 1 of merges"),
        ({"sites": []}, "0 x 0"),
    ],
)
def test_a_broken_file_says_why_it_is_not_drawn(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    write(tmp_path, **changes)
    assert told in page(tmp_path)


def test_a_half_written_file_says_so(tmp_path: Path) -> None:
    write(tmp_path).write_text('{"form": "raw", "si')
    assert "signatures.json cannot be read" in page(tmp_path)


def test_each_part_has_a_tree_of_its_own(tmp_path: Path) -> None:
    own = ("adapter", "dimensions", "distances", "merges", "num_clusters", "silhouettes", "clusters")
    encoder = {key: CONTENT[key] for key in own}
    decoder = encoder | {"adapter": "decoder.-1.fc2", "distances": [[0, 1, 3], [1, 0, 4], [3, 4, 0]]}
    decoder |= {
        "clusters": {"a": "gradients-1", "b": "gradients-1", "c": "gradients-2"},
        "merges": [[0, 1, 1.0, 2], [2, 3, 3.5, 3]],
    }
    write(tmp_path)
    shared = {key: value for key, value in CONTENT.items() if key not in own} | PRIVATE
    parts = {"encoder": encoder, "decoder": decoder}
    (tmp_path / "signatures.json").write_text(json.dumps({**shared, "signatures": 2, "parts": parts}))
    read = read_site_signatures(tmp_path / "signatures.json")
    assert [(one.part, one.adapter, one.clusters["b"]) for one in read] == [
        ("encoder", "encoder.1.fc2", "gradients-2"),
        ("decoder", "decoder.-1.fc2", "gradients-1"),
    ]
    told = page(tmp_path)
    assert 'id="plot-dendrogram-encoder"' in told
    assert 'id="plot-dendrogram-decoder"' in told
    assert "<h3>Encoder</h3>" in told
    assert "at delta 1e-5 for each sentence of a site, of 2 signatures together" in told


def test_a_run_of_another_method_has_no_such_part(tmp_path: Path) -> None:
    write(tmp_path).unlink()
    assert "signatures.json is not there yet" in page(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({"method": "adapter-fed"}))
    assert 'id="dendrogram"' not in write_report(tmp_path).read_text()


def test_one_site_has_no_tree(tmp_path: Path) -> None:
    write(tmp_path, sites=["a"], distances=[[0]], merges=[], num_clusters=1, clusters={"a": "gradients-1"})
    assert len(read_run(tmp_path).site_signatures) == 1
    write_report(tmp_path)
