import { describe, expect, it } from "vitest";
import { hint, next, NOTHING, preview, type Drawing, type Input, type Tool } from "../src/drawing";
import type { Place } from "../src/geometry";

const after = (...inputs: Input[]): Drawing => inputs.reduce(next, NOTHING);
const tool = (one: Tool): Input => ({ type: "tool", tool: one });
const point = (...at: Place): Input => ({ type: "point", at });
const move = (...at: Place): Input => ({ type: "move", at });

describe("drawing", () => {
  it("makes a rectangle of two points, and a circle of its centre and edge", () => {
    expect(after(tool("rect"), point(1, 2), point(3, 4)).shape).toEqual({ kind: "rect", from: [1, 2], to: [3, 4] });
    const circle = after(tool("circle"), point(0, 0), point(0, 1)).shape;
    expect(circle).toMatchObject({ kind: "circle", centre: [0, 0] });
    expect(circle?.kind === "circle" && Math.round(circle.radius_m / 1_000)).toBe(111);
  });

  it("follows the pointer once something is fixed", () => {
    expect(preview(after(tool("rect"), move(9, 9)))).toBeNull();
    expect(preview(after(tool("rect"), point(1, 2), move(9, 9)))).toEqual({ kind: "rect", from: [1, 2], to: [9, 9] });
    expect(preview(after(tool("polygon"), point(0, 0), point(1, 0), move(1, 1)))).toEqual({ kind: "polygon", ring: [[0, 0], [1, 0], [1, 1]] });
  });

  it("finishes a polygon of three corners or more, without the second click of a double click", () => {
    const two = after(tool("polygon"), point(0, 0), point(1, 0), { type: "finish" });
    expect(two.shape).toBeNull();
    const three = after(tool("polygon"), point(0, 0), point(1, 0), point(1, 1), point(1, 1), { type: "finish" });
    expect(three).toEqual({ ...NOTHING, shape: { kind: "polygon", ring: [[0, 0], [1, 0], [1, 1]] } });
  });

  it("takes back a corner, then the tool", () => {
    expect(after(tool("polygon"), point(0, 0), point(1, 0), { type: "back" }).fixed).toEqual([[0, 0]]);
    expect(after(tool("polygon"), { type: "back" })).toEqual(NOTHING);
  });

  it("drops the tool when it is chosen again, and everything on clear", () => {
    expect(after(tool("rect"), tool("rect")).tool).toBeNull();
    expect(after(tool("rect"), point(1, 1), { type: "clear" })).toEqual(NOTHING);
  });

  it("takes a bounded number of corners", () => {
    const many = Array.from({ length: 600 }, (_, i) => point(i / 10, i % 7));
    expect(after(tool("polygon"), ...many).fixed).toHaveLength(500);
  });

  it("says what to do, for the keyboard too", () => {
    expect(hint(after(tool("polygon")))).toContain("Enter");
    expect(hint(after(tool("polygon"), point(0, 0), point(1, 0), point(1, 1)))).toContain("F");
    expect(hint(NOTHING)).toBe("");
  });
});
