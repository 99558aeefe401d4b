import { describe, expect, it } from "vitest";
import { cells, leafFeatures, mapChange, newBoxes, ownerColours, readMap, shortName } from "../src/live";

const wire = (version: number, leaves: unknown[], owners: Record<string, string>) =>
  readMap({ version, scheme: "qt-tree", slots: 2, leaf_count: leaves.length, leaves, owners });

const ONE = wire(1, [[0, 0, -180, -90, 0, 90, false], [1, 1, 0, -90, 180, 90, false]], { "0": "evaluator-0.aaaaaaaaaa", "1": "evaluator-1.bbbbbbbbbb" });

describe("the map of leaves", () => {
  it("joins leaves that divide a box by words", () => {
    const map = wire(1, [[0, 0, 0, 0, 1, 1, true], [1, 1, 0, 0, 1, 1, true]], ONE.owners);
    expect(cells(map, [0.25, 0.5])).toEqual([
      { box: [0, 0, 1, 1], leaves: [0, 1], slots: [0, 1], owners: ["evaluator-0.aaaaaaaaaa", "evaluator-1.bbbbbbbbbb"], load: 0.75 },
    ]);
  });

  it("is coloured by owner, stronger by load, and ends where the map does", () => {
    const { features } = leafFeatures(ONE, [0.8, 0.2]);
    const colours = ownerColours(ONE);
    expect(features.map((one) => [one.properties!.colour, one.properties!.strength])).toEqual([
      [colours.get("evaluator-0.aaaaaaaaaa"), 1],
      [colours.get("evaluator-1.bbbbbbbbbb"), 0.5],
    ]);
    const [ring] = (features[0]!.geometry as GeoJSON.Polygon).coordinates;
    expect(Math.max(...ring!.map(([, lat]) => lat!))).toBeLessThan(86);
  });

  it("has no strength without loads", () => {
    expect(leafFeatures(ONE, []).features.every((one) => one.properties!.strength === 0)).toBe(true);
  });
});

describe("changes of the map", () => {
  const split = wire(2, [[0, 0, -180, -90, 0, 90, false], [2, 1, 0, -90, 180, 0, false], [3, 0, 0, 0, 180, 90, false]], ONE.owners);

  it("are said in words", () => {
    expect(mapChange(null, ONE)).toBe("");
    expect(mapChange(ONE, ONE)).toBe("");
    expect(mapChange(ONE, split)).toBe("Map 2: 3 leaves, 2 of them new");
    const moved = { ...ONE, owners: { ...ONE.owners, "1": "evaluator-0.aaaaaaaaaa" } };
    expect(mapChange(ONE, moved)).toBe("Slot 1 goes to evaluator-0.aaaaaaaaaa");
  });

  it("are shown by the new boxes", () => {
    expect(newBoxes(ONE, split)).toEqual([[0, -90, 180, 0], [0, 0, 180, 90]]);
    expect(newBoxes(null, split)).toEqual([]);
  });
});

it("shortens names of members", () => {
  expect(shortName("evaluator-0.5ed91bb595")).toBe("evaluator-0");
});
