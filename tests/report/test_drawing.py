"""Drawings and notebooks: boxes hold their own nodes and no others, parents stand above, text is escaped."""

import itertools
import re
import xml.etree.ElementTree as ET
from importlib.metadata import version

import numpy as np
import pytest

import natgrad as ng
from natgrad.data.datasets.generated import paper_ratings
from natgrad.reproduce.paquet_runs import declare

SVG = "{http://www.w3.org/2000/svg}"


def school():
    rng = np.random.default_rng(0)
    schools, pupils = ng.Plate("school", 4), ng.Plate("pupil", 5)
    grand, spread = ng.Normal("grand", 0.0, 0.01), ng.Gamma("precision", 1.0, 1.0)
    mean = ng.Normal("mean", grand, spread, plate=schools)
    noise = ng.Gamma("noise", 1.0, 1.0)
    return ng.Network(ng.Normal("mark", mean, noise, plate=(schools, pupils), observed=rng.normal(size=(4, 5))))


def mixture():
    point, component = ng.Plate("point", 20), ng.Plate("component", 3)
    z = ng.Categorical("z", ng.Dirichlet("weight", 1.0, size=3), plate=point)
    mu = ng.MultivariateNormal("mu", 0.0, 0.01, size=2, plate=component)
    tau = ng.Wishart("tau", 2, np.eye(2), plate=component)
    points = np.random.default_rng(0).normal(size=(20, 2))
    return ng.Network(ng.MultivariateNormal("x", mu[z], tau[z], plate=point, observed=points))


def topics():
    cell = ng.Plate("cell", 20)
    theta = ng.Dirichlet("theta", 0.5, size=2, plate=ng.Plate("doc", 4))
    phi = ng.Dirichlet("phi", 0.1, size=7, plate=ng.Plate("topic", 2))
    z = ng.Categorical("z", theta[np.repeat(np.arange(4), 5)], plate=cell)
    return ng.Network(ng.Categorical("w", phi[z], plate=cell, observed=np.arange(20) % 7))


def factors():
    return declare(paper_ratings(30, 20, 100))


NETWORKS = [school, mixture, topics, factors]


class Seen:
    """The shapes of a drawing by name."""

    def __init__(self, drawing):
        root = ET.fromstring(drawing)
        number = lambda shape, key: float(shape.get(key))  # noqa: E731
        self.nodes = {}
        for group in root.iter(f"{SVG}g"):
            shape = group.find(f"{SVG}ellipse")
            place = tuple(number(shape, key) for key in ("cx", "cy", "rx", "ry"))
            self.nodes[group.find(f"{SVG}text").text] = (place, "ng-seen" in shape.get("class"))
        self.boxes = []
        for frame, label in itertools.pairwise(list(root)):
            if frame.tag == f"{SVG}rect":
                x, y, w, h = (number(frame, key) for key in ("x", "y", "width", "height"))
                self.boxes.append((label.text, (x, y, x + w, y + h)))
        self.paths = [path.get("d") for path in root.iter(f"{SVG}path") if path.get("class") == "ng-edge"]
        self.edges = len(self.paths)
        self.laws = {
            group.findall(f"{SVG}text")[0].text: group.findall(f"{SVG}text")[1].text for group in root.iter(f"{SVG}g")
        }
        self.view = tuple(map(float, root.get("viewBox").split()))

    def inside(self, box):
        left, top, right, bottom = box
        return {n for n, ((x, y, _, _), _) in self.nodes.items() if left < x < right and top < y < bottom}


@pytest.mark.parametrize("make", NETWORKS)
def test_drawing_tells_the_network(make):
    network = make()
    seen = Seen(network.draw())
    assert set(seen.nodes) == set(network.nodes)
    assert {name for name, (_, shaded) in seen.nodes.items() if shaded} == {
        name for name, node in network.nodes.items() if node.is_observed
    }
    for name, node in network.nodes.items():
        for parent in node.parents():
            assert seen.nodes[parent.name][0][1] < seen.nodes[name][0][1], "a parent stands above its child"
    assert seen.edges == sum(len(node.parents()) for node in network.nodes.values())


@pytest.mark.parametrize("make", NETWORKS)
def test_boxes_hold_their_own_nodes_and_no_others(make):
    network = make()
    seen = Seen(network.draw())
    plates = {name: {plate.name for plate in node.plates} for name, node in network.nodes.items()}
    assert seen.boxes
    covered = {name: set() for name in plates}
    for label, box in seen.boxes:
        named = set(re.findall(r"(\w+) [\d,]+", label))
        for name in seen.inside(box):
            assert named <= plates[name], f"{name} is inside {label}"
            covered[name] |= named
    assert covered == plates


@pytest.mark.parametrize("make", NETWORKS)
def test_nothing_overlaps_or_leaves_the_picture(make):
    seen = Seen(make().draw())
    places = [place for place, _ in seen.nodes.values()]
    for (x, y, w, h), (a, b, c, d) in itertools.combinations(places, 2):
        assert abs(x - a) >= w + c or abs(y - b) >= h + d
    left, top, width, height = seen.view
    for x, y, w, h in places:
        assert left <= x - w
        assert x + w <= left + width
        assert top <= y - h
        assert y + h <= top + height


@pytest.mark.parametrize("make", NETWORKS)
def test_edges_lead_from_rim_to_rim_and_names_have_distributions(make):
    network = make()
    seen = Seen(network.draw())
    assert seen.laws == {name: type(node).__name__ for name, node in network.nodes.items()}
    pairs = [(parent.name, name) for name, node in network.nodes.items() for parent in node.parents()]
    for pair, path in zip(pairs, seen.paths, strict=True):
        ends = np.reshape([float(number) for number in re.findall(r"-?[\d.]+", path)], (2, 2))
        for name, end in zip(pair, ends, strict=True):
            x, y, w, h = seen.nodes[name][0]
            assert ((end[0] - x) / w) ** 2 + ((end[1] - y) / h) ** 2 == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("make", NETWORKS)
def test_dot_has_every_node_once_in_its_plates_and_every_edge(make):
    network = make()
    dot, path, found, edges = network.to_dot(), [], {}, []
    for line in map(str.strip, dot.splitlines()[1:-1]):
        if line.startswith("subgraph"):
            path.append(set(re.findall(r'"cluster (.*)"', line)[0].split()))
        elif line == "}":
            path.pop()
        elif "->" in line:
            edges.append(tuple(re.findall(r'"([^"]+)"', line)))
        elif line.startswith('"'):
            name = re.match(r'"([^"]+)"', line)[1]
            assert name not in found
            found[name] = (set().union(*path), "filled" in line)
    assert found == {
        name: ({plate.name for plate in node.plates}, node.is_observed) for name, node in network.nodes.items()
    }
    assert edges == [(parent.name, name) for name, node in network.nodes.items() for parent in node.parents()]


def test_pupils_are_inside_schools():
    boxes = dict(Seen(school().draw()).boxes)
    inner, outer = boxes["pupil 5"], boxes["school 4"]
    assert outer[0] < inner[0]
    assert outer[1] < inner[1]
    assert inner[2] < outer[2]
    assert inner[3] < outer[3]


def test_drawing_can_be_saved_and_shown(tmp_path):
    network = mixture()
    drawing = network.draw()
    assert drawing.save(tmp_path / "net.svg").read_text() == drawing._repr_svg_()
    assert network._repr_html_() == drawing
    assert "SVG" in repr(drawing)


def test_names_are_escaped():
    odd = ng.Normal("<a&b>", 0.0, 1.0)
    x = ng.Normal("x", odd, 1.0, observed=0.3)
    network = ng.Network(x)
    assert "<a&b>" not in network.draw()
    assert set(Seen(network.draw()).nodes) == {"<a&b>", "x"}
    assert "<a&b>" not in network.fit(verbose=False)._repr_html_()


def test_notebook_shows_fits_and_leaves_unfitted_estimators_to_scikit_learn():
    unfitted = ng.LDA(n_topics=2)
    assert "sk-" in unfitted._repr_html_()
    model = unfitted.fit(["apple pear plum", "bolt nut screw"] * 4)
    text = model._repr_html_()
    assert "LDA(n_topics=2)" in text
    assert str(model.stop_).split("=")[0] in text
    if not version("scikit-learn").startswith("1.6."):  # whose notebooks show its own diagram
        assert model._repr_mimebundle_()["text/html"] == text
    assert "http" not in text


def test_notebook_shows_the_factors_of_a_network(fit):
    text = fit._repr_html_()
    assert "tau" in text
    assert f"{fit['tau'].mean():.4g}" in text
    assert "<svg" in text
