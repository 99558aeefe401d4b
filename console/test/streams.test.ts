import { describe, expect, it } from "vitest";
import { EventReader, pause_ms, SleepWatch } from "../src/events";
import { Feed, FEED_MAX, told } from "../src/feed";
import { marked } from "../src/explaining";
import { MATCHES_MAX, OBJECT_MS, OBJECTS_MAX, Points, strength } from "../src/points";

const readAll = (...pieces: string[]) => {
  const reader = new EventReader();
  return pieces.flatMap((piece) => [...reader.read(piece)]);
};

describe("server-sent events", () => {
  it("are read in pieces of any size", () => {
    const text = ': hello\r\nretry: 5\n\nevent: state\ndata: {"a":1}\n\ndata: x\ndata: y\n\nid: 4\n\n';
    const wanted = [{ name: "state", data: '{"a":1}' }, { name: "message", data: "x\ny" }];
    expect(readAll(text)).toEqual(wanted);
    expect(readAll(...text)).toEqual(wanted);
  });

  it("that are not finished are not handed out", () => {
    expect(readAll("data: half\n")).toEqual([]);
  });
});

it("pauses grow, vary and stay bounded", () => {
  expect(pause_ms(0, 1)).toBe(500);
  expect(pause_ms(1, 0)).toBe(500);
  expect(pause_ms(1_000, 1)).toBe(10_000);
});

it("a sleep is noticed once, and a late timer is none", () => {
  let woken = 0;
  const watch = new SleepWatch(() => (woken += 1), 0);
  for (const now_ms of [5_000, 10_000, 70_000, 130_000]) watch.look(now_ms);
  expect(woken).toBe(0);
  for (const now_ms of [3_600_000, 3_605_000]) watch.look(now_ms);
  expect(woken).toBe(1);
});

describe("the feed", () => {
  it("counts all and keeps some", () => {
    const feed = new Feed();
    for (let i = 0; i < FEED_MAX + 50; i++) feed.add("me", { query: "q", object: { id: String(i), lon: 0, lat: 0 } }, i);
    expect([feed.total, feed.lines.length, feed.counts.get("q")]).toEqual([FEED_MAX + 50, FEED_MAX, FEED_MAX + 50]);
    expect(feed.lines[0]!.object!.id).toBe(String(FEED_MAX + 49));
  });

  it("takes no nonsense", () => {
    const feed = new Feed();
    for (const one of [null, 3, "x"]) expect(feed.add("me", one, 0)).toBeNull();
    expect(feed.add("me", {}, 0)!.object).toBeNull();
  });

  it("says what each kind of notification tells", () => {
    expect(told({ object: { id: "1", text: "fire" } })).toBe("fire");
    expect(told({ object: { id: "1" }, event: "enter", track: "bus" })).toBe("enter bus: 1");
    expect(told({ event: "ended", reason: "ttl" })).toBe("has ended (ttl)");
    expect(told({ terms: [["a", 2]] })).toBe("a 2");
    expect(told({ objects: [] })).toBe("now nothing");
  });
});

describe("points", () => {
  it("are bounded however much arrives", () => {
    const points = new Points();
    const sample = Array.from({ length: 1_000 }, (_, i) => [String(i), 0, 0, 0, ""] as [string, number, number, number, string]);
    for (let i = 0; i < 10; i++) points.addSample(sample, i);
    for (let i = 0; i < 1_000; i++) points.addMatch({ id: "", at: [0, 0], text: "", from_ms: 0 });
    const { objects, matches } = points.at(10);
    expect([objects.length, matches.length]).toEqual([OBJECTS_MAX, MATCHES_MAX]);
  });

  it("appear one after another, fade, and go", () => {
    const points = new Points();
    points.addSample([["a", 0, 0, 0, ""], ["b", 0, 0, 0, ""]], 0);
    const [first, second] = points.at(0).objects;
    expect([strength(first!, 0, OBJECT_MS), strength(second!, 0, OBJECT_MS)]).toEqual([1, 0]);
    expect(strength(first!, OBJECT_MS / 2, OBJECT_MS)).toBe(0.5);
    expect(points.at(OBJECT_MS + 100).objects.map((point) => point.id)).toEqual(["b"]);
    expect(points.at(OBJECT_MS + 5_000).objects).toEqual([]);
  });

  it("are found near a place, matches first", () => {
    const points = new Points();
    points.addSample([["object", 0, 0, 0, ""]], 0);
    points.addMatch({ id: "match", at: [5, 0], text: "", from_ms: 0 });
    const project = ([x, y]: [number, number]) => ({ x, y });
    expect(points.nearest(1, 0, 10, 1, project)!.id).toBe("match");
    expect(points.nearest(1, 0, 2, 1, project)!.id).toBe("object");
    expect(points.nearest(50, 50, 10, 1, project)).toBeNull();
  });
});

it("marks words by characters, not by their halves", () => {
  expect(marked("😀 fire now", [{ start: 2, end: 6 }])).toEqual([
    { text: "😀 ", isMarked: false },
    { text: "fire", isMarked: true },
    { text: " now", isMarked: false },
  ]);
  expect(marked("ab", [{ start: 0, end: 9 }])).toEqual([{ text: "ab", isMarked: true }]);
});
