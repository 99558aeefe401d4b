/** Shapes that are drawn on the map, and regions of queries as outlines. */

export type Place = [lon: number, lat: number];

export type Shape =
  | { kind: "rect"; from: Place; to: Place }
  | { kind: "circle"; centre: Place; radius_m: number }
  | { kind: "polygon"; ring: Place[] };

/** A region as the API takes it; only the forms that a stored query has. */
export type Region =
  | { rect: { west: number; south: number; east: number; north: number } }
  | { circle: { lon: number; lat: number; radius_m: number } }
  | { polygon: Place[][] };

/** The sphere of the engine, so that a circle on the map is the circle that matches. */
const EARTH_M = 6_371_008.8;
const RADIANS = Math.PI / 180;
const CIRCLE_CORNERS = 96;

/** Five digits are a metre. */
const rounded = (value: number): number => Math.round(value * 1e5) / 1e5;

/** Returns a longitude within [-180, 180]. */
export const wrapped = (lon: number): number =>
  lon >= -180 && lon <= 180 ? lon : ((((lon + 180) % 360) + 360) % 360) - 180;

const limited = (lat: number): number => Math.max(-90, Math.min(90, lat));

/** Returns the great-circle distance, metres. */
export function distance_m(a: Place, b: Place): number {
  const [lon1, lat1, lon2, lat2] = [...a, ...b].map((degrees) => degrees * RADIANS) as [number, number, number, number];
  const h =
    Math.sin((lat2 - lat1) / 2) ** 2 +
    Math.cos(lat1) * Math.cos(lat2) * Math.sin((lon2 - lon1) / 2) ** 2;
  return 2 * EARTH_M * Math.asin(Math.min(1, Math.sqrt(h)));
}

/** Returns the region of a shape; null while the shape has no area. */
export function regionOf(shape: Shape): Region | null {
  if (shape.kind === "rect") {
    const [west, east] = [shape.from[0], shape.to[0]].sort((a, b) => a - b) as Place;
    const [south, north] = [shape.from[1], shape.to[1]].sort((a, b) => a - b) as Place;
    if (west === east || south === north) return null;
    const isRound = east - west >= 360;
    return {
      rect: {
        west: isRound ? -180 : rounded(wrapped(west)),
        south: rounded(limited(south)),
        east: isRound ? 180 : rounded(wrapped(east)),
        north: rounded(limited(north)),
      },
    };
  }
  if (shape.kind === "circle") {
    if (!(shape.radius_m > 0)) return null;
    const [lon, lat] = shape.centre;
    return { circle: { lon: rounded(wrapped(lon)), lat: rounded(limited(lat)), radius_m: Math.round(shape.radius_m) } };
  }
  if (shape.ring.length < 3) return null;
  return { polygon: [shape.ring.map(([lon, lat]): Place => [rounded(Math.max(-180, Math.min(180, lon))), rounded(limited(lat))])] };
}

function circleRing(centre: Place, radius_m: number): Place[] {
  const [lon, lat] = centre;
  const angle = Math.min(radius_m / EARTH_M, Math.PI);
  const ring: Place[] = [];
  for (let i = 0; i <= CIRCLE_CORNERS; i++) {
    const bearing = (i / CIRCLE_CORNERS) * 2 * Math.PI;
    const lat2 = Math.asin(
      Math.sin(lat * RADIANS) * Math.cos(angle) +
        Math.cos(lat * RADIANS) * Math.sin(angle) * Math.cos(bearing),
    );
    const lon2 = Math.atan2(
      Math.sin(bearing) * Math.sin(angle) * Math.cos(lat * RADIANS),
      Math.cos(angle) - Math.sin(lat * RADIANS) * Math.sin(lat2),
    );
    ring.push([lon + lon2 / RADIANS, lat2 / RADIANS]);
  }
  return ring;
}

const box = (west: number, south: number, east: number, north: number): Place[] => [
  [west, south], [east, south], [east, north], [west, north], [west, south],
];

const closed = (ring: Place[]): Place[] => {
  const [first, last] = [ring[0], ring.at(-1)];
  return first && last && (first[0] !== last[0] || first[1] !== last[1]) ? [...ring, first] : ring;
};

/** Returns the rings of a region's outline; empty for a form that is not drawn. */
export function outline(region: unknown): Place[][] {
  if (typeof region !== "object" || region === null) return [];
  if ("rect" in region) {
    const { west, south, east, north } = (region as { rect: { west: number; south: number; east: number; north: number } }).rect;
    // A box over the antimeridian goes on to the east of it.
    return [box(west, south, east < west ? east + 360 : east, north)];
  }
  if ("circle" in region) {
    const { lon, lat, radius_m } = (region as { circle: { lon: number; lat: number; radius_m: number } }).circle;
    return [circleRing([lon, lat], radius_m)];
  }
  if ("polygon" in region) {
    const rings = (region as { polygon: Place[][] }).polygon;
    return Array.isArray(rings) ? rings.filter((ring) => Array.isArray(ring) && ring.length > 2).map(closed) : [];
  }
  return [];
}

/** Returns the corners of all rings, to move the map there; null without any. */
export function bounds(rings: Place[][]): [Place, Place] | null {
  let [west, south, east, north] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const [lon, lat] of rings.flat()) {
    west = Math.min(west, lon);
    east = Math.max(east, lon);
    south = Math.min(south, lat);
    north = Math.max(north, lat);
  }
  return west > east ? null : [[west, south], [east, north]];
}

/** Says a region in words. */
export function described(region: unknown): string {
  if (typeof region !== "object" || region === null) return "the whole world";
  if ("circle" in region) {
    const { lon, lat, radius_m } = (region as { circle: { lon: number; lat: number; radius_m: number } }).circle;
    return `${lengthText(radius_m)} around ${lat.toFixed(2)}, ${lon.toFixed(2)}`;
  }
  if ("rect" in region) return "a rectangle";
  if ("polygon" in region) return "a polygon";
  return "a region";
}

/** Writes a length with its unit. */
export const lengthText = (metres: number): string =>
  metres < 1_000 ? `${Math.round(metres)} m` : `${(metres / 1_000).toLocaleString("en", { maximumFractionDigits: metres < 10_000 ? 1 : 0 })} km`;
