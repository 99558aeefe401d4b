/** What `/v1/live` sends, and what follows from it. */

export interface Leaf {
  id: number;
  slot: number;
  box: [west: number, south: number, east: number, north: number];
  isText: boolean;
}

export interface PartitionMap {
  version: number;
  scheme: string;
  slots: number;
  leafCount: number;
  leaves: Leaf[];
  owners: Record<string, string>;
}

export interface Member {
  id: string;
  service: string;
  slots: number;
  objects_per_s?: number | null;
  matches_per_s?: number | null;
}

export interface State {
  cluster?: string;
  leader?: string;
  members?: Member[];
  loads?: number[];
  map_version?: number;
  objects_per_s?: number | null;
  matches_per_s?: number | null;
  search_ms?: number | null;
  lag_ms?: number | null;
  problems: Record<string, string>;
}

export interface Decision {
  at: number;
  reason: string;
  moves: number;
  map_version: number;
  outcome: string;
  seconds: number;
}

export interface Balance {
  on: boolean;
  balancer: string;
  imbalance: number;
  state: string;
  moves: number;
  map_changes: number;
  decisions: Decision[];
}

export interface Sample {
  at: number;
  found: number;
  window_ms: number;
  objects: [id: string, lon: number, lat: number, at: number, text: string][];
}

type WireLeaf = [number, number, number, number, number, number, boolean];

/** Reads the map. */
export function readMap(data: unknown): PartitionMap {
  const wire = data as { version: number; scheme: string; slots: number; leaf_count: number; leaves: WireLeaf[]; owners: Record<string, string> };
  return {
    version: wire.version,
    scheme: wire.scheme,
    slots: wire.slots,
    leafCount: wire.leaf_count,
    owners: wire.owners,
    leaves: wire.leaves.map(([id, slot, west, south, east, north, isText]) => ({ id, slot, box: [west, south, east, north], isText })),
  };
}

/** One box of the map. Leaves that divide a box by words share it. */
export interface Cell {
  box: Leaf["box"];
  leaves: number[];
  slots: number[];
  owners: string[];
  /** Part of all arriving objects, 0 to 1. */
  load: number;
}

/** Returns the boxes of a map with their loads, the loads in the order of the leaves. */
export function cells(map: PartitionMap, loads: readonly number[]): Cell[] {
  const found = new Map<string, Cell>();
  map.leaves.forEach((leaf, i) => {
    const key = leaf.box.join();
    const cell = found.get(key) ?? { box: leaf.box, leaves: [], slots: [], owners: [], load: 0 };
    found.set(key, cell);
    cell.leaves.push(leaf.id);
    if (!cell.slots.includes(leaf.slot)) cell.slots.push(leaf.slot);
    const owner = map.owners[leaf.slot] ?? "";
    if (!cell.owners.includes(owner)) cell.owners.push(owner);
    cell.load += loads[i] ?? 0;
  });
  return [...found.values()];
}

/** Colours that people with the usual kinds of colour blindness tell apart (Okabe and Ito). */
const HUES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#b3a200"];
const NOBODY = "#8a8a8a";

/** Returns a colour for each owner, by their order; the same owners get the same colours. */
export function ownerColours(map: PartitionMap): Map<string, string> {
  const owners = [...new Set(Object.values(map.owners))].sort();
  return new Map(owners.map((owner, i) => [owner, HUES[i % HUES.length]!]));
}

/** Returns what is drawn for each box: the owner's colour, stronger where more arrives. */
export function leafFeatures(map: PartitionMap, loads: readonly number[]): GeoJSON.FeatureCollection {
  const colours = ownerColours(map);
  const all = cells(map, loads);
  const greatest = Math.max(1e-9, ...all.map((cell) => cell.load));
  return {
    type: "FeatureCollection",
    features: all.map((cell, i) => {
      const [west, south, east, north] = cell.box;
      // The map of a browser ends at 85 degrees.
      const [low, high] = [Math.max(south, -85.05), Math.min(north, 85.05)];
      return {
        type: "Feature",
        id: i,
        properties: {
          colour: (cell.owners.length === 1 && colours.get(cell.owners[0]!)) || NOBODY,
          // The root makes small loads visible beside great ones.
          strength: Math.round(Math.sqrt(cell.load / greatest) * 20) / 20,
          cell: i,
        },
        geometry: {
          type: "Polygon",
          coordinates: [[[west, low], [east, low], [east, high], [west, high], [west, low]]],
        },
      };
    }),
  };
}

/** Says what has changed from one map to the next; empty if nothing. */
export function mapChange(before: PartitionMap | null, after: PartitionMap): string {
  if (!before) return "";
  if (before.version !== after.version) {
    const boxes = new Set(before.leaves.map((leaf) => leaf.box.join()));
    const changed = after.leaves.filter((leaf) => !boxes.has(leaf.box.join())).length;
    return `Map ${after.version}: ${after.leafCount} leaves, ${changed} of them new`;
  }
  const moved = Object.keys(after.owners).filter((slot) => before.owners[slot] !== after.owners[slot]);
  if (!moved.length) return "";
  const to = [...new Set(moved.map((slot) => after.owners[slot]!))];
  return `${moved.length === 1 ? `Slot ${moved[0]} goes` : `${moved.length} slots go`} to ${to.join(", ")}`;
}

/** Returns the boxes of a map that another one did not have. */
export function newBoxes(before: PartitionMap | null, after: PartitionMap): Leaf["box"][] {
  if (!before || before.version === after.version) return [];
  const known = new Set(before.leaves.map((leaf) => leaf.box.join()));
  return after.leaves.map((leaf) => leaf.box).filter((one) => !known.has(one.join()));
}

/** `evaluator-0.5ed91bb595` → `evaluator-0`. */
export const shortName = (member: string): string => member.replace(/\.[0-9a-f]{6,}$/, "");
