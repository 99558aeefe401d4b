/** The panel beside the map, and the figures above it. */

import type { Feed, Line } from "./feed";
import { ownerColours, shortName, type Balance, type PartitionMap, type Sample, type State } from "./live";
import { ago, byId, el, figure, fill, UNKNOWN } from "./view";

export interface Actions {
  watch(words: string, name: string): void;
  search(words: string): void;
  clear(): void;
  remove(id: string): void;
  toggle(id: string): void;
  zoom(id: string): void;
  explain(line: Line): void;
  connect(token: string, also: string): void;
}

export interface ShownQuery {
  id: string;
  isOwn: boolean;
  isShown: boolean;
  colour: string;
  text: string;
  where: string;
}

const FIGURES: [key: string, name: string, unit: string, title: string][] = [
  ["objects", "objects", "/s", "Objects that arrive, all over the cluster"],
  ["matches", "matches", "/s", "Matches of all standing queries"],
  ["lag", "behind", " ms", "Age of the newest object that can be found"],
  ["search", "search", " ms", "Time of the last search of this console's gateway"],
  ["members", "processes", "", "Processes of the cluster"],
  ["map", "map", "", "Version of the partition map"],
];

export class Panel {
  readonly #words = el("input", { id: "words", placeholder: "coffee AND free", autocomplete: "off", spellcheck: "false", maxlength: 16_000 });
  readonly #name = el("input", { id: "name", placeholder: "chosen for you", autocomplete: "off", maxlength: 200 });
  readonly #where = el("strong", {}, "the whole world");
  readonly #clear: HTMLButtonElement;
  readonly #queries = el("ul", { id: "queries" });
  readonly #counts = new Map<string, HTMLElement>();
  readonly #feed = el("ol", { id: "feed", "aria-label": "Notifications, the newest first" });
  readonly #noFeed = el("p", { class: "quiet" }, "Nothing yet. Draw a place on the map, say what you look for, and press Watch.");
  readonly #members = el("tbody");
  readonly #legend = el("ul", { class: "legend", "aria-label": "Owners of the leaves" });
  readonly #balance = el("div", { id: "balance" });
  readonly #sample = el("p", { class: "quiet", id: "sample" });
  readonly #status = byId("status");
  readonly #problems = el("ul", { id: "problems", class: "bad" });
  readonly #values = new Map<string, HTMLElement>();
  #shown = 0;

  constructor(panel: HTMLElement, figures: HTMLElement, private readonly actions: Actions, own: string, also: string) {
    this.#clear = el("button", { type: "button", class: "plain", hidden: true, onclick: () => actions.clear() }, "clear");
    const list = el("dl");
    for (const [key, name, unit, title] of FIGURES) {
      const value = el("span", {}, UNKNOWN);
      this.#values.set(key, value);
      list.append(el("div", { title, class: `figure-${key}` }, el("dt", {}, name), el("dd", {}, value, el("span", { hidden: true }, unit))));
    }
    figures.append(list);
    panel.append(
      this.#problems,
      this.#ask(),
      el("section", {}, el("h2", {}, "Watched"), this.#queries),
      el("section", {}, el("h2", {}, "Notifications"), this.#noFeed, this.#feed),
      el(
        "section",
        {},
        el("h2", {}, "Cluster"),
        this.#legend,
        el("table", { id: "members" }, el("thead", {}, el("tr", {}, ...["process", "slots", "objects/s", "matches/s"].map((name) => el("th", { scope: "col" }, name)))), this.#members),
        this.#sample,
        el("h3", {}, "Balancer"),
        this.#balance,
      ),
      this.#connection(own, also),
    );
  }

  #ask(): HTMLElement {
    const form = el(
      "form",
      {
        id: "ask",
        onsubmit: (event) => {
          event.preventDefault();
          this.actions.watch(this.#words.value, this.#name.value.trim());
        },
      },
      el("p", {}, "In ", this.#where, " ", this.#clear),
      el("label", { for: "words" }, "Words"),
      this.#words,
      el("details", {}, el("summary", {}, "Name"), el("label", { for: "name" }, "Name of the query"), this.#name),
      el("div", { class: "buttons" }, el("button", { class: "main" }, "Watch"), el("button", { type: "button", onclick: () => this.actions.search(this.#words.value) }, "Search the last hour")),
    );
    return el("section", {}, el("h2", {}, "Ask"), form);
  }

  #connection(own: string, also: string): HTMLElement {
    const token = el("input", { id: "token", type: "password", autocomplete: "off", maxlength: 4_096 });
    const other = el("input", { id: "also", value: also, placeholder: "a subscriber", autocomplete: "off", maxlength: 256 });
    return el(
      "section",
      {},
      el(
        "details",
        {},
        el("summary", {}, "Connection"),
        el(
          "form",
          {
            onsubmit: (event) => {
              event.preventDefault();
              this.actions.connect(token.value.trim(), other.value.trim());
            },
          },
          el("p", {}, "Your queries belong to the subscriber ", el("code", {}, own), "."),
          el("label", { for: "also" }, "Also listen to"),
          other,
          el("label", { for: "token" }, "Token, if the cluster needs one (kept in this page alone)"),
          token,
          el("div", { class: "buttons" }, el("button", {}, "Connect")),
        ),
        el("p", { class: "quiet" }, "Land and borders: Natural Earth. ", el("a", { href: "/docs" }, "The HTTP API")),
      ),
    );
  }

  // --- what changes

  showRegion(where: string, hasRegion: boolean): void {
    this.#where.textContent = where;
    this.#clear.hidden = !hasRegion;
  }

  focusForm(): void {
    this.#words.focus();
  }

  clearForm(): void {
    this.#words.value = "";
    this.#name.value = "";
  }

  showHealth(health: string, problems: string[]): void {
    const texts: Record<string, string> = { open: "live", lost: "connection lost, trying again", connecting: "connecting …" };
    this.#status.textContent = texts[health] ?? health;
    this.#status.className = health;
    fill(this.#problems, ...problems.slice(0, 6).map((one) => el("li", {}, one)));
  }

  showState(state: State, map: PartitionMap | null): void {
    const members = state.members ?? [];
    this.#value("objects", figure(state.objects_per_s));
    this.#value("matches", figure(state.matches_per_s));
    this.#value("lag", figure(state.lag_ms));
    this.#value("search", figure(state.search_ms));
    this.#value("members", figure(members.length));
    this.#value("map", figure(state.map_version));
    fill(
      this.#members,
      ...members.map((one) =>
        el(
          "tr",
          {},
          el("th", { scope: "row", title: one.id }, shortName(one.id), one.id === state.leader ? " ★" : ""),
          el("td", {}, one.slots ? String(one.slots) : ""),
          el("td", {}, one.objects_per_s === undefined ? "" : figure(one.objects_per_s)),
          el("td", {}, one.matches_per_s === undefined ? "" : figure(one.matches_per_s)),
        ),
      ),
    );
    if (!map) return;
    fill(this.#legend, ...[...ownerColours(map)].map(([owner, colour]) => el("li", {}, swatch(colour), shortName(owner))));
  }

  showSample(sample: Sample): void {
    const share = sample.found > sample.objects.length ? `a sample: ${sample.objects.length} of those of ${sample.window_ms} ms` : "all of them";
    this.#sample.textContent = sample.found ? `Points on the map: ${share}, each second.` : "No objects arrive now.";
  }

  showBalance(balance: Balance): void {
    const now = Date.now();
    fill(
      this.#balance,
      el("p", {}, balance.on ? `${balance.balancer || "The map never changes"}. ` : "Off. ", balance.state ? `Now: ${balance.state}.` : "", balance.imbalance ? ` Imbalance ${balance.imbalance.toFixed(2)}.` : ""),
      balance.decisions.length > 0 &&
        el("ol", {}, ...balance.decisions.map((one) => el("li", {}, el("b", {}, one.reason), ` ${ago(now - one.at)}: ${one.moves ? `${one.moves} slots move` : ""}${one.map_version ? ` map ${one.map_version}` : ""} (${one.outcome})`))),
    );
  }

  showQueries(queries: readonly ShownQuery[]): void {
    this.#counts.clear();
    const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset.key : undefined;
    fill(
      this.#queries,
      ...queries.map((one) => {
        const count = el("span", { class: "count" }, "0");
        this.#counts.set(one.id, count);
        const box = el("input", { type: "checkbox", "data-key": `show ${one.id}`, "aria-label": `Show ${one.id}`, onchange: () => this.actions.toggle(one.id) });
        box.checked = one.isShown;
        return el(
          "li",
          {},
          box,
          swatch(one.colour),
          el("button", { type: "button", class: "plain name", "data-key": `zoom ${one.id}`, title: `${one.text}, in ${one.where}`, onclick: () => this.actions.zoom(one.id) }, one.id),
          count,
          one.isOwn && el("button", { type: "button", class: "plain", "data-key": `remove ${one.id}`, "aria-label": `Remove ${one.id}`, onclick: () => this.actions.remove(one.id) }, "×"),
        );
      }),
      !queries.length && el("li", { class: "quiet" }, "No queries yet."),
    );
    if (focused) this.#queries.querySelector<HTMLElement>(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  showFeed(feed: Feed, colour: (query: string) => string): void {
    for (const [query, count] of this.#counts) {
      const text = (feed.counts.get(query) ?? 0).toLocaleString("en");
      if (count.textContent !== text) count.textContent = text;
    }
    if (feed.total === this.#shown) return;
    this.#noFeed.hidden = true;
    const fresh = feed.lines.filter((line) => line.number > this.#shown);
    this.#shown = feed.total;
    this.#feed.prepend(
      ...fresh.map((line) =>
        el(
          "li",
          {},
          el("button", { type: "button", class: "plain", title: "Why?", disabled: !line.object, onclick: () => this.actions.explain(line) }, swatch(colour(line.query)), el("b", {}, line.query), " ", line.what.slice(0, 200)),
        ),
      ),
    );
    while (this.#feed.children.length > feed.lines.length) this.#feed.lastElementChild!.remove();
  }

  #value(key: string, text: string): void {
    const value = this.#values.get(key)!;
    if (value.textContent === text) return;
    value.textContent = text;
    // Nothing has no unit.
    value.nextElementSibling!.toggleAttribute("hidden", text === UNKNOWN);
  }
}

function swatch(colour: string): HTMLElement {
  const made = el("span", { class: "swatch", "aria-hidden": "true" });
  // Through the object model: the page's policy allows no style in markup.
  made.style.backgroundColor = colour;
  return made;
}
