"""The console in a real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sirocco_client import Client, query_from_json

from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from sirocco.services.gateway.server import Gateway
from sirocco.services.gateway.settings import GatewaySettings
from tests.support.waiting import eventually

playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: make setup")

BROWSER = shutil.which("chromium")

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(BROWSER is None, reason="no browser: apt-get install chromium"),
]

# Root needs the first; the others paint WebGL without a graphics card.
OPTIONS = [
    "--no-sandbox",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--ignore-gpu-blocklist",
]
SETTINGS = ClusterSettings(cluster="seen", slots=4, leaves=16)

# On a busy machine without a graphics card a picture takes a second.
WAIT_MS = 180_000

HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>'


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(SETTINGS, evaluators=2) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(cluster: EmbeddedCluster) -> Iterator[Gateway]:
    one = Gateway(GatewaySettings(routers=cluster.router_address))
    one.start()
    yield one
    one.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        one = started.chromium.launch(executable_path=BROWSER, args=OPTIONS)
        yield one
        one.close()


@pytest.fixture
def page(browser: Any, gateway: Gateway) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light")
    context.set_default_timeout(WAIT_MS)
    one = context.new_page()
    wrong: list[str] = []
    one.on("pageerror", lambda error: wrong.append(str(error)))
    # A breach of the page's policy is an error there, too; lost connections are meant.
    one.on(
        "console",
        lambda said: (
            wrong.append(said.text)
            if said.type == "error" and "ERR_CONNECTION" not in said.text
            else None
        ),
    )
    one.goto(f"http://{gateway.address}/")
    one.locator("#status.open").wait_for()
    yield one
    assert not [each for each in wrong if "WebSocket" not in each], wrong
    context.close()


@pytest.fixture
def client(cluster: EmbeddedCluster) -> Iterator[Client]:
    with Client(cluster.router_address) as one:
        yield one


def own_name(page: Any) -> str:
    return str(page.evaluate("localStorage.getItem('sirocco-console')"))


def publish(client: Client, *objects: dict[str, Any]) -> None:
    with client.publisher() as publisher:
        for one in objects:
            publisher.publish(one)


def around_the_centre(page: Any) -> None:
    """Moves the map so that its middle is free of other things, over Paris."""
    page.evaluate("sirocco.world.map.jumpTo({center: [2.35, 48.85], zoom: 4})")


def test_a_newcomer_draws_a_polygon_and_sees_the_first_match(page: Any, client: Client) -> None:
    around_the_centre(page)
    page.get_by_role("button", name="Polygon").click()
    assert "Corner 1" in page.locator("#hint").inner_text()
    for x, y in ((540, 300), (740, 300), (740, 500)):
        page.mouse.click(x, y)
    page.mouse.dblclick(540, 500)
    assert page.locator("#ask strong").inner_text() == "a polygon"
    page.get_by_label("Words").fill("fire")
    page.get_by_role("button", name="Watch").click()
    page.locator("#queries .name", has_text="fire").wait_for()
    inside = {"id": 17, "lon": 2.35, "lat": 48.85, "text": f"fire {HOSTILE}"}
    publish(client, {"id": 16, "lon": 120.0, "lat": 1.0, "text": "fire far away"}, inside)
    line = page.locator("#feed li").first
    line.wait_for()
    # Texts of others are text.
    assert HOSTILE in line.inner_text()
    assert page.locator("#feed img, #feed script").count() == 0
    assert page.title() == "Sirocco"
    assert page.locator("#feed li").count() == 1
    assert page.locator("#queries .count").inner_text() == "1"
    # Why? By a click on the match, on the map.
    page.mouse.click(640, 400)
    dialog = page.locator("#explain")
    dialog.get_by_text("region").wait_for()
    assert "match" in dialog.locator("h2").inner_text()
    assert dialog.locator("mark").inner_text() == "fire"
    assert HOSTILE in dialog.locator(".text").inner_text()
    dialog.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Remove fire").click()
    page.get_by_text("No queries yet.").wait_for()


def test_a_circle_is_drawn_and_searched_by_keyboard_alone(page: Any, client: Client) -> None:
    publish(client, {"id": 5, "lon": 2.0, "lat": 48.0, "text": "keyword here"})
    around_the_centre(page)
    page.locator("body").press("c")
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowRight")
    where = "({lng}, moves) => lng > 2.4 && !moves"
    state = "sirocco.world.map.getCenter(), sirocco.world.map.isMoving()"
    eventually(lambda: page.evaluate(f"({where})({state})"), "the arrow key moves the map")
    page.keyboard.press("Enter")
    assert "around 48.85, 2.35" in page.locator("#ask strong").inner_text()
    # The focus has gone to the words.
    page.keyboard.type("keyword")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_text("1 found in the last hour").wait_for()
    page.keyboard.press("Escape")


def test_land_that_did_not_arrive_is_asked_for_again(page: Any) -> None:
    asked: list[str] = []

    def fail_once(route: Any) -> None:
        asked.append(route.request.url)
        if len(asked) == 1:
            route.abort("connectionrefused")
        else:
            route.continue_()

    page.route("**/countries-110m-*.json", fail_once)
    page.reload()
    with page.expect_response("**/countries-110m-*.json") as answer:
        pass
    assert (answer.value.ok, len(asked)) == (True, 2)


def test_it_says_that_the_gateway_is_gone_and_goes_on_by_itself(
    page: Any, cluster: EmbeddedCluster, client: Client
) -> None:
    first = Gateway(GatewaySettings(routers=cluster.router_address))
    first.start()
    page.goto(f"http://{first.address}/")
    page.locator("#status.open").wait_for()
    name = own_name(page)
    query = {"id": "kept", "kind": "range", "mode": "continuous", "text": "kept"}
    client.register(query_from_json(query, name))
    publish(client, {"id": 1, "lon": 1.0, "lat": 1.0, "text": "kept one"})
    page.locator("#feed li").first.wait_for()
    first.stop()
    page.locator("#status.lost").wait_for()
    publish(client, {"id": 2, "lon": 1.0, "lat": 1.0, "text": "kept two"})
    port = int(first.address.rpartition(":")[2])
    second = Gateway(GatewaySettings(routers=cluster.router_address, port=port))
    second.start()
    try:
        page.locator("#status.open").wait_for()
        publish(client, {"id": 3, "lon": 1.0, "lat": 1.0, "text": "kept three"})
        # Each once, what was published meanwhile too.
        eventually(lambda: page.locator("#feed li").count() >= 3)
        texts = [line.split()[-1] for line in page.locator("#feed li").all_inner_texts()]
        assert texts == ["three", "two", "one"]
        assert page.locator("#problems li").count() == 0
    finally:
        client.unregister("kept")
        page.goto("about:blank")
        second.stop()


@pytest.mark.parametrize(
    ("name", "scheme", "width", "height"),
    [("light", "light", 1280, 800), ("dark", "dark", 1280, 800), ("narrow", "light", 390, 780)],
)
def test_it_shows_a_busy_cluster(
    browser: Any,
    gateway: Gateway,
    client: Client,
    tmp_path: Path,
    name: str,
    scheme: str,
    width: int,
    height: int,
) -> None:
    query = {"kind": "range", "mode": "continuous", "text": "fire"}
    circle = {"circle": {"lon": 10.0, "lat": 47.0, "radius_m": 900_000}}
    client.register(query_from_json({"id": f"alps {name}", "region": circle} | query, name))
    stopping = threading.Event()

    def stream() -> None:
        places = [(i * 37 % 340 - 170, i * 23 % 120 - 55) for i in range(200)]
        places += [(10 + i % 9 / 2, 45 + i % 7 / 2) for i in range(60)]
        with client.publisher() as publisher:
            while not stopping.wait(0.2):
                for i, (lon, lat) in enumerate(places):
                    text = "fire" if i % 40 == 0 else "rain"
                    publisher.publish({"id": i, "lon": lon, "lat": lat, "text": text})

    publishing = threading.Thread(target=stream)
    publishing.start()
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    try:
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        page.goto(f"http://{gateway.address}/?subscriber={name}")
        page.locator("#feed li").nth(2).wait_for()
        # The page's policy forbids Playwright's own way to wait for a condition.
        for condition in (
            "points.at(performance.now()).objects.length > 100",
            "overlay.frames > 5",
        ):
            eventually(lambda one=condition: page.evaluate(f"sirocco.{one}"))
        page.screenshot(path=str(tmp_path / f"{name}.png"))
        # Nothing is wider than the screen.
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for each in ("#figures", "#panel", "#tools"):
            box = page.locator(each).bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
    finally:
        context.close()
        stopping.set()
        publishing.join()
        client.unregister(f"alps {name}")
