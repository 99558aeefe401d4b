/** The report of `explain` about one object, as elements. */

import { el } from "./view";

interface Span {
  start: number;
  end: number;
}

interface Condition {
  name: string;
  holds: boolean;
  why?: string;
  places?: Span[];
}

interface Report {
  query?: { id?: string };
  object?: {
    id?: string | number;
    outcome?: string;
    depends_on?: string | null;
    conditions?: Condition[];
    goes_to?: { leaves: number[]; slots: number[]; query_is_there?: boolean };
  };
}

/**
 * Cuts a text at the places of the words that matched.
 *
 * Places count characters; JavaScript counts halves of them.
 */
export function marked(text: string, spans: readonly Span[]): { text: string; isMarked: boolean }[] {
  const chars = Array.from(text);
  const found: { text: string; isMarked: boolean }[] = [];
  let at = 0;
  const add = (end: number, isMarked: boolean) => {
    if (end > at) found.push({ text: chars.slice(at, end).join(""), isMarked });
    at = Math.max(at, end);
  };
  for (const { start, end } of [...spans].sort((a, b) => a.start - b.start)) {
    add(Math.min(start, chars.length), false);
    add(Math.min(end, chars.length), true);
  }
  add(chars.length, false);
  return found;
}

/** Returns the elements of a report. */
export function explanation(report: unknown, object: Record<string, unknown>): HTMLElement[] {
  const { query, object: found } = report as Report;
  const conditions = found?.conditions ?? [];
  const spans = conditions.flatMap((one) => one.places ?? []);
  const text = typeof object.text === "string" ? object.text : "";
  const made: HTMLElement[] = [
    el("h2", { id: "explain-title" }, `${query?.id ?? "query"}: ${found?.outcome ?? "unknown"}`),
    el("p", { class: "text" }, ...marked(text, spans).map((part) => (part.isMarked ? el("mark", {}, part.text) : part.text))),
    el("p", { class: "quiet" }, `object ${String(object.id)} at ${coordinate(object.lat)}, ${coordinate(object.lon)}`),
    el(
      "table",
      {},
      ...conditions.map((one) =>
        el("tr", {}, el("th", { scope: "row" }, one.name), el("td", { class: one.holds ? "good" : "bad" }, one.holds ? "yes" : "no"), el("td", {}, one.why ?? "")),
      ),
    ),
  ];
  if (found?.depends_on) made.push(el("p", {}, `Depends on ${found.depends_on}.`));
  if (found?.goes_to) {
    made.push(el("p", { class: "quiet" }, `It goes to leaf ${found.goes_to.leaves.join(", ")} in slot ${found.goes_to.slots.join(", ")}.`));
  }
  return made;
}

const coordinate = (value: unknown): string => (typeof value === "number" ? value.toFixed(4) : "?");
