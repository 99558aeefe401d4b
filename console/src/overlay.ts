/** Draws the points on a canvas above the map: the map itself is painted anew only when it moves. */

import type { WorldMap } from "./map";
import { MATCH_MS, OBJECT_MS, strength, type Points } from "./points";

/** Thirty pictures a second are enough for points that fade. */
const FRAME_MS = 1_000 / 31;

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const still = window.matchMedia("(prefers-reduced-motion: reduce)");

export class Overlay {
  readonly #context: CanvasRenderingContext2D;
  #last_ms = 0;
  #isEmpty = false;
  /** Pictures drawn so far; a test reads it. */
  frames = 0;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly world: WorldMap,
    private readonly points: Points,
  ) {
    this.#context = canvas.getContext("2d")!;
    new ResizeObserver(() => this.#resize()).observe(canvas);
    this.#resize();
    // With the map as it moves, and else with time.
    world.map.on("render", () => this.#draw(performance.now(), true));
    const step = (now_ms: number) => {
      this.#draw(now_ms, false);
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  #resize(): void {
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.canvas.clientWidth * scale);
    this.canvas.height = Math.round(this.canvas.clientHeight * scale);
  }

  #draw(now_ms: number, isForced: boolean): void {
    if (!isForced && now_ms - this.#last_ms < FRAME_MS - 2) return;
    this.#last_ms = now_ms;
    const { objects, matches } = this.points.at(now_ms);
    if (!objects.length && !matches.length && this.#isEmpty) return;
    this.#isEmpty = !objects.length && !matches.length;
    this.frames += 1;
    const scale = window.devicePixelRatio || 1;
    const [width, height] = [this.canvas.width / scale, this.canvas.height / scale];
    const context = this.#context;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    context.fillStyle = dark.matches ? "#ffe8a3" : "#1d3557";
    for (const point of objects) {
      const left = strength(point, now_ms, OBJECT_MS);
      if (left <= 0) continue;
      const { x, y } = this.world.map.project(point.at);
      if (x < -4 || y < -4 || x > width + 4 || y > height + 4) continue;
      // New ones are a little greater.
      const radius = left > 0.94 && !still.matches ? 1.6 + (left - 0.94) * 30 : 1.6;
      context.globalAlpha = 0.15 + 0.6 * left;
      context.beginPath();
      context.arc(x, y, radius, 0, 2 * Math.PI);
      context.fill();
    }
    for (const point of matches) {
      const left = strength(point, now_ms, MATCH_MS);
      if (left <= 0) continue;
      const { x, y } = this.world.map.project(point.at);
      if (x < -40 || y < -40 || x > width + 40 || y > height + 40) continue;
      this.#match(x, y, left, point.match!.colour);
    }
    context.globalAlpha = 1;
  }

  #match(x: number, y: number, left: number, colour: string): void {
    const context = this.#context;
    context.globalAlpha = 0.25 + 0.75 * left;
    context.fillStyle = colour;
    context.strokeStyle = dark.matches ? "#0d1720" : "#ffffff";
    context.lineWidth = 1.4;
    context.beginPath();
    context.arc(x, y, 4.6, 0, 2 * Math.PI);
    context.fill();
    context.stroke();
    // A ring that goes out, in the first second and a half.
    const begun = (1 - left) * (MATCH_MS / 1_500);
    if (begun >= 1 || still.matches) return;
    context.globalAlpha = 1 - begun;
    context.strokeStyle = colour;
    context.lineWidth = 2;
    context.beginPath();
    context.arc(x, y, 5 + begun * 26, 0, 2 * Math.PI);
    context.stroke();
  }
}
