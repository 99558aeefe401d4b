import { describe, expect, it } from "vitest";
import { bounds, described, distance_m, outline, regionOf, wrapped, type Place } from "../src/geometry";
import { unwrapped } from "../src/land";

describe("regions", () => {
  it("takes the corners of a rectangle in any order", () => {
    const wanted = { rect: { west: 1, south: 2, east: 3, north: 4 } };
    expect(regionOf({ kind: "rect", from: [3, 2], to: [1, 4] })).toEqual(wanted);
    expect(regionOf({ kind: "rect", from: [1, 4], to: [3, 2] })).toEqual(wanted);
  });

  it("writes a rectangle over the antimeridian with west greater than east", () => {
    expect(regionOf({ kind: "rect", from: [170, 0], to: [190, 10] })).toEqual({ rect: { west: 170, south: 0, east: -170, north: 10 } });
  });

  it("does not go around the world twice", () => {
    expect(regionOf({ kind: "rect", from: [-300, -10], to: [100, 10] })).toEqual({ rect: { west: -180, south: -10, east: 180, north: 10 } });
  });

  it("has none without an area", () => {
    expect(regionOf({ kind: "rect", from: [1, 1], to: [1, 5] })).toBeNull();
    expect(regionOf({ kind: "circle", centre: [1, 1], radius_m: 0 })).toBeNull();
    expect(regionOf({ kind: "polygon", ring: [[0, 0], [1, 1]] })).toBeNull();
  });

  it("brings longitudes of other copies of the world back", () => {
    expect(wrapped(190)).toBe(-170);
    expect(wrapped(-541)).toBe(179);
    expect(wrapped(180)).toBe(180);
  });
});

describe("outlines", () => {
  it("draws a circle at its radius, near a pole too", () => {
    for (const [lon, lat] of [[2.35, 48.85], [0, 0], [25, 88]] as Place[]) {
      const [ring] = outline({ circle: { lon, lat, radius_m: 50_000 } });
      for (const corner of ring!) expect(Math.abs(distance_m([lon, lat], corner) - 50_000)).toBeLessThan(0.01);
    }
  });

  it("closes rings, and takes no nonsense", () => {
    expect(outline({ polygon: [[[0, 0], [1, 0], [1, 1]]] })[0]).toHaveLength(4);
    for (const nonsense of [null, 5, "x", {}, { polygon: 7 }, { h3: ["a"] }]) expect(outline(nonsense)).toEqual([]);
  });

  it("goes on to the east over the antimeridian", () => {
    expect(bounds(outline({ rect: { west: 170, south: -20, east: -170, north: -10 } }))).toEqual([[170, -20], [190, -10]]);
    expect(bounds([])).toBeNull();
  });

  it("are described in words", () => {
    expect(described({ circle: { lon: 2.35, lat: 48.85, radius_m: 5_000 } })).toBe("5 km around 48.85, 2.35");
    expect(described(undefined)).toBe("the whole world");
  });
});

describe("land", () => {
  it("has no jump over the seam", () => {
    expect(unwrapped([[170, 60], [-170, 60], [-170, 70], [170, 70], [170, 60]], true)).toEqual([[170, 60], [190, 60], [190, 70], [170, 70], [170, 60]]);
    expect(unwrapped([[-175, 0], [175, 1]], false)).toEqual([[-175, 0], [-185, 1]]);
  });

  it("closes a ring around a pole along it", () => {
    const ring = unwrapped([[-150, -70], [-30, -75], [90, -70], [-150, -70]], true);
    expect(ring.slice(-3)).toEqual([[210, -90], [-150, -90], [-150, -70]]);
  });
});
