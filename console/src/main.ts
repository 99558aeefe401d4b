/** The console: joins the streams of the gateway, the map and the panel. */

import { Api, Problem, type Found, type Query, type Registered } from "./api";
import { hint, next, NOTHING, preview, type Drawing, type Input, type Tool } from "./drawing";
import { LiveStream, Notifications, SleepWatch, type Health } from "./events";
import { explanation } from "./explaining";
import { Feed, type Line } from "./feed";
import { bounds, described, lengthText, outline, regionOf, type Place } from "./geometry";
import { cells, leafFeatures, mapChange, newBoxes, readMap, shortName, type Balance, type PartitionMap, type Sample, type State } from "./live";
import { WorldMap } from "./map";
import { Overlay } from "./overlay";
import { Panel } from "./panel";
import { Points } from "./points";
import "./style.css";
import { byId, el, fill } from "./view";

/** Seen on light and on dark land, and apart from the owners' colours. */
const QUERY_COLOURS = ["#e0218a", "#e53935", "#8e5bf0", "#12908e", "#a8642a", "#4363d8", "#7a8b00"];
const QUERIES_SHOWN_MAX = 200;
const SEARCH_SHOWN_MAX = 300;
const COLOURED_MAX = 2_000;
const NAME = "sirocco-console";

/** A name of its own for each browser, so that two people do not read each other's feed. */
function ownName(): string {
  let name = "";
  try {
    name = localStorage.getItem(NAME) ?? "";
    if (!name) {
      name = `console-${Math.random().toString(36).slice(2, 8)}`;
      localStorage.setItem(NAME, name);
    }
  } catch {
    // Without storage: a name for this page.
    name ||= `console-${Math.random().toString(36).slice(2, 8)}`;
  }
  return name;
}

class Console {
  readonly #api = new Api();
  readonly #own = ownName();
  readonly #points = new Points();
  readonly #feed = new Feed();
  readonly #queries = new Map<string, Registered>();
  readonly #hidden = new Set<string>();
  readonly #streams: Notifications[] = [];
  readonly #health = new Map<string, [Health, string]>();
  readonly #world: WorldMap;
  readonly #live: LiveStream;
  readonly #panel: Panel;
  #drawing: Drawing = NOTHING;
  #region: unknown = null;
  #map: PartitionMap | null = null;
  #state: State = { problems: {} };
  #also: string;

  constructor() {
    this.#also = new URLSearchParams(location.search).get("subscriber") ?? "";
    this.#panel = new Panel(byId("panel"), byId("figures"), {
      watch: (words, name) => void this.#watch(words, name),
      search: (words) => void this.#search(words),
      clear: () => this.#input({ type: "clear" }),
      remove: (id) => void this.#remove(id),
      toggle: (id) => this.#toggle(id),
      zoom: (id) => this.#zoom(id),
      explain: (line) => void this.#explainLine(line),
      connect: (token, also) => this.#connect(token, also),
    }, this.#own, this.#also);
    this.#world = new WorldMap(byId("map"), () => this.#showMap());
    const overlay = new Overlay(byId<HTMLCanvasElement>("points"), this.#world, this.#points);
    this.#live = new LiveStream(this.#api, (name, data) => this.#onLive(name, data), (health, why) => this.#onHealth("the gateway", health, why));
    this.#addTools();
    this.#addPointer();
    this.#live.start();
    this.#listen();
    // A page that nobody sees needs no picture of the cluster; its notifications go on.
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) return this.#live.stop();
      this.#live.start();
      for (const stream of this.#streams) stream.wake();
    });
    window.addEventListener("online", () => this.#streams.forEach((stream) => stream.wake()));
    const sleep = new SleepWatch(() => this.#wakeUp(), Date.now());
    window.setInterval(() => sleep.look(Date.now()), 5_000);
    window.setInterval(() => this.#panel.showFeed(this.#feed, (query) => this.#colour(query)), 400);
    // For tests and for curious people.
    Object.assign(window, { sirocco: { world: this.#world, overlay, points: this.#points, feed: this.#feed } });
  }

  // --- streams

  #listen(): void {
    for (const stream of this.#streams.splice(0)) stream.stop();
    for (const name of new Set([this.#own, this.#also])) {
      if (!name) continue;
      this.#streams.push(
        new Notifications(
          this.#api,
          name,
          (data) => this.#onNotification(name, data),
          (health, why) => this.#onHealth(`notifications of ${name}`, health, why),
        ),
      );
    }
    void this.#readQueries();
  }

  #wakeUp(): void {
    for (const stream of this.#streams) stream.restart();
    this.#live.stop();
    if (!document.hidden) this.#live.start();
  }

  #connect(token: string, also: string): void {
    this.#api.token = token;
    this.#also = also;
    this.#health.clear();
    this.#live.stop();
    this.#live.start();
    this.#listen();
  }

  #onHealth(what: string, health: Health, why: string): void {
    const before = this.#health.get(what)?.[0];
    this.#health.set(what, [health, why]);
    if (health === "open" && before === "lost") {
      this.#toast(`${capital(what)}: connected again`);
      if (what === "the gateway") void this.#readQueries();
    }
    this.#showHealth();
  }

  #showHealth(): void {
    const bad = [...this.#health].filter(([, [health]]) => health === "lost" || health === "refused");
    const parts = bad.map(([what, [health, why]]) => `${what}: ${health === "refused" ? why : `${why}, trying again`}`);
    for (const [what, why] of Object.entries(this.#state.problems)) parts.push(`${what}: ${why}`);
    this.#panel.showHealth(bad.length ? "lost" : this.#health.get("the gateway")?.[0] === "open" ? "open" : "connecting", parts);
  }

  #onLive(name: string, data: unknown): void {
    if (name === "map") {
      const map = readMap(data);
      const change = mapChange(this.#map, map);
      if (change) {
        this.#toast(change);
        this.#world.flash(newBoxes(this.#map, map));
      }
      this.#map = map;
      this.#showMap();
    } else if (name === "state") {
      this.#state = data as State;
      this.#panel.showState(this.#state, this.#map);
      this.#showHealth();
      this.#showMap();
    } else if (name === "balance") {
      this.#panel.showBalance(data as Balance);
    } else if (name === "objects") {
      const sample = data as Sample;
      this.#points.addSample(sample.objects, performance.now());
      this.#panel.showSample(sample);
    }
  }

  #showMap(): void {
    if (this.#map) this.#world.setLeaves(leafFeatures(this.#map, this.#state.loads ?? []));
  }

  #onNotification(subscriber: string, data: unknown): void {
    const line = this.#feed.add(subscriber, data, Date.now());
    if (!line) return;
    if (line.object && !this.#hidden.has(line.query)) this.#addMatch(line.query, line.object);
    if (!this.#queries.has(line.query)) this.#scheduleQueries();
    if (this.#feed.counts.get(line.query) === 1 && this.#isOwn(line.query)) this.#toast(`First match of “${line.query}”`);
  }

  #addMatch(query: string, object: Found): void {
    const match = { query, object: object as Record<string, unknown>, colour: this.#colour(query) };
    this.#points.addMatch({ id: object.id, at: [object.lon, object.lat], text: object.text ?? "", from_ms: performance.now(), match });
  }

  // --- queries

  #queriesTimer = 0;

  #scheduleQueries(): void {
    this.#queriesTimer ||= window.setTimeout(() => {
      this.#queriesTimer = 0;
      void this.#readQueries();
    }, 1_000);
  }

  async #readQueries(): Promise<void> {
    const found: Registered[] = [];
    for (const name of new Set([this.#own, this.#also])) {
      if (!name) continue;
      try {
        found.push(...(await this.#api.queries(name)));
      } catch {
        // The streams say what is wrong; what was known stays.
        return;
      }
    }
    this.#queries.clear();
    for (const one of found.slice(0, QUERIES_SHOWN_MAX)) this.#queries.set(one.id, one);
    this.#showQueries();
  }

  #isOwn(id: string): boolean {
    return this.#queries.get(id)?.subscriber === this.#own;
  }

  readonly #colours = new Map<string, string>();

  /** The same for a query as long as the page lives; one after another, so that neighbours differ. */
  #colour(query: string): string {
    let colour = this.#colours.get(query);
    if (!colour) {
      if (this.#colours.size > COLOURED_MAX) this.#colours.clear();
      colour = QUERY_COLOURS[this.#colours.size % QUERY_COLOURS.length]!;
      this.#colours.set(query, colour);
    }
    return colour;
  }

  #showQueries(): void {
    const shown = [...this.#queries.values()].map((one) => ({
      id: one.id,
      isOwn: one.subscriber === this.#own,
      isShown: !this.#hidden.has(one.id),
      colour: this.#colour(one.id),
      text: said(one.query),
      where: described(regionOfQuery(one.query)),
    }));
    this.#panel.showQueries(shown);
    this.#world.setRegions(shown.filter((one) => one.isShown).map((one) => ({ region: regionOfQuery(this.#queries.get(one.id)!.query), colour: one.colour })));
  }

  #toggle(id: string): void {
    if (!this.#hidden.delete(id)) {
      this.#hidden.add(id);
      this.#points.forget(id);
    }
    this.#showQueries();
  }

  #zoom(id: string): void {
    const found = this.#queries.get(id);
    const box = found && bounds(outline(regionOfQuery(found.query)));
    if (box) this.#world.map.fitBounds(box, { padding: 80, maxZoom: 11 });
    else this.#world.map.easeTo({ center: [10, 25], zoom: 1.2 });
  }

  async #watch(words: string, name: string): Promise<void> {
    const id = name || this.#freeName(words);
    await this.#doing(async () => {
      const warnings = await this.#api.register(id, this.#own, this.#asked(words));
      this.#hidden.delete(id);
      this.#input({ type: "clear" });
      this.#panel.clearForm();
      await this.#readQueries();
      this.#toast(`Watching “${id}”. Matches appear here as they arrive.`);
      warnings.forEach((warning) => this.#toast(warning));
    });
  }

  async #search(words: string): Promise<void> {
    await this.#doing(async () => {
      const { objects, warnings } = await this.#api.found({ ...this.#asked(words), window: "1h" });
      const shown = objects.slice(-SEARCH_SHOWN_MAX);
      shown.forEach((object) => this.#addMatch("search", object));
      const more = objects.length > shown.length ? `, the last ${shown.length} are shown` : "";
      this.#toast(`${objects.length.toLocaleString("en")} found in the last hour${more}`);
      warnings.forEach((warning) => this.#toast(warning));
    });
  }

  #asked(words: string): Query {
    return { kind: "range", ...(words.trim() ? { text: words.trim() } : {}), ...(this.#region ? { region: this.#region as Record<string, unknown> } : {}) };
  }

  #freeName(words: string): string {
    const stem = words.trim().slice(0, 40) || (this.#region ? described(this.#region) : "everything");
    for (let number = 1; ; number++) {
      const name = number === 1 ? stem : `${stem} ${number}`;
      if (!this.#queries.has(name)) return name;
    }
  }

  async #remove(id: string): Promise<void> {
    await this.#doing(async () => {
      await this.#api.deleteQuery(id);
      this.#points.forget(id);
      await this.#readQueries();
    });
  }

  /** Does what an error message belongs to. */
  async #doing(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.#toast(error instanceof Problem ? error.message : "the gateway does not answer", true);
    }
  }

  // --- explaining

  async #explainLine(line: Line): Promise<void> {
    if (line.object) await this.#explain(line.query, line.object);
  }

  async #explain(query: string, object: Record<string, unknown>): Promise<void> {
    const dialog = byId<HTMLDialogElement>("explain");
    const close = el("button", { type: "button", onclick: () => dialog.close() }, "Close");
    fill(dialog, el("h2", { id: "explain-title" }, "Why?"), el("p", {}, "Asking the cluster …"), close);
    dialog.showModal();
    try {
      fill(dialog, ...explanation(await this.#api.why(query, object), object), close);
    } catch (error) {
      fill(dialog, el("h2", { id: "explain-title" }, "Why?"), el("p", { class: "bad" }, error instanceof Problem ? error.message : "the gateway does not answer"), close);
    }
    close.focus();
  }

  #showObject(id: string, text: string, at: Place): void {
    const dialog = byId<HTMLDialogElement>("explain");
    const close = el("button", { type: "button", onclick: () => dialog.close() }, "Close");
    fill(dialog, el("h2", { id: "explain-title" }, `Object ${id}`), el("p", { class: "text" }, text || "no text"), el("p", { class: "quiet" }, `at ${at[1].toFixed(4)}, ${at[0].toFixed(4)}`), close);
    dialog.showModal();
  }

  // --- drawing

  #addTools(): void {
    const tools: [Tool, string, string, string][] = [
      ["rect", "▭", "Rectangle", "r"],
      ["circle", "◯", "Circle", "c"],
      ["polygon", "⬠", "Polygon", "p"],
      ["object", "●", "Object", "o"],
    ];
    const bar = byId("tools");
    for (const [tool, sign, name, key] of tools) {
      bar.append(
        el("button", { type: "button", "data-tool": tool, "aria-pressed": "false", title: `${name} (${key.toUpperCase()})`, onclick: () => this.#pick(tool) }, el("span", { "aria-hidden": "true" }, sign), el("span", { class: "name" }, name)),
      );
    }
    const zoom = (by: number) => () => this.#world.map.easeTo({ zoom: this.#world.map.getZoom() + by });
    bar.append(
      el("button", { type: "button", title: "Zoom in", "aria-label": "Zoom in", class: "zoom", onclick: zoom(1) }, "+"),
      el("button", { type: "button", title: "Zoom out", "aria-label": "Zoom out", class: "zoom", onclick: zoom(-1) }, "−"),
    );
    document.addEventListener("keydown", (event) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, textarea, select, dialog")) return;
      const tool = tools.find(([, , , key]) => key === event.key.toLowerCase())?.[0];
      if (tool) this.#pick(tool);
      else if (event.key === "Escape") this.#input({ type: "clear" });
      else if (event.key.toLowerCase() === "f") this.#input({ type: "finish" });
      else if (event.key === "Backspace" && this.#drawing.tool) this.#input({ type: "back" });
      else if (event.key === "Enter" && this.#drawing.tool && !target.closest("button")) this.#point(this.#centre());
      else return;
      event.preventDefault();
    });
  }

  #pick(tool: Tool): void {
    this.#input({ type: "tool", tool });
    if (this.#drawing.tool) this.#world.map.getCanvas().focus();
  }

  #addPointer(): void {
    const map = this.#world.map;
    map.on("click", (event) => {
      if (this.#drawing.tool) return this.#point([event.lngLat.lng, event.lngLat.lat]);
      const { x, y } = event.point;
      const near = this.#points.nearest(x, y, 14, performance.now(), (at) => map.project(at));
      if (near?.match && near.match.query !== "search") return void this.#explain(near.match.query, near.match.object);
      if (near) return this.#showObject(near.id, near.text, near.at);
      const cell = this.#world.cellAt(x, y);
      const found = cell !== null && this.#map ? cells(this.#map, this.#state.loads ?? [])[cell] : undefined;
      if (found) {
        const share = `${(found.load * 100).toLocaleString("en", { maximumFractionDigits: 1 })} %`;
        const owners = found.owners.map(shortName).filter(Boolean).join(", ") || "nobody";
        this.#toast(`Leaf ${found.leaves.slice(0, 6).join(", ")} in slot ${found.slots.slice(0, 6).join(", ")}: ${share} of all objects, owned by ${owners}`);
      }
    });
    map.on("dblclick", (event) => {
      if (this.#drawing.tool !== "polygon") return;
      event.preventDefault();
      this.#input({ type: "finish" });
    });
    map.on("mousemove", (event) => {
      if (this.#drawing.tool) this.#input({ type: "move", at: [event.lngLat.lng, event.lngLat.lat] });
    });
    // With the keyboard the map moves below its centre.
    map.on("move", (event) => {
      if (this.#drawing.tool && event.originalEvent instanceof KeyboardEvent) this.#input({ type: "move", at: this.#centre() });
    });
  }

  #centre(): Place {
    const { lng, lat } = this.#world.map.getCenter();
    return [lng, lat];
  }

  #point(at: Place): void {
    if (this.#drawing.tool === "object") {
      this.#input({ type: "clear" });
      return this.#askForObject(at);
    }
    this.#input({ type: "point", at });
  }

  #input(input: Input): void {
    const before = this.#drawing;
    this.#drawing = next(before, input);
    if (this.#drawing === before) return;
    const shape = preview(this.#drawing);
    const region = shape && regionOf(shape);
    this.#world.setDrawing(region, this.#drawing.fixed);
    this.#world.map.getCanvas().classList.toggle("draws", this.#drawing.tool !== null);
    byId("map").classList.toggle("draws", this.#drawing.tool !== null);
    const more = shape?.kind === "circle" && !this.#drawing.shape ? ` ${lengthText(shape.radius_m)}` : "";
    byId("hint").textContent = hint(this.#drawing) + more;
    for (const button of byId("tools").querySelectorAll("[data-tool]")) {
      button.setAttribute("aria-pressed", String(button.getAttribute("data-tool") === this.#drawing.tool));
    }
    this.#region = this.#drawing.shape && region;
    this.#panel.showRegion(this.#region ? described(this.#region) : "the whole world", this.#region !== null);
    if (this.#region && before.shape !== this.#drawing.shape) this.#panel.focusForm();
  }

  #askForObject(at: Place): void {
    const dialog = byId<HTMLDialogElement>("explain");
    const text = el("input", { id: "object-text", required: true, maxlength: 500, placeholder: "free coffee", autocomplete: "off" });
    const form = el(
      "form",
      {
        onsubmit: (event) => {
          event.preventDefault();
          dialog.close();
          const object = { id: `console-${Date.now().toString(36)}`, lon: at[0], lat: at[1], text: text.value };
          void this.#doing(async () => {
            await this.#api.publish([object]);
            this.#toast("Published");
          });
        },
      },
      el("label", { for: "object-text" }, "Its text"),
      text,
      el("div", { class: "buttons" }, el("button", { class: "main" }, "Publish"), el("button", { type: "button", onclick: () => dialog.close() }, "Cancel")),
    );
    fill(dialog, el("h2", { id: "explain-title" }, "Publish an object here"), form);
    dialog.showModal();
    text.focus();
  }

  #toast(text: string, isBad = false): void {
    const toasts = byId("toasts");
    const toast = el("div", { class: isBad ? "toast bad" : "toast" }, text);
    toasts.append(toast);
    while (toasts.children.length > 4) toasts.firstElementChild!.remove();
    window.setTimeout(() => toast.remove(), isBad ? 10_000 : 6_000);
  }
}

const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

/** The region of a query of any kind, as far as it can be drawn. */
function regionOfQuery(query: Query): unknown {
  if (query.region) return query.region;
  const point = query.point as { lon: number; lat: number } | undefined;
  if (point && typeof query.radius_m === "number") return { circle: { ...point, radius_m: query.radius_m } };
  return null;
}

/** Says what a query asks for. */
function said(query: Query): string {
  const parts = [query.kind === "range" ? "" : query.kind];
  if (query.text) parts.push(query.text);
  if (Array.isArray(query.keywords)) parts.push(query.keywords.join(" "));
  if (query.where) parts.push(JSON.stringify(query.where));
  return parts.filter(Boolean).join(" · ") || "everything";
}

new Console();
