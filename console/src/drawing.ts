/** Drawing a shape by mouse, touch or keyboard: a pure state machine over places of the map. */

import { distance_m, type Place, type Shape } from "./geometry";

export type Tool = "rect" | "circle" | "polygon" | "object";

/** Corners beyond are not taken: a region has 10,000 at most, and nobody draws so many. */
const CORNERS_MAX = 500;

export interface Drawing {
  tool: Tool | null;
  /** Places that were fixed. */
  fixed: Place[];
  /** Where the pointer is; the shape follows it. */
  pointer: Place | null;
  /** The finished shape. */
  shape: Shape | null;
}

export const NOTHING: Drawing = { tool: null, fixed: [], pointer: null, shape: null };

export type Input =
  | { type: "tool"; tool: Tool | null }
  | { type: "point"; at: Place }
  | { type: "move"; at: Place }
  | { type: "back" }
  | { type: "finish" }
  | { type: "clear" };

/** Returns the state after an input. */
export function next(state: Drawing, input: Input): Drawing {
  switch (input.type) {
    case "tool":
      return { ...NOTHING, tool: input.tool === state.tool ? null : input.tool };
    case "clear":
      return NOTHING;
    case "move":
      return state.tool && state.fixed.length ? { ...state, pointer: input.at } : state;
    case "back":
      if (!state.tool) return NOTHING;
      return state.fixed.length ? { ...state, fixed: state.fixed.slice(0, -1), pointer: null } : NOTHING;
    case "point":
      return fix(state, input.at);
    case "finish":
      if (state.tool !== "polygon" || state.fixed.length < 3) return state;
      return { ...NOTHING, shape: { kind: "polygon", ring: state.fixed } };
  }
}

function fix(state: Drawing, at: Place): Drawing {
  if (!state.tool || state.tool === "object") return state;
  const last = state.fixed.at(-1);
  // A double click, or a key that repeats.
  if (last && last[0] === at[0] && last[1] === at[1]) return state;
  if (state.tool === "polygon") {
    return state.fixed.length >= CORNERS_MAX
      ? state
      : { ...state, fixed: [...state.fixed, at], pointer: null, shape: null };
  }
  const first = state.fixed[0];
  if (!first) return { ...state, fixed: [at], pointer: null, shape: null };
  return { ...NOTHING, shape: twoPoints(state.tool, first, at) };
}

function twoPoints(tool: "rect" | "circle", first: Place, second: Place): Shape {
  return tool === "rect"
    ? { kind: "rect", from: first, to: second }
    : { kind: "circle", centre: first, radius_m: distance_m(first, second) };
}

/** Returns the shape as it is now, the pointer taken as the next place; null without one. */
export function preview(state: Drawing): Shape | null {
  if (state.shape) return state.shape;
  const [first] = state.fixed;
  if (!state.tool || state.tool === "object" || !first) return null;
  if (state.tool === "polygon") {
    return { kind: "polygon", ring: state.pointer ? [...state.fixed, state.pointer] : state.fixed };
  }
  return state.pointer ? twoPoints(state.tool, first, state.pointer) : null;
}

/** Says what to do next. */
export function hint(state: Drawing): string {
  const place = "click, or move the map with the arrow keys and press Enter";
  if (state.tool === "object") return `Where shall the object be? ${capital(place)}.`;
  if (state.tool === "rect") return state.fixed.length ? `The opposite corner: ${place}.` : `One corner: ${place}.`;
  if (state.tool === "circle") return state.fixed.length ? `How far? ${capital(place)}.` : `The centre: ${place}.`;
  if (state.tool === "polygon") {
    if (state.fixed.length < 3) return `Corner ${state.fixed.length + 1}: ${place}.`;
    return "More corners, or finish: double-click, or press F.";
  }
  return "";
}

const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
