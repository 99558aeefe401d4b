/** Points that appear, fade and go: the arriving objects, and matches above them. */

import type { Place } from "./geometry";

export interface Point {
  id: string;
  at: Place;
  text: string;
  /** When it appears, milliseconds of the page's clock. */
  from_ms: number;
  /** Of a match: its query, and the object as it was received. */
  match?: { query: string; object: Record<string, unknown>; colour: string };
}

/** However much arrives, so many are drawn at most. */
export const OBJECTS_MAX = 1_500;
export const MATCHES_MAX = 400;

export const OBJECT_MS = 5_000;
export const MATCH_MS = 30_000;

/** A bounded list of points in the order of their appearance; the oldest go first. */
export class Points {
  #objects: Point[] = [];
  #matches: Point[] = [];

  /** Adds a sample: its objects appear one after another over the next second. */
  addSample(objects: readonly [id: string, lon: number, lat: number, at: number, text: string][], now_ms: number): void {
    const spread_ms = 1_000 / Math.max(1, objects.length);
    objects.forEach(([id, lon, lat, , text], i) => {
      this.#objects.push({ id, at: [lon, lat], text, from_ms: now_ms + i * spread_ms });
    });
    if (this.#objects.length > OBJECTS_MAX) this.#objects.splice(0, this.#objects.length - OBJECTS_MAX);
  }

  addMatch(point: Point): void {
    this.#matches.push(point);
    if (this.#matches.length > MATCHES_MAX) this.#matches.splice(0, this.#matches.length - MATCHES_MAX);
  }

  /** Removes the matches of a query. */
  forget(query: string): void {
    this.#matches = this.#matches.filter((point) => point.match?.query !== query);
  }

  /** Removes what has faded. Returns the points to draw, objects and matches. */
  at(now_ms: number): { objects: readonly Point[]; matches: readonly Point[] } {
    const isThere = (life_ms: number) => (point: Point) => now_ms - point.from_ms < life_ms;
    // In order of appearance, so those that have faded are at the front.
    const keep = (points: Point[], life_ms: number) => {
      const first = points.findIndex(isThere(life_ms));
      if (first < 0) points.length = 0;
      else if (first > 0) points.splice(0, first);
      return points;
    };
    return { objects: keep(this.#objects, OBJECT_MS), matches: keep(this.#matches, MATCH_MS) };
  }

  /** Returns the point that is nearest to a place of the screen, matches first; null beyond `reach`. */
  nearest(
    x: number,
    y: number,
    reach: number,
    now_ms: number,
    project: (at: Place) => { x: number; y: number },
  ): Point | null {
    for (const points of [this.#matches, this.#objects]) {
      let [best, least] = [null as Point | null, reach];
      for (const point of points) {
        if (point.from_ms > now_ms) continue;
        const on = project(point.at);
        const far = Math.hypot(on.x - x, on.y - y);
        if (far <= least) [best, least] = [point, far];
      }
      if (best) return best;
    }
    return null;
  }
}

/** How much of a point is left, 1 to 0; 0 before it appears. */
export function strength(point: Point, now_ms: number, life_ms: number): number {
  const age_ms = now_ms - point.from_ms;
  return age_ms < 0 || age_ms >= life_ms ? 0 : 1 - age_ms / life_ms;
}
