"""The metadata that a chart registry shows, and that its addresses lead to existing files."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import yaml

import sirocco
from tests.charts.rendering import CHART, ROOT

METADATA = (CHART / "Chart.yaml").read_text()
HOME = "https://github.com/sirocco/sirocco"


def test_the_chart_names_its_origin() -> None:
    chart = yaml.safe_load(METADATA)
    assert chart["version"] == chart["appVersion"] == sirocco.__version__
    assert chart["home"] == HOME
    assert chart["sources"] == [HOME]
    assert all(each["name"] and each["url"] for each in chart["maintainers"])
    annotations = chart["annotations"]
    assert annotations["artifacthub.io/license"] == "Apache-2.0"
    assert annotations["artifacthub.io/category"] == "streaming-messaging"
    # Both are YAML within a string.
    for name, members in (("links", {"name", "url"}), ("changes", {"kind", "description"})):
        found = yaml.safe_load(annotations[f"artifacthub.io/{name}"])
        assert found
        assert all(each.keys() == members for each in found)


def test_addresses_lead_to_files_of_the_repository() -> None:
    host = r"https://(?:raw\.githubusercontent|github)\.com"
    pattern = rf"{host}/sirocco/sirocco(?:/blob|/tree)?/main/(\S+)"
    paths = re.findall(pattern, METADATA)
    assert len(paths) >= 4
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_icon_is_a_picture() -> None:
    icon = yaml.safe_load(METADATA)["icon"]
    root = ElementTree.parse(CHART / icon.rpartition("/")[2]).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
