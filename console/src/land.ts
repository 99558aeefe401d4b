/** Natural Earth as flat maps need it: its rings are drawn on a sphere, and some cross its seam. */

import type { Place } from "./geometry";

/**
 * Returns a ring or line without jumps from one side of the map to the other: it goes on beyond 180
 * degrees instead, where the map shows the next copy of the world. A ring around a pole is closed
 * along that pole.
 */
export function unwrapped(places: readonly Place[], isRing: boolean): Place[] {
  let turn = 0;
  let last: number | null = null;
  const found = places.map(([lon, lat]): Place => {
    if (last !== null && Math.abs(lon - last) > 180) turn += lon < last ? 360 : -360;
    last = lon;
    return [lon + turn, lat];
  });
  const [first, end] = [found[0], found.at(-1)];
  if (isRing && first && end && first[0] !== end[0]) {
    const pole = first[1] < 0 ? -90 : 90;
    found.push([end[0], pole], [first[0], pole], first);
  }
  return found;
}

const rings = (polygon: GeoJSON.Position[][]): Place[][] => polygon.map((ring) => unwrapped(ring as Place[], true));

/** Returns polygons and lines that a flat map can fill and draw. */
export function flat(shape: GeoJSON.Geometry): GeoJSON.Geometry {
  switch (shape.type) {
    case "Polygon":
      return { ...shape, coordinates: rings(shape.coordinates) };
    case "MultiPolygon":
      return { ...shape, coordinates: shape.coordinates.map(rings) };
    case "MultiLineString":
      return { ...shape, coordinates: shape.coordinates.map((line) => unwrapped(line as Place[], false)) };
    default:
      return shape;
  }
}
