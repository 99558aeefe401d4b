/** The map: land and borders of Natural Earth, the leaves, regions and what is being drawn. */

import { GeoJSONSource, Map as MapLibre, setWorkerUrl, type StyleSpecification } from "maplibre-gl";
import "maplibre-gl/dist/maplibre-gl.css";
import workerUrl from "maplibre-gl/dist/maplibre-gl-worker.mjs?url";
import { feature, mesh } from "topojson-client";
import type { GeometryCollection, Topology } from "topojson-specification";
import coarseUrl from "world-atlas/countries-110m.json?url";
import fineUrl from "world-atlas/countries-50m.json?url";
import { pause_ms } from "./events";
import { outline, type Place } from "./geometry";
import { flat } from "./land";

setWorkerUrl(workerUrl);

/** From this zoom on the borders of 1:50,000,000 are loaded. */
const FINE_ZOOM = 2.6;

const EMPTY: GeoJSON.FeatureCollection = { type: "FeatureCollection", features: [] };

interface Colours {
  sea: string;
  land: string;
  border: string;
  leaf: string;
  change: string;
  drawn: string;
}

const LIGHT: Colours = { sea: "#dfe6ea", land: "#fbfaf6", border: "#bdbab2", leaf: "#7b8794", change: "#c1121f", drawn: "#b5179e" };
const DARK: Colours = { sea: "#0d1720", land: "#1b2731", border: "#3c4a57", leaf: "#62727f", change: "#ff6b6b", drawn: "#ff9de2" };

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const colours = (): Colours => (dark.matches ? DARK : LIGHT);

/** What is painted, by layer; depends on the colours alone. */
function paints(): Record<string, Record<string, unknown>> {
  const c = colours();
  return {
    sea: { "background-color": c.sea },
    land: { "fill-color": c.land, "fill-antialias": false },
    leaves: {
      "fill-color": ["get", "colour"],
      "fill-opacity": ["+", 0.02, ["*", dark.matches ? 0.5 : 0.42, ["get", "strength"]]],
    },
    borders: { "line-color": c.border, "line-width": 0.6 },
    edges: { "line-color": ["get", "colour"], "line-width": 0.7, "line-opacity": 0.55 },
    changes: { "line-color": c.change, "line-width": 2.5 },
    regions: { "fill-color": ["get", "colour"], "fill-opacity": 0.1 },
    outlines: { "line-color": ["get", "colour"], "line-width": 1.8, "line-dasharray": [2, 1.2] },
    drawn: { "fill-color": c.drawn, "fill-opacity": 0.16 },
    drawing: { "line-color": c.drawn, "line-width": 2.2 },
    corners: { "circle-color": c.drawn, "circle-radius": 4.5, "circle-stroke-color": c.land, "circle-stroke-width": 1.5 },
  };
}

const TYPES: Record<string, [type: string, source: string]> = {
  land: ["fill", "land"],
  leaves: ["fill", "leaves"],
  borders: ["line", "borders"],
  edges: ["line", "leaves"],
  changes: ["line", "changes"],
  regions: ["fill", "regions"],
  outlines: ["line", "regions"],
  drawn: ["fill", "drawing"],
  drawing: ["line", "drawing"],
  corners: ["circle", "corners"],
};

function style(): StyleSpecification {
  const paint = paints();
  const sources = [...new Set(Object.values(TYPES).map(([, source]) => source))];
  return {
    version: 8,
    sources: Object.fromEntries(sources.map((name) => [name, { type: "geojson", data: EMPTY, ...(name === "land" ? { tolerance: 0.3 } : {}) }])),
    layers: [
      { id: "sea", type: "background", paint: paint.sea },
      ...Object.entries(TYPES).map(([id, [type, source]]) => ({ id, type, source, paint: paint[id] })),
    ] as StyleSpecification["layers"],
  };
}

export interface DrawnRegion {
  region: unknown;
  colour: string;
}

/** The map of the console. */
export class WorldMap {
  readonly map: MapLibre;
  #isFine = false;
  #leaves = "";
  #changeTimer = 0;

  constructor(container: HTMLElement, onReady: () => void) {
    this.map = new MapLibre({
      container,
      style: style(),
      center: [10, 25],
      zoom: container.clientWidth < 700 ? 0.4 : 1.4,
      attributionControl: false,
      dragRotate: false,
      pitchWithRotate: false,
      touchPitch: false,
      renderWorldCopies: true,
      maxPitch: 0,
      fadeDuration: 0,
    });
    this.map.touchZoomRotate.disableRotation();
    this.map.keyboard.disableRotation();
    const canvas = this.map.getCanvas();
    canvas.setAttribute("aria-label", "Map: the arrow keys move it, plus and minus zoom");
    dark.addEventListener("change", () => this.#repaint());
    this.map.on("load", () => {
      void this.#loadLand(coarseUrl);
      onReady();
    });
    this.map.on("zoomend", () => {
      if (this.#isFine || this.map.getZoom() < FINE_ZOOM) return;
      this.#isFine = true;
      void this.#loadLand(fineUrl);
    });
  }

  /** Shows the leaves; the map is painted anew only if they look different. */
  setLeaves(features: GeoJSON.FeatureCollection): void {
    const look = JSON.stringify(features);
    if (look === this.#leaves || !this.map.getSource("leaves")) return;
    this.#leaves = look;
    this.#set("leaves", features);
  }

  /** Shows the borders of new leaves for some seconds. */
  flash(boxes: readonly [number, number, number, number][]): void {
    window.clearTimeout(this.#changeTimer);
    this.#set("changes", {
      type: "FeatureCollection",
      features: boxes.map(([west, south, east, north]) => line([[west, south], [east, south], [east, north], [west, north], [west, south]], {})),
    });
    this.#changeTimer = window.setTimeout(() => this.#set("changes", EMPTY), 6_000);
  }

  setRegions(regions: readonly DrawnRegion[]): void {
    this.#set("regions", {
      type: "FeatureCollection",
      features: regions.flatMap(({ region, colour }) => {
        const rings = outline(region);
        return rings.length ? [polygon(rings, { colour })] : [];
      }),
    });
  }

  /** Shows what is being drawn: an outline, and its corners. */
  setDrawing(region: unknown, corners: readonly Place[]): void {
    const rings = outline(region);
    const open = rings.length ? [] : corners.length > 1 ? [line([...corners], {})] : [];
    this.#set("drawing", { type: "FeatureCollection", features: rings.length ? [polygon(rings, {})] : open });
    this.#set("corners", {
      type: "FeatureCollection",
      features: corners.map((at) => ({ type: "Feature", properties: {}, geometry: { type: "Point", coordinates: at } })),
    });
  }

  /** Returns the number of the box below a point of the screen. */
  cellAt(x: number, y: number): number | null {
    const found = this.map.queryRenderedFeatures([x, y], { layers: ["leaves"] })[0];
    return typeof found?.properties.cell === "number" ? found.properties.cell : null;
  }

  #set(source: string, data: GeoJSON.FeatureCollection): void {
    const found = this.map.getSource(source);
    if (found instanceof GeoJSONSource) void found.setData(data);
  }

  #repaint(): void {
    for (const [layer, paint] of Object.entries(paints())) {
      for (const [name, value] of Object.entries(paint)) {
        this.map.setPaintProperty(layer, name as never, value as never);
      }
    }
  }

  /** Shows land and borders; while the gateway does not answer, it is asked again. */
  async #loadLand(url: string, failures = 0): Promise<void> {
    let world: Topology<{ countries: GeometryCollection; land: GeometryCollection }>;
    try {
      const answer = await fetch(url);
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      world = await answer.json();
    } catch {
      window.setTimeout(() => void this.#loadLand(url, failures + 1), pause_ms(failures, Math.random()));
      return;
    }
    // The finer one was asked for meanwhile.
    if (this.#isFine && url !== fineUrl) return;
    const land = feature(world, world.objects.land) as GeoJSON.FeatureCollection | GeoJSON.Feature;
    const parts = land.type === "Feature" ? [land] : land.features;
    this.#set("land", { type: "FeatureCollection", features: parts.map((part) => ({ ...part, geometry: flat(part.geometry) })) });
    // Only borders between two countries: coasts are where the colours meet.
    const between = mesh(world, world.objects.countries, (a, b) => a !== b);
    this.#set("borders", { type: "FeatureCollection", features: [{ type: "Feature", properties: {}, geometry: flat(between) }] });
  }
}

const polygon = (coordinates: Place[][], properties: Record<string, string>): GeoJSON.Feature => ({
  type: "Feature",
  properties,
  geometry: { type: "Polygon", coordinates },
});

const line = (coordinates: Place[], properties: Record<string, string>): GeoJSON.Feature => ({
  type: "Feature",
  properties,
  geometry: { type: "LineString", coordinates },
});
